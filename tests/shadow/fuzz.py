"""`python -m tests.shadow.fuzz --cases 300`: random programs; shadow mode must be silent.

Every program is called as in `tests.compiler.fuzz` (first call, again, other values, other sizes,
another kind of argument); each version's calls are compared with eager and looked into.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from dataclasses import dataclass, field
from typing import Any

import lucerne
from tests.compiler.check import OTHERS
from tests.compiler.generate import generated
from tests.compiler.outcome import run
from tests.compiler.program import function

CALLS = ("first", "warm", "other values", "other sizes", "other kind")


@dataclass
class Tally:
    programs: int = 0
    compiled: int = 0
    alarms: list[tuple[int, str]] = field(default_factory=list)
    crashes: list[tuple[int, str]] = field(default_factory=list)


def alarm(seed: int, calls: tuple[str, ...] = CALLS, shadow: int = 2) -> tuple[bool, str]:
    """Whether the program of a seed was compiled, and what shadow mode said of it."""
    program = generated(seed)
    options = {"shadow": shadow, "shadow_action": "raise"}
    made: Any = lucerne.compile(function(program, lucerne), options=options)
    for call in calls:
        given = OTHERS[call](program) if call in OTHERS else program
        if given is None:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = run(given, lucerne, made, 1 if call == "other values" else 0)
        if found.error in ("ShadowError", "AssertionError", "KeyError", "AttributeError"):
            return True, f"{call}: {found.error}: {found.message}"
    return not made.given_up, ""


def tallied(first: int, cases: int) -> Tally:
    tally = Tally()
    for seed in range(first, first + cases):
        tally.programs += 1
        try:
            compiled, text = alarm(seed)
        except Exception as error:
            tally.crashes.append((seed, f"{type(error).__name__}: {error}"))
            continue
        tally.compiled += compiled
        if text:
            tally.alarms.append((seed, text))
    return tally


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.shadow.fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    lucerne.set_num_threads(1)
    began = time.perf_counter()
    tally = tallied(options.seed, options.cases)
    for seed, text in [*tally.alarms, *tally.crashes]:
        print(f"seed {seed}: {text}\n")
    print(
        f"{tally.programs} random programs, {tally.compiled} compiled: {len(tally.alarms)} alarms, "
        f"{len(tally.crashes)} crashes; {time.perf_counter() - began:.0f} s"
    )
    return 1 if tally.alarms or tally.crashes else 0


if __name__ == "__main__":
    sys.exit(main())
