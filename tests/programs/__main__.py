"""`python -m tests.programs [NAME ...]`: training programs on torch and on Lucerne, as a table.

Losses over 16 steps: torch's eager against ours, eager, with the model compiled and with the whole
step compiled; `mode="bitwise"` against our own eager, bit for bit. Beside each difference: how
often was compiled (c), breaks (b), and milliseconds for a step of the second half.

    python -m tests.programs gpt --on torch        # one program, its losses, on one of both
    python -m tests.programs gpt --on lucerne --way step
    python -m tests.programs --html table.html
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path
from typing import Any

from tests.programs import page
from tests.programs.measure import Row, measured, ran
from tests.programs.rows import STEPS, WAYS, found


def text(row: Row) -> str:
    cells = []
    for way in WAYS:
        cell = row.cells.get(way)
        if cell is None:
            cells.append(f"{'-':>22}")
        elif cell.error:
            cells.append(f"{'raised':>22}")
        else:
            mark = "" if cell.good else "!"
            cost = f"{cell.compiles}c{cell.breaks}b" if way != "eager" else ""
            cells.append(
                f"{mark + format(cell.deviation, '.0e'):>7} {cost:>7} {cell.milliseconds:5.1f}"
            )
    return f"{row.name:22} {row.torch_milliseconds:7.1f} " + " ".join(cells)


def one(options: Any) -> int:
    """Only the losses, of one package."""
    for name in options.names:
        losses, run = ran(options.on, found(options.on)[name], options.way, options.steps)
        for k, values in enumerate(losses):
            print(f"{name} {k:3} " + " ".join(f"{v:.7g}" for v in values))
        print(f"{run.milliseconds:.2f} ms a step, {run.compiles} compiles, {run.breaks} breaks")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument(
        "--on", choices=("torch", "lucerne"), help="print the losses on one of both"
    )
    parser.add_argument("--way", choices=WAYS, default="eager", help="with --on")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--no-torch", action="store_true", help="against our own eager alone")
    parser.add_argument("--html", type=Path, help="write the table as one self-contained page")
    options = parser.parse_args()
    if options.on:
        return one(options)
    ours = found("lucerne")
    beside = not options.no_torch and importlib.util.find_spec("torch") is not None
    theirs = found("torch") if beside else {}
    if beside:
        importlib.import_module("torch").set_num_threads(1)
    print(f"{'program':22} {'torch':>7}" + " ".join(f"{way:>22}" for way in WAYS))
    done: list[Row] = []
    for name in options.names or ours:
        row = measured(name, ours[name], theirs.get(name), options.steps)
        done.append(row)
        print(text(row), flush=True)
        for cell in row.wrong:
            told = cell.error or f"differs by {cell.deviation:.1e}, limit {cell.limit:.0e}"
            print(f"    {cell.way}: {told}", flush=True)
    if options.html:
        options.html.write_text(page.html(done), encoding="utf-8")
    print(summary(done))
    return int(any(row.wrong for row in done))


def summary(rows: list[Row]) -> str:
    runs = [cell for row in rows for cell in row.cells.values()]
    bad = [f"{row.name} ({', '.join(c.way for c in row.wrong)})" for row in rows if row.wrong]
    return f"{len(rows)} programs, {len(runs)} runs, {sum(not c.good for c in runs)} wrong {bad}"


if __name__ == "__main__":
    sys.exit(main())
