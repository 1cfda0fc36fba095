"""Rows of the compiler's benchmark: every side's best figure, judged against the best rival."""

from __future__ import annotations

import dataclasses
import html
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.report import amount, page
from benchmarks.sides import OURS, OURS_EAGER, RIVALS, SIDES

Facts = dict[str, Any]
_SHOWN = (*SIDES, "ratio", "limit")


@dataclasses.dataclass
class Row:
    """One figure of all sides. `limit` bounds ours over the best of `rivals`."""

    section: str
    name: str
    sides: dict[str, float] = dataclasses.field(default_factory=dict)
    unit: str = "s"
    limit: float | None = None
    limit_ours: float | None = None
    """An absolute limit, in `unit`."""
    more: bool = False
    """Whether more is better: a rate, with a least ratio."""
    rivals: tuple[str, ...] = RIVALS
    ways: dict[str, str] = dataclasses.field(default_factory=dict)
    """Which way was the best of each side."""
    note: str = ""
    busy: float = 0.0
    """Share of the timings that began while something else was running on the machine."""

    @property
    def ours(self) -> float | None:
        """The compiled figure; where nothing compiled ran, the eager one stands in."""
        return self.sides.get(OURS, self.sides.get(OURS_EAGER))

    @property
    def best(self) -> float | None:
        found = [self.sides[r] for r in self.rivals if r in self.sides]
        if not found:
            return None
        return max(found) if self.more else min(found)

    @property
    def ratio(self) -> float | None:
        return self.ours / self.best if self.ours is not None and self.best else None

    @property
    def passed(self) -> bool | None:
        """Whether all limits hold; None when nothing was measured or nothing is required."""
        if self.note.startswith("WRONG"):
            return False
        if self.ours is None:
            return None
        told: list[bool] = []
        if self.limit is not None and self.ratio is not None:
            told.append(self.ratio >= self.limit if self.more else self.ratio <= self.limit)
        if self.limit_ours is not None:
            told.append(self.ours <= self.limit_ours)
        return all(told) if told else None

    @property
    def verdict(self) -> str:
        """PASS or MISS, with a question mark when the machine was too busy to tell."""
        if self.passed is None:
            return "absent" if self.ours is None else ""
        return ("PASS" if self.passed else "MISS") + ("?" if self.busy > 0.5 else "")

    @property
    def required(self) -> str:
        sign = ">=" if self.more else "<="
        parts = [] if self.limit is None else [f"{sign} {self.limit:.2f}"]
        if self.limit_ours is not None:
            parts.append(f"<= {amount(self.limit_ours, self.unit)}")
        return ", ".join(parts)

    @property
    def told(self) -> str:
        """The best ways of the sides that had several, and what else there is to say."""
        stand_in = "eager stands in" if OURS not in self.sides and self.ours is not None else ""
        tried = "; ".join(f"{side}: {way}" for side, way in self.ways.items())
        return " | ".join(x for x in (self.note, stand_in, tried) if x)

    def cells(self) -> list[str]:
        shown = [amount(self.sides.get(s), self.unit) for s in SIDES]
        return [*shown, "-" if self.ratio is None else f"{self.ratio:.2f}", self.required]


def head(title: str, name: str) -> str:
    return f"\n{title}  [{name}]\n{'':<38}" + "".join(f"{c:>14}" for c in _SHOWN)


def line(r: Row) -> str:
    figures = "".join(f"{c:>14}" for c in r.cells())
    tail = f"\n{'':<40}{r.told}" if r.told else ""
    return f"{r.name:<38}{figures}  {r.verdict}{tail}"


def summary(rows: Sequence[Row], facts: Facts) -> str:
    judged = [r for r in rows if r.passed is not None]
    passed = sum(bool(r.passed) for r in judged)
    text = f"\n{passed} of {len(judged)} within their limit; {facts['seconds']:.0f} s"
    if any(r.busy > 0.5 for r in judged):
        text += "\nverdicts marked '?' mean little: measure again on a quiet machine"
    return text


def write_json(path: str, rows: Sequence[Row], facts: Facts) -> None:
    found = [
        {**dataclasses.asdict(r), "ratio": r.ratio, "verdict": r.verdict, "told": r.told}
        for r in rows
    ]
    Path(path).write_text(json.dumps({**facts, "rows": found}, indent=1) + "\n")


def write_html(path: str, rows: Sequence[Row], facts: Facts) -> None:
    """One page that needs nothing else."""
    names = list(dict.fromkeys(r.section for r in rows))
    body = "".join(_table(n, [r for r in rows if r.section == n]) for n in names)
    told = f"{facts['when']}; {facts['threads']} threads; {facts['machine']}; " + facts["how"]
    Path(path).write_text(page("Lucerne's compiler beside its rivals", told, body))


def _table(name: str, rows: Sequence[Row]) -> str:
    columns = "".join(f"<th>{html.escape(c)}</th>" for c in ("case", *_SHOWN, ""))
    return (
        f"<h2>{html.escape(name)}</h2><table><tr>{columns}</tr>{''.join(map(_row, rows))}</table>"
    )


def _row(r: Row) -> str:
    cells = "".join(f"<td>{html.escape(c)}</td>" for c in r.cells())
    return (
        f"<tr><td>{html.escape(r.name)} <small>{html.escape(r.told)}</small></td>{cells}"
        f"<td class={r.verdict.rstrip('?') or 'none'}>{r.verdict}</td></tr>"
    )
