"""Maxima over sliding windows, and where they were.

A window's result starts at its first element inside the input. Another one takes its place when it
is greater, or nan; so the last nan wins, and among equals the first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lucerne._src.backends.cpu.emit.builder import I32, I64, PTR, LLVMFunction, LLVMValue, Module
from lucerne._src.backends.cpu.emit.target import VECTOR_BYTES
from lucerne._src.backends.cpu.emit.types import Type
from lucerne._src.backends.cpu.math.storage import COMPUTED, STORED, pack, unpack
from lucerne._src.backends.cpu.pool.frame import COLUMNS, PoolFrame
from lucerne._src.backends.cpu.pool.strided_load import load_columns
from lucerne._src.base import dtype as dt

VALUES, POSITIONS, INPUT = 0, 1, 2
FIRST_WORD = 4
"""After two outputs, the input and the workspace."""


@dataclass(frozen=True)
class MaxForm:
    """What changes the code. `stride`: of the columns, 1 or 2; `together`: channels are vectors."""

    shape: str
    dtype: str
    stride: int
    together: bool


class MaxPool(PoolFrame):
    def __init__(self, m: Module, form: MaxForm) -> None:
        super().__init__(m, form.shape, FIRST_WORD)
        self.form = form
        self.dtype = dt.by_name(form.dtype)
        self.stored: Type = STORED[self.dtype]
        self.value: Type = COMPUTED[self.dtype.compute]
        vectors = form.shape == COLUMNS or form.together
        self.lanes = VECTOR_BYTES // max(4, self.value.size) if vectors else 1

    def _better(
        self, f: LLVMFunction, v: LLVMValue, best: LLVMValue, where: LLVMValue
    ) -> LLVMValue:
        unset = f.compare("lt", where, f.zero(where.type))
        if self.value.is_float:
            return unset | f.compare("gt", v, best) | f.compare("uno", v, v)
        return unset | f.compare("gt" if self.dtype.is_signed else "ugt", v, best)

    def _start(self, f: LLVMFunction) -> list[LLVMValue]:
        """No value yet: position -1."""
        best = self.value.vector(self.lanes)
        return [
            f.zero(best) if best.lanes else f.constant(0, best),
            f.constant(-1, I32.vector(self.lanes)),
        ]

    def _store(
        self,
        f: LLVMFunction,
        best: LLVMValue,
        where: LLVMValue,
        at: LLVMValue,
        mask: LLVMValue | None,
    ) -> None:
        values = f.at(f.word(f.args[0], VALUES, PTR), at, self.stored)
        positions = f.at(f.word(f.args[0], POSITIONS, PTR), at, I64)
        v, p = pack(f, self.dtype, best), f.convert("sext", where, I64)
        if mask is None:
            f.store(v, values)
            f.store(p, positions)
        else:
            f.masked_store(v, values, mask)
            f.masked_store(p, positions, mask)

    def _window(
        self,
        f: LLVMFunction,
        n: LLVMValue,
        c: LLVMValue | None,
        at: list[LLVMValue],
        line: Callable[[LLVMValue, LLVMValue, list[LLVMValue]], list[LLVMValue]],
    ) -> list[LLVMValue]:
        """Fold over the rows of a window: `line(place of the row, its number, carried)`."""
        source = f.word(f.args[0], INPUT, PTR)
        sizes, gaps = self.axis(f, "size"), self.axis(f, "dilation")
        (d_start, d_taps), (h_start, h_taps) = (self.taps(f, a, at[a]) for a in range(2))
        with f.loop(*d_taps, carry=self._start(f)) as deep:
            d = d_start + deep.index * gaps[0]
            with f.loop(*h_taps, carry=deep.carried) as high:
                h = h_start + high.index * gaps[1]
                place = f.at(source, self.offset(f, "in", n, c, [d, h]), self.stored)
                high.next(*line(place, (d * sizes[1] + h) * sizes[2], high.carried))
            deep.next(*high.results)
        return deep.results

    def columns(self, f: LLVMFunction, n: LLVMValue, c: LLVMValue, at: list[LLVMValue]) -> None:
        lanes, stride = self.lanes, self.form.stride
        width, out_width = self.number(f, "size2"), self.number(f, "out2")
        kernel, gap = self.number(f, "kernel2"), self.number(f, "dilation2")
        padding = self.number(f, "padding2")
        target = self.offset(f, "out", n, c, at)
        with f.loop(0, out_width, lanes) as block:
            first = block.index * stride - padding

            def line(
                row: LLVMValue, number: LLVMValue, carried: list[LLVMValue]
            ) -> list[LLVMValue]:
                with f.loop(0, kernel, carry=carried) as tap:
                    best, where = tap.carried
                    start = first + tap.index * gap
                    stored, valid = load_columns(f, row, self.stored, start, width, stride, lanes)
                    v = unpack(f, self.dtype, stored)
                    here = f.splat(f.convert("trunc", number + start, I32), lanes)
                    here = here + f.lanes(I32.vector(lanes)) * stride
                    better = valid & self._better(f, v, best, where)
                    tap.next(f.select(better, v, best), f.select(better, here, where))
                return tap.results

            best, where = self._window(f, n, c, at, line)
            mask = f.low_mask(out_width - block.index, lanes)
            self._store(f, best, where, target + block.index, mask)

    def pixel(self, f: LLVMFunction, n: LLVMValue, at: list[LLVMValue]) -> None:
        lanes = self.lanes
        channels, gap = self.number(f, "channels"), self.number(f, "dilation2")
        step = self.number(f, "in_s2")
        start, taps = self.taps(f, 2, at[2])
        target = self.offset(f, "out", n, None, at)
        with f.loop(0, channels, lanes) as block:
            c = block.index
            mask = f.low_mask(channels - c, lanes) if lanes > 1 else None

            def line(
                row: LLVMValue, number: LLVMValue, carried: list[LLVMValue]
            ) -> list[LLVMValue]:
                with f.loop(*taps, carry=carried) as tap:
                    best, where = tap.carried
                    w = start + tap.index * gap
                    place = f.at(row, w * step, self.stored)
                    wide = self.stored.vector(lanes)
                    stored = (
                        f.load(wide, place) if mask is None else f.masked_load(wide, place, mask)
                    )
                    v = unpack(f, self.dtype, stored)
                    here = f.splat(f.convert("trunc", number + w, I32), lanes)
                    better = self._better(f, v, best, where)
                    tap.next(f.select(better, v, best), f.select(better, here, where))
                return tap.results

            best, where = self._window(f, n, c, at, line)
            self._store(f, best, where, target + c * self.number(f, "out_c"), mask)
