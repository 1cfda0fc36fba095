"""The result of a conformance run as a table for the terminal and as one HTML page."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Sequence

from lucerne.conformance.cases import TIERS
from lucerne.conformance.run import Outcome

_TIER_NAMES = {
    "T0": "needed by nearly every model", "T1": "needed by some", "T2": "the rest of torch's op database",
    "entry": "table entries against their NumPy oracle",
}  # fmt: skip
_DTYPE_ORDER = ("float32", "float64", "bfloat16", "float16", "int64", "bool", "complex64")


def score(outcomes: Sequence[Outcome]) -> float:
    """Share of (op, dtype) pairs that agree in every case, in percent."""
    return 100.0 * sum(o.ok for o in outcomes) / max(len(outcomes), 1)


def next_op(outcomes: Sequence[Outcome]) -> str:
    """What is worth writing next: in the most needed tier that fails, the primitive (or else the op)
    that most failing pairs wait for. Empty when nothing fails."""
    for tier in TIERS:
        failing = [o for o in outcomes if o.tier == tier and not o.ok]
        waiting = Counter(name for o in failing for name in sorted(o.needs))
        if waiting:
            name, count = waiting.most_common(1)[0]
            return f"{name} (the device has no rule for it, and {count} failing pairs in {tier} use it)"
        if failing:
            name, count = Counter(o.op for o in failing).most_common(1)[0]
            return f"{name} ({tier}; fails in {count} dtype{'s' if count > 1 else ''})"
    return ""


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
    following = next_op(outcomes)
    return "\n".join(
        [*lines, "", f"next op worth writing: {following}" if following else "nothing fails"]
    )


def _failure(o: Outcome) -> str:
    reason = f"no rule for {', '.join(sorted(o.needs))}" if o.needs else o.first_failure
    return f"  {o.tier:<6}{o.op:<36} {o.dtype:<10}{f'{o.passed}/{o.total}':>5}  {reason}"


def _cell(outcomes: list[Outcome]) -> str:
    if not outcomes:
        return f"{'-':>12}"
    return f"{f'{sum(o.ok for o in outcomes)}/{len(outcomes)}':>12}"


_STYLE = """
body { font: 14px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; color: #1d2733 }
h1 { font-size: 1.4rem } table { border-collapse: collapse; width: 100% }
th, td { padding: .2rem .5rem; text-align: left; border-bottom: 1px solid #e3e8ee }
td.ok { background: #e3f5e6 } td.bad { background: #fde4e1 } td.none { color: #b6c0cb }
input { padding: .4rem; width: 20rem; margin: 1rem 0 } .score { font-size: 2.4rem; font-weight: 600 }
"""
_SCRIPT = """
const box = document.querySelector('input');
box.addEventListener('input', () => document.querySelectorAll('tbody tr').forEach(
  row => row.style.display = row.textContent.includes(box.value) ? '' : 'none'));
"""


def page(outcomes: Sequence[Outcome], device: str) -> str:
    """One self-contained page: op by dtype, coloured, with a filter."""
    dtypes = sorted({o.dtype for o in outcomes})
    by_op: dict[str, dict[str, Outcome]] = {}
    for o in outcomes:
        by_op.setdefault(o.op, {})[o.dtype] = o
    head = "".join(f"<th>{d}</th>" for d in dtypes)
    rows = "".join(
        f"<tr><td>{html.escape(op)}</td><td>{next(iter(found.values())).tier}</td>"
        + "".join(_html_cell(found.get(d)) for d in dtypes)
        + "</tr>"
        for op, found in by_op.items()
    )
    tiers = "".join(f"<li>{t}: {_TIER_NAMES[t]}</li>" for t in TIERS)
    return (
        f"<!doctype html><meta charset=utf-8><title>conformance of {html.escape(device)}</title>"
        f"<style>{_STYLE}</style><h1>Conformance of device {html.escape(device)}</h1>"
        f"<p class=score>{score(outcomes):.1f} %</p><p>of {len(outcomes)} (op, dtype) pairs agree in "
        f"every case.</p><ul>{tiers}</ul><input placeholder='filter ops'>"
        f"<table><thead><tr><th>op</th><th>tier</th>{head}</tr></thead><tbody>{rows}</tbody></table>"
        f"<script>{_SCRIPT}</script>"
    )


def _html_cell(o: Outcome | None) -> str:
    if o is None:
        return "<td class=none>&middot;</td>"
    title = html.escape(o.first_failure, quote=True)
    return f"<td class={'ok' if o.ok else 'bad'} title='{title}'>{o.passed}/{o.total}</td>"
