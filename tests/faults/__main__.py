"""`python -m tests.faults`: a fault in every function that a compile enters, one at a time.

--programs NAME ...   some programs only
--points REGEX        some functions only
--errors N            how many kinds of errors for each point (they take turns; default 1)
--most N              at most so many faults per program, spread evenly
"""

from __future__ import annotations

import argparse
import re
import sys
import time

from tests.faults.check import Outcome, checked, name_of, points
from tests.faults.planting import ERRORS
from tests.faults.programs import PROGRAMS


def main() -> int:
    """Print what is wrong, and a table."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults")
    parser.add_argument("--programs", nargs="*", default=[p.name for p in PROGRAMS])
    parser.add_argument("--points", default="")
    parser.add_argument("--errors", type=int, default=1)
    parser.add_argument("--most", type=int, default=0)
    asked = parser.parse_args()
    bad: list[Outcome] = []
    print(
        f"{'program':16s}{'points':>8s}{'faults':>8s}{'raised':>8s}{'warned':>8s}{'wrong':>7s}{'s':>7s}"
    )
    for program in PROGRAMS:
        if program.name not in asked.programs:
            continue
        began = time.perf_counter()
        found = [c for c in points(program) if re.search(asked.points, name_of(c))]
        chosen = found[:: max(1, len(found) // asked.most)] if asked.most else found
        done: list[Outcome] = []
        for k, code in enumerate(chosen):
            for j in range(asked.errors):
                for since in (0, 1):
                    done.append(checked(program, code, ERRORS[(k + j) % len(ERRORS)], since))
        wrong = [o for o in done if o.problems]
        bad += wrong
        print(
            f"{program.name:16s}{len(found):8d}{len(done):8d}{sum(o.fired > 0 for o in done):8d}"
            f"{sum(o.warned == 1 for o in done):8d}{len(wrong):7d}"
            f"{time.perf_counter() - began:7.0f}",
            flush=True,
        )
        for o in wrong:
            print(f"    {o}", flush=True)
    print(f"{len(bad)} wrong")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
