"""Libraries' own tests on Lucerne, beside the same tests on a real torch.

A library's sources stand in a folder, as its sdist or a checkout unpacks (`gpytorch-1.15.2`). Its
test files run under either Python, some at a time in a process; outcomes are compared by test.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
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
class File:
    """What came out for a test file."""

    passes: int
    """Tests that pass on the real torch."""
    misses: dict[str, str]
    """Those of them that do not on Lucerne, each with the first line of its error."""
    seconds: float
    """CPU time of the tests that pass on both, on Lucerne and on torch."""
    torch_seconds: float


@dataclass
class Compared:
    """What came out for a library."""

    name: str
    version: str
    torch: str
    files: dict[str, File] = field(default_factory=dict)

    @property
    def passes(self) -> int:
        return sum(file.passes for file in self.files.values())

    @property
    def misses(self) -> dict[str, str]:
        return {t: why for _, file in sorted(self.files.items()) for t, why in file.misses.items()}

    @property
    def ours(self) -> int:
        return self.passes - len(self.misses)

    @property
    def share(self) -> float:
        return self.ours / self.passes if self.passes else 0.0

    def seconds(self) -> tuple[float, float]:
        found = self.files.values()
        return sum(f.seconds for f in found), sum(f.torch_seconds for f in found)


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


def compared(
    name: str, theirs: Mapping[str, Mapping[str, Any]], ours: Mapping[str, Mapping[str, Any]]
) -> File:
    """A file: how many tests pass on torch, and of them those that do not here, with the error."""
    passed = {t for t, row in theirs.items() if row["outcome"] == "passed" and _file(t) == name}
    found = {test: ours.get(test) or _absent(name, ours) for test in sorted(passed)}
    misses = {
        test: f"{row['outcome']}: {row['why']}".rstrip(": ")
        for test, row in found.items()
        if row["outcome"] != "passed"
    }
    both = passed - set(misses)
    times = [round(sum(rows[t]["seconds"] for t in both), 2) for rows in (ours, theirs)]
    return File(len(passed), misses, *times)


def _file(test: str) -> str:
    return test.partition("::")[0]


def _absent(file: str, ours: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    ended = ours.get(file, {})
    return {"outcome": ended.get("outcome", "ended"), "why": ended.get("why", "")}


def run(
    name: str,
    sources: Path,
    torch: str,
    lucerne: str,
    chosen: Callable[[str], bool],
    seconds: float,
) -> Iterator[Compared]:
    """The library's row, with some of the files more each time; it is written down each time."""
    suite, source = SUITES[name], source_of(name, sources)
    if source is None:
        return
    row = recorded().get(name)
    versions = _versions(torch, name)
    if row is None or (row.version, row.torch) != versions:
        row = Compared(name, *versions)
    files = [file for file in files_of(suite, source) if chosen(file)]
    for first in range(0, len(files), AT_ONCE):
        batch = files[first : first + AT_ONCE]
        theirs = outcomes(torch, batch, source, suite.around, seconds)
        ours = outcomes(lucerne, batch, source, suite.around, seconds)
        row.files |= {file: compared(file, theirs, ours) for file in batch}
        record(row)
        yield row


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
    """What is written down of each library."""
    rows = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    for row in rows.values():
        row["files"] = {name: File(**file) for name, file in row["files"].items()}
    return {name: Compared(**rows[name]) for name in SUITES if name in rows}


def record(row: Compared) -> None:
    """Write a library's row down, and the page."""
    rows = {**recorded(), row.name: row}
    text = json.dumps({name: asdict(row) for name, row in rows.items()}, indent=1, sort_keys=True)
    RECORD.write_text(text + "\n", encoding="utf-8")
    PAGE.write_text(as_markdown(recorded()), encoding="utf-8")


def as_line(row: Compared) -> str:
    """A row for the terminal."""
    counts = f"{row.ours:>6} of {row.passes:<6} {100 * row.share:6.2f} %"
    ours, theirs = row.seconds()
    return (
        f"{row.name:<16} {row.version:<10} {len(row.files):>3} files {counts} {ours:7.0f}s "
        f"({theirs:.0f}s)"
    )


HEAD = """# Libraries' own tests

Written by `python -m tests.ecosystem --own-tests --sources FOLDER --torch PYTHON --lucerne PYTHON`:
the test files that a library's authors wrote, unmodified, once on PyTorch and once in an
environment where `lucerne torch install` answers `import torch`. Tests are from the library's
sdist, those of kornia and tensordict, whose sdists have none, from their repositories. Counted is
what passes on PyTorch; seconds are CPU time of the tests that pass on both, PyTorch's in brackets,
and hold what Lucerne compiles at the first call of a kind.
"""
REASONS = {
    "TestBatchRepeatLinearOperator": "singular values that come out equal in torch's FFT by chance "
    "of its rounding: only then does the test not compare their vectors",
}
"""Why a miss is none of Lucerne's doing, by a part of the test's name."""


def as_markdown(rows: Mapping[str, Compared]) -> str:
    """The page: a table, and each miss with the first line of its error."""
    heads = ("library", "version", "tests", "files", "PyTorch", "it passes", "Lucerne of these")
    lines = [HEAD, f"| {' | '.join(heads)} | share | seconds |", "|---" * 9 + "|"]
    for row in rows.values():
        ours, theirs = row.seconds()
        cells = (
            row.name, row.version, SUITES[row.name].part, len(row.files), row.torch, row.passes,
            row.ours, f"{100 * row.share:.2f} %", f"{ours:.0f} ({theirs:.0f})",
        )  # fmt: skip
        lines.append(f"| {' | '.join(map(str, cells))} |")
    lines += ["", "## What does not pass", ""]
    for row in rows.values():
        for test, why in row.misses.items():
            lines.append(f"- `{row.name}: {test}`: {_plain(why)}{_reason(test)}")
    return "\n".join(lines).rstrip() + "\n"


def _reason(test: str) -> str:
    return "".join(f" ({why})" for part, why in REASONS.items() if part in test)


def _plain(text: str) -> str:
    return "".join(f"\\{c}" if c in "<>*_[]`|" else c for c in text)
