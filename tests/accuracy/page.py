"""The table of errors as one self-contained page."""

from __future__ import annotations

from html import escape

from tests.accuracy.measure import Cell, Found
from tests.accuracy.reductions import Outcome

_STYLE = """
body { font: 14px/1.4 system-ui, sans-serif; margin: 2em; color: #222; }
table { border-collapse: collapse; margin-bottom: 2em; }
th, td { padding: 3px 8px; text-align: right; border-bottom: 1px solid #ddd; }
th { border-bottom: 2px solid #888; position: sticky; top: 0; background: #fff; }
td { font-variant-numeric: tabular-nums; }
td:first-child, th:first-child { text-align: left; }
.bad { background: #fdd; } .open { background: #fff3bf; } .note { color: #777; font-size: 12px; }
"""
_TEXT = """The largest error of float32 functions in units of the last place, ours and below it
torch's, in ten ranges of operands (hover over a number to see which, and where the error is).
Yellow: more than 4 units, where half a unit of the operands changes the result by more. Red: more
than is allowed, more than 4 times torch's, or a reference that is not mpmath's."""


def number(error: float) -> str:
    return f"{error:.2f}" if error < 100 else f"{error:.1e}"


def _cell(cell: Cell) -> str:
    kind = " class=bad" if not cell.good else " class=open" if cell.conditioned else ""
    at = ", ".join(f"{x:g}" for x in cell.at)
    title = f"{cell.label}: {cell.excess:.2f} of what is allowed, at {at}"
    note = f"<div class=note>{number(cell.theirs)}</div>"
    return f'<td{kind} title="{escape(title)}">{number(cell.ours)}{note}</td>'


def _row(found: Found) -> str:
    about = f"{found.row.source}, {sum(c.proved for c in found.cells)} by mpmath"
    name = f"<td>{escape(found.row.name)}<div class=note>{about}</div></td>"
    return f"<tr>{name}{''.join(map(_cell, found.cells))}"


def _reduction(done: Outcome) -> str:
    kind = "" if done.good else " class=bad"
    return (
        f"<tr><td>{escape(done.row.name)}<div class=note>{escape(done.row.why)}</div></td>"
        f"<td{kind}>{done.ours:.1e}</td><td>{done.theirs:.1e}</td><td>{done.row.bound:.1e}</td>"
    )


def html(rows: list[Found], reductions: list[Outcome], summary: str) -> str:
    head = "".join(f"<th>{k}</th>" for k in range(1, 11))
    return (
        f"<!doctype html><meta charset=utf-8><title>Accuracy</title><style>{_STYLE}</style>"
        f"<h1>Accuracy</h1><p>{escape(summary)}</p><p>{_TEXT}</p>"
        f"<table><tr><th>function{head}{''.join(map(_row, rows))}</table>"
        "<p>Reductions: the largest relative error.</p>"
        "<table><tr><th>reduction<th>ours<th>torch<th>allowed"
        f"{''.join(map(_reduction, reductions))}</table>"
    )
