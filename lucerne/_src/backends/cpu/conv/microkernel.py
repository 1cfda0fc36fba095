"""Micro-kernels of convolution: a tile of sums in registers while taps and channels run.

    void tile(x, weights, out, job, start, lanes, next, pixels)

computes `height` rows (output pixels) x up to two vectors (output channels):

    out[i][:] = start[i][:] + sum over runs r, k < LENGTH of x[i][OFFSET[r] + k] * weights[r][k][:]

A *run* is a stretch of the input that is contiguous for every row: the channels of one tap, or of
all taps along the width when nothing lies between them. Sizes are data: words of `job`.

Forms of where row i of `x` is:
  even   x + i * ROW_STEP bytes: one pointer serves three rows, [p], [p + step], [p + 2 step]
  free   x + a, out + b: any pixels, at most eight; `pixels` points at their pairs (a, b)
  inner  x + i elements, and k advances by K_STEP bytes: for gradients of weights, k is a pixel

`next` points at memory that is needed soon (a part of the next panel of weights).
`weights` advance by W_STEP bytes for each k and by W_RUN more after a run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lucerne._src.backends.cpu.conv.launch import words
from lucerne._src.backends.cpu.emit.builder import LLVMFunction, LLVMValue, Module
from lucerne._src.backends.cpu.emit.target import VECTOR_BYTES
from lucerne._src.backends.cpu.emit.tiles import lanes_of
from lucerne._src.backends.cpu.emit.types import I64, PTR, Type
from lucerne._src.backends.cpu.runtime.code import compiled

VECTORS = 2
TALL = {64: 14, 32: 6, 16: 6}[VECTOR_BYTES]
"""The most rows whose sums fit in the registers."""
LOW = min(TALL, 8)
"""The most rows of the other tiles. Heights between LOW and TALL make LLVM spill, and LOW rows are
enough to keep both multipliers busy."""
EVEN, FREE, INNER = "even", "free", "inner"
_UNROLL = {EVEN: 4, FREE: 4, INNER: 1}
_ROWS_PER_POINTER = 3

JOB = words("RUNS LENGTH ROW_STEP K_STEP W_STEP W_RUN OUT_STEP START_STEP")
"""The words of a job that a tile reads; the offsets of the runs follow at OFFSETS."""
_PARAMS: list[Any] = [
    ("x", PTR, "noalias"), ("weights", PTR, "noalias"), ("out", PTR), ("job", PTR),
    ("start", PTR), ("lanes", I64), ("next", PTR), ("pixels", PTR),
]  # fmt: skip


@dataclass(frozen=True)
class ConvTile:
    """Which micro-kernel: how rows are found, rows, vectors, the type of the sums."""

    rows: str
    height: int
    vectors: int
    compute: Type
    full: bool = False
    """Every lane is wanted. (A masked load takes a slot of the multipliers.)"""

    @property
    def key(self) -> tuple[Any, ...]:
        return (self.rows, self.height, self.vectors, self.compute.name, self.full)


def tile_code(form: ConvTile, offsets: int) -> int:
    """The address of a micro-kernel; run offsets start at word `offsets` of its job."""
    key = ("conv.tile", *form.key, offsets)
    return compiled(key, lambda m: write_tile(m, form, offsets))["tile"]


def write_tile(m: Module, form: ConvTile, offsets: int) -> None:
    with m.function("tile", _PARAMS) as f:
        _Writer(f, form, offsets).write()


class _Writer:
    def __init__(self, f: LLVMFunction, form: ConvTile, offsets: int) -> None:
        self.f, self.form, self.offsets = f, form, offsets
        self.x, self.weights, self.out, self.job, self.start, *rest = f.args
        self.lanes, self.next, self.pixels = rest
        self.n = lanes_of(form.compute)
        self.wide = form.compute.vector(self.n)
        self.row_step = self._word("ROW_STEP")
        # Registers left over hold the sums of one run apart: shorter chains round less.
        self.two_levels = form.rows != INNER and form.height * form.vectors <= TALL
        self.k_step = self._word("K_STEP") if form.rows == INNER else f.constant(form.compute.size)
        self.w_step = (
            self._word("W_STEP") if form.rows == INNER else f.constant(VECTORS * VECTOR_BYTES)
        )

    def _word(self, name: str) -> LLVMValue:
        return self.f.word(self.job, JOB.index(name))

    def write(self) -> None:
        f, form = self.f, self.form
        n = self.n
        self.masks = [f.low_mask(self.lanes - j * n, n) for j in range(form.vectors)]
        sums = self._starts()
        if form.rows == EVEN:
            for place in self._each(self.out, self._word("OUT_STEP")):
                f.prefetch(place, 3, write=True)
        runs, table = self._word("RUNS"), f.at(self.job, self.offsets * 8)
        w_run = self._word("W_RUN") if form.rows == INNER else None
        first = self._row_pointers()
        with f.loop(0, runs, 1, [self.weights, self.next, *sums]) as loop:
            offset = f.load(I64, f.at(table, loop.index, I64))
            weights, ahead, *kept = loop.carried
            rows = [f.at(p, offset) for p in first]
            if self.two_levels:
                zeros = [f.zero(self.wide)] * len(kept)
                weights, ahead, *more = self._run(rows, weights, ahead, zeros)
                kept = [a + b for a, b in zip(kept, more, strict=True)]
            else:
                weights, ahead, *kept = self._run(rows, weights, ahead, kept)
            loop.next(weights if w_run is None else f.at(weights, w_run), ahead, *kept)
        self._store(loop.results[2:])

    # ---- rows --------------------------------------------------------------------------------

    def _row_pointers(self) -> list[LLVMValue]:
        f, form = self.f, self.form
        if form.rows == INNER:
            return [self.x]
        if form.rows == FREE:
            return [f.at(self.x, f.word(self.pixels, 2 * i)) for i in range(form.height)]
        return [f.at(self.x, self.row_step * i) for i in range(0, form.height, _ROWS_PER_POINTER)]

    def _row(self, pointers: list[LLVMValue], i: int) -> LLVMValue:
        f, form = self.f, self.form
        if form.rows == INNER:
            return f.at(pointers[0], i * form.compute.size)
        if form.rows == FREE:
            return pointers[i]
        group, within = divmod(i, _ROWS_PER_POINTER)
        return f.at(pointers[group], self.row_step * within)

    # ---- sums --------------------------------------------------------------------------------

    def _each(self, place: LLVMValue, step: LLVMValue) -> list[LLVMValue]:
        """Where the vectors of a block of rows are."""
        f = self.f
        return [
            f.at(f.at(place, step * i), j * VECTOR_BYTES)
            for i in range(self.form.height)
            for j in range(self.form.vectors)
        ]

    def _starts(self) -> list[LLVMValue]:
        places = self._each(self.start, self._word("START_STEP"))
        n = self.form.vectors
        return [
            self.f.masked_load(self.wide, place, self.masks[i % n])
            for i, place in enumerate(places)
        ]

    def _store(self, sums: list[LLVMValue]) -> None:
        f, form, n = self.f, self.form, self.form.vectors
        if form.rows == FREE:
            places = [
                f.at(f.at(self.out, f.word(self.pixels, 2 * i + 1)), j * VECTOR_BYTES)
                for i in range(form.height)
                for j in range(n)
            ]
        else:
            places = self._each(self.out, self._word("OUT_STEP"))
        for i, (v, place) in enumerate(zip(sums, places, strict=True)):
            f.masked_store(v, place, self.masks[i % n])

    # ---- one run -----------------------------------------------------------------------------

    def _run(
        self, rows: list[LLVMValue], weights: LLVMValue, ahead: LLVMValue, sums: list[LLVMValue]
    ) -> list[LLVMValue]:
        """[weights, ahead, sums] after LENGTH steps of k."""
        f, unroll = self.f, _UNROLL[self.form.rows]
        length = self._word("LENGTH")
        whole = length & -unroll if unroll > 1 else length
        n = len(rows)
        with f.loop(0, whole, unroll, [*rows, weights, ahead, *sums]) as loop:
            rows, (weights, ahead), sums = self._split(loop.carried, n)
            if self.form.rows != INNER:
                f.prefetch(ahead, 2)
            for u in range(unroll):
                sums = self._step(rows, weights, sums, u)
            loop.next(*self._advanced(rows, weights, unroll), f.at(ahead, 16 * unroll), *sums)
        if unroll == 1:
            return loop.results[n:]
        with f.loop(whole, length, 1, loop.results) as rest:
            rows, (weights, ahead), sums = self._split(rest.carried, n)
            sums = self._step(rows, weights, sums, 0)
            rest.next(*self._advanced(rows, weights, 1), ahead, *sums)
        return rest.results[n:]

    @staticmethod
    def _split(
        state: list[LLVMValue], n: int
    ) -> tuple[list[LLVMValue], list[LLVMValue], list[LLVMValue]]:
        return state[:n], state[n : n + 2], state[n + 2 :]

    def _advanced(self, rows: list[LLVMValue], weights: LLVMValue, count: int) -> list[LLVMValue]:
        f = self.f
        return [*(f.at(p, self.k_step * count) for p in rows), f.at(weights, self.w_step * count)]

    def _column(self, place: LLVMValue, j: int) -> LLVMValue:
        """Weights. INNER reads a tensor, whose last channels may end inside the vector."""
        if self.form.rows == INNER and not self.form.full:
            return self.f.masked_load(self.wide, place, self.masks[j])
        return self.f.load(self.wide, place)

    def _step(
        self, rows: list[LLVMValue], weights: LLVMValue, sums: list[LLVMValue], u: int
    ) -> list[LLVMValue]:
        """One k: every row's number times the vectors of weights."""
        f, form = self.f, self.form
        weights = f.at(weights, self.w_step * u)
        columns = [self._column(f.at(weights, j * VECTOR_BYTES), j) for j in range(form.vectors)]
        made = []
        for i in range(form.height):
            place = f.at(self._row(rows, i), self.k_step * u)
            left = f.splat(f.load(form.compute, place), self.n)
            for j, column in enumerate(columns):
                made.append(f.mul_add(left, column, sums[i * form.vectors + j]))
        return made
