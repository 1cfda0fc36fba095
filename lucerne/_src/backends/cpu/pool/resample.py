"""Interpolation: every output element is a weighted sum of a few taps along each spatial axis.

Behind the words of the frame stand, for each axis, its number of taps and the place (in words of
the block) of its table: for every output position and tap the source position and the weight, the
latter as the bits of a number of the computing type. The first axis is summed first, as if the axes
were done one after another.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lucerne._src.backends.cpu.emit.builder import (
    I8,
    I32,
    I64,
    PTR,
    LLVMFunction,
    LLVMValue,
    Module,
)
from lucerne._src.backends.cpu.emit.target import VECTOR_BYTES
from lucerne._src.backends.cpu.emit.types import I16, Type
from lucerne._src.backends.cpu.math.storage import COMPUTED, STORED, pack, unpack
from lucerne._src.backends.cpu.pool.frame import AXES, COLUMNS, NAMES, PoolFrame
from lucerne._src.backends.cpu.runtime.kernel import float_word
from lucerne._src.base import dtype as dt

RESULT, INPUT, WORKSPACE = 0, 1, 2
FIRST_WORD = 3
_TABLES = FIRST_WORD + len(NAMES)
_SCRATCH = _TABLES + 2 * AXES
_RAW: dict[int, Type] = {1: I8, 2: I16, 4: I32, 8: I64}


@dataclass(frozen=True)
class ResampleForm:
    """What changes the code. `dtype` is "" when elements of `item` bytes are only moved.

    `skips`: a tap of weight 0 adds nothing, whatever stands at its source.
    """

    shape: str
    dtype: str
    item: int
    together: bool
    skips: bool = False


def table_words(taps: Sequence[Any], wide: bool, scratch: int) -> list[int]:
    """Taps of each axis as (source indices, weights or None) pairs; float64 weights when `wide`."""
    lead: list[Any] = [[([0], None)]] * (AXES - len(taps))
    head: list[int] = []
    words: list[int] = []
    for axis in (*lead, *taps):
        head += [len(axis), _SCRATCH + 1 + len(words)]
        for o in range(len(axis[0][0])):
            for index, weight in axis:
                w = 1.0 if weight is None else float(weight[o])
                words += [int(index[o]), _bits(w, wide)]
    return [*head, scratch, *words]


def _bits(value: float, wide: bool) -> int:
    if wide:
        return float_word(value)
    return int(struct.unpack("<I", struct.pack("<f", value))[0])


class Resample(PoolFrame):
    def __init__(self, m: Module, form: ResampleForm) -> None:
        super().__init__(m, form.shape, FIRST_WORD)
        self.form = form
        self.moves = not form.dtype
        if self.moves:
            self.stored = self.value = _RAW[form.item]
        else:
            self.dtype = dt.by_name(form.dtype)
            self.stored = STORED[self.dtype]
            self.value = COMPUTED[self.dtype.compute]
        vectors = form.shape == COLUMNS or form.together
        self.lanes = VECTOR_BYTES // self.value.size if vectors else 1

    # ---- tables -------------------------------------------------------------------------------

    def _taps(self, f: LLVMFunction, a: int, at: LLVMValue) -> tuple[LLVMValue, LLVMValue]:
        """How many taps an axis has, and where those of an output position begin."""
        count = f.word(f.args[0], _TABLES + 2 * a)
        table = f.word(f.args[0], _TABLES + 2 * a + 1)
        return count, f.at(f.args[0], (table + at * count * 2) * 8)

    def _tap(self, f: LLVMFunction, taps: LLVMValue, k: LLVMValue) -> tuple[LLVMValue, LLVMValue]:
        """Source position and weight."""
        place = f.at(taps, k * 16)
        weight = f.constant(0) if self.moves else f.load(self.value, f.at(place, 8))
        return f.load(I64, place), weight

    def _load(
        self, f: LLVMFunction, place: LLVMValue, mask: LLVMValue | None, lanes: int
    ) -> LLVMValue:
        wide = self.stored.vector(lanes)
        stored = f.load(wide, place) if mask is None else f.masked_load(wide, place, mask)
        return stored if self.moves else unpack(f, self.dtype, stored)

    def _store(self, f: LLVMFunction, v: LLVMValue, at: LLVMValue, mask: LLVMValue | None) -> None:
        stored = v if self.moves else pack(f, self.dtype, v)
        place = f.at(f.word(f.args[0], RESULT, PTR), at, self.stored)
        if mask is None:
            f.store(stored, place)
        else:
            f.masked_store(stored, place, mask)

    def _zero(self, f: LLVMFunction, lanes: int) -> LLVMValue:
        wide = self.value.vector(lanes)
        return f.zero(wide) if wide.lanes else f.constant(0, wide)

    def _product(self, f: LLVMFunction, v: LLVMValue, weight: LLVMValue, lanes: int) -> LLVMValue:
        """One tap's share."""
        product = v * f.splat(weight, lanes)
        if not self.form.skips:
            return product
        return f.select(f.compare("ne", weight, 0.0), product, self._zero(f, lanes))

    def _column_sum(
        self, f: LLVMFunction, source: LLVMValue, taps: Sequence[tuple[LLVMValue, LLVMValue]],
        base: LLVMValue,
        mask: LLVMValue | None, lanes: int,
    ) -> LLVMValue:  # fmt: skip
        """The sum over the taps of the first two axes, of elements `base` away from a row's."""
        steps = [self.number(f, f"in_s{a}") for a in range(2)]
        with f.loop(0, taps[1][0], carry=[self._zero(f, lanes)], at_least_once=True) as high:
            h, by_h = self._tap(f, taps[1][1], high.index)
            with f.loop(0, taps[0][0], carry=[self._zero(f, lanes)], at_least_once=True) as deep:
                d, by_d = self._tap(f, taps[0][1], deep.index)
                place = f.at(source, d * steps[0] + h * steps[1] + base, self.stored)
                v = self._load(f, place, mask, lanes)
                deep.next(v if self.moves else deep.carried[0] + self._product(f, v, by_d, lanes))
            (inner,) = deep.results
            whole = inner if self.moves else high.carried[0] + self._product(f, inner, by_h, lanes)
            high.next(whole)
        return high.results[0]

    # ---- rows ---------------------------------------------------------------------------------

    def columns(self, f: LLVMFunction, n: LLVMValue, c: LLVMValue, at: list[LLVMValue]) -> None:
        source = f.at(f.word(f.args[0], INPUT, PTR), self.offset(f, "in", n, c, []), self.stored)
        target = self.offset(f, "out", n, c, at)
        taps = [self._taps(f, a, at[a]) for a in range(2)]
        if self.moves:
            self._move_row(f, source, taps, target)
            return
        row = f.at(f.word(f.args[0], WORKSPACE, PTR), f.args[2] * f.word(f.args[0], _SCRATCH))
        width, lanes = self.number(f, "size2"), self.lanes
        with f.loop(0, width, lanes) as loop:
            mask = f.low_mask(width - loop.index, lanes)
            v = self._column_sum(f, source, taps, loop.index, mask, lanes)
            f.masked_store(v, f.at(row, loop.index, self.value), mask)
        count, table = self._taps(f, 2, f.constant(0))
        with f.if_(f.compare("eq", count, 2)) as two:
            self._weigh_row(f, row, table, f.constant(2), target)
        with two.else_():
            self._weigh_row(f, row, table, count, target)

    def _weigh_row(
        self, f: LLVMFunction, row: LLVMValue, table: LLVMValue, count: LLVMValue, target: LLVMValue
    ) -> None:
        """Sums along the last axis; two taps (the usual number) without a loop."""
        with f.loop(0, self.number(f, "out2")) as loop:
            taps = f.at(table, loop.index * count * 16)
            if count.literal == 2:
                parts = []
                for k in range(2):
                    at, weight = self._tap(f, taps, f.constant(k))
                    v = f.load(self.value, f.at(row, at, self.value))
                    parts.append(self._product(f, v, weight, 1))
                total = parts[0] + parts[1]
            else:
                with f.loop(0, count, carry=[self._zero(f, 1)], at_least_once=True) as tap:
                    at, weight = self._tap(f, taps, tap.index)
                    v = f.load(self.value, f.at(row, at, self.value))
                    tap.next(tap.carried[0] + self._product(f, v, weight, 1))
                total = tap.results[0]
            self._store(f, total, target + loop.index, None)

    def _move_row(
        self,
        f: LLVMFunction,
        source: LLVMValue,
        taps: Sequence[tuple[LLVMValue, LLVMValue]],
        target: LLVMValue,
    ) -> None:
        d, h = (self._tap(f, t, f.constant(0))[0] for _, t in taps)
        steps = [self.number(f, f"in_s{a}") for a in range(2)]
        row = f.at(source, d * steps[0] + h * steps[1], self.stored)
        _, table = self._taps(f, 2, f.constant(0))
        out = f.at(f.word(f.args[0], RESULT, PTR), target, self.stored)
        with f.loop(0, self.number(f, "out2")) as loop:
            at = f.load(I64, f.at(table, loop.index * 16))
            v = f.load(self.stored, f.at(row, at, self.stored))
            f.store(v, f.at(out, loop.index, self.stored))

    # ---- pixels -------------------------------------------------------------------------------

    def pixel(self, f: LLVMFunction, n: LLVMValue, at: list[LLVMValue]) -> None:
        lanes = self.lanes
        source = f.at(f.word(f.args[0], INPUT, PTR), self.offset(f, "in", n, None, []), self.stored)
        channels, step = self.number(f, "channels"), self.number(f, "in_s2")
        in_c, out_c = self.number(f, "in_c"), self.number(f, "out_c")
        target = self.offset(f, "out", n, None, at)
        taps = [self._taps(f, a, at[a]) for a in range(AXES)]
        with f.loop(0, channels, lanes) as block:
            c = block.index
            mask = f.low_mask(channels - c, lanes) if lanes > 1 else None
            with f.loop(0, taps[2][0], carry=[self._zero(f, lanes)], at_least_once=True) as tap:
                w, weight = self._tap(f, taps[2][1], tap.index)
                v = self._column_sum(f, source, taps[:2], c * in_c + w * step, mask, lanes)
                whole = tap.carried[0] + self._product(f, v, weight, lanes) if not self.moves else v
                tap.next(whole)
            self._store(f, tap.results[0], target + c * out_c, mask)
