"""`python -m tests.reproductions [WORD ...]`: what was found wrong, and whether its tests pass.

A line for each finding (whose sentence has one of the words): its tests, how many of them passed.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.reproductions.rows import ROWS


@dataclass(eq=False)
class Seen:
    """A plugin of pytest that keeps the outcome of every test."""

    outcomes: dict[str, str] = field(default_factory=dict)

    def pytest_runtest_logreport(self, report: Any) -> None:
        worse = report.outcome != "passed"
        if report.when == "call" or worse:
            self.outcomes[report.nodeid] = report.outcome


def belongs(node: str, wanted: str) -> bool:
    """Whether a test is one of those that `wanted` names."""
    return node == wanted or node.startswith((f"{wanted}::", f"{wanted}["))


def judge(names: Iterable[str], outcomes: dict[str, str]) -> Counter[str]:
    """Outcomes of a finding's tests; a name of which none ran is `missing`."""
    found: Counter[str] = Counter()
    for name in names:
        told = [outcome for node, outcome in outcomes.items() if belongs(node, name)]
        found.update(told if set(told) - {"skipped"} else ["missing"])
    return found


def is_good(found: Counter[str]) -> bool:
    """All that ran have passed; rows may be skipped that this machine cannot run (OpenCL)."""
    return found["passed"] > 0 and set(found) <= {"passed", "skipped"}


def run(rows: dict[str, tuple[str, ...]]) -> dict[str, Counter[str]]:
    """Run the tests of these findings once each."""
    seen = Seen()
    names = dict.fromkeys(name for names in rows.values() for name in names)
    pytest.main(["-q", "-p", "no:cacheprovider", "-m", "", *names], plugins=[seen])
    return {what: judge(names, seen.outcomes) for what, names in rows.items()}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.reproductions", description=__doc__)
    parser.add_argument("words", nargs="*", help="only findings with one of them")
    words = parser.parse_args(arguments).words
    rows = {k: v for k, v in ROWS.items() if not words or any(w in k for w in words)}
    if not rows:
        parser.error(f"no finding has one of the words {', '.join(words)}")
    found = run(rows)
    for what, counts in found.items():
        told = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
        print(f"{'ok  ' if is_good(counts) else 'FAIL'} {what}: {told}")
        print(*(f"         {name}" for name in rows[what]), sep="\n")
    bad = sum(not is_good(counts) for counts in found.values())
    print(f"{len(found)} findings, {bad} without tests that pass")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
