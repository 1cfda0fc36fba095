"""`python -m tests.effects`: every cell of the matrix, as a table in the terminal.

    python -m tests.effects                      # all rows and columns, states in closures
    python -m tests.effects deque slots          # rows whose names (or groups) contain these
    python -m tests.effects --places all         # and among globals, arguments and attributes
    python -m tests.effects --columns nested,map --verbose

In a cell: `.` one graph, `:` parts, `-` runs as it is (told so), ` ` no such program, `x` DIFFERS.
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.effects.all_kinds import KINDS
from tests.effects.cells import check
from tests.effects.columns import COLUMNS, QUICK
from tests.effects.kinds import PLACES
from tests.effects.processes import compare
from tests.effects.text import fits, source
from tests.support import settings

SIGNS = {"graph": ".", "parts": ":", "eager": "-", "-": " "}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--places", default="closure", help="names with commas between, or `all`")
    parser.add_argument("--columns", default="", help="names with commas between, or `quick`")
    parser.add_argument("--part", default="1/1", help="2/4: the second of four parts of the rows")
    parser.add_argument("--verbose", action="store_true", help="programs and differences in full")
    parser.add_argument("--mode", default=None, help="of `compile`")
    parser.add_argument("--values", action="store_true", help="no gradients: twice as fast")
    parser.add_argument("--processes", action="store_true", help="the column of two processes")
    options = parser.parse_args()
    if options.processes:
        count, hits, wrong = compare(options.names)
        print("\n".join(wrong))
        print(f"{count} cells, found stored {hits} times, {len(wrong)} differ")
        return 1 if wrong else 0
    places = PLACES if options.places == "all" else options.places.split(",")
    chosen = list(COLUMNS)
    if options.columns:
        chosen = list(QUICK) if options.columns == "quick" else options.columns.split(",")
    rows = [
        k for k in KINDS.values()
        if not options.names or any(n in k.name or n == k.group for n in options.names)
    ]  # fmt: skip
    part, parts = map(int, options.part.split("/"))
    rows = rows[part - 1 :: parts]
    for n, name in enumerate(chosen):
        print(f"{'':34}{'|' * n}{name}")
    began, count, wrong, none = time.perf_counter(), 0, [], []
    for place in places:
        for row in rows:
            signs, told = "", []
            for name in chosen:
                column = COLUMNS[name]
                if not fits(row, column, place):
                    signs += " "
                    continue
                with settings.kept():
                    found = check(row, column, place, grad=not options.values, mode=options.mode)
                count += 1
                at = f"{row.name} / {name} / {place}"
                if found.how == "-":
                    none.append(f"{at}: {found.differs[0]}")
                    signs += "!"
                elif found.differs:
                    wrong.append(at)
                    signs += "x"
                    told += [
                        f"    {at} ({found.how})",
                        *(f"      {d[:300]}" for d in found.differs[:2]),
                    ]
                    if options.verbose:
                        told += source(row, column, place).splitlines()
                else:
                    signs += SIGNS[found.how]
            print(f"{row.name[:32]:33} {signs} {place if len(places) > 1 else ''}")
            for line in told:
                print(line)
            sys.stdout.flush()
    for at in none:
        print("no program:", at[:200])
    for at in wrong:
        print("DIFFERS:", at)
    seconds = time.perf_counter() - began
    print(f"{count} cells, {len(wrong)} differ, {len(none)} are no programs, {seconds:.0f} s")
    return 1 if wrong or none else 0


if __name__ == "__main__":
    sys.exit(main())
