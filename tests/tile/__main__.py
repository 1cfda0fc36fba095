"""`python -m tests.tile --proof`: every kernel of the table on guard pages, odd sizes and strides.

Each tensor stands between inaccessible pages (`config.guard_pages`), once ending and once beginning
at one: a byte read or written outside ends the process. Results are compared with the interpreter.
`--planted` makes a kernel that is wrong on purpose, and shows that the pages catch it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

SIZES = ((1, 1), (5, 7), (33, 50), (17, 16), (8, 129))
GUARDS = (16, -16)
DTYPES = {"float32": 2e-5, "float64": 1e-11, "bfloat16": 2e-2, "float16": 4e-3}


def run_rows(names: Sequence[str]) -> None:
    """In a guarded process: a line of JSON for each kernel."""
    import lucerne as torch
    from tests.tile.kernels import (
        LAYOUTS,
        TABLE,
        largest_difference,
        prepared,
    )

    for row in [r for r in TABLE if not names or r.name in names]:
        calls, worst, failures = 0, 0.0, []
        for dtype, limit in DTYPES.items():
            for layout in LAYOUTS if dtype == "float32" else ["dense"]:
                for n, m in SIZES if dtype == "float32" else SIZES[1:3]:
                    args = prepared(row, n, m, getattr(torch, dtype), layout)
                    found = row.kernel(*args, *row.numbers)
                    row.kernel.interpret = True
                    told = row.kernel(*args, *row.numbers)
                    row.kernel.interpret = False
                    gap = largest_difference(found, told)
                    calls, worst = calls + 1, max(worst, gap if dtype == "float32" else 0.0)
                    if not gap <= limit:
                        failures.append(f"{dtype} {n} x {m} {layout}: {gap:.2e}")
        told = {"name": row.name, "calls": calls, "worst": worst, "failures": failures}
        print(json.dumps(told), flush=True)


def run_planted() -> None:
    """A kernel whose checks were taken out: it reads one row behind the end."""
    import lucerne as torch
    from lucerne._src.ir.tile import Affine, At, View
    from tests.tile.kernels import softmax

    x = torch.randn(4, 1024)
    program = softmax.program({"x": x})
    for e in program.exprs:
        if e.kind == "load":
            at, span = e.data.parts
            e.data = View(e.data.tensor, (At(at.place.plus(Affine(1))), span))
    program._text += " planted"
    softmax(x)


def guarded(arguments: Sequence[str], guard: int) -> subprocess.CompletedProcess[str]:
    """This module in a process of its own, with guard pages."""
    environment = {
        **os.environ, "LUCERNE_GUARD_PAGES": str(guard), "LUCERNE_HOST_BACKEND": "cpu",
        "LUCERNE_FAST_PATH": "0",
    }  # fmt: skip
    command = [sys.executable, "-m", "tests.tile", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def proof(names: Sequence[str]) -> int:
    """A line for each kernel; the status is how many have a problem."""
    rows: dict[str, list[dict[str, Any]]] = {}
    problems = 0
    for guard in GUARDS:
        done = guarded(["--rows", *names], guard)
        for line in done.stdout.splitlines():
            told = json.loads(line)
            rows.setdefault(told["name"], []).append(told)
        if done.returncode:
            problems += 1
            print(f"guard {guard}: the process ended with {done.returncode}\n{done.stderr[-2000:]}")
    print(f"{'kernel':<20} {'calls':>6} {'largest difference':>20}")
    for name, both in rows.items():
        failures = [f for told in both for f in told["failures"]]
        worst = max(told["worst"] for told in both)
        print(f"{name:<20} {sum(t['calls'] for t in both):>6} {worst:>20.1e}  {failures or 'ok'}")
        problems += bool(failures)
    calls = sum(t["calls"] for both in rows.values() for t in both)
    print(f"{len(rows)} kernels, {calls} calls on guard pages, {problems} with problems")
    return problems


def planted() -> int:
    """0 if the planted error was caught."""
    done = guarded(["--plant"], 16)
    print(f"a read behind the end: the process ended with {done.returncode}")
    return int(done.returncode >= 0)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.tile", description=__doc__)
    parser.add_argument("--proof", action="store_true")
    parser.add_argument("--planted", action="store_true")
    parser.add_argument("--rows", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--plant", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("names", nargs="*", help="kernels of the table")
    options = parser.parse_args()
    if options.rows:
        run_rows(options.names)
        return 0
    if options.plant:
        run_planted()
        return 0
    return planted() if options.planted else proof(options.names)


if __name__ == "__main__":
    sys.exit(main())
