"""`python -m tests.effects`: every cell of the matrix, as a table in the terminal.

    python -m tests.effects                      # all rows and columns, states in closures
    python -m tests.effects deque slots          # rows whose names (or groups) contain these
    python -m tests.effects --places all         # and among globals, arguments and attributes
    python -m tests.effects --columns nested,map --verbose
    python -m tests.effects --sample 500 --seed 7   # of all rows, columns, places, at random

In a cell: `.` one graph, `:` parts, `-` runs as it is (told so), ` ` no such program, `x` DIFFERS.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Sequence

from tests.effects.all_kinds import KINDS
from tests.effects.cells import check
from tests.effects.columns import COLUMNS, QUICK
from tests.effects.kinds import PLACES, Kind
from tests.effects.processes import compare
from tests.effects.text import fits, source
from tests.support import settings

SIGNS = {"graph": ".", "parts": ":", "eager": "-", "-": " "}


class Findings:
    """What came of the cells that were tried."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.count, self.wrong, self.none = 0, list[str](), list[str]()
        self._told: list[str] = []

    def cell(self, row: Kind, name: str, place: str) -> str:
        """Try one; the answer is its sign."""
        column = COLUMNS[name]
        if not fits(row, column, place):
            return " "
        with settings.kept():
            grad = not self.options.values
            found = check(row, column, place, grad=grad, mode=self.options.mode)
        self.count += 1
        at = f"{row.name} / {name} / {place}"
        if found.how == "-":
            self.none.append(f"{at}: {found.differs[0]}")
            return "!"
        if not found.differs:
            return SIGNS[found.how]
        self.wrong.append(at)
        self._told.append(f"    {at} ({found.how})")
        self._told += [f"      {d[:300]}" for d in found.differs[:2]]
        if self.options.verbose:
            self._told += source(row, column, place).splitlines()
        return "x"

    def tell(self) -> None:
        """Print what differed since this was called last."""
        for line in self._told:
            print(line)
        self._told.clear()
        sys.stdout.flush()


def sample(
    rows: Sequence[Kind], columns: Sequence[str], places: Sequence[str], count: int, seed: int
) -> list[tuple[Kind, str, str]]:
    """So many of the cells that there are, at random: the same ones for the same seed."""
    cells = [
        (row, name, place)
        for row in rows
        for name in columns
        for place in places
        if fits(row, COLUMNS[name], place)
    ]
    return random.Random(seed).sample(cells, min(count, len(cells)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--places", help="names with commas between, or `all` (as in a sample)")
    parser.add_argument("--columns", default="", help="names with commas between, or `quick`")
    parser.add_argument("--part", default="1/1", help="2/4: the second of four parts of the rows")
    parser.add_argument("--verbose", action="store_true", help="programs and differences in full")
    parser.add_argument("--mode", default=None, help="of `compile`")
    parser.add_argument("--values", action="store_true", help="no gradients: twice as fast")
    parser.add_argument("--sample", type=int, help="so many cells at random, of all there are")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--processes", action="store_true", help="the column of two processes")
    options = parser.parse_args()
    if options.processes:
        count, hits, wrong = compare(options.names)
        print("\n".join(wrong))
        print(f"{count} cells, found stored {hits} times, {len(wrong)} differ")
        return 1 if wrong else 0
    given = options.places or ("all" if options.sample else "closure")
    places = PLACES if given == "all" else given.split(",")
    chosen = list(COLUMNS)
    if options.columns:
        chosen = list(QUICK) if options.columns == "quick" else options.columns.split(",")
    rows = [
        k for k in KINDS.values()
        if not options.names or any(n in k.name or n == k.group for n in options.names)
    ]  # fmt: skip
    part, parts = map(int, options.part.split("/"))
    rows = rows[part - 1 :: parts]
    began = time.perf_counter()
    found = Findings(options)
    if options.sample:
        for row, name, place in sample(rows, chosen, places, options.sample, options.seed):
            found.cell(row, name, place)
            found.tell()
    else:
        for n, name in enumerate(chosen):
            print(f"{'':34}{'|' * n}{name}")
        for place in places:
            for row in rows:
                signs = "".join(found.cell(row, name, place) for name in chosen)
                print(f"{row.name[:32]:33} {signs} {place if len(places) > 1 else ''}")
                found.tell()
    count, wrong, none = found.count, found.wrong, found.none
    for at in none:
        print("no program:", at[:200])
    for at in wrong:
        print("DIFFERS:", at)
    seconds = time.perf_counter() - began
    print(f"{count} cells, {len(wrong)} differ, {len(none)} are no programs, {seconds:.0f} s")
    return 1 if wrong or none else 0


if __name__ == "__main__":
    sys.exit(main())
