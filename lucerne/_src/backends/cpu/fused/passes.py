"""Passes: what is computed in which walk over a unit, and which values are kept in between.

Pass number p runs once all folds of earlier passes are known. It computes the folds whose source
has phase p and writes the full-size results of that phase. A value that is costly and needed again
in a later pass is kept: in the row of a result that is written later, or in scratch memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from lucerne._src.backends.cpu.fused.layout import ALONG, LoopLayout, is_heavy
from lucerne._src.backends.cpu.fused.program import (
    Fold,
    FusedExpr,
    FusedNumber,
    FusedOp,
    FusedProgram,
    Load,
    Result,
)
from lucerne._src.base import dtype as dt

_SHORT_ROW = 1024


@dataclass
class FusedPass:
    """One walk: folds to update, results to write, values to keep for later walks."""

    folds: list[Fold] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    keeps: list[FusedExpr] = field(default_factory=list)

    @property
    def roots(self) -> list[FusedExpr]:
        return [*(f.source for f in self.folds), *(r.expr for r in self.results), *self.keeps]


class Schedule:
    """The passes of a program, the results written per unit, and where values are kept."""

    def __init__(self, layout: LoopLayout) -> None:
        program = layout.program
        self.program, self.layout = program, layout
        self.row_results = [r for r in program.results if not self.is_full_result(r)]
        full = [r for r in program.results if self.is_full_result(r)]
        count = max(
            [f.source.phase + 1 for f in program.folds] + [r.expr.phase + 1 for r in full],
            default=0,
        )
        self.passes = [
            FusedPass(
                [f for f in program.folds if f.source.phase == p],
                [r for r in full if r.expr.phase == p],
            )
            for p in range(count)
        ]
        self.in_result: dict[FusedExpr, Result] = {}
        self.in_scratch: list[FusedExpr] = []
        self._plan_keeping()

    @property
    def in_groups(self) -> bool:
        """Whether a few rows run at a time: short ones, of which more than one pass is needed."""
        layout = self.layout
        nothing_kept = not self.in_result and not self.in_scratch
        short = layout.way == ALONG and layout.fold_size <= _SHORT_ROW and layout.units > 1
        return short and nothing_kept and layout.splits == 1 and len(self.passes) > 1

    def is_full(self, e: FusedExpr) -> bool:
        return bool(e.axes & self.program.folded)

    def is_full_result(self, r: Result) -> bool:
        return any(a is not None and a.root in self.program.folded for a in r.memory.dims)

    def only_when(self, walk: FusedPass) -> FusedExpr | None:
        """Without which nothing has to be walked: every fold has this condition."""
        if walk.results or walk.keeps or not walk.folds:
            return None
        found = {self.program.condition(f) for f in walk.folds}
        return found.pop() if len(found) == 1 else None

    @property
    def rare(self) -> tuple[int, FusedExpr] | None:
        """The pass from which on nothing has to be walked without a condition, and that."""
        needed = [self.only_when(walk) for walk in self.passes]
        first = next((p for p, c in enumerate(needed) if c is not None), None)
        if first is None or len(set(needed[first:])) > 1:
            return None
        condition = needed[first]
        assert condition is not None
        return first, condition

    def walk(self, roots: list[FusedExpr], kept: set[FusedExpr]) -> list[FusedExpr]:
        """Everything that computing `roots` visits, not looking into rows and kept values."""
        found: dict[FusedExpr, None] = {}

        def visit(e: FusedExpr) -> None:
            if e in found:
                return
            found[e] = None
            if self.is_full(e) and e not in kept:
                for part in e.parts():
                    visit(part)

        for e in roots:
            visit(e)
        return list(found)

    def _plan_keeping(self) -> None:
        done: set[FusedExpr] = set()
        kept: set[FusedExpr] = set()
        for number, walk in enumerate(self.passes):
            for e in self._wanted_again(walk.roots, done, kept):
                if self._find_place(e, number):
                    kept.add(e)
                    first = next(p for p in self.passes if e in self.walk(p.roots, set()))
                    first.keeps.append(e)
            done.update(e for e in self.walk(walk.roots, kept) if self.is_full(e))
        if not self.layout.may_keep([e.dtype for e in self.in_scratch]):
            for walk in self.passes:
                walk.keeps = [e for e in walk.keeps if e in self.in_result]
            self.in_scratch = []

    def _wanted_again(
        self, roots: list[FusedExpr], done: set[FusedExpr], kept: set[FusedExpr]
    ) -> list[FusedExpr]:
        """The topmost costly values that an earlier pass computed."""
        found: dict[FusedExpr, None] = {}

        def visit(e: FusedExpr) -> None:
            if not self.is_full(e) or e in kept:
                return
            if e in done and _is_costly(e, self):
                found[e] = None
                return
            for part in e.parts():
                visit(part)

        for e in roots:
            visit(e)
        return list(found)

    def _last_use(self, e: FusedExpr, number: int) -> int:
        """The last pass that reads `e`; values in scratch may not stay kept, so what they are
        computed from counts as read."""
        kept = set(self.in_result)
        later = range(number, len(self.passes))
        return max(p for p in later if e in self.walk(self.passes[p].roots, kept))

    def _find_place(self, e: FusedExpr, number: int) -> bool:
        """In a result of the same type that is written when `e` is read for the last time or
        later, else in scratch."""
        if self.layout.splits > 1 or e.dtype.compute not in (dt.float32, dt.float64):
            return False
        for walk in self.passes[self._last_use(e, number) :]:
            for r in walk.results:
                taken = r in self.in_result.values()
                if not taken and r.memory.dtype is e.dtype and r.memory.dtype.native:
                    self.in_result[e] = r
                    return True
        if any(other.dtype.compute is not e.dtype.compute for other in self.in_scratch):
            return False
        self.in_scratch.append(e)
        return True


def _is_costly(e: FusedExpr, schedule: Schedule) -> bool:
    if isinstance(e, (Load, FusedNumber)) or not schedule.is_full(e):
        return False
    return is_heavy(e) or any(_is_costly(part, schedule) for part in e.parts())


def divides_by_sum_of_exponentials(e: FusedExpr, schedule: Schedule) -> bool:
    """Softmax's last step. The sum is at least one, so multiplying by its reciprocal is safe."""
    if not isinstance(e, FusedOp) or e.op.name != "true_divide":
        return False
    a, b = e.args
    if not isinstance(a, FusedExpr) or not isinstance(b, Fold) or schedule.is_full(b):
        return False
    return schedule.is_full(a) and b.how == "add" and b.source is a and _is_shifted_exp(a)


def _is_shifted_exp(e: FusedExpr) -> bool:
    """exp(x - max(x))"""
    if not isinstance(e, FusedOp) or e.op.name != "exp" or not isinstance(e.args[0], FusedOp):
        return False
    inner = e.args[0]
    return (
        inner.op.name == "sub2"
        and isinstance(inner.args[1], Fold)
        and inner.args[1].how == "max"
        and inner.args[1].source is inner.args[0]
    )


def describe(program: FusedProgram) -> tuple[object, ...]:
    """Everything about a program that its code depends on, apart from the loops."""
    at = {e: k for k, e in enumerate(program.exprs)}
    lines: list[object] = []
    for e in program.exprs:
        if isinstance(e, Load):
            lines.append(("load", e.memory.slot, e.dtype.name, e.memory.offset != 0))
        elif isinstance(e, FusedNumber):
            known = repr(e.value) if e.baked else type(e.value).__name__
            lines.append(("number", known, e.dtype.name))
        elif isinstance(e, Fold):
            lines.append(("fold", e.how, at[e.source], e.compute.name, e.dtype.name))
        elif isinstance(e, FusedOp):
            args = tuple(("e", at[a]) if isinstance(a, FusedExpr) else repr(a) for a in e.args)
            types = tuple(t.name for t in e.types)
            rounded = tuple("" if r is None else r.name for r in e.rounded)
            lines.append((e.op, args, types, rounded, e.dtype.name))
        else:
            lines.append(("convert", at[e.parts()[0]], e.dtype.name))
    lines.extend(("result", at[r.expr], r.memory.dtype.name) for r in program.results)
    return tuple(lines)
