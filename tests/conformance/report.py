"""Rates by metric and tier, as text, JSON and failures to read."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tests.conformance.catalog import TIERS
from tests.conformance.metrics import METRICS
from tests.conformance.result import Tally, as_record

WEIGHTS = {"T0": 0.5, "T1": 0.3, "T2": 0.2}  # of the one headline number


class Rate:
    """Passed and counted, by entry and by sample."""

    def __init__(self) -> None:
        self.entries = self.entries_passed = 0
        self.samples = self.samples_passed = self.by_float64 = 0

    def add(self, tally: Tally) -> None:
        self.entries += 1
        self.entries_passed += tally.ok
        self.samples += tally.samples
        self.samples_passed += tally.passed
        self.by_float64 += tally.by_float64

    def as_record(self) -> dict[str, Any]:
        return dict(vars(self))


Rates = dict[str, dict[str, Rate]]  # metric -> tier (or "all") -> rate


def rates(tallies: Iterable[Tally]) -> Rates:
    """One rate for each metric and tier that was run."""
    table: Rates = defaultdict(lambda: defaultdict(Rate))
    for tally in tallies:
        for tier in (tally.tier, "all"):
            table[tally.metric][tier].add(tally)
    return table


def parity(tallies: Iterable[Tally]) -> float | None:
    """The headline: entries that pass M1 and, where they have gradients, M2, weighted by tier."""
    verdicts: dict[str, dict[str, bool]] = defaultdict(dict)
    for tally in tallies:
        if tally.metric in ("M1", "M2"):
            tier = verdicts[tally.tier]
            tier[tally.entry] = tier.get(tally.entry, True) and tally.ok
    if set(verdicts) != set(TIERS):
        return None
    shares = {tier: sum(found.values()) / len(found) for tier, found in verdicts.items()}
    return sum(WEIGHTS[tier] * share for tier, share in shares.items())


def summary(tallies: list[Tally]) -> str:
    """The table that a person reads first."""
    table = rates(tallies)
    lines = [f"{'metric':<44}{'tier':<5}{'entries':>18}{'samples':>22}{'by float64':>12}"]
    for name, metric in METRICS.items():
        if name not in table:
            continue
        tiers = [tier for tier in (*TIERS, "own", "nn", "optim", "all") if tier in table[name]]
        for tier in tiers if len(tiers) > 2 else tiers[:1]:
            title = f"{name} {metric.title}" if tier == tiers[0] else ""
            lines.append(_row(title, tier, table[name][tier]))
    headline = parity(tallies)
    if headline is not None:
        lines.append(f"parity (0.5 T0 + 0.3 T1 + 0.2 T2 of M1 and M2): {100 * headline:.1f} %")
    return "\n".join(lines)


def checks_table(tallies: Iterable[Tally]) -> str:
    """How often each check was made and held, over all entries."""
    made: Counter[str] = Counter()
    missed: Counter[str] = Counter()
    for tally in tallies:
        made.update(tally.made)
        missed.update(tally.missed)
    lines = [f"{'check':<44}{'held':>22}"]
    lines += [f"{check:<44}{_share(n - missed[check], n):>22}" for check, n in made.items()]
    return "\n".join(lines)


def failures_text(
    tallies: Iterable[Tally],
    *,
    verbose: bool = False,
    each: int = 1,
    known: Mapping[tuple[str, str], str] = MappingProxyType({}),
) -> str:
    """Every failed entry with its first failures; all of them, with traces, when verbose.

    `known` gives reasons by (entry, metric): such an entry is one line, and not called a failure,
    so that in the output of a run that ends badly only what ended it says FAIL.
    """
    lines = []
    for tally in tallies:
        if tally.ok:
            continue
        what = f"{tally.metric} {tally.entry} [{tally.tier} {tally.dtype}]"
        counts = f"{tally.passed}/{tally.samples}"
        reason = known.get((tally.entry, tally.metric))
        if reason is not None and not verbose:
            lines.append(f"known gap: {what} {counts}: {reason}")
            continue
        lines.append(f"FAIL {what} {counts}")
        for failure in tally.failures if verbose else tally.failures[:each]:
            lines.append(f"     {failure.sample} {failure.check}: {failure.message}")
            if verbose and failure.trace:
                lines += [f"       | {line}" for line in failure.trace.split("\n")]
    return "\n".join(lines)


def as_json(tallies: list[Tally], about: dict[str, Any]) -> dict[str, Any]:
    """Everything, for other tools."""
    table = rates(tallies)
    return {
        "about": about,
        "parity": parity(tallies),
        "rates": {
            metric: {tier: rate.as_record() for tier, rate in tiers.items()}
            for metric, tiers in table.items()
        },
        "entries": [as_record(tally) for tally in tallies],
    }


def write_json(path: Path, tallies: list[Tally], about: dict[str, Any]) -> None:
    path.write_text(json.dumps(as_json(tallies, about), indent=1) + "\n")


def _row(title: str, tier: str, rate: Rate) -> str:
    entries = _share(rate.entries_passed, rate.entries)
    samples = _share(rate.samples_passed, rate.samples)
    return f"{title:<44}{tier:<5}{entries:>18}{samples:>22}{rate.by_float64:>12}"


def _share(passed: int, total: int) -> str:
    percent = 100 * passed / total if total else 100.0
    return f"{passed}/{total} {percent:5.1f} %"
