"""The native path under guard: all frozen calls with the fast path on and every block of memory
between inaccessible pages, ending at one and beginning at one.

Here nothing is copied or repeated (`guard` does that): results are compared with torch's, and a
step outside a block ends the process.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

import lucerne
from lucerne._src.conformance import frozen_cases
from lucerne._src.conformance.run import check

SIDES = {"16": "blocks end at a page", "-1": "blocks begin at a page"}


def main(options: argparse.Namespace) -> int:
    """The parent, or with `--quick` a child."""
    if options.quick:
        return _calls()
    failed = 0
    for side, text in SIDES.items():
        environment = {**os.environ, "LUCERNE_GUARD_PAGES": side}
        command = [sys.executable, "-X", "faulthandler", "-m", "tests.cpu.proof", "native"]
        done = subprocess.run(
            [*command, "--quick"], env=environment, capture_output=True, text=True
        )
        failed += done.returncode != 0
        print(f"{text}: {done.stdout.strip()}")
        if done.returncode < 0:
            print(f"  ended by signal {-done.returncode}:\n{done.stderr}")
    return 1 if failed else 0


def _calls() -> int:
    wrong, count = [], 0
    for case in frozen_cases(lucerne):
        problem = check(case, "cpu")
        if "does not exist yet" in problem:
            continue
        count += 1
        if problem:
            wrong.append(f"  {case.op} {case.dtype} {case.part}: {problem}")
    print(f"{count} calls, {len(wrong)} wrong", *wrong, sep="\n")
    return 1 if wrong else 0
