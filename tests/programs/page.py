"""The table of programs as one self-contained page."""

from __future__ import annotations

from html import escape

from tests.programs.measure import Cell, Row
from tests.programs.rows import WAYS

_STYLE = """
body { font: 14px/1.4 system-ui, sans-serif; margin: 2em; color: #222; }
table { border-collapse: collapse; } th, td { padding: 3px 10px; text-align: right; }
th { border-bottom: 2px solid #888; position: sticky; top: 0; background: #fff; }
td { border-bottom: 1px solid #ddd; font-variant-numeric: tabular-nums; }
td:first-child, td:nth-child(2), th:first-child, th:nth-child(2) { text-align: left; }
.bad { background: #fdd; } .note { color: #777; font-size: 12px; }
"""


def _cell(cell: Cell | None) -> str:
    if cell is None:
        return "<td></td>"
    if cell.error:
        return f"<td class=bad>{escape(cell.error)}</td>"
    cost = "" if cell.way == "eager" else f", {cell.compiles} compiles, {cell.breaks} breaks"
    given = ", given up" * cell.given_up
    kind = "" if cell.good else " class=bad"
    note = f"<div class=note>{cell.milliseconds:.2f} ms{cost}{given}</div>"
    return f"<td{kind}>{cell.deviation:.1e}{note}</td>"


def html(rows: list[Row]) -> str:
    head = "".join(f"<th>{escape(way)}</th>" for way in WAYS)
    body = []
    for row in rows:
        measure = f"{row.program.limit:.0e} {row.program.why}".strip()
        measure += ", on average when compiled" * row.program.random
        cells = "".join(_cell(row.cells.get(way)) for way in WAYS)
        body.append(
            f"<tr><td>{escape(row.name)}</td><td>{escape(row.program.field)}"
            f"<div class=note>{escape(measure)}</div></td>"
            f"<td>{row.torch_milliseconds:.2f} ms</td>{cells}"
        )
    wrong = sum(len(row.wrong) for row in rows)
    return (
        f"<!doctype html><meta charset=utf-8><title>Programs</title><style>{_STYLE}</style>"
        f"<h1>Training programs</h1><p>{len(rows)} programs, {wrong} runs differ. A number is the "
        "largest difference of a loss from torch's (bitwise: from our eager), relative to losses "
        "above 1; below it the time of a step when all is compiled, how often that was done, and "
        "the breaks.</p>"
        f"<table><tr><th>program<th>field<th>torch{head}{''.join(body)}</table>"
    )
