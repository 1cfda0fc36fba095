"""Means over windows: sliding ones, or any given by where they begin and end.

Behind the words of the frame stand the places (in words of the block) of a table for each axis: for
every output position where its window begins, where it ends, and what it counts; and the place of
the counts of the last axis alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lucerne._src.backends.cpu.emit.builder import I64, PTR, LLVMFunction, LLVMValue, Module
from lucerne._src.backends.cpu.emit.target import VECTOR_BYTES
from lucerne._src.backends.cpu.emit.types import Type
from lucerne._src.backends.cpu.math.storage import COMPUTED, STORED, pack, unpack
from lucerne._src.backends.cpu.pool.frame import AXES, COLUMNS, NAMES, PoolFrame
from lucerne._src.backends.cpu.pool.strided_load import load_columns
from lucerne._src.base import dtype as dt

RESULT, INPUT = 0, 1
FIRST_WORD = 3
"""After the result, the input and the workspace."""

Window = tuple[int, int, int]
"""Begin, end and count of one output position along one axis."""


@dataclass(frozen=True)
class AvgForm:
    """What changes the code. `stride` of the columns is 1 or 2, or 0: vectors run along each window
    instead of from window to window. `together`: channels are vectors."""

    shape: str
    dtype: str
    stride: int
    together: bool


def table_words(tables: Sequence[Sequence[Window]], frame: int) -> list[int]:
    """The words behind `frame` words of the frame: places of the tables, and the tables."""
    lead: list[Sequence[Window]] = [[(0, 1, 1)]] * (AXES - len(tables))
    place = FIRST_WORD + frame + AXES + 1
    words: list[int] = []
    places: list[int] = []
    for table in (*lead, *tables):
        places.append(place + len(words))
        words += [w for window in table for w in window]
    counts = [count for _, _, count in tables[-1]]
    return [*places, place + len(words), *words, *counts]


class AvgPool(PoolFrame):
    def __init__(self, m: Module, form: AvgForm) -> None:
        super().__init__(m, form.shape, FIRST_WORD)
        self.form = form
        self.dtype = dt.by_name(form.dtype)
        self.stored: Type = STORED[self.dtype]
        self.value: Type = COMPUTED[self.dtype.compute]
        vectors = form.shape == COLUMNS or form.together
        self.lanes = VECTOR_BYTES // self.value.size if vectors else 1

    def _window(
        self, f: LLVMFunction, a: int, at: LLVMValue
    ) -> tuple[LLVMValue, LLVMValue, LLVMValue]:
        """Begin, end and count at an output position."""
        table = f.word(f.args[0], FIRST_WORD + len(NAMES) + a)
        place = f.at(f.args[0], (table + at * 3) * 8)
        first, last, count = (f.load(I64, f.at(place, 8 * k)) for k in range(3))
        return first, last, count

    def _rows(
        self,
        f: LLVMFunction,
        n: LLVMValue,
        c: LLVMValue | None,
        at: list[LLVMValue],
        line: Callable[[LLVMValue, LLVMValue], LLVMValue],
    ) -> tuple[LLVMValue, LLVMValue]:
        """The sum over the rows of a window, and what its first two axes count."""
        source = f.word(f.args[0], INPUT, PTR)
        d0, d1, d_count = self._window(f, 0, at[0])
        h0, h1, h_count = self._window(f, 1, at[1])
        wide = self.value.vector(self.lanes)
        zero = f.zero(wide) if wide.lanes else f.constant(0, wide)
        with f.loop(d0, d1, carry=[zero]) as deep:
            with f.loop(h0, h1, carry=deep.carried) as high:
                offset = self.offset(f, "in", n, c, [deep.index, high.index])
                high.next(line(f.at(source, offset, self.stored), high.carried[0]))
            deep.next(*high.results)
        return deep.results[0], d_count * h_count

    def _value(self, f: LLVMFunction, stored: LLVMValue) -> LLVMValue:
        return unpack(f, self.dtype, stored)

    def _target(self, f: LLVMFunction, at: LLVMValue) -> LLVMValue:
        return f.at(f.word(f.args[0], RESULT, PTR), at, self.stored)

    def _count_of(self, f: LLVMFunction, count: LLVMValue) -> LLVMValue:
        return f.convert("sitofp", count, self.value)

    def columns(self, f: LLVMFunction, n: LLVMValue, c: LLVMValue, at: list[LLVMValue]) -> None:
        if not self.form.stride:
            self._windows(f, n, c, at)
            return
        lanes, stride = self.lanes, self.form.stride
        width, out_width = self.number(f, "size2"), self.number(f, "out2")
        kernel, padding = self.number(f, "kernel2"), self.number(f, "padding2")
        target = self.offset(f, "out", n, c, at)
        with f.loop(0, out_width, lanes) as block:
            first = block.index * stride - padding

            def line(row: LLVMValue, total: LLVMValue) -> LLVMValue:
                with f.loop(0, kernel, carry=[total]) as tap:
                    stored, _ = load_columns(
                        f, row, self.stored, first + tap.index, width, stride, lanes
                    )
                    tap.next(tap.carried[0] + self._value(f, stored))
                return tap.results[0]

            total, count = self._rows(f, n, c, at, line)
            mask = f.low_mask(out_width - block.index, lanes)
            counts = self._counts(f, block.index, mask) * f.splat(self._count_of(f, count), lanes)
            mean = pack(f, self.dtype, total / counts)
            f.masked_store(mean, self._target(f, target + block.index), mask)

    def _counts(self, f: LLVMFunction, first: LLVMValue, mask: LLVMValue) -> LLVMValue:
        """What the windows from column `first` on count, in lanes (zero beyond the end)."""
        table = f.word(f.args[0], FIRST_WORD + len(NAMES) + AXES)
        place = f.at(f.args[0], (table + first) * 8)
        found = f.masked_load(I64.vector(self.lanes), place, mask)
        return f.convert("sitofp", found, self.value)

    def _windows(self, f: LLVMFunction, n: LLVMValue, c: LLVMValue, at: list[LLVMValue]) -> None:
        """One output after another; vectors run along the rows of its window."""
        lanes = self.lanes
        wide = self.stored.vector(lanes)
        target = self.offset(f, "out", n, c, at)
        with f.loop(0, self.number(f, "out2")) as out:
            w0, w1, w_count = self._window(f, 2, out.index)

            def line(row: LLVMValue, total: LLVMValue) -> LLVMValue:
                whole = w0 + ((w1 - w0) // lanes) * lanes
                with f.loop(w0, whole, lanes, carry=[total]) as loop:
                    stored = f.load(wide, f.at(row, loop.index, self.stored))
                    loop.next(loop.carried[0] + self._value(f, stored))
                with f.if_(whole < w1) as some:
                    mask = f.low_mask(w1 - whole, lanes)
                    stored = f.masked_load(wide, f.at(row, whole, self.stored), mask)
                    some.give(loop.results[0] + self._value(f, stored))
                with some.else_():
                    some.give(loop.results[0])
                return some.results[0]

            total, count = self._rows(f, n, c, at, line)
            mean = f.fold("add", total) / self._count_of(f, count * w_count)
            f.store(pack(f, self.dtype, mean), self._target(f, target + out.index))

    def pixel(self, f: LLVMFunction, n: LLVMValue, at: list[LLVMValue]) -> None:
        lanes = self.lanes
        channels, step = self.number(f, "channels"), self.number(f, "in_s2")
        w0, w1, w_count = self._window(f, 2, at[2])
        target = self.offset(f, "out", n, None, at)
        wide = self.stored.vector(lanes)
        with f.loop(0, channels, lanes) as block:
            c = block.index
            mask = f.low_mask(channels - c, lanes) if lanes > 1 else None

            def line(row: LLVMValue, total: LLVMValue) -> LLVMValue:
                with f.loop(w0, w1, carry=[total]) as tap:
                    place = f.at(row, tap.index * step, self.stored)
                    stored = (
                        f.load(wide, place) if mask is None else f.masked_load(wide, place, mask)
                    )
                    tap.next(tap.carried[0] + self._value(f, stored))
                return tap.results[0]

            total, count = self._rows(f, n, c, at, line)
            by = f.splat(self._count_of(f, count * w_count), lanes)
            mean = pack(f, self.dtype, total / by)
            place = self._target(f, target + c * self.number(f, "out_c"))
            if mask is None:
                f.store(mean, place)
            else:
                f.masked_store(mean, place, mask)
