"""`python -m tests.sizes --cases 20000`: random programs over sizes, each at eight of them."""

from __future__ import annotations

import argparse
import sys
import time

from tests.sizes.check import differences
from tests.sizes.programs import Program

EVERY = 16
"""Which of the programs run on the CPU's machine code; the others run on NumPy, which is quicker to
make programs for: what is looked for is in front of both."""


def main(argv: list[str]) -> int:
    """Print what differs, and the count."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--show", action="store_true", help="print the programs that differ")
    told = parser.parse_args(argv)
    began, bad = time.monotonic(), 0
    for seed in range(told.first, told.first + told.cases):
        found = list(differences(seed, {} if seed % EVERY == 0 else {"backend": "reference"}))
        bad += bool(found)
        for line in found[:3]:
            print(line[:600], flush=True)
        if found and told.show:
            print(Program(seed).source, flush=True)
        if (seed + 1) % 1000 == 0:
            print(f"... {seed + 1 - told.first}, {time.monotonic() - began:.0f} s", flush=True)
    print(f"{told.cases} programs x 8 sizes: {bad} differ, {time.monotonic() - began:.0f} s")
    return bad


if __name__ == "__main__":
    sys.exit(bool(main(sys.argv[1:])))
