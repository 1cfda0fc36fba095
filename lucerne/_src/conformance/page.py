"""The result of a conformance run as one self-contained HTML page."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

from lucerne._src.backends.contract.fallback_report import Bill
from lucerne._src.conformance.cases import TIERS
from lucerne._src.conformance.report import TIER_NAMES, dtypes_of, next_op, reason, score
from lucerne._src.conformance.run import Outcome

_STYLE = """
:root { --ink: #1d2733; --soft: #66758a; --line: #dfe5ec; --back: #fff; --good: #dff3e3;
  --good-ink: #14632a; --bad: #fbdcd8; --bad-ink: #9b1c10; --bar: #2f9e4f }
@media (prefers-color-scheme: dark) { :root { --ink: #dde5ee; --soft: #93a1b3; --line: #2c3743;
  --back: #141a21; --good: #173a22; --good-ink: #9be3ae; --bad: #4a1b17; --bad-ink: #ffb3a9 } }
* { box-sizing: border-box }
body { font: 14px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem;
  color: var(--ink); background: var(--back) }
header { display: flex; gap: 2rem; align-items: end; flex-wrap: wrap; margin-bottom: 1.5rem }
h1 { font-size: 1.3rem; margin: 0 } h2 { font-size: 1.05rem; margin: 2rem 0 .5rem }
.score { font-size: 3rem; font-weight: 650; line-height: 1 } .soft { color: var(--soft) }
table { border-collapse: collapse; width: 100% }
th, td { padding: .2rem .6rem; text-align: left; border-bottom: 1px solid var(--line) }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums }
td.ok { background: var(--good); color: var(--good-ink) }
td.bad { background: var(--bad); color: var(--bad-ink); cursor: help }
td.none { color: var(--line) } code { font-size: .93em }
.bar { display: inline-block; width: 6rem; height: .55rem; background: var(--bad);
  margin-right: .6rem }
summary { cursor: pointer } td.why { width: 55%; overflow-wrap: anywhere }
.bar i { display: block; height: 100%; background: var(--bar) }
#ops thead th { position: sticky; top: 0; background: var(--back) }
form { display: flex; gap: 1rem; align-items: center; margin: .5rem 0 }
input[type=search] { padding: .4rem .6rem; width: 20rem; font: inherit; color: inherit;
  background: var(--back); border: 1px solid var(--line) }
"""
_SCRIPT = """
const find = document.querySelector('[type=search]');
const only = document.querySelector('[type=checkbox]');
const rows = [...document.querySelectorAll('#ops tbody tr')];
function show() {
  let n = 0;
  for (const row of rows) {
    const yes = row.dataset.name.includes(find.value.trim()) && (!only.checked || row.dataset.bad);
    row.hidden = !yes; n += yes;
  }
  document.querySelector('#count').textContent = n + ' of ' + rows.length + ' rows';
}
find.addEventListener('input', show); only.addEventListener('change', show); show();
"""


def page(outcomes: Sequence[Outcome], device: str, bill: Sequence[Any] = ()) -> str:
    """Score, scores by tier and dtype, failures with their reasons, and every op with a filter."""
    name = html.escape(device)
    dtypes = dtypes_of(outcomes)
    return (
        "<!doctype html><html lang=en><meta charset=utf-8>"
        "<meta name=viewport content='width=device-width'>"
        f"<title>conformance of {name}</title><style>{_STYLE}</style>"
        f"<header><div class=score>{score(outcomes):.1f} %</div>"
        f"<div><h1>Conformance of device {name}</h1>"
        f"<div class=soft>of {len(outcomes)} (op, dtype) pairs agree in every case</div></div>"
        "</header>"
        + _summary(outcomes, dtypes)
        + _failures(outcomes)
        + _bill(bill)
        + _ops(outcomes, dtypes)
        + f"<script>{_SCRIPT}</script></html>\n"
    )


def _bill(rows: Sequence[Any]) -> str:
    """What left the device, in full."""
    if not rows:
        return ""
    text = html.escape(str(Bill.of(rows)))
    return f"<h2>Left the device</h2><pre>{text}</pre>"


def _summary(outcomes: Sequence[Outcome], dtypes: list[str]) -> str:
    rows = ""
    for tier in TIERS:
        row = [o for o in outcomes if o.tier == tier]
        if row:
            cells = "".join(_share([o for o in row if o.dtype == d]) for d in dtypes)
            share = score(row)
            bar = f"<span class=bar><i style='width:{share:.2f}%'></i></span>{share:.1f} %"
            name = f"{tier} <span class=soft>{TIER_NAMES[tier]}</span>"
            rows += f"<tr><td>{name}</td><td>{bar}</td>{cells}</tr>"
    head = "".join(f"<th class=n>{d}</th>" for d in dtypes)
    head = f"<tr><th>tier</th><th>pairs that agree</th>{head}</tr>"
    return f"<table><thead>{head}</thead><tbody>{rows}</tbody></table>"


def _share(outcomes: list[Outcome]) -> str:
    if not outcomes:
        return "<td class='n none'>-</td>"
    good = sum(o.ok for o in outcomes)
    return f"<td class='n {'ok' if good == len(outcomes) else 'bad'}'>{good}/{len(outcomes)}</td>"


def _failures(outcomes: Sequence[Outcome]) -> str:
    failing = sorted((o for o in outcomes if not o.ok), key=lambda o: TIERS.index(o.tier))
    if not failing:
        return "<h2>Nothing fails</h2>"
    rows = "".join(
        f"<tr><td>{o.tier}</td><td><code>{html.escape(o.op)}</code></td><td>{o.dtype}</td>"
        f"<td class=n>{o.passed}/{o.total}</td><td class=why>{html.escape(reason(o))}</td></tr>"
        for o in failing
    )
    head = "<tr><th>tier</th><th>op</th><th>dtype</th><th class=n>agree</th><th>because</th></tr>"
    return (
        f"<h2>Failing: {len(failing)}</h2>"
        f"<p>Next op worth writing: {html.escape(next_op(outcomes))}</p>"
        f"<details open><summary>{len(failing)} pairs, with the first disagreement</summary>"
        f"<table><thead>{head}</thead><tbody>{rows}</tbody></table></details>"
    )


def _ops(outcomes: Sequence[Outcome], dtypes: list[str]) -> str:
    by_op: dict[tuple[str, str], dict[str, Outcome]] = {}
    for o in outcomes:
        by_op.setdefault((o.tier, o.op), {})[o.dtype] = o
    rows = ""
    for tier, op in sorted(by_op, key=lambda key: (TIERS.index(key[0]), key[1])):
        found = by_op[tier, op]
        bad = "" if all(o.ok for o in found.values()) else " data-bad=1"
        cells = "".join(_cell(found.get(d)) for d in dtypes)
        name = html.escape(op, quote=True)
        rows += f"<tr data-name='{name}'{bad}><td>{tier}<td><code>{name}</code></td>{cells}</tr>"
    head = "".join(f"<th class=n>{d}</th>" for d in dtypes)
    return (
        "<h2>Every op</h2><form onsubmit='return false'>"
        "<input type=search placeholder='part of a name'>"
        "<label><input type=checkbox> only failing</label><span id=count class=soft></span></form>"
        f"<table id=ops><thead><tr><th>tier</th><th>op</th>{head}</tr></thead>"
        f"<tbody>{rows}</tbody></table>"
    )


def _cell(o: Outcome | None) -> str:
    if o is None:
        return "<td class='n none'>-</td>"
    title = "" if o.ok else f" title='{html.escape(reason(o), quote=True)}'"
    return f"<td class='n {'ok' if o.ok else 'bad'}'{title}>{o.passed}/{o.total}</td>"
