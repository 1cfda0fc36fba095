"""Layer norm backward: gradients of input, weight and bias in one walk over the rows.

With c = x - mean, w the weight and n the length of a row:

    dx = rstd * (w g - sum(w g) / n - c * rstd^2 * sum(w g c) / n)
    dw = sum over rows of g * c * rstd,    db = sum over rows of g

Each row takes three passes over memory that is in the first cache after the first. Sums over rows
are kept per chunk in the workspace and added in order at the end.

Extra words: [rows] [row length] [padded length] [rows per chunk] [chunks] [eps].
"""

from __future__ import annotations

from collections.abc import Callable
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
from lucerne._src.backends.cpu.fused.monoids import Sum
from lucerne._src.backends.cpu.machine import LlvmScalar
from lucerne._src.backends.cpu.math.number import Num
from lucerne._src.base import dtype as dt

ROWS, LENGTH, PADDED, CHUNK, CHUNKS, EPS = range(6)
_DX, _DW, _DB, _G, _X, _W, _SPACE, _FIRST = range(8)
_UNROLL = 2


@dataclass(frozen=True)
class LayerNormKind:
    """dtypes of the rows and of the weight."""

    rows: str
    weight: str


def lanes_of(compute: dt.dtype) -> int:
    return VECTOR_BYTES // compute.itemsize


class _Writer:
    def __init__(self, m: Module, kind: LayerNormKind) -> None:
        self.m = m
        self.dtype, self.weight = dt.by_name(kind.rows), dt.by_name(kind.weight)
        self.compute = self.dtype.compute
        self.lanes = lanes_of(self.compute)

    def write(self) -> None:
        params = [("block", PTR), ("chunk", I64), ("tid", I64)]
        with self.m.function("task", params, internal=True) as f:
            self._enter(f, f.args[0])
            self._chunk(f.args[1])
        with self.m.function("entry", [("block", PTR)], I64) as f:
            self._enter(f, f.args[0])
            chunks = self.extra[CHUNKS]
            with f.if_(chunks > 1) as several:
                f.call("lucerne_pfor", VOID, [f.symbol("task"), f.args[0], chunks])
            with several.else_():
                f.call("task", VOID, [f.args[0], 0, 0])
            self._combine()
            f.ret(0)

    def _enter(self, f: LLVMFunction, block: LLVMValue) -> None:
        self.f = f
        self.one, self.wide = LlvmScalar(f, 1), LlvmScalar(f, self.lanes)
        self.extra = [f.word(block, _FIRST + k) for k in range(EPS)]
        eps = Num(dt.float64, f.word(block, _FIRST + EPS, F64))
        self.eps = self.one.to(eps, self.compute).re
        self.pointers = [f.word(block, k, PTR) for k in range(_FIRST)]

    # ---- memory --------------------------------------------------------------------------------

    def _load(
        self, dtype: dt.dtype, pointer: LLVMValue, index: LLVMValue, mask: LLVMValue | None
    ) -> LLVMValue:
        place = self.f.at(pointer, index * dtype.itemsize)
        return self.wide.to(self.wide.load(dtype, place, mask), self.compute).re

    def _sums(self, chunk: LLVMValue, which: int) -> LLVMValue:
        """The partial sums of a chunk: of dw (0) or of db (1)."""
        row = (chunk * 2 + which) * self.extra[PADDED] * self.compute.itemsize
        return self.f.at(self.pointers[_SPACE], row)

    def _each(
        self,
        visit: Callable[[LLVMValue, LLVMValue | None, list[LLVMValue]], list[LLVMValue]],
        count: int,
    ) -> list[LLVMValue]:
        """Walk a row and fold `count` sums; returns them as scalars."""
        f, lanes, length = self.f, self.lanes, self.extra[LENGTH]
        step = lanes * _UNROLL
        whole = length & -step
        zero = f.constant(0.0, Sum(self.compute).type.vector(lanes))
        with f.loop(0, whole, step, [zero] * (count * _UNROLL)) as loop:
            found: list[LLVMValue] = []
            for u in range(_UNROLL):
                states = loop.carried[u * count : (u + 1) * count]
                found += visit(loop.index + u * lanes, None, states)
            loop.next(*found)
        first = loop.results[:count]
        with f.loop(whole, length, lanes, first) as tail:
            mask = f.low_mask(length - tail.index, lanes)
            tail.next(*visit(tail.index, mask, tail.carried))
        sums = []
        for k in range(count):
            total = tail.results[k]
            for u in range(1, _UNROLL):
                total = total + loop.results[u * count + k]
            sums.append(f.fold("add", total))
        return sums

    # ---- rows ----------------------------------------------------------------------------------

    def _chunk(self, chunk: LLVMValue) -> None:
        f = self.f
        dw, db = self._sums(chunk, 0), self._sums(chunk, 1)
        f.fill_bytes(dw, 0, self.extra[PADDED] * (2 * self.compute.itemsize))
        start = chunk * self.extra[CHUNK]
        stop = f.minimum(start + self.extra[CHUNK], self.extra[ROWS])
        with f.loop(start, stop) as rows:
            offset = rows.index * self.extra[LENGTH] * self.dtype.itemsize
            dx, g, x = (f.at(self.pointers[k], offset) for k in (_DX, _G, _X))
            self._row(dx, g, x, dw, db)

    def _row(self, dx: LLVMValue, g: LLVMValue, x: LLVMValue, dw: LLVMValue, db: LLVMValue) -> None:
        f, one = self.f, self.one
        count = one.to(Num(dt.int64, self.extra[LENGTH]), self.compute).re

        def first(
            index: LLVMValue, mask: LLVMValue | None, sums: list[LLVMValue]
        ) -> list[LLVMValue]:
            return [sums[0] + self._load(self.dtype, x, index, mask)]

        mean = f.splat(self._each(first, 1)[0] / count, self.lanes)

        def second(
            index: LLVMValue, mask: LLVMValue | None, sums: list[LLVMValue]
        ) -> list[LLVMValue]:
            c = self._load(self.dtype, x, index, mask) - mean
            if mask is not None:
                c = f.select(mask, c, 0.0)
            wg = self._weighted(g, index, mask)
            return [f.mul_add(c, c, sums[0]), sums[1] + wg, f.mul_add(wg, c, sums[2]), sums[3] + c]

        # The mean is rounded: the sum of what is left, which should be zero, tells by how much.
        squares, level, slope, left = self._each(second, 4)
        slip = left / count
        squares, slope = squares - left * slip, slope - level * slip
        mean = mean + f.splat(slip, self.lanes)
        rstd = one.rsqrt(Num(self.compute, squares / count + self.eps)).re
        shift = f.splat(level / count, self.lanes)
        bend = f.splat(rstd * rstd * (slope / count), self.lanes)
        scale = f.splat(rstd, self.lanes)

        def third(
            index: LLVMValue, mask: LLVMValue | None, sums: list[LLVMValue]
        ) -> list[LLVMValue]:
            c = self._load(self.dtype, x, index, mask) - mean
            gv = self._load(self.dtype, g, index, mask)
            wg = self._weighted(g, index, mask)
            found = Num(self.compute, scale * (wg - shift - c * bend))
            self.wide.store(found, self.dtype, f.at(dx, index * self.dtype.itemsize), mask)
            place = index * self.compute.itemsize
            for total, term in ((dw, gv * (c * scale)), (db, gv)):
                here = f.at(total, place)
                f.store(f.load(term.type, here) + term, here)
            return []

        self._each(third, 0)

    def _weighted(self, g: LLVMValue, index: LLVMValue, mask: LLVMValue | None) -> LLVMValue:
        weight = self._load(self.weight, self.pointers[_W], index, mask)
        return self._load(self.dtype, g, index, mask) * weight

    def _combine(self) -> None:
        """The sums of all chunks, in order."""
        f = self.f
        type = Sum(self.compute).type.vector(self.lanes)
        for which, target in ((0, _DW), (1, _DB)):
            with f.loop(0, self.extra[LENGTH], self.lanes) as columns:
                place = columns.index * self.compute.itemsize
                with f.loop(0, self.extra[CHUNKS], 1, [f.constant(0.0, type)]) as chunks:
                    term = f.load(type, f.at(self._sums(chunks.index, which), place))
                    chunks.next(chunks.carried[0] + term)
                mask = f.low_mask(self.extra[LENGTH] - columns.index, self.lanes)
                out = f.at(self.pointers[target], columns.index * self.weight.itemsize)
                self.wide.store(Num(self.compute, chunks.results[0]), self.weight, out, mask)


def write_norm_backward(m: Module, kind: LayerNormKind) -> None:
    _Writer(m, kind).write()
