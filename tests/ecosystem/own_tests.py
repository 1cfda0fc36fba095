"""Libraries' own tests on Lucerne, beside the same tests on a real torch.

A library's sources stand in a folder, as its sdist or a checkout unpacks (`gpytorch-1.15.2`). Its
test files run under either Python, some at a time in a process; outcomes are compared by test.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RECORD = HERE / "own_tests.json"
ENOUGH = 0.99
"""The share of what passes on torch that has to pass here."""
AT_ONCE = 8
"""Files of a process, small ones first."""
PAGE = HERE.parents[1] / "docs" / "results" / "own_tests.md"


@dataclass(frozen=True)
class Suite:
    """Which tests of a library run, and how."""

    files: tuple[str, ...]
    """Patterns below the folder of its sources."""
    part: str = "all"
    """What the page says they are."""
    without: tuple[str, ...] = ()
    """Patterns of files that are left out."""
    around: Mapping[str, str] = field(default_factory=dict)
    """Environment variables that its tests ask for."""


SUITES: dict[str, Suite] = {
    "einops": Suite(
        ("einops/tests/test_*.py",), around={"EINOPS_TEST_BACKENDS": "numpy,torch"}
    ),
    "linear_operator": Suite(("test/**/test_*.py",)),
    "gpytorch": Suite(
        ("test/**/test_*.py",), "all but `examples` and keops", ("test/examples/*", "*/keops/*")
    ),
    "kornia": Suite(
        ("tests/color/test_*.py", "tests/filters/test_*.py", "tests/geometry/**/test_*.py"),
        "`color`, `filters`, `geometry`",
    ),
    "tensordict": Suite(
        ("test/tensordict/test_*.py", "test/tensorclass/test_*.py", "test/utils/test_*.py",
         "test/nn/test_*.py", "test/memmap/test_memmap.py"),
        "`tensordict`, `tensorclass`, `nn`, `memmap`, `utils`",
        ("*/test_mp.py",),
    ),
    "accelerate": Suite(
        tuple(f"tests/test_{name}.py" for name in
              ("accelerator", "big_modeling", "data_loader", "dataclasses", "hooks", "imports",
               "kwargs_handlers", "memory_utils", "modeling_utils", "offload", "optimizer",
               "scheduler", "utils", "compile", "logging", "state_checkpointing")),
        "16 files that need one process",
    ),
}  # fmt: skip


@dataclass
class Compared:
    """What came out for a library."""

    name: str
    version: str
    torch: str
    part: str
    passes: int
    """Tests that pass on the real torch."""
    ours: int
    """Those of them that pass on Lucerne."""
    seconds: float
    torch_seconds: float
    misses: dict[str, str]
    """By test, the first line of its error."""

    @property
    def share(self) -> float:
        return self.ours / self.passes if self.passes else 0.0


def source_of(name: str, sources: Path) -> Path | None:
    """The library's folder; its name may be followed by a version."""
    found = [at for at in sorted(sources.glob(f"{name}*")) if at.is_dir()]
    return found[-1] if found else None


def files_of(suite: Suite, source: Path) -> list[str]:
    """The test files, the small ones first."""
    found = {at for pattern in suite.files for at in source.glob(pattern)}
    kept = [at for at in found if not any(at.match(pattern) for pattern in suite.without)]
    return [str(at.relative_to(source)) for at in sorted(kept, key=lambda at: at.stat().st_size)]


def outcomes(
    python: str, files: Sequence[str], source: Path, around: Mapping[str, str], seconds: float
) -> dict[str, dict[str, Any]]:
    """What each test of the files gave, by its name; and under a file's name, how it ended.

    `seconds`: for the process. If it dies or takes longer, each file has another of its own.
    """
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder) / "outcomes"
        environment = {
            **os.environ, **around,
            "OWN_OUTCOMES": str(told), "PYTHONPATH": str(HERE / "plugin"),
            "HF_HUB_OFFLINE": "1", "LUCERNE_PROGRESS_SECONDS": "0",
        }  # fmt: skip
        command = [python, "-m", "pytest", "-q", "-p", "own_outcomes", "-p", "no:cacheprovider"]
        try:
            done = subprocess.run(
                [*command, f"--basetemp={folder}/tmp", *files], cwd=source, env=environment,
                capture_output=True, text=True, timeout=seconds, check=False,
            )  # fmt: skip
            ended = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
            finished = done.returncode in (0, 1, 5)  # passed, some failed, none there
        except subprocess.TimeoutExpired:
            ended, finished = [f"the file took longer than {seconds:.0f} s"], False
        lines = told.read_text(encoding="utf-8").splitlines() if told.exists() else []
    if not finished and len(files) > 1:
        alone = [outcomes(python, [file], source, around, seconds) for file in files]
        return {test: row for rows in alone for test, row in rows.items()}
    rows = {row["test"]: row for row in map(json.loads, reversed(lines))}
    for file in files:
        rows.setdefault(file, {"outcome": "ended", "why": "".join(ended)[:200]})
    return rows


def missed(
    theirs: Mapping[str, Mapping[str, Any]], ours: Mapping[str, Mapping[str, Any]]
) -> tuple[int, dict[str, str]]:
    """How many tests pass on torch, and of them those that do not here, with the error."""
    wanted = [test for test, row in theirs.items() if row["outcome"] == "passed"]
    found = {test: ours.get(test) or _absent(test, ours) for test in wanted}
    return len(wanted), {
        test: f"{row['outcome']}: {row['why']}".rstrip(": ")
        for test, row in found.items()
        if row["outcome"] != "passed"
    }


def _absent(test: str, ours: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    file = ours.get(test.partition("::")[0], {})
    return {"outcome": file.get("outcome", "ended"), "why": file.get("why", "")}


def run(
    name: str, sources: Path, torch: str, lucerne: str, only: str, seconds: float
) -> Iterator[tuple[list[str], Compared]]:
    """Some files after some others, what the library's tests gave so far."""
    suite, source = SUITES[name], source_of(name, sources)
    if source is None:
        return
    version, torch_version = _versions(torch, name)
    row = Compared(name, version, torch_version, suite.part, 0, 0, 0.0, 0.0, {})
    files = [file for file in files_of(suite, source) if only in file]
    for first in range(0, len(files), AT_ONCE):
        batch = files[first : first + AT_ONCE]
        start = time.perf_counter()
        theirs = outcomes(torch, batch, source, suite.around, seconds)
        between = time.perf_counter()
        ours = outcomes(lucerne, batch, source, suite.around, seconds)
        row.torch_seconds += between - start
        row.seconds += time.perf_counter() - between
        passes, misses = missed(theirs, ours)
        row.passes += passes
        row.ours += passes - len(misses)
        row.misses |= misses
        yield batch, row


def _versions(python: str, name: str) -> tuple[str, str]:
    program = (
        "import sys; from importlib import metadata\n"
        "print(*[metadata.version(name) for name in sys.argv[1:]])"
    )
    done = subprocess.run(
        [python, "-c", program, name, "torch"], capture_output=True, text=True, check=True
    )
    version, torch = done.stdout.split()
    return version, torch


def recorded() -> dict[str, Compared]:
    """The last run of each library."""
    rows = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    return {name: Compared(**rows[name]) for name in SUITES if name in rows}


def record(row: Compared) -> None:
    """Let this be the library's last run, and the page show it."""
    rows = {**recorded(), row.name: row}
    text = json.dumps({name: asdict(row) for name, row in rows.items()}, indent=1, sort_keys=True)
    RECORD.write_text(text + "\n", encoding="utf-8")
    PAGE.write_text(as_markdown(recorded()), encoding="utf-8")


def as_line(row: Compared) -> str:
    """A row for the terminal."""
    counts = f"{row.ours:>6} of {row.passes:<6} {100 * row.share:6.2f} %"
    return (
        f"{row.name:<16} {row.version:<10} {counts} {row.seconds:7.0f}s ({row.torch_seconds:.0f}s)"
    )


HEAD = """# Libraries' own tests

Written by `python -m tests.ecosystem --own-tests --sources FOLDER --torch PYTHON --lucerne PYTHON`:
the test files that a library's authors wrote, unmodified, once on PyTorch and once in an
environment where `lucerne torch install` answers `import torch`. Tests are from the library's
sdist, those of kornia and tensordict, whose sdists have none, from their repositories. Counted is
what passes on PyTorch; seconds are of all processes of a library, PyTorch's in brackets.
"""


def as_markdown(rows: Mapping[str, Compared]) -> str:
    """The page: a table, and each miss with the first line of its error."""
    lines = [HEAD, "| library | version | tests | PyTorch | it passes | Lucerne of these | share "]
    lines[-1] += "| seconds |"
    lines.append("|---" * 8 + "|")
    for row in rows.values():
        lines.append(
            f"| {row.name} | {row.version} | {row.part} | {row.torch} | {row.passes} | {row.ours} "
            f"| {100 * row.share:.2f} % | {row.seconds:.0f} ({row.torch_seconds:.0f}) |"
        )
    lines += ["", "## What does not pass", ""]
    for row in rows.values():
        for test, why in sorted(row.misses.items()):
            lines.append(f"- `{row.name}: {test}`: {_plain(why)}")
    return "\n".join(lines).rstrip() + "\n"


def _plain(text: str) -> str:
    return "".join(f"\\{c}" if c in "<>*_[]`|" else c for c in text)
