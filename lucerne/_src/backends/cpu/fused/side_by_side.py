"""Rows side by side whose results need no walk but a rare one: their folds are lanes of a vector.

A norm of a short row is a few vectors of squares, and then a comparison, a branch and a root of a
single number. Four rows share those: one comparison, one branch, one root.
"""

from __future__ import annotations

from collections.abc import Sequence

from lucerne._src.backends.cpu.elementwise.apply import apply_point, rounded_to
from lucerne._src.backends.cpu.emit.builder import LLVMValue
from lucerne._src.backends.cpu.fused.program import (
    Convert,
    Fold,
    FusedExpr,
    FusedNumber,
    FusedOp,
    Load,
)
from lucerne._src.backends.cpu.fused.unit import Unit, run_passes, scope, write_all_rows
from lucerne._src.backends.cpu.machine import LlvmScalar
from lucerne._src.backends.cpu.math.number import NotTaken, Num, constant
from lucerne._src.base import dtype as dt

ROWS = 4


class RowLanes:
    """What has one value for a row, row by row in the lanes of a vector."""

    def __init__(self, units: Sequence[Unit]) -> None:
        self.units, self.f, self.frame = units, units[0].f, units[0].frame
        self.machine = LlvmScalar(self.f, len(units))
        self.known: dict[FusedExpr, Num] = {}

    def value(self, e: FusedExpr) -> Num:
        """An expression, as its dtype holds it."""
        if e not in self.known:
            self.known[e] = self._raw(e)
        return rounded_to(self.machine, self.known[e], e.dtype)

    def _raw(self, e: FusedExpr) -> Num:
        if e in self.frame.still:
            return self.machine.splat(self.frame.still[e])
        if isinstance(e, (Fold, Load)):
            return self._lanes([unit.row(e, 0) for unit in self.units])
        if isinstance(e, FusedNumber):
            return self.frame.number(e, self.machine)
        if isinstance(e, Convert):
            return self.machine.to(self.value(e.source), e.dtype.compute)
        assert isinstance(e, FusedOp), e
        found = apply_point(e, self.machine, self.value)
        if self.machine.failed is not None:
            raise NotTaken("an op that may fail")
        return found

    def _lanes(self, scalars: Sequence[Num]) -> Num:
        """Scalars as one vector."""

        def joined(parts: Sequence[LLVMValue]) -> LLVMValue:
            made = self.f.splat(parts[0], len(parts))
            for lane, x in enumerate(parts[1:], 1):
                made = self.f.insert(made, x, lane)
            return made

        first = scalars[0]
        im = None if first.im is None else joined([x.im for x in scalars if x.im is not None])
        return Num(first.dtype, joined([x.re for x in scalars]), im)

    def is_anywhere(self, condition: FusedExpr) -> LLVMValue:
        """Whether it holds for one of the rows."""
        return self.f.fold("or", self.value(condition).re)

    def leave_out(self, condition: FusedExpr, first: int) -> None:
        """The passes from `first` on walk over nothing: the condition does not hold."""
        lanes = len(self.units)
        self.known = {condition: constant(self.f, False, dt.bool_, lanes)}
        for walk in self.units[0].schedule.passes[first:]:
            for fold in walk.folds:
                m = self.frame.monoids[fold]
                found = m.value(self.f, m.start(self.f, lanes))
                self.known[fold] = self.machine.to(found, fold.dtype.compute)

    def write_rows(self) -> None:
        """Compute all results, then store them."""
        results = self.units[0].schedule.row_results
        computed = [self.value(r.expr) for r in results]
        for r, x in zip(results, computed, strict=True):
            k = self.units[0].layout.program.results.index(r)
            for lane, unit in enumerate(self.units):
                im = None if x.im is None else self.f.extract(x.im, lane)
                one = Num(x.dtype, self.f.extract(x.re, lane), im)
                self.frame.one.store(one, r.memory.dtype, unit.pointers[k])


def run_side_by_side(units: Sequence[Unit], first: int, condition: FusedExpr) -> None:
    """All passes of some rows; those from `first` on only where one of the rows needs them."""
    f, count = units[0].f, len(units[0].schedule.passes)
    run_passes(units, range(first))
    lanes = RowLanes(units)
    with f.if_(lanes.is_anywhere(condition)) as rare, scope(units):
        run_passes(units, range(first, count))
        write_all_rows(units)
    with rare.else_(), scope(units):
        lanes.leave_out(condition, first)
        lanes.write_rows()
