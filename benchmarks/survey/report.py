"""The survey's table (worst first), its summary, and its JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from benchmarks.survey.measure import Row

BOUNDS = (1.0, 1.5, 2.0)
WORST = 10


def table(rows: Iterable[Row], top: int | None = None) -> str:
    """One line per call that was timed, the slowest beside torch first."""
    timed = sorted((row for row in rows if row.torch), key=lambda row: -row.ratio)
    lines = [f"{'op':<52}{'tier':<6}{'call':<16}{'ours us':>12}{'torch us':>12}{'ratio':>8}"]
    for row in timed[:top]:
        what = f"{row.size} {row.way}"
        lines.append(
            f"{row.name:<52}{row.tier:<6}{what:<16}{row.ours:>12.1f}{row.torch:>12.1f}"
            f"{row.ratio:>8.2f}  {row.note}".rstrip()
        )
    return "\n".join(lines)


def summary(rows: Iterable[Row]) -> str:
    """How many calls are how fast, by kind of call and tier, as a Markdown table."""
    timed = [row for row in rows if row.torch]
    head = ["call", "tier", "ops", *(f"<= {bound:g}" for bound in BOUNDS), f"> {BOUNDS[-1]:g}"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for size in ("large", "small"):
        for way in ("forward", "train"):
            for tier in ("T0", "T1", "T2"):
                found = [r.ratio for r in timed if (r.size, r.way, r.tier) == (size, way, tier)]
                if found:
                    lines.append(_counts(f"{size}, {way}", tier, found))
    return "\n".join(lines)


def _counts(what: str, tier: str, ratios: list[float]) -> str:
    below = [sum(ratio <= bound for ratio in ratios) for bound in BOUNDS]
    cells = [what, tier, len(ratios), *below, len(ratios) - below[-1]]
    return "| " + " | ".join(map(str, cells)) + " |"


def untimed(rows: Iterable[Row]) -> str:
    """Calls that could not be timed or whose values differ, and why."""
    return "\n".join(f"{row.name} ({row.size} {row.way}): {row.note}" for row in rows if row.note)


def save(rows: Iterable[Row], path: Path) -> None:
    path.write_text(json.dumps([row.as_dict() for row in rows], indent=1))


def load(path: Path) -> list[Row]:
    """The rows of a run that was saved."""
    found = json.loads(path.read_text())
    return [Row(**{key: x for key, x in row.items() if key != "ratio"}) for row in found]
