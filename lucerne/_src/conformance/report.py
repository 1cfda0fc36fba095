"""The result of a conformance run as a table for the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from lucerne._src.conformance.cases import TIERS
from lucerne._src.conformance.models import MODELS
from lucerne._src.conformance.run import Outcome

TIER_NAMES = {
    "T0": "needed by nearly every model",
    "T1": "needed by some",
    "T2": "the rest of torch's op database",
    "entry": "table entries against their NumPy oracle",
}
_DTYPE_ORDER = ("float32", "float64", "bfloat16", "float16", "int64", "bool", "complex64")


def score(outcomes: Sequence[Outcome]) -> float:
    """Share of (op, dtype) pairs that agree in every case, in percent."""
    return 100.0 * sum(o.ok for o in outcomes) / max(len(outcomes), 1)


def next_op(outcomes: Sequence[Outcome]) -> str:
    """What is worth writing next; empty when nothing fails.

    In the most needed tier that fails, the primitive (or else the op) that most failing pairs wait
    for.
    """
    for tier in TIERS:
        failing = [o for o in outcomes if o.tier == tier and not o.ok]
        waiting = Counter(name for o in failing for name in sorted(o.needs))
        if waiting:
            alone = Counter(name for o in failing if len(o.needs) == 1 for name in o.needs)
            name = max(sorted(waiting), key=lambda name: (alone[name], waiting[name]))
            count, only = waiting[name], alone[name]
            cases = sum(o.total - o.passed for o in failing if o.needs == {name})
            why = f"the device has no rule for it, and {count} failing pairs in {tier} use it"
            unlocks = f"; {only} of them, {cases} cases, need nothing else" if only else ""
            return f"{name} ({why}{unlocks}{_models(name)})"
        if failing:
            name, count = Counter(o.op for o in failing).most_common(1)[0]
            return f"{name} ({tier}; fails in {count} dtype{'s' if count > 1 else ''})"
    return ""


def _models(name: str) -> str:
    found = [model for model, needed in MODELS.items() if name in needed]
    return f"; models that train with it: {', '.join(found)}" if found else ""


def as_json(outcomes: Sequence[Outcome], device: str, bill: Sequence[Any] = ()) -> dict[str, Any]:
    """Everything, as plain data."""
    tiers = {}
    for tier in TIERS:
        row = [o for o in outcomes if o.tier == tier]
        if row:
            tiers[tier] = {"pairs": len(row), "agree": sum(o.ok for o in row), "score": score(row)}
    return {
        "device": device,
        "score": score(outcomes),
        "tiers": tiers,
        "next": next_op(outcomes),
        "bill": list(bill),
        "outcomes": [
            {
                "op": o.op, "tier": o.tier, "dtype": o.dtype, "passed": o.passed,
                "total": o.total, "why": "" if o.ok else reason(o), "needs": sorted(o.needs),
            }
            for o in outcomes
        ],
    }  # fmt: skip


def dtypes_of(outcomes: Sequence[Outcome]) -> list[str]:
    """The dtypes that occur, common ones first."""
    found = {o.dtype for o in outcomes}
    known = [d for d in _DTYPE_ORDER if d in found]
    return known + sorted(found.difference(known))


def text(outcomes: Sequence[Outcome], device: str, *, failures: bool = True) -> str:
    """Scores by tier and dtype, then what fails and why."""
    dtypes = dtypes_of(outcomes)
    lines = [f"device {device}: {score(outcomes):.1f} % of {len(outcomes)} (op, dtype) pairs agree"]
    lines += ["", f"{'tier':<7}" + "".join(f"{d:>12}" for d in [*dtypes, "all"])]
    for tier in TIERS:
        row = [o for o in outcomes if o.tier == tier]
        if row:
            cells = [[o for o in row if o.dtype == d] for d in dtypes]
            lines.append(f"{tier:<7}" + "".join(_cell(c) for c in [*cells, row]))
    failing = [o for o in outcomes if not o.ok]
    if failures and failing:
        lines += ["", "failing (tier, op, dtype, cases that agree, first disagreement):"]
        lines += [_failure(o) for o in sorted(failing, key=lambda o: TIERS.index(o.tier))]
    lines += _fallbacks(outcomes)
    following = next_op(outcomes)
    return "\n".join(
        [*lines, "", f"next op worth writing: {following}" if following else "nothing fails"]
    )


def _fallbacks(outcomes: Sequence[Outcome]) -> list[str]:
    """What the device left to another backend, by tier; nothing if it left nothing at all."""
    if not any(o.fallbacks for o in outcomes):
        return []
    lines = ["", "left to the reference backend (op, how many graphs):"]
    for tier in TIERS:
        row = [o for o in outcomes if o.tier == tier]
        total: Counter[str] = sum((o.fallbacks for o in row), Counter())
        if row:
            named = ", ".join(f"{name} {count}" for name, count in total.most_common())
            lines.append(f"  {tier:<6}{named or 'nothing'}")
    return lines


def reason(o: Outcome) -> str:
    """Why a pair fails: what the device lacks, or else the first disagreement."""
    return f"no rule for {', '.join(sorted(o.needs))}" if o.needs else o.first_failure


def _failure(o: Outcome) -> str:
    return f"  {o.tier:<6}{o.op:<36} {o.dtype:<10}{f'{o.passed}/{o.total}':>5}  {reason(o)}"


def _cell(outcomes: list[Outcome]) -> str:
    if not outcomes:
        return f"{'-':>12}"
    return f"{f'{sum(o.ok for o in outcomes)}/{len(outcomes)}':>12}"
