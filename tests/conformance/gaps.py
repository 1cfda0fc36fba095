"""The gate: what may fail is written down with a reason, and nothing else may.

`known_gaps.json` holds `{"op": entry, "metric": name, "reason": why}`. A gap still counts as failed
in every rate. One that passes now must be taken out, unless it says `"samples": "full"` (such a gap
shows only when all samples run, so a capped run does not judge it) or `"machine"`: such a gap hangs
on the order of the processor's instructions, so that it is there on some kinds and not on others.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.conformance.metrics import METRICS
from tests.conformance.result import Tally

GAPS_FILE = Path(__file__).parent / "known_gaps.json"


@dataclass(frozen=True)
class Gap:
    """One op that is known to miss one metric."""

    op: str
    metric: str
    reason: str
    samples: str = "any"

    @property
    def key(self) -> tuple[str, str]:
        return (self.op, self.metric)


def load(path: Path = GAPS_FILE) -> list[Gap]:
    """The list, checked: every gap has a reason, a known metric, and stands there once."""
    gaps = [Gap(**row) for row in json.loads(path.read_text())]
    for gap in gaps:
        if not gap.reason.strip():
            raise ValueError(f"{path.name}: {gap.op} {gap.metric} has no reason")
        if gap.metric not in METRICS:
            raise ValueError(f"{path.name}: {gap.op} names no metric: {gap.metric!r}")
    if len({gap.key for gap in gaps}) != len(gaps):
        raise ValueError(f"{path.name}: an op and metric are listed twice")
    return gaps


def judge(tallies: Iterable[Tally], gaps: Iterable[Gap], *, capped: bool) -> list[str]:
    """Why the gate is shut, one line each; empty if it is open."""
    listed = {gap.key: gap for gap in gaps}
    verdicts: dict[tuple[str, str], bool] = {}
    first: dict[tuple[str, str], str] = {}
    for tally in tallies:
        key = (tally.entry, tally.metric)
        verdicts[key] = verdicts.get(key, True) and tally.ok
        if not tally.ok and tally.failures:
            failure = tally.failures[0]
            first.setdefault(key, f"{failure.sample} {failure.check}: {failure.message}")
    problems = []
    for key, ok in verdicts.items():
        op, metric = key
        if not ok and key not in listed:
            problems.append(f"new failure: {op} {metric}: {first.get(key, '')}")
        may_pass = {"machine", "full"} if capped else {"machine"}
        if ok and key in listed and listed[key].samples not in may_pass:
            problems.append(f"gap is closed, take it out: {op} {metric}")
    return problems
