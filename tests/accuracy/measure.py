"""Errors in units of the last place, range by range: ours, torch's, and what is allowed.

What is allowed is 4 units, or, where that is more, what half a unit of the operands changes in the
result: of a badly conditioned value nobody who sees float32 operands can ask for more. It is
computed from the reference itself, at the elements that are off by more than 4 units.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from mpmath import mp

from lucerne._src.base import dtype as dt
from tests.accuracy.rows import Range, Row
from tests.cpu.ulp import unit_of

Array = np.ndarray[Any, Any]
UNITS = 4.0
TIMES = 4.0
"""Of torch's error, above one unit."""
MOVES, MORE_MOVES = 16, 2000
"""Where operands are moved to: some places at first, uneven ones, and many before an element counts
as wrong. Of a wave with turns shorter than a unit, some are all near its crest by chance."""


@dataclass(frozen=True)
class Cell:
    """What was found in one range."""

    label: str
    ours: float
    theirs: float
    excess: float
    """The largest error as a share of what is allowed at its place."""
    at: tuple[float, ...]
    """The operands of the largest such share."""
    reference: float
    """How far the reference is from mpmath, as a share of what is allowed."""
    proved: int
    """How many values mpmath has seen."""

    @property
    def too_far(self) -> bool:
        return self.excess > 1.001  # (a wave's crest is met by chance, never quite)

    @property
    def beyond_torch(self) -> bool:
        return self.ours > max(1.0, TIMES * self.theirs)

    @property
    def bad_reference(self) -> bool:
        return self.reference > 0.1

    @property
    def conditioned(self) -> bool:
        return self.ours > UNITS and not self.too_far

    @property
    def good(self) -> bool:
        return not (self.too_far or self.beyond_torch or self.bad_reference)


@dataclass
class Found:
    """A row with its cells."""

    row: Row
    cells: list[Cell] = field(default_factory=list)

    @property
    def wrong(self) -> list[Cell]:
        return [cell for cell in self.cells if not cell.good]

    def most(self, name: str) -> float:
        return max(getattr(cell, name) for cell in self.cells)


def operands(row: Row, part: Range, count: int) -> list[Array]:
    """Float32 values of a range; the same for a name and a count, whatever else is measured."""
    rng = np.random.default_rng(zlib.crc32(f"{row.name} {part.label}".encode()))
    x = part.draw(rng, count)
    for centre in row.around:
        if part.offset == 0 and part.low <= centre <= part.high:
            chosen = rng.random(count) < 0.25
            near = centre * (1 + rng.choice((-1, 1), count) * 10.0 ** rng.uniform(-7.2, -1, count))
            x = np.where(chosen, near, x)
    if row.domain.signed:
        x = x * rng.choice((-1.0, 1.0), count)
    drawn = [x] if row.second is None else [x, row.second(rng, x)]
    with np.errstate(all="ignore"):
        return [np.asarray(v, np.float32) for v in drawn]


def truth_of(row: Row, xs: list[Array]) -> Array:
    with np.errstate(all="ignore"):
        return np.asarray(row.truth(*xs), np.float64)


def errors(got: Array, truth: Array) -> Array:
    """In units of the last place, infinity taken for the number after the largest; infinite where
    only one of both is a number."""
    top = np.copysign(2.0**128, truth)
    bounded = np.where(np.abs(truth) > 2.0**128, top, truth)
    with np.errstate(all="ignore"):
        mine = np.clip(got.astype(np.float64), -(2.0**128), 2.0**128)
        off = np.abs(mine - bounded) / unit_of(bounded * (1 - 2.0**-30), dt.float32)
    off = np.where(np.isnan(got) | np.isnan(truth), np.inf, off)
    return np.where(np.isnan(got) & np.isnan(truth), 0.0, off)


def allowed(row: Row, xs: list[Array], truth: Array, moves: int = MOVES) -> Array:
    """In units of the last place, at these operands."""
    places = (-0.5, 0.5, *np.random.default_rng(0).uniform(-0.5, 0.5, moves))
    wide, total = [x.astype(np.float64) for x in xs], np.zeros_like(truth)
    for k, x in enumerate(xs):
        step, most = np.spacing(np.abs(x)).astype(np.float64), np.zeros_like(truth)
        for move in places:
            moved = truth_of(row, [*wide[:k], wide[k] + move * step, *wide[k + 1 :]])
            most = np.fmax(most, _distance(moved, truth))
        total += most
    with np.errstate(all="ignore"):
        return np.maximum(UNITS, total / unit_of(truth, dt.float32))


def _distance(a: Array, b: Array) -> Array:
    with np.errstate(all="ignore"):
        return np.where(a == b, 0.0, np.abs(a - b))


def measured(row: Row, ours: Any, theirs: Any, count: int, proofs: int) -> Iterator[Cell]:
    """Cell by cell. `ours` and `theirs` take and give arrays."""
    for part in row.domain.ranges:
        xs = operands(row, part, count)
        wide = [x.astype(np.float64) for x in xs]
        truth, mine, other = truth_of(row, wide), ours(row, *xs), theirs(row, *xs)
        off, off_other = errors(mine, truth), errors(other, truth)
        # Where a function ends, and how, is torch's to say; conformance tests hold us to it.
        kind = ~np.isfinite(mine) & (np.isfinite(truth) | np.isnan(truth) | np.isnan(mine))
        convention = kind & ((mine == other) | (np.isnan(mine) & np.isnan(other)))
        off, off_other = np.where(convention, 0.0, off), np.where(convention, 0.0, off_other)
        share, place = off / UNITS, int(off.argmax())
        for moves in (MOVES, MORE_MOVES):
            far = np.nonzero(share > 1)[0]
            if not len(far):
                break
            share[far] = off[far] / allowed(row, [x[far] for x in xs], truth[far], moves)
        worst = int(share.argmax())
        chosen = {worst, place, int(off_other.argmax()), *range(proofs)}
        reference, proved = proof(row, xs, truth, sorted(chosen))
        yield Cell(part.label, float(off[place]), float(off_other.max()), float(share[worst]),
                   tuple(float(x[worst]) for x in xs), reference, proved)  # fmt: skip


def proof(row: Row, xs: list[Array], truth: Array, chosen: list[int]) -> tuple[float, int]:
    """(how far the reference is from mpmath, as a share of what is allowed; values compared)."""
    most, count = 0.0, 0
    for k in chosen:
        values = [float(x[k]) for x in xs]
        if max(map(abs, values)) > row.largest or not math.isfinite(truth[k]):
            continue
        exact = _exactly(row, values)
        if exact is None:
            continue
        count += 1
        at = [x[k : k + 1] for x in xs]
        room = float(allowed(row, at, truth[k : k + 1])[0])
        unit = float(unit_of(truth[k : k + 1], dt.float32)[0])
        with mp.workdps(row.digits):
            most = max(most, float(abs(exact - mp.mpf(float(truth[k]))) / unit) / room)
    return most, count


def _exactly(row: Row, values: list[float]) -> Any:
    """None where mpmath has no number: at a pole, or when it does not come to rest."""
    with mp.workdps(row.digits):
        try:
            found = row.exact(*[mp.mpf(v) for v in values])
        except (ValueError, ZeroDivisionError, OverflowError, mp.NoConvergence):
            return None
        return mp.re(found) if mp.isfinite(found) else None


def runner(package: Any) -> Callable[..., Array]:
    """A row on arrays, by a package that has torch's names."""

    def run(row: Row, *xs: Array) -> Array:
        return row.run(package, *[package.from_numpy(x) for x in xs]).numpy()

    return run
