"""Memory over time: one page that opens anywhere, or the numbers."""

from __future__ import annotations

import html
import json
import os
from pathlib import Path

from lucerne.profiler.blocks import CATEGORIES, Block, Blocks
from lucerne.profiler.chrome import write_text
from lucerne.profiler.tables import memory_text

_COLOURS = dict(
    zip(
        CATEGORIES, ("#2f6f4f", "#b8860b", "#555555", "#c9c9c9", "#c0392b", "#2e6da4"),
        strict=True,
    )
)  # fmt: skip
_WIDTH, _HEIGHT, _LEFT, _BELOW = 1000, 360, 80, 40
_MOST_POINTS = 2000
_LARGEST = 20

Moments = list[tuple[int, dict[str, int]]]


def write(path: str | os.PathLike[str], blocks: Blocks, began: int, ended: int) -> None:
    """Bytes by category over time, as a page (`.html`) or as JSON (`.json`, `.json.gz`)."""
    target = Path(path)
    moments = blocks.timeline(ended)
    name = target.name.removesuffix(".gz")
    if name.endswith(".html"):
        write_text(target, page(moments, blocks.blocks, began))
    elif name.endswith(".json"):
        times = [time for time, _ in moments]
        sizes = [[sizes[c] for c in CATEGORIES] for _, sizes in moments]
        found = {"categories": CATEGORIES, "times_ns": times, "bytes": sizes}
        write_text(target, json.dumps(found))
    else:
        raise ValueError(f"export_memory_timeline writes .html, .json or .json.gz, not {name!r}")


def page(moments: Moments, blocks: list[Block], began: int) -> str:
    """A page without anything from elsewhere: the curves as a drawing, the largest blocks."""
    peak_at, peak = max(moments, key=lambda m: sum(m[1].values()))
    rows = "".join(
        f"<tr><td><span class=dot style='background:{_COLOURS[c]}'></span>{html.escape(c)}</td>"
        f"<td>{memory_text(peak[c])}</td></tr>"
        for c in CATEGORIES
        if peak[c]
    )
    largest = sorted(blocks, key=lambda b: -b.nbytes)[:_LARGEST]
    listed = "".join(
        f"<tr><td>{memory_text(b.nbytes)}</td><td>{html.escape(b.category)}</td>"
        f"<td>{html.escape(b.made_by or 'before the profile')}</td>"
        f"<td>{html.escape(b.where)}</td></tr>"
        for b in largest
    )
    after = (peak_at - began) / 1e6
    return _PAGE.format(
        total=memory_text(sum(peak.values())), after=f"{after:.2f}", drawing=_drawing(moments),
        rows=rows, listed=listed,
    )  # fmt: skip


def _drawing(moments: Moments) -> str:
    """Stacked areas, each moment a step."""
    step = max(1, len(moments) // _MOST_POINTS)
    kept = moments[::step] + moments[-1:]
    first, last = kept[0][0], max(kept[-1][0], kept[0][0] + 1)
    most = max(max(sum(sizes.values()) for _, sizes in kept), 1)

    def x(time: int) -> float:
        return _LEFT + (time - first) / (last - first) * (_WIDTH - _LEFT)

    def y(nbytes: float) -> float:
        return _HEIGHT - _BELOW - nbytes / most * (_HEIGHT - _BELOW - 10)

    parts = []
    floor = [0] * len(kept)
    for category in CATEGORIES:
        roof = [low + sizes[category] for low, (_, sizes) in zip(floor, kept, strict=True)]
        if roof != floor:
            times = [time for time, _ in kept]
            there = _stairs([x(t) for t in times], [y(n) for n in roof])
            back = _stairs([x(t) for t in times], [y(n) for n in floor])[::-1]
            points = " ".join(f"{a:.1f},{b:.1f}" for a, b in there + back)
            title = html.escape(category)
            colour = _COLOURS[category]
            parts.append(
                f"<polygon points='{points}' fill='{colour}'><title>{title}</title></polygon>"
            )
        floor = roof
    marks = [
        f"<text x='{_LEFT - 8}' y='{y(n) + 4:.1f}' text-anchor='end'>{memory_text(int(n))}</text>"
        f"<line x1='{_LEFT}' x2='{_WIDTH}' y1='{y(n):.1f}' y2='{y(n):.1f}'/>"
        for n in ticks(most, 1024)
    ]
    marks += [
        f"<text x='{x(first + int(t)):.1f}' y='{_HEIGHT - 15}' text-anchor='middle'>"
        f"{t / 1e6:g} ms</text>"
        for t in ticks(last - first, 1000)
    ]
    inside = "".join(parts + marks)
    return f"<svg viewBox='0 0 {_WIDTH + 40} {_HEIGHT}' role='img'>{inside}</svg>"


def ticks(most: float, unit: int) -> list[float]:
    """Round numbers from 0 to `most`, about five; round in powers of `unit` times 1, 2 or 5."""
    size = 1.0
    while size * unit <= most / 5:
        size *= unit
    step = next(size * k for k in (1, 2, 5, 10, 20, 50, 100, 200, 500, unit) if size * k * 6 > most)
    return [k * step for k in range(int(most / step) + 1)]


def _stairs(xs: list[float], ys: list[float]) -> list[tuple[float, float]]:
    """A value holds until the next moment."""
    found = []
    for k, (x, y) in enumerate(zip(xs, ys, strict=True)):
        if k:
            found.append((x, ys[k - 1]))
        found.append((x, y))
    return found


_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Memory timeline</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 1080px; margin: 2rem auto; color: #222; }}
svg {{ width: 100%; }} svg line {{ stroke: #0002; }}
svg text {{ font: 12px system-ui, sans-serif; fill: #666; }}
table {{ border-collapse: collapse; margin: 1rem 0; }}
td, th {{ padding: .2rem 1rem .2rem 0; text-align: left; }}
th {{ border-bottom: 1px solid #ccc; }}
.dot {{ display: inline-block; width: .8em; height: .8em; border-radius: .2em; }}
.dot {{ margin-right: .5em; }}
</style>
<h1>Memory timeline</h1>
<p>The most was {total}, after {after} ms. At that moment:</p>
<table>{rows}</table>
{drawing}
<h2>The largest blocks</h2>
<table><tr><th>size</th><th>category</th><th>made by</th><th>at</th></tr>{listed}</table>
</html>
"""
