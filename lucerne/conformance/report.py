"""The result of a conformance run as a table for the terminal and as one HTML page."""

from __future__ import annotations

import html
from collections.abc import Sequence

from lucerne.conformance.run import Outcome

TIERS = ("T0", "T1", "T2", "entry")
_TIER_NAMES = {
    "T0": "needed by nearly every model", "T1": "needed by some", "T2": "the rest of torch's op database",
    "entry": "table entries against their NumPy oracle",
}  # fmt: skip


def score(outcomes: Sequence[Outcome]) -> float:
    """Share of (op, dtype) pairs that agree in every case, in percent."""
    return 100.0 * sum(o.ok for o in outcomes) / max(len(outcomes), 1)


def next_op(outcomes: Sequence[Outcome]) -> str | None:
    """The failing op that is worth writing next: the most needed tier first, then most pairs failing."""
    for tier in TIERS:
        failing: dict[str, int] = {}
        for o in outcomes:
            if o.tier == tier and not o.ok:
                failing[o.op] = failing.get(o.op, 0) + 1
        if failing:
            return max(failing, key=lambda name: failing[name])
    return None


def text(outcomes: Sequence[Outcome], device: str, *, failures: bool = True) -> str:
    """Scores by tier and dtype, then what fails and why."""
    dtypes = sorted({o.dtype for o in outcomes})
    lines = [f"device {device}: {score(outcomes):.1f} % of {len(outcomes)} (op, dtype) pairs"]
    lines.append(f"{'tier':<7}" + "".join(f"{d:>12}" for d in dtypes) + f"{'all':>12}")
    for tier in TIERS:
        row = [o for o in outcomes if o.tier == tier]
        if row:
            cells = [[o for o in row if o.dtype == d] for d in dtypes]
            lines.append(f"{tier:<7}" + "".join(_cell(c) for c in [*cells, row]))
    if failures:
        lines += [f"  {o.op:<40}{o.dtype:<11}{o.passed}/{o.total}  {o.first_failure}" for o in outcomes if not o.ok]
    following = next_op(outcomes)
    lines.append(f"next op worth writing: {following}" if following else "nothing is missing")
    return "\n".join(lines)


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
