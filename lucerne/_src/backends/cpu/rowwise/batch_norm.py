"""Batch norm and its gradient, for images of planes and for rows of channels.

Planes (`[n][channel][plane]` in memory): a task takes some channels and walks each of them as often
as it needs; after the first walk a channel is in the second cache.

Columns (`[row][channel]`, which is also the channels-last order): a task takes some rows, with a
vector over channels. A first round leaves sums of each chunk of rows in the workspace, these are
put together in order, and a second round writes the results.

With c = x - mean, n the number of values of a channel and w its weight:

    forward    y = c * rstd * w + bias
    backward   dx = w * rstd * (g - sum(g) / n - c * rstd^2 * sum(g c) / n)
               dw = rstd * sum(g c),    db = sum(g)

Element-wise ops may come along (`Around`): forward those on the result, backward those that make
the incoming gradient. They cost no walk of their own.

Extra words: [n or rows] [channels] [plane length] [channels or rows per chunk] [chunks] [eps], then
two byte strides (image, channel) of every input that is the same all over a plane.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from lucerne._src.backends.cpu.emit.builder import (
    F64,
    I64,
    PTR,
    VOID,
    LLVMFunction,
    LLVMValue,
    Module,
)
from lucerne._src.backends.cpu.emit.flow import Loop
from lucerne._src.backends.cpu.emit.target import VECTOR_BYTES
from lucerne._src.backends.cpu.fused.elements import Elements
from lucerne._src.backends.cpu.fused.monoids import Sum
from lucerne._src.backends.cpu.machine import LlvmScalar
from lucerne._src.backends.cpu.math.number import Num
from lucerne._src.base import dtype as dt

OUTER, CHANNELS, PLANE, CHUNK, CHUNKS, EPS = range(6)
RESULTS = 3
_UNROLL = 4

FULL, STILL, HERE = "full", "still", "here"
"""How an element-wise op gets an operand: like x in memory; one number for a whole plane; from the
norm itself."""

Visit = Callable[[list[LLVMValue], LLVMValue | None, list[LLVMValue]], list[LLVMValue]]
"""Takes the addresses of one vector (an address for each walked tensor), the mask of a ragged end
and the states folded so far; returns the states."""


@dataclass(frozen=True)
class BatchNormKind:
    """What the code depends on: dtypes, direction, memory order, and where operands are.

    `places` are words of the block: result, mean, var and x, weight, bias; or dx, dw, db and g, x,
    weight, mean, var. -1: not asked for, or made by the element-wise ops.
    """

    rows: str
    weight: str
    backward: bool
    columns: bool
    places: tuple[int, ...]
    pointers: int
    """Outputs and inputs of the block."""

    @classmethod
    def alone(cls, rows: str, weight: str, backward: bool, columns: bool) -> BatchNormKind:
        """A norm without company."""
        count = RESULTS + (5 if backward else 3)
        return cls(rows, weight, backward, columns, tuple(range(count)), count)


@dataclass(frozen=True)
class Around:
    """Element-wise ops beside a norm. `ways` and `inputs` (words of the block) belong to what flows
    into them, `outputs` to their results (-1: only used by the norm); `gradient` is the number of
    the result that the norm takes as the incoming gradient."""

    elements: Elements
    ways: tuple[str, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    gradient: int = -1

    @property
    def key(self) -> tuple[object, ...]:
        return self.elements.key, self.ways, self.inputs, self.outputs, self.gradient


class BatchNormTensor(NamedTuple):
    """What a walk runs over: itemsize, and byte strides (image, channel) if it stands still."""

    pointer: LLVMValue
    size: int
    steps: tuple[LLVMValue, LLVMValue] | None = None


def lanes_of(compute: dt.dtype) -> int:
    return VECTOR_BYTES // compute.itemsize


class BatchNormWriter:
    """What both memory orders share: operands, loads and stores, the formulas."""

    def __init__(self, m: Module, kind: BatchNormKind, around: Around | None) -> None:
        self.m, self.kind, self.around = m, kind, around
        self.dtype, self.weight = dt.by_name(kind.rows), dt.by_name(kind.weight)
        self.compute = self.dtype.compute
        self.lanes = lanes_of(self.compute)
        self.zero_type = Sum(self.compute).type

    def task(self, name: str, body: Callable[[LLVMValue], None]) -> None:
        params = [("block", PTR), ("chunk", I64), ("tid", I64)]
        with self.m.function(name, params, internal=True) as f:
            self.enter(f, f.args[0])
            body(f.args[1])

    def run(self, name: str, block: LLVMValue) -> None:
        """All chunks of a task, on all cores if there are several."""
        f, chunks = self.f, self.extra[CHUNKS]
        with f.if_(chunks > 1) as several:
            f.call("lucerne_pfor", VOID, [f.symbol(name), block, chunks])
        with several.else_():
            f.call(name, VOID, [block, 0, 0])

    def enter(self, f: LLVMFunction, block: LLVMValue) -> None:
        self.f, self.block = f, block
        self.one, self.wide = LlvmScalar(f, 1), LlvmScalar(f, self.lanes)
        first = self.kind.pointers + 1
        self.extra = [f.word(block, first + k) for k in range(EPS)]
        eps = Num(dt.float64, f.word(block, first + EPS, F64))
        self.eps = self.one.to(eps, self.compute).re
        places = [f.zero(PTR) if k < 0 else f.word(block, k, PTR) for k in self.kind.places]
        self.outputs, self.inputs = places[:RESULTS], places[RESULTS:]
        self.space = f.word(block, first - 1, PTR)

    def wants(self, output: int) -> bool:
        return self.kind.places[output] >= 0

    def count(self) -> LLVMValue:
        """How many values a channel has, as a number to divide by."""
        total = self.extra[OUTER] * self.extra[PLANE]
        return self.one.to(Num(dt.int64, total), self.compute).re

    def load(self, place: LLVMValue, mask: LLVMValue | None) -> LLVMValue:
        return self.wide.to(self.wide.load(self.dtype, place, mask), self.compute).re

    def store(self, value: LLVMValue, place: LLVMValue, mask: LLVMValue | None) -> None:
        self.wide.store(Num(self.compute, value), self.dtype, place, mask)

    def only(self, mask: LLVMValue | None, value: LLVMValue) -> LLVMValue:
        """Zero where a ragged end has nothing."""
        return value if mask is None else self.f.select(mask, value, 0.0)

    def rows(self, pointer: LLVMValue) -> BatchNormTensor:
        """A tensor like x."""
        return BatchNormTensor(pointer, self.dtype.itemsize)

    # ---- company -------------------------------------------------------------------------------

    def brought(self) -> list[BatchNormTensor]:
        """What the element-wise ops read and write, for a walk."""
        a, f = self.around, self.f
        if a is None:
            return []
        found, still = [], self.kind.pointers + 1 + EPS + 1
        for v, way, word in zip(a.elements.given, a.ways, a.inputs, strict=True):
            if way == HERE:
                continue
            steps = None
            if way == STILL:
                steps = f.word(self.block, still), f.word(self.block, still + 1)
                still += 2
            found.append(
                BatchNormTensor(f.word(self.block, word, PTR), v.meta.dtype.itemsize, steps)
            )
        for dtype, word in zip(a.elements.dtypes, a.outputs, strict=True):
            if word >= 0:
                found.append(BatchNormTensor(f.word(self.block, word, PTR), dtype.itemsize))
        return found

    def accompany(
        self, places: list[LLVMValue], mask: LLVMValue | None, here: LLVMValue | None = None
    ) -> LLVMValue | None:
        """Run the element-wise ops on one vector and store their results; returns the gradient."""
        a = self.around
        if a is None:
            return None
        feed = iter(places)
        given: list[Num | None] = []
        for v, way in zip(a.elements.given, a.ways, strict=True):
            if way == HERE:
                assert here is not None
                made = Num(self.compute, here)
                rounds = self.dtype is not self.compute
                given.append(self.wide.rounded(made, self.dtype) if rounds else made)
            elif way == STILL:
                given.append(self.wide.load_splat(v.meta.dtype, next(feed)))
            else:
                given.append(self.wide.load(v.meta.dtype, next(feed), mask))
        results = a.elements.run(self.wide, given)
        for x, dtype, word in zip(results, a.elements.dtypes, a.outputs, strict=True):
            if word >= 0:
                self.wide.store(x, dtype, next(feed), mask)
        if a.gradient < 0:
            return None
        g = self.wide.to(results[a.gradient], self.compute)
        if self.dtype is not self.compute:
            g = self.wide.rounded(g, self.dtype)
        return self.only(mask, g.re)

    def gradient_tensors(self, again: bool = False) -> list[BatchNormTensor]:
        """What a walk needs to have the incoming gradient; `again`: for the second time, when one
        that was written can be read back."""
        a = self.around
        if a is None:
            return [self.rows(self.inputs[0])]
        written = a.outputs[a.gradient]
        if again and written >= 0:
            return [self.rows(self.f.word(self.block, written, PTR))]
        found = self.brought()
        return found[: len(a.ways)] if again else found

    def gradient(
        self, places: list[LLVMValue], mask: LLVMValue | None, again: bool = False
    ) -> LLVMValue:
        a = self.around
        if a is None or (again and a.outputs[a.gradient] >= 0):
            return self.load(places[0], mask)
        kept = self.around
        if again:
            self.around = Around(a.elements, a.ways, a.inputs, (-1,) * len(a.outputs), a.gradient)
        found = self.accompany(places, mask)
        self.around = kept
        assert found is not None
        return found

    # ---- the walks that both orders make -------------------------------------------------------

    def result_walk(
        self, x: BatchNormTensor, mean: LLVMValue, scale: LLVMValue, shift: LLVMValue
    ) -> tuple[list[BatchNormTensor], Visit]:
        """Write the normalised rows, and what element-wise ops make of them."""
        f, first = self.f, 1 + self.wants(0)

        def visit(
            places: list[LLVMValue], mask: LLVMValue | None, sums: list[LLVMValue]
        ) -> list[LLVMValue]:
            y = f.mul_add(self.load(places[0], mask) - mean, scale, shift)
            if self.wants(0):
                self.store(y, places[1], mask)
            self.accompany(places[first:], mask, y)
            return []

        written = [self.rows(self.outputs[0])] if self.wants(0) else []
        return [x, *written, *self.brought()], visit

    def sums_walk(self, x: BatchNormTensor, mean: LLVMValue) -> tuple[list[BatchNormTensor], Visit]:
        """Sums of the gradient, and of the gradient times the distance from the mean."""
        f = self.f

        def visit(
            places: list[LLVMValue], mask: LLVMValue | None, sums: list[LLVMValue]
        ) -> list[LLVMValue]:
            g = self.gradient(places[1:], mask)
            return [sums[0] + g, f.mul_add(g, self.load(places[0], mask) - mean, sums[1])]

        return [x, *self.gradient_tensors()], visit

    def gradient_walk(
        self,
        x: BatchNormTensor,
        mean: LLVMValue,
        scale: LLVMValue,
        shift: LLVMValue,
        bend: LLVMValue,
    ) -> tuple[list[BatchNormTensor], Visit]:
        """Write the gradient of the input."""

        def visit(
            places: list[LLVMValue], mask: LLVMValue | None, sums: list[LLVMValue]
        ) -> list[LLVMValue]:
            c = self.load(places[1], mask) - mean
            arriving = self.gradient(places[2:], mask, again=True) - shift
            self.store(scale * (arriving - c * bend), places[0], mask)
            return []

        return [self.rows(self.outputs[0]), x, *self.gradient_tensors(again=True)], visit


class Planes(BatchNormWriter):
    """`[n][channel][plane]`."""

    def write(self) -> None:
        self.task("task", self._chunk)
        with self.m.function("entry", [("block", PTR)], I64) as f:
            self.enter(f, f.args[0])
            self.run("task", f.args[0])
            f.ret(0)

    def _chunk(self, chunk: LLVMValue) -> None:
        f = self.f
        start = chunk * self.extra[CHUNK]
        stop = f.minimum(start + self.extra[CHUNK], self.extra[CHANNELS])
        with f.loop(start, stop) as channels:
            if self.kind.backward:
                self._backward(channels.index)
            else:
                self._forward(channels.index)

    def _walk(
        self, channel: LLVMValue, tensors: list[BatchNormTensor], visit: Visit, count: int
    ) -> list[LLVMValue]:
        """Visit all vectors of a channel; returns `count` sums as scalars."""
        f, lanes, length = self.f, self.lanes, self.extra[PLANE]
        step = lanes * _UNROLL
        whole = length & -step
        zero = f.constant(0.0, self.zero_type.vector(lanes))
        with f.loop(0, self.extra[OUTER], 1, [zero] * (count * _UNROLL)) as images:
            plane = (images.index * self.extra[CHANNELS] + channel) * length
            bases = [self._base(t, images.index, channel, plane) for t in tensors]

            def places(index: LLVMValue) -> list[LLVMValue]:
                return [
                    b if t.steps else f.at(b, index * t.size)
                    for b, t in zip(bases, tensors, strict=True)
                ]

            with f.loop(0, whole, step, images.carried) as main:
                found: list[LLVMValue] = []
                for u in range(_UNROLL):
                    at = places(main.index + u * lanes)
                    found += visit(at, None, main.carried[u * count : (u + 1) * count])
                main.next(*found)
            with f.loop(whole, length, lanes, main.results[:count]) as tail:
                mask = f.low_mask(length - tail.index, lanes)
                tail.next(*visit(places(tail.index), mask, tail.carried))
            images.next(*tail.results, *main.results[count:])
        sums = []
        for k in range(count):
            total = images.results[k]
            for u in range(1, _UNROLL):
                total = total + images.results[u * count + k]
            sums.append(f.fold("add", total))
        return sums

    def _base(
        self, t: BatchNormTensor, image: LLVMValue, channel: LLVMValue, plane: LLVMValue
    ) -> LLVMValue:
        if t.steps is None:
            return self.f.at(t.pointer, plane * t.size)
        return self.f.at(t.pointer, image * t.steps[0] + channel * t.steps[1])

    def _number(self, pointer: LLVMValue, channel: LLVMValue, dtype: dt.dtype) -> LLVMValue:
        place = self.f.at(pointer, channel * dtype.itemsize)
        return self.one.to(self.one.load(dtype, place, None), self.compute).re

    def _put(self, value: LLVMValue, output: int, channel: LLVMValue, dtype: dt.dtype) -> None:
        if self.wants(output):
            place = self.f.at(self.outputs[output], channel * dtype.itemsize)
            self.one.store(Num(self.compute, value), dtype, place, None)

    def _forward(self, channel: LLVMValue) -> None:
        f, (x, weight, bias) = self.f, self.inputs
        count = self.count()
        rows = self.rows(x)
        [total] = self._walk(channel, [rows], lambda p, m, s: [s[0] + self.load(p[0], m)], 1)
        mean = total / count
        centre = f.splat(mean, self.lanes)

        def square(
            places: list[LLVMValue], mask: LLVMValue | None, sums: list[LLVMValue]
        ) -> list[LLVMValue]:
            c = self.only(mask, self.load(places[0], mask) - centre)
            return [f.mul_add(c, c, sums[0])]

        [squares] = self._walk(channel, [rows], square, 1)
        var = squares / count
        rstd = self.one.rsqrt(Num(self.compute, var + self.eps)).re
        scale = f.splat(rstd * self._number(weight, channel, self.weight), self.lanes)
        shift = f.splat(self._number(bias, channel, self.weight), self.lanes)
        self._walk(channel, *self.result_walk(rows, centre, scale, shift), 0)
        self._put(mean, 1, channel, self.compute)
        self._put(var, 2, channel, self.compute)

    def _backward(self, channel: LLVMValue) -> None:
        f, (_, x, weight, mean_in, var_in) = self.f, self.inputs
        count = self.count()
        centre = f.splat(self._number(mean_in, channel, self.compute), self.lanes)
        var = self._number(var_in, channel, self.compute)
        rstd = self.one.rsqrt(Num(self.compute, var + self.eps)).re
        level, slope = self._walk(channel, *self.sums_walk(self.rows(x), centre), 2)
        scale = f.splat(rstd * self._number(weight, channel, self.weight), self.lanes)
        shift = f.splat(level / count, self.lanes)
        bend = f.splat(rstd * rstd * (slope / count), self.lanes)
        self._walk(channel, *self.gradient_walk(self.rows(x), centre, scale, shift, bend), 0)
        self._put(slope * rstd, 1, channel, self.weight)
        self._put(level, 2, channel, self.weight)


class Columns(BatchNormWriter):
    """`[row][channel]`: PLANE is 1. A chunk's two vectors of sums stand in the workspace, and after
    those of all chunks two for results that nobody asked for."""

    def enter(self, f: LLVMFunction, block: LLVMValue) -> None:
        super().enter(f, block)
        for output in (1, 2):
            if not self.wants(output):
                self.outputs[output] = self._sums(self.extra[CHUNKS], output - 1, f.constant(0))

    def write(self) -> None:
        gather, finish, apply = (
            (self._gradient_sums, self._gradient_totals, self._gradient_result)
            if self.kind.backward
            else (self._moments, self._statistics, self._result)
        )
        self.task("first", gather)
        self.task("second", apply)
        with self.m.function("entry", [("block", PTR)], I64) as f:
            self.enter(f, f.args[0])
            self.run("first", f.args[0])
            with self._vectors() as columns:
                finish(columns.index, f.low_mask(self.extra[CHANNELS] - columns.index, self.lanes))
            self.run("second", f.args[0])
            f.ret(0)

    def _vectors(self) -> Loop:
        """A loop over the channels, a vector at a time."""
        return self.f.loop(0, self.extra[CHANNELS], self.lanes)

    def _sums(self, chunk: LLVMValue, which: int, column: LLVMValue) -> LLVMValue:
        padded = (self.extra[CHANNELS] + (self.lanes - 1)) & -self.lanes
        index = (chunk * 2 + which) * padded + column
        return self.f.at(self.space, index * self.compute.itemsize)

    def _bounds(self, chunk: LLVMValue) -> tuple[LLVMValue, LLVMValue]:
        start = chunk * self.extra[CHUNK]
        return start, self.f.minimum(start + self.extra[CHUNK], self.extra[OUTER])

    def _rows(
        self,
        chunk: LLVMValue,
        column: LLVMValue,
        tensors: list[BatchNormTensor],
        visit: Visit,
        count: int,
    ) -> list[LLVMValue]:
        """Visit one vector of channels in all rows of a chunk; returns `count` vectors of sums."""
        f = self.f
        start, stop = self._bounds(chunk)
        mask = f.low_mask(self.extra[CHANNELS] - column, self.lanes)
        zero = f.constant(0.0, self.zero_type.vector(self.lanes))
        with f.loop(start, stop, 1, [zero] * count) as rows:
            at = rows.index * self.extra[CHANNELS] + column
            places = [f.at(t.pointer, at * t.size) for t in tensors]
            rows.next(*visit(places, mask, rows.carried))
        return rows.results

    def _size(self, chunk: LLVMValue) -> LLVMValue:
        start, stop = self._bounds(chunk)
        return self.one.to(Num(dt.int64, stop - start), self.compute).re

    def _column(
        self, pointer: LLVMValue, column: LLVMValue, mask: LLVMValue, dtype: dt.dtype
    ) -> LLVMValue:
        place = self.f.at(pointer, column * dtype.itemsize)
        return self.wide.to(self.wide.load(dtype, place, mask), self.compute).re

    def _put(
        self,
        value: LLVMValue,
        pointer: LLVMValue,
        column: LLVMValue,
        mask: LLVMValue,
        dtype: dt.dtype,
    ) -> None:
        place = self.f.at(pointer, column * dtype.itemsize)
        self.wide.store(Num(self.compute, value), dtype, place, mask)

    def _rstd(self, var: LLVMValue) -> LLVMValue:
        eps = self.f.splat(self.eps, self.lanes)
        return self.wide.rsqrt(Num(self.compute, var + eps)).re

    # ---- forward -------------------------------------------------------------------------------

    def _moments(self, chunk: LLVMValue) -> None:
        """Mean and sum of squared distances from it, of the rows of a chunk."""
        f, x = self.f, self.rows(self.inputs[0])
        size = f.splat(self._size(chunk), self.lanes)
        with self._vectors() as columns:
            at = columns.index
            [total] = self._rows(chunk, at, [x], lambda p, m, s: [s[0] + self.load(p[0], m)], 1)
            mean = total / size

            def square(
                places: list[LLVMValue], mask: LLVMValue | None, sums: list[LLVMValue]
            ) -> list[LLVMValue]:
                c = self.load(places[0], mask) - mean
                return [f.mul_add(c, c, sums[0])]

            [squares] = self._rows(chunk, at, [x], square, 1)
            f.store(mean, self._sums(chunk, 0, at))
            f.store(squares, self._sums(chunk, 1, at))

    def _statistics(self, column: LLVMValue, mask: LLVMValue) -> None:
        """Chunks put together: the distance between two means adds to the squares."""
        f, type = self.f, self.zero_type.vector(self.lanes)
        zero = f.constant(0.0, type)
        with f.loop(0, self.extra[CHUNKS], 1, [zero, zero, f.constant(0.0, self.zero_type)]) as all:
            mean, squares, before = all.carried
            added = self._size(all.index)
            total = before + added
            away = f.load(type, self._sums(all.index, 0, column)) - mean
            part = f.splat(added / total, self.lanes)
            across = f.splat(before * added / total, self.lanes)
            here = f.load(type, self._sums(all.index, 1, column))
            all.next(f.mul_add(away, part, mean), squares + here + away * away * across, total)
        mean, squares, _ = all.results
        self._put(mean, self.outputs[1], column, mask, self.compute)
        var = squares / f.splat(self.count(), self.lanes)
        self._put(var, self.outputs[2], column, mask, self.compute)

    def _result(self, chunk: LLVMValue) -> None:
        f, (x, weight, bias) = self.f, self.inputs
        with self._vectors() as columns:
            at = columns.index
            mask = f.low_mask(self.extra[CHANNELS] - at, self.lanes)
            mean = self._column(self.outputs[1], at, mask, self.compute)
            rstd = self._rstd(self._column(self.outputs[2], at, mask, self.compute))
            scale = rstd * self._column(weight, at, mask, self.weight)
            shift = self._column(bias, at, mask, self.weight)
            self._rows(chunk, at, *self.result_walk(self.rows(x), mean, scale, shift), 0)

    # ---- backward ------------------------------------------------------------------------------

    def _gradient_sums(self, chunk: LLVMValue) -> None:
        f, (_, x, _, mean_in, _) = self.f, self.inputs
        with self._vectors() as columns:
            at = columns.index
            mask = f.low_mask(self.extra[CHANNELS] - at, self.lanes)
            mean = self._column(mean_in, at, mask, self.compute)
            level, slope = self._rows(chunk, at, *self.sums_walk(self.rows(x), mean), 2)
            f.store(level, self._sums(chunk, 0, at))
            f.store(slope, self._sums(chunk, 1, at))

    def _gradient_totals(self, column: LLVMValue, mask: LLVMValue) -> None:
        """The sums of all chunks, in order; they stay in the first chunk's place."""
        f, type = self.f, self.zero_type.vector(self.lanes)
        zero = f.constant(0.0, type)
        with f.loop(0, self.extra[CHUNKS], 1, [zero, zero]) as all:
            here = [f.load(type, self._sums(all.index, k, column)) for k in (0, 1)]
            all.next(all.carried[0] + here[0], all.carried[1] + here[1])
        level, slope = all.results
        f.store(level, self._sums(f.constant(0, I64), 0, column))
        f.store(slope, self._sums(f.constant(0, I64), 1, column))
        rstd = self._rstd(self._column(self.inputs[4], column, mask, self.compute))
        self._put(slope * rstd, self.outputs[1], column, mask, self.weight)
        self._put(level, self.outputs[2], column, mask, self.weight)

    def _gradient_result(self, chunk: LLVMValue) -> None:
        f, (_, x, weight, mean_in, var_in) = self.f, self.inputs
        type, first = self.zero_type.vector(self.lanes), f.constant(0, I64)
        count = f.splat(self.count(), self.lanes)
        with self._vectors() as columns:
            at = columns.index
            mask = f.low_mask(self.extra[CHANNELS] - at, self.lanes)
            mean = self._column(mean_in, at, mask, self.compute)
            rstd = self._rstd(self._column(var_in, at, mask, self.compute))
            scale = rstd * self._column(weight, at, mask, self.weight)
            shift = f.load(type, self._sums(first, 0, at)) / count
            bend = rstd * rstd * (f.load(type, self._sums(first, 1, at)) / count)
            walk = self.gradient_walk(self.rows(x), mean, scale, shift, bend)
            self._rows(chunk, at, *walk, 0)


def write_channel_norm(m: Module, kind: BatchNormKind, around: Around | None = None) -> None:
    (Columns if kind.columns else Planes)(m, kind, around).write()
