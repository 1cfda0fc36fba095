"""Cross entropy against class numbers: rows of scores, one kernel forward and one backward.

Forward a row costs two passes (largest score, sum of exponentials), backward three: the second
leaves the exponentials in the row of the result (in a row of the workspace where the result would
round them), the third scales them. The loss of each row and its weight go to the workspace and are
added in order at the end.

Extra words: [rows] [classes] [row stride] [target stride] [rows per chunk] [chunks] [ignored class]
[stride of g].
Workspace: [failed] [wrong target] [total weight] ... then 16 bytes per row (loss, weight), then one
row of exponentials per thread.
"""

from __future__ import annotations

from dataclasses import dataclass

from lucerne._src.backends.cpu.emit.builder import (
    F64,
    I64,
    PTR,
    VOID,
    LLVMFunction,
    LLVMValue,
    Module,
)
from lucerne._src.backends.cpu.emit.target import VECTOR_BYTES
from lucerne._src.backends.cpu.fused.monoids import Extreme, Monoid, Sum
from lucerne._src.backends.cpu.machine import LlvmScalar
from lucerne._src.backends.cpu.math.number import Num
from lucerne._src.base import dtype as dt

ROWS, CLASSES, ROW_STEP, TARGET_STEP, CHUNK, CHUNKS, IGNORED, G_STEP = range(8)
HEADER = 64
"""Bytes of the workspace before the rows."""
_FAILED, _WRONG, _TOTAL = 0, 8, 16


@dataclass(frozen=True)
class CrossEntropyKind:
    """What the code depends on."""

    dtype: str
    """Of the op: the loss, the weights, the incoming gradient."""
    weighted: bool
    reduction: str
    backward: bool
    scores: str = ""
    """How scores lie in memory, if they are cast on the way."""
    result: str = ""
    """Backward: what the gradient is rounded to on the way, if it is."""
    order: tuple[int, ...] = (0, 1, 2, 3)
    """Which of the tensors given are (incoming gradient) scores, targets (weights)."""


class _Writer:
    def __init__(self, m: Module, kind: CrossEntropyKind) -> None:
        self.m, self.kind = m, kind
        self.dtype = dt.by_name(kind.dtype)
        self.given = dt.by_name(kind.scores or kind.dtype)
        self.result = dt.by_name(kind.result or kind.dtype)
        self.compute = self.dtype.compute
        self.lanes = VECTOR_BYTES // self.compute.itemsize
        # [out] [g, when backward] [scores] [targets] [weights] in some order, [workspace]
        self.words = [1 + k for k in kind.order]
        self.scores = int(kind.backward)
        self.workspace = 1 + self.scores + 2 + kind.weighted
        self.first = self.workspace + 1

    # ---- functions -----------------------------------------------------------------------------

    def write(self) -> None:
        params = [("block", PTR), ("chunk", I64), ("tid", I64)]
        with self.m.function("task", params, internal=True) as f:
            self._enter(f, f.args[0])
            start = f.args[1] * self.extra[CHUNK]
            stop = f.minimum(start + self.extra[CHUNK], self.extra[ROWS])
            row = (f.args[2] * self.extra[CLASSES] + self.extra[ROWS] * 2) * 8 + HEADER
            self.kept_row = f.at(self.space, row)
            with f.loop(start, stop) as rows:
                self._row(rows.index)
        with self.m.function("entry", [("block", PTR)], I64) as f:
            block = f.args[0]
            self._enter(f, block)
            f.store(f.constant(0), self.space)
            if self.kind.backward:
                self._check_targets()
            chunks = self.extra[CHUNKS]
            with f.if_(chunks > 1) as several:
                f.call("lucerne_pfor", VOID, [f.symbol("task"), block, chunks])
            with several.else_():
                f.call("task", VOID, [block, 0, 0])
            if not self.kind.backward and self.kind.reduction != "none":
                self._reduce()
            failed = f.load(I64, self.space)
            with f.if_(f.compare("ne", failed, 0)):
                f.store(f.load(I64, f.at(self.space, _WRONG)), block)
            f.ret(failed)

    def _enter(self, f: LLVMFunction, block: LLVMValue) -> None:
        self.f = f
        self.one, self.wide = LlvmScalar(f, 1), LlvmScalar(f, self.lanes)
        self.extra = [f.word(block, self.first + k) for k in range(8)]
        self.pointers = [f.word(block, k, PTR) for k in range(self.workspace + 1)]
        self.space = self.pointers[self.workspace]
        self.tensors = [self.pointers[k] for k in self.words if k < self.workspace]

    # ---- rows ----------------------------------------------------------------------------------

    def _target(self, row: LLVMValue) -> LLVMValue:
        return self.f.load(
            I64, self.f.at(self.tensors[self.scores + 1], row * self.extra[TARGET_STEP])
        )

    def _weight(self, target: LLVMValue) -> LLVMValue:
        """The weight of a class, as a compute scalar."""
        if not self.kind.weighted:
            return self.one.to(1, self.compute).re
        place = self.f.at(self.tensors[self.scores + 2], target * self.dtype.itemsize)
        return self.one.load(self.dtype, place).re

    def _checked(self, target: LLVMValue) -> tuple[LLVMValue, LLVMValue]:
        """(whether a row counts, its target or 0); notes targets that are no class."""
        f = self.f
        counts = f.compare("ne", target, self.extra[IGNORED])
        wrong = counts & f.compare("uge", target, self.extra[CLASSES])
        with f.if_(wrong):
            f.atomic_store(target, f.at(self.space, _WRONG), "monotonic")
            f.atomic_store(f.constant(1), f.at(self.space, _FAILED), "monotonic")
        fine = counts & ~wrong
        return fine, f.select(fine, target, 0)

    def _row(self, row: LLVMValue) -> None:
        f = self.f
        source = f.at(self.tensors[self.scores], row * self.extra[ROW_STEP])
        fine, target = self._checked(self._target(row))
        zero = self.one.to(0, self.compute).re
        weight = f.select(fine, self._weight(target), zero)
        if self.kind.backward:
            self._gradient_row(row, source, target, weight)
            return
        top = self._largest(source)
        total = self._exponentials(source, top, None)
        log_total = self.one.log(Num(self.compute, total)).re
        score = self._score(source, target)
        loss = f.select(fine, (log_total - (score - top)) * weight, zero)
        if self.kind.reduction == "none":
            place = f.at(self.pointers[0], row * self.dtype.itemsize)
            self.one.store(Num(self.compute, loss), self.dtype, place)
            return
        place = f.at(self.space, row * 16 + HEADER)
        f.store(self._double(loss), place)
        f.store(self._double(weight), f.at(place, 8))

    def _score(self, source: LLVMValue, index: LLVMValue) -> LLVMValue:
        """One score, as a compute scalar."""
        found = self.one.load(self.given, self._at(source, index, self.given))
        return self.one.to(found, self.compute).re

    def _scores(self, source: LLVMValue, index: LLVMValue, mask: LLVMValue | None) -> LLVMValue:
        found = self.wide.load(self.given, self._at(source, index, self.given), mask)
        return self.wide.to(found, self.compute).re

    def _double(self, v: LLVMValue) -> LLVMValue:
        return self.one.to(Num(self.compute, v), dt.float64).re

    def _gradient_row(
        self, row: LLVMValue, source: LLVMValue, target: LLVMValue, weight: LLVMValue
    ) -> None:
        f, size = self.f, self.result.itemsize
        out = f.at(self.pointers[0], row * self.extra[CLASSES] * size)
        g = self.one.load(self.dtype, f.at(self.tensors[0], row * self.extra[G_STEP])).re
        ignored = f.compare("eq", weight, 0.0)  # asked before a total of zero makes it nan
        if self.kind.reduction == "mean":
            total = Num(dt.float64, f.load(F64, f.at(self.space, _TOTAL)))
            weight = weight / self.one.to(total, self.compute).re
        scale = g * weight
        with f.if_(ignored) as nothing:
            f.fill_bytes(out, 0, self.extra[CLASSES] * size)
        with nothing.else_():
            top = self._largest(source)
            # Read now: the row of the result may lie over the scores.
            score = self._score(source, target)
            kept = out if self.compute is self.result else self.kept_row
            total_row = self._exponentials(source, top, kept)
            self._scaled(kept, out, f.splat(scale / total_row, self.lanes))
            e = self.one.exp(Num(self.compute, score - top)).re
            found = Num(self.compute, e * (scale / total_row) - scale)
            self.one.store(found, self.result, self._at(out, target, self.result))

    # ---- passes --------------------------------------------------------------------------------

    def _largest(self, source: LLVMValue) -> LLVMValue:
        m = Extreme(self.compute, "max")
        return self._fold(m, 4, lambda index, mask: self._scores(source, index, mask))

    def _exponentials(self, source: LLVMValue, top: LLVMValue, kept: LLVMValue | None) -> LLVMValue:
        """The sum of `exp(score - top)`; each is written to the row `kept` too."""
        shift = self.f.splat(top, self.lanes)

        def term(index: LLVMValue, mask: LLVMValue | None) -> LLVMValue:
            x = self._scores(source, index, mask)
            e = self.wide.exp(Num(self.compute, x - shift)).re
            if kept is not None:
                place = self._at(kept, index, self.compute)
                self.wide.store(Num(self.compute, e), self.compute, place, mask)
            return e

        return self._fold(Sum(self.compute), 2, term)

    def _scaled(self, kept: LLVMValue, out: LLVMValue, factor: LLVMValue) -> None:
        def visit(index: LLVMValue, mask: LLVMValue | None) -> None:
            e = self.wide.load(self.compute, self._at(kept, index, self.compute), mask).re
            place = self._at(out, index, self.result)
            self.wide.store(Num(self.compute, e * factor), self.result, place, mask)

        f = self.f
        whole = self.extra[CLASSES] & -self.lanes
        with f.loop(0, whole, self.lanes) as loop:
            visit(loop.index, None)
        with f.if_(whole < self.extra[CLASSES]):
            visit(whole, f.low_mask(self.extra[CLASSES] - whole, self.lanes))

    def _at(self, pointer: LLVMValue, index: LLVMValue, dtype: dt.dtype) -> LLVMValue:
        return self.f.at(pointer, index * dtype.itemsize)

    def _fold(self, m: Monoid, unroll: int, term: object) -> LLVMValue:
        """Fold `term(index, mask)` over the classes."""
        f, lanes = self.f, self.lanes
        step = lanes * unroll
        whole = self.extra[CLASSES] & -step
        start = m.start(f, lanes)[0]
        with f.loop(0, whole, step, [start] * unroll) as loop:
            terms = [term(loop.index + u * lanes, None) for u in range(unroll)]  # type: ignore[operator]
            loop.next(*[m.merge(f, [c], [t])[0] for c, t in zip(loop.carried, terms, strict=True)])
        with f.loop(whole, self.extra[CLASSES], lanes, [loop.results[0]]) as tail:
            mask = f.low_mask(self.extra[CLASSES] - tail.index, lanes)
            value = f.select(mask, term(tail.index, mask), start)  # type: ignore[operator]
            tail.next(m.merge(f, [tail.carried[0]], [value])[0])
        states = [tail.results[0], *loop.results[1:]]
        while len(states) > 1:
            states = [
                m.merge(f, [a], [b])[0] for a, b in zip(states[::2], states[1::2], strict=True)
            ]
        return m.across(f, states)[0]

    # ---- whole calls ---------------------------------------------------------------------------

    def _check_targets(self) -> None:
        """Backward: the weight of all rows together."""
        if self.kind.reduction != "mean":
            return
        f = self.f
        zero = f.constant(0.0, F64)
        with f.loop(0, self.extra[ROWS], 1, [zero]) as rows:
            fine, target = self._checked(self._target(rows.index))
            weight = f.select(fine, self._double(self._weight(target)), zero)
            rows.next(rows.carried[0] + weight)
        f.store(rows.results[0], f.at(self.space, _TOTAL))

    def _reduce(self) -> None:
        """Forward: losses and weights added in the order of the rows."""
        f = self.f
        zero = f.constant(0.0, F64)
        with f.loop(0, self.extra[ROWS], 1, [zero, zero]) as rows:
            place = f.at(self.space, rows.index * 16 + HEADER)
            loss, weight = f.load(F64, place), f.load(F64, f.at(place, 8))
            rows.next(rows.carried[0] + loss, rows.carried[1] + weight)
        loss, weight = rows.results
        found = loss / weight if self.kind.reduction == "mean" else loss
        self.one.store(Num(dt.float64, found), self.dtype, self.pointers[0])


def write_classes(m: Module, kind: CrossEntropyKind) -> None:
    _Writer(m, kind).write()
