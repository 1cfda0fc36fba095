"""A line search for the strong Wolfe conditions (Nocedal, Wright: Numerical Optimization, 3.5).

Moves along a direction until the value is low enough and the slope flat enough. First steps grow
until two of them bracket such a point, then the bracket is narrowed; both by cubic interpolation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

ENOUGH_DECREASE, ENOUGH_FLATNESS = 1e-4, 0.9
MOST_POINTS = 25


@dataclass
class SearchPoint:
    """A step with the value, the gradient and the slope along the direction found there."""

    t: Any
    value: float
    grad: Any
    slope: Any


def lowest_of_cubic(a: SearchPoint, b: SearchPoint, least: Any = None, most: Any = None) -> Any:
    """Where the cubic through both points with their slopes is lowest, within bounds."""
    if least is None:
        least, most = (a.t, b.t) if a.t <= b.t else (b.t, a.t)
    bend = a.slope + b.slope - 3 * (a.value - b.value) / (a.t - b.t)
    square = bend * bend - a.slope * b.slope
    if not square >= 0:
        return (least + most) / 2.0
    left, right = (a, b) if a.t <= b.t else (b, a)
    root = square**0.5
    part = (right.slope + root - bend) / (right.slope - left.slope + 2 * root)
    return min(max(right.t - (right.t - left.t) * part, least), most)


class WolfeSearch:
    """One search: `evaluate(t)` gives value and gradient after a step of `t`."""

    def __init__(
        self, evaluate: Callable[[Any], tuple[float, Any]], direction: Any, start: SearchPoint,
        smallest_change: float,
    ) -> None:  # fmt: skip
        self.evaluate, self.direction, self.start = evaluate, direction, start
        self.smallest_change = smallest_change
        self.points = 0

    def at(self, t: Any) -> SearchPoint:
        self.points += 1
        value, grad = self.evaluate(t)
        return SearchPoint(t, value, grad, grad.dot(self.direction))

    def is_too_high(self, p: SearchPoint) -> bool:
        limit = self.start.value + ENOUGH_DECREASE * p.t * self.start.slope
        return bool(p.value > limit)

    def is_flat(self, p: SearchPoint) -> bool:
        return bool(abs(p.slope) <= -ENOUGH_FLATNESS * self.start.slope)

    def run(self, t: Any) -> SearchPoint:
        a, b = self.bracket(t)
        return a if b is None else self.narrow(a, b)

    def bracket(self, t: Any) -> tuple[SearchPoint, SearchPoint | None]:
        """Two points with a good one between them, or (a good one, None)."""
        before, now = self.start, self.at(t)
        for tried in range(MOST_POINTS):
            if self.is_too_high(now) or (tried > 1 and now.value >= before.value):
                return before, now
            if self.is_flat(now):
                return now, None
            if now.slope >= 0:
                return before, now
            least, most = now.t + 0.01 * (now.t - before.t), now.t * 10
            t = lowest_of_cubic(before, now, least, most)
            before, now = now, self.at(t)
        return self.start, now

    def narrow(self, a: SearchPoint, b: SearchPoint) -> SearchPoint:
        """The best point between two. The pair keeps its order; `low` is the place of the lower."""
        pair = [a, b]
        low = 0 if a.value <= b.value else 1
        length = self.direction.abs().max()
        stuck = False
        while self.points <= MOST_POINTS:
            if abs(pair[1].t - pair[0].t) * length < self.smallest_change:
                break
            t, stuck = self._between(pair[0], pair[1], stuck)
            new = self.at(t)
            high = 1 - low
            if self.is_too_high(new) or new.value >= pair[low].value:
                pair[high] = new
                low = 0 if pair[0].value <= pair[1].value else 1
                continue
            done = self.is_flat(new)
            if not done and new.slope * (pair[high].t - pair[low].t) >= 0:
                pair[high] = pair[low]
            pair[low] = new
            if done:
                break
        return pair[low]

    def _between(self, a: SearchPoint, b: SearchPoint, stuck: bool) -> tuple[Any, bool]:
        """The next step, kept off the ends when the last one was near them too."""
        t = lowest_of_cubic(a, b)
        least, most = min(a.t, b.t), max(a.t, b.t)
        margin = 0.1 * (most - least)
        if min(most - t, t - least) >= margin:
            return t, False
        if stuck or t >= most or t <= least:
            return (most - margin if abs(t - most) < abs(t - least) else least + margin), False
        return t, True
