"""`python -m tests.capture_bytecode`: the machine against Python, as a table.

Runs on any Python that has an instruction table; needs neither pytest nor PyTorch. `--all` also
stops every program at each of its instructions in turn; `--random N` makes N programs by chance;
`--compiled` calls every program three times through `lucerne.compile`.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

from lucerne._src.capture.bytecode import using, with_instructions_removed
from tests.capture_bytecode.cases import Args, Case, Run, assert_same, natively, observe_run
from tests.capture_bytecode.compiled import assert_compiled_same
from tests.capture_bytecode.random_programs import case_of
from tests.capture_bytecode.runs import (
    as_far_as_known,
    in_machine,
    instructions_of,
    stopping_at,
    stopping_before_calls,
    stopping_every,
)
from tests.capture_bytecode.table import CASES

SLOW = {"recursion_error"}


def with_less(seed: int) -> Run:
    """Runs with a third of the instructions unknown."""

    def run(fn: Callable[..., Any], args: Args) -> Any:
        with with_instructions_removed(1 / 3, seed):
            return as_far_as_known(fn, args)

    return run


def failures(cases: list[Case], runs: list[Run]) -> list[str]:
    """What differs from Python's own runs."""
    found = []
    for one in cases:
        expected = observe_run(one, natively)
        for run in runs:
            try:
                assert_same(one, expected, observe_run(one, run))
            except AssertionError as error:
                found.append(str(error))
    return found


WAYS: list[tuple[str, list[Run]]] = [
    ("as Python does", [in_machine]),
    ("stopped before each native call and branch", [stopping_before_calls]),
    ("stopped and rebuilt at every instruction", [stopping_every(1)]),
    ("a third of the instructions unknown (5 seeds)", [with_less(s) for s in range(5)]),
]


def compiled(name: str, cases: list[Case]) -> int:
    """Each program, called three times through `lucerne.compile`: one line of the table."""
    began = time.perf_counter()
    found = []
    for one in cases:
        try:
            assert_compiled_same(one)
        except AssertionError as error:
            found.append(str(error)[:400])
    seconds = time.perf_counter() - began
    right = len(cases) - len(found)
    print(f"{name:<48} {right:>7} of {len(cases):>7} equal {seconds:>8.1f} s")
    for text in found:
        print(text)
    return len(found)


def report(name: str, cases: list[Case], runs: list[Run]) -> int:
    """One line of the table."""
    began = time.perf_counter()
    found = failures(cases, runs)
    seconds = time.perf_counter() - began
    right = len(cases) * len(runs) - len(found)
    print(f"{name:<48} {right:>7} of {len(cases) * len(runs):>7} equal {seconds:>8.1f} s")
    for text in found[:10]:
        print(text)
    return len(found)


def stopped_everywhere(cases: list[Case]) -> int:
    """One line of the table: each program, stopped once at each of its instructions."""
    began = time.perf_counter()
    total = bad = 0
    for one in cases:
        expected = observe_run(one, natively)
        count = instructions_of(one)
        total += count - 1
        for k in range(1, count):
            try:
                assert_same(one, expected, observe_run(one, stopping_at(k)), f"stopped at {k}")
            except AssertionError as error:
                bad += 1
                print(str(error)[:400])
    seconds = time.perf_counter() - began
    name = "stopped once, at each instruction in turn"
    print(f"{name:<48} {total - bad:>7} of {total:>7} equal {seconds:>8.1f} s")
    return bad


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.capture_bytecode")
    parser.add_argument("--all", action="store_true", help="stop at each instruction in turn")
    parser.add_argument("--random", type=int, default=300, help="how many programs by chance")
    parser.add_argument("--compiled", action="store_true", help="through lucerne.compile only")
    options = parser.parse_args()
    version = ".".join(map(str, sys.version_info[:3]))
    print(f"Python {version}: {len({c.fn for c in CASES})} programs, {len(CASES)} cases")
    if options.compiled:
        cases = [c for c in CASES if c.name not in SLOW]
        bad = compiled("compiled, three calls", cases)
        for seed in range(3):
            with with_instructions_removed(1 / 3, seed):
                bad += compiled(f"compiled, a third of the instructions unknown ({seed})", cases)
        with using(None):
            bad += compiled("compiled, no instruction table", cases)
        chance = [case_of(seed, tensors=True) for seed in range(options.random)]
        bad += compiled("compiled, programs by chance, with tensors", chance)
        return 1 if bad else 0
    groups: dict[str, list[Case]] = {}
    for one in CASES:
        groups.setdefault(one.group, []).append(one)
    bad = 0
    for group, cases in groups.items():
        bad += report(f"  {group}", cases, [in_machine])
    cases = [c for c in CASES if c.name not in SLOW]
    for name, runs in WAYS:
        bad += report(name, cases, runs)
    chance = [case_of(seed) for seed in range(options.random)]
    bad += report("programs by chance, four ways", chance, [w for _, ws in WAYS for w in ws[:1]])
    if options.all:
        bad += stopped_everywhere(cases)
    print("all equal" if not bad else f"{bad} differ")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
