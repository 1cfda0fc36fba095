"""Scenarios in processes of their own, and their numbers beside torch's."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
REFERENCE = HERE / "reference.json"
RINGS = {"core": "core.py", "next": "ring.py"}
MARK = "RESULT "
NEAR = 5e-6
"""Numbers of two implementations in float32 that agree."""


@dataclass(frozen=True)
class Row:
    """What a scenario gave."""

    name: str
    library: str
    state: str
    """ok, differs (from torch), fails, absent (the library is not installed)."""
    why: str
    wall: float
    told: dict[str, Any] | None
    difference: float | None
    """The largest relative difference of its numbers from torch's; None: none are recorded."""
    own: float | None = None
    """The same of torch with other kernels, asked for when the difference is not small."""
    times: float | None = None
    """Its CPU seconds over those of torch, which ran it just before; None: torch did not."""


def table() -> dict[str, dict[str, str]]:
    """Ring, scenario, library; read from the source, since the files import torch."""
    found: dict[str, dict[str, str]] = {}
    for ring, file in RINGS.items():
        tree = ast.parse((HERE / file).read_text(encoding="utf-8"))
        [assigned] = [
            node.value
            for node in tree.body
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "SCENARIOS"
        ]
        assert isinstance(assigned, ast.Dict)
        found[ring] = {
            ast.literal_eval(key): ast.literal_eval(value.elts[0])  # type: ignore
            for key, value in zip(assigned.keys, assigned.values, strict=True)
        }
    return found


def names(ring: str | None = None) -> list[str]:
    """The scenarios of a ring, or all."""
    return [name for r, rows in table().items() if ring in (None, r) for name in rows]


def library_of(name: str) -> str:
    return next(rows[name] for rows in table().values() if name in rows)


def run(name: str, *, torch: str = "", other: bool = False, seconds: float = 300.0) -> Row:
    """One scenario, behind the door; or on the real torch of another Python, whose path it is
    (`other`: with other kernels)."""
    library = library_of(name)
    if not torch and library and importlib.util.find_spec(library) is None:
        return Row(name, library, "absent", "not installed", 0.0, None, None)
    python = [torch] if torch else [sys.executable, "-m", "lucerne.as_torch"]
    command = [*python, "-m", "tests.ecosystem.one", name, *["--other-kernels"] * other]
    start = time.perf_counter()
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=seconds, cwd=ROOT, check=False
        )
    except subprocess.TimeoutExpired:
        return Row(name, library, "fails", f"longer than {seconds:.0f} s", seconds, None, None)
    wall = time.perf_counter() - start
    lines = [line for line in done.stdout.splitlines() if line.startswith(MARK)]
    if not lines:
        return Row(name, library, "fails", last_error(done.stderr), wall, None, None)
    told = json.loads(lines[-1][len(MARK) :])
    bad = [f"{step}: {state}" for step, state, _, _ in told["steps"] if state != "ok"]
    state = "fails" if bad else "ok"
    own = None if torch else reference().get(name, {}).get("own")
    gap = difference(name, told["steps"])
    row = Row(name, library, state, "; ".join(bad), wall, told, gap, own)
    return row if torch else judged(row)


def beside(name: str, torch: str, seconds: float) -> Row:
    """One scenario on a real torch, which gives the reference, and then behind the door."""
    known = run(name, torch=torch, seconds=seconds)
    if known.state != "ok" or known.told is None:
        print(f"torch: {as_line(known)}", flush=True)
        return run(name, seconds=seconds)
    record(known)
    row = run(name, seconds=seconds)
    if row.told is None:
        return row
    row = replace(row, times=row.told["seconds"] / known.told["seconds"])
    if row.state != "differs":
        return row
    own = run(name, torch=torch, other=True, seconds=seconds).difference
    record(known, own)
    return judged(replace(row, own=own, state="ok"))


def judged(row: Row) -> Row:
    """Whether numbers are torch's: near to them, or no farther than torch on other kernels is (an
    optimizer may blow rounding up to any size)."""
    near = max(NEAR, 2 * (row.own or 0.0))
    far = row.state == "ok" and row.difference is not None and row.difference > near
    return replace(row, state="differs") if far else row


def run_model(name: str, seconds: float) -> dict[str, Any]:
    """The row of a compiled model, in a process of its own behind the door."""
    command = [sys.executable, "-m", "lucerne.as_torch", "-m", "tests.ecosystem.models", name]
    with tempfile.TemporaryDirectory() as cache:  # no program of an earlier process
        around = {**os.environ, "LUCERNE_CACHE_DIR": cache, "HF_HUB_OFFLINE": "1"}
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=seconds, cwd=ROOT, env=around,
                check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return {"model": name, "error": f"longer than {seconds:.0f} s"}
    lines = [line for line in done.stdout.splitlines() if line.startswith(MARK)]
    if not lines:
        return {"model": name, "error": last_error(done.stderr)}
    row: dict[str, Any] = json.loads(lines[-1][len(MARK) :])
    return row


def last_error(text: str) -> str:
    """The last line of a traceback."""
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[-1][:200] if lines else "it ended without a word"


def reference() -> dict[str, Any]:
    """Torch's numbers: by scenario, the versions and the numbers of each step."""
    return json.loads(REFERENCE.read_text(encoding="utf-8")) if REFERENCE.exists() else {}


def difference(name: str, steps: list[Any]) -> float | None:
    """How far the numbers of the steps are from torch's."""
    known = reference().get(name)
    if known is None:
        return None
    if [step for step, _, _, _ in steps] != [step for step, _ in known["steps"]]:
        return float("inf")  # other steps: some did not run
    gaps = []
    for (_, _, _, got), (_, want) in zip(steps, known["steps"], strict=True):
        if len(got) != len(want):
            return float("inf")
        gaps += [abs(a - b) / max(abs(b), 1e-3) for a, b in zip(got, want, strict=True)]
    return max(gaps) if gaps else None  # without numbers nothing was compared


def record(row: Row, own: float | None = None) -> None:
    """Let a row of the real torch be the reference; `own`: how far it is from itself."""
    assert row.told is not None
    data = reference()
    data[row.name] = {
        "torch": row.told["torch"],
        "version": row.told["version"],
        "steps": [[step, got] for step, _, _, got in row.told["steps"]],
        **({} if own is None else {"own": own}),
    }
    REFERENCE.write_text(json.dumps(data, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def _gap(row: Row) -> str:
    own = "" if row.own is None else f" (torch {row.own:.1e})"
    return "-" if row.difference is None else f"{row.difference:.1e}{own}"


def _times(row: Row) -> str:
    return "-" if row.times is None else f"{row.times:.2f}"


def as_line(row: Row) -> str:
    """A row for the terminal."""
    version = row.told["version"] if row.told else ""
    cpu = row.told["seconds"] if row.told else 0.0
    head = f"{row.name:<28} {row.library:<28} {version:<10} {row.state:<7}"
    return f"{head} {cpu:6.1f}s {_times(row):>6}  {_gap(row):>8}  {row.why}".rstrip()


PAGE = """# Libraries that say `import torch`

Written by `python -m tests.ecosystem --torch PYTHON --markdown docs/results/ecosystem.md`, in an
environment without PyTorch, with the newest release of each library: each scenario in a process of
its own, with nothing but the import hook, just behind the same scenario on PyTorch {torch}, which
PYTHON has. The difference is the largest of a scenario's numbers from PyTorch's, relative to them;
- where there is nothing to compare. Where it is above 5e-6, the one behind it is PyTorch's from
itself without oneDNN, on one thread: there, Adam makes rounding large. Seconds are CPU time, of the
library's import too; times torch: those seconds over PyTorch's, {when}. flair needs
transformers before 5: it ran in an environment of its own.

{passed} of {ran} scenarios pass.
"""


def as_markdown(rows: list[Row], when: str) -> str:
    """The page: what was run, and what came out; libraries that are not installed are left out."""
    ran = [row for row in rows if row.state != "absent"]
    passed = sum(row.state == "ok" for row in ran)
    recorded = {known["torch"].partition("+")[0] for known in reference().values()}
    head = PAGE.format(torch=" and ".join(sorted(recorded)), when=when, passed=passed, ran=len(ran))
    names = ("library", "version", "scenario", "result", "difference", "seconds", "times torch")
    lines = [head, f"| {' | '.join(names)} |", "|---" * len(names) + "|"]
    for row in ran:
        version, seconds = (row.told["version"], row.told["seconds"]) if row.told else ("-", "-")
        result = row.state if row.state == "ok" else f"{row.state}: {row.why}".replace("|", "/")
        cells = (row.library or "torch alone", version, row.name, result, _gap(row), seconds)
        lines.append(f"| {' | '.join(map(str, cells))} | {_times(row)} |")
    return "\n".join(lines) + "\n"
