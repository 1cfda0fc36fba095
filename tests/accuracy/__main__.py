"""`python -m tests.accuracy`: errors of float32 functions, ours beside torch's, as a table.

Every function at `--values` numbers in each of ten ranges of exponents, in units of the last place
against float64 and mpmath. A row passes if no error is above 4 units, or above what half a unit of
its operands changes where that is more, and none above 4 times torch's (or one unit).

    python -m tests.accuracy                              # all of it: about twenty minutes
    python -m tests.accuracy --values 2000 --only lgamma  # one function, range by range
    python -m tests.accuracy --page accuracy.html
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import torch

import lucerne
from tests.accuracy import page
from tests.accuracy.measure import TIMES, UNITS, Cell, Found, measured, runner
from tests.accuracy.page import number
from tests.accuracy.reductions import REDUCTIONS, Outcome, outcome
from tests.accuracy.rows import ROWS

PROOFS = 8
"""Values of each range that mpmath sees, beside the worst ones."""


def text(found: Found) -> str:
    share = f"{found.most('excess'):7.2f}"
    marks = "".join(
        f"  {word}"
        for word, holds in (
            ("by condition", any(c.conditioned for c in found.cells)),
            ("ABOVE", any(c.too_far for c in found.cells)),
            ("BEYOND TORCH", any(c.beyond_torch for c in found.cells)),
            ("REFERENCE", any(c.bad_reference for c in found.cells)),
        )
        if holds
    )
    ours, theirs = number(found.most("ours")), number(found.most("theirs"))
    return f"{found.row.name:34}{ours:>10}{theirs:>10}{share}  {found.row.source:6}{marks}"


def detail(cell: Cell) -> str:
    at = ", ".join(f"{x:.9g}" for x in cell.at)
    mark = "" if cell.good else " <--"
    found = f"{number(cell.ours):>10}{number(cell.theirs):>10}{cell.excess:7.2f}"
    return f"    {cell.label:30}{found}  at {at}{mark}"


def reduction_text(done: Outcome) -> str:
    marks = "  ABOVE" * done.too_far + "  BEYOND TORCH" * done.beyond_torch
    return f"{done.row.name:34}{done.ours:10.1e}{done.theirs:10.1e}{done.row.bound:10.1e}{marks}"


def summary(rows: list[Found], reductions: list[Outcome], values: int) -> str:
    wrong = [f.row.name for f in rows if f.wrong]
    wrong += [o.row.name for o in reductions if not o.good]
    conditioned = sum(any(c.conditioned for c in f.cells) for f in rows)
    return (
        f"{len(rows)} functions at {values:,} values in each of ten ranges, {len(reductions)} "
        f"reductions: {len(wrong)} wrong {wrong}; above {UNITS:g} units by condition alone: "
        f"{conditioned}; above {TIMES:g} times torch's: "
        f"{sum(any(c.beyond_torch for c in f.cells) for f in rows)}"
    )


def _progress(name: str, done: int) -> None:
    if sys.stderr.isatty():
        print(f"\r{name} {done}/10 ranges".ljust(60), end="\r", file=sys.stderr, flush=True)


def functions(only: list[str], values: int) -> list[Found]:
    print(f"{'function':34}{'ours':>10}{'torch':>10}{'share':>7}  reference")
    rows = []
    for row in ROWS:
        if only and row.name not in only and row.name.removeprefix("special.") not in only:
            continue
        found = Found(row)
        rows.append(found)
        for cell in measured(row, runner(lucerne), runner(torch), values, PROOFS):
            found.cells.append(cell)
            _progress(row.name, len(found.cells))
        print(text(found), flush=True)
        for cell in found.cells if only else found.wrong:
            print(detail(cell), flush=True)
    return rows


def reductions(only: list[str], values: int) -> list[Outcome]:
    chosen = [r for r in REDUCTIONS if not only or r.name in only]
    done: list[Any] = []
    if chosen:
        print(f"\n{'reduction':34}{'ours':>10}{'torch':>10}{'allowed':>10}")
    for row in chosen:
        done.append(outcome(row, lucerne, torch, values))
        print(reduction_text(done[-1]), flush=True)
    return done


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--values", type=int, default=10**6, help="numbers in each range")
    parser.add_argument("--only", action="append", default=[], metavar="NAME")
    parser.add_argument("--page", type=Path, help="write the table as one self-contained page")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = functions(options.only, options.values)
    folds = reductions(options.only, options.values)
    told = summary(rows, folds, options.values)
    if options.page:
        options.page.write_text(page.html(rows, folds, told), encoding="utf-8")
    print(told)
    return int(any(f.wrong for f in rows) or any(not o.good for o in folds))


if __name__ == "__main__":
    sys.exit(main())
