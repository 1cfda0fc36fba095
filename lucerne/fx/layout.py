"""Layered layout: every box below what it reads, few crossings, short lines.

Boxes are put into layers by the longest way from an input; lines that span several layers get a
bend in each; layers are ordered by the middle of their neighbours, a few times up and down.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

GAP_X, GAP_Y = 26.0, 46.0
BEND = 10.0
SWEEPS = 6


@dataclass
class Spot:
    """A box, or a bend of a line (`box` is -1), with its middle."""

    box: int
    width: float
    height: float
    layer: int
    x: float = 0.0
    y: float = 0.0
    above: list[int] = field(default_factory=list)
    below: list[int] = field(default_factory=list)


@dataclass
class Layout:
    """Where everything is. `lines[(a, b)]` lists the spots a line passes, both ends included."""

    spots: list[Spot]
    lines: dict[tuple[int, int], list[int]]
    width: float
    height: float


def layers(inputs: Sequence[Sequence[int]], late: Sequence[bool]) -> list[int]:
    """The layer of each box; `inputs` names earlier boxes only.

    Boxes marked `late` (parameters), and what is made of nothing else, stand just above their first
    reader instead of at the top.
    """
    found = [0] * len(inputs)
    for box, reads in enumerate(inputs):
        found[box] = max((found[i] + 1 for i in reads), default=0)
    users: list[list[int]] = [[] for _ in inputs]
    for box, reads in enumerate(inputs):
        for i in reads:
            users[i].append(box)
    waits = list(late)
    for box, reads in enumerate(inputs):
        waits[box] = late[box] or (bool(reads) and all(waits[i] for i in reads))
    for box in reversed(range(len(inputs))):
        if waits[box] and users[box]:
            found[box] = min(found[u] for u in users[box]) - 1
    return found


def arrange(
    sizes: Sequence[tuple[float, float]], inputs: Sequence[Sequence[int]], late: Sequence[bool]
) -> Layout:
    """Places for boxes of these sizes, each below the boxes it reads."""
    at = layers(inputs, late)
    spots = [Spot(b, w, h, at[b]) for b, (w, h) in enumerate(sizes)]
    lines: dict[tuple[int, int], list[int]] = {}
    for box, reads in enumerate(inputs):
        for source in dict.fromkeys(reads):
            lines[source, box] = _line(spots, source, box)
    rows: list[list[int]] = [[] for _ in range(max(at, default=0) + 1)]
    for i, spot in enumerate(spots):
        rows[spot.layer].append(i)
    _order(spots, rows)
    _place(spots, rows)
    width = max((s.x + s.width / 2 for s in spots), default=0.0)
    height = max((s.y + s.height / 2 for s in spots), default=0.0)
    return Layout(spots, lines, width, height)


def _line(spots: list[Spot], source: int, box: int) -> list[int]:
    """A line from box to box, with a bend in each layer it passes."""
    way = [source]
    for layer in range(spots[source].layer + 1, spots[box].layer):
        spots.append(Spot(-1, BEND, 0.0, layer))
        way.append(len(spots) - 1)
    way.append(box)
    for a, b in itertools.pairwise(way):
        spots[a].below.append(b)
        spots[b].above.append(a)
    return way


def _order(spots: list[Spot], rows: list[list[int]]) -> None:
    """Sort each layer by the middle of its neighbours' places, down and up in turn."""
    rank = {i: n for row in rows for n, i in enumerate(row)}
    for sweep in range(SWEEPS):
        downwards = sweep % 2 == 0
        for row in rows if downwards else reversed(rows):

            def middle(i: int, downwards: bool = downwards) -> float:
                near = spots[i].above if downwards else spots[i].below
                return sum(rank[n] for n in near) / len(near) if near else float(rank[i])

            row.sort(key=middle)
            for n, i in enumerate(row):
                rank[i] = n


def _place(spots: list[Spot], rows: list[list[int]]) -> None:
    """Coordinates: rows below each other, boxes as near to their neighbours as others let them."""
    y = 0.0
    for row in rows:
        height = max((spots[i].height for i in row), default=0.0)
        x = 0.0
        for i in row:
            spots[i].y = y + height / 2
            spots[i].x = x + spots[i].width / 2
            x += spots[i].width + GAP_X
        y += height + GAP_Y
    for sweep in range(SWEEPS * 2):
        downwards = sweep % 2 == 0
        for row in rows if downwards else reversed(rows):
            _pull(spots, row, downwards)
    left = min((s.x - s.width / 2 for s in spots), default=0.0)
    for spot in spots:
        spot.x -= left


def _pull(spots: list[Spot], row: list[int], downwards: bool) -> None:
    """Move a row's boxes towards their neighbours without changing their order.

    Runs of boxes that would overlap move together, to the mean of what their members want.
    """
    runs: list[tuple[float, int, list[int]]] = []  # sum of wanted left ends, count, boxes
    offsets: dict[int, float] = {}
    for i in row:
        near = spots[i].above if downwards else spots[i].below
        near = near or spots[i].below or spots[i].above
        wanted = sum(spots[n].x for n in near) / len(near) if near else spots[i].x
        runs.append((wanted - spots[i].width / 2, 1, [i]))
        offsets[i] = 0.0
        while len(runs) > 1:
            (sum_a, count_a, a), (sum_b, count_b, b) = runs[-2:]
            last = a[-1]
            end = sum_a / count_a + offsets[last] + spots[last].width + GAP_X
            if sum_b / count_b >= end:
                break
            shift = offsets[last] + spots[last].width + GAP_X
            for j in b:
                offsets[j] += shift
            runs[-2:] = [(sum_a + sum_b - shift * count_b, count_a + count_b, a + b)]
    for total, count, boxes in runs:
        for i in boxes:
            spots[i].x = total / count + offsets[i] + spots[i].width / 2
