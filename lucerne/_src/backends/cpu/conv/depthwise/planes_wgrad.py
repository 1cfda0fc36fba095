"""The gradient of the weights of convolutions with few channels in a group, of planes.

Planes of the source and of the gradient are laid out flat at one pitch (see `flat`), the gradient
with zeros between its rows; then each weight is a dot product of the two at the offset of its tap.
A task takes one group and a part of the blocks of rows; parts are added in order.

The zeros meet numbers of the source that have no part in a weight. If one of those is infinite the
sum is nan: whoever sees a sum that is not finite asks for the spare kernel (see `launch`).
"""

from __future__ import annotations

import dataclasses
import math

from lucerne._src.backends.cpu.conv.depthwise.planes import tap_offsets
from lucerne._src.backends.cpu.conv.flat import (
    VECTORS_AT_ONCE,
    FlatCopy,
    block_rows,
    conv_geometry,
    describe_flat,
    flat_words,
)
from lucerne._src.backends.cpu.conv.launch import (
    TASK,
    ConvContext,
    ConvSpace,
    ConvTable,
    Phase,
    make_kernel,
    task_code,
    words,
)
from lucerne._src.backends.cpu.conv.problem import Array, ConvSetting
from lucerne._src.backends.cpu.emit.builder import LLVMFunction, LLVMValue, Module
from lucerne._src.backends.cpu.emit.tiles import TileElement, lanes_of
from lucerne._src.backends.cpu.emit.types import I64, PTR, VOID
from lucerne._src.backends.cpu.runtime.kernel import NativeKernel

_NAMES = words(
    "GROUPS LANES REDUCED PARTS UNITS OUT_D OUT_H OUT_W ROWS ROW_BLOCKS SPAN_D SPAN_H",
    "X_N X_C G_N G_C TAPS TAP_LIST OFFSETS SUMS SUMS_PART W_0 W_1",
    "BUFFER BUFFER_SIZE GRADS GRADS_SIZE",
    *flat_words("X"),
    *flat_words("G"),
)
_CHUNKS = 16
_TOGETHER = {3: 4, 1: 8}
"""Taps taken together, and vectors of pixels for each."""
_NANOSECONDS_PER_PRODUCT = 0.03


def plan_planes_weight(
    x: Array, w: Array, g: Array, s: ConvSetting, element: TileElement, spare: NativeKernel | None
) -> NativeKernel:
    compute = element.compute
    size, n = compute.size, lanes_of(compute)
    lanes, reduced, taps = w.shape[0] // s.groups, w.shape[1], math.prod(w.space)
    _, high, wide = g.space
    whole = conv_geometry(w.space, s, high, wide)
    rows = block_rows(high, whole.pitch, reduced * whole.slices + lanes, size, whole.every)
    flat = conv_geometry(w.space, s, rows, wide)
    table, space = ConvTable(_NAMES), ConvSpace()
    describe_flat(table, "X", x, flat)
    one = (1, 1, 1)
    grads = dataclasses.replace(
        flat, every=one, spread=one, before=(0, 0, 0), taps=((0,), (0,), (flat.pitch - wide,))
    )
    describe_flat(table, "G", g, grads)
    slack = VECTORS_AT_ONCE * n
    units = x.shape[0] * g.space[0] * -(-high // rows)
    parts = min(units, -(-_CHUNKS // s.groups))
    table.set(GROUPS=s.groups, LANES=lanes, REDUCED=reduced, PARTS=parts, UNITS=units)
    table.set(OUT_D=g.space[0], OUT_H=high, OUT_W=wide, ROWS=rows, ROW_BLOCKS=-(-high // rows))
    table.set(SPAN_D=flat.slices, SPAN_H=1 + max(flat.taps[1]))
    table.set(X_N=x.strides[0], X_C=x.strides[1], G_N=g.strides[0], G_C=g.strides[1])
    table.set(TAPS=taps, TAP_LIST=table.append(tap_offsets(w.space, w.strides[2:])))
    table.set(OFFSETS=table.append([at * size for at in flat.offsets()]))
    table.set(W_0=w.strides[0], W_1=w.strides[1], SUMS_PART=w.shape[0] * reduced * taps)
    table.set(SUMS=space.take(parts * w.shape[0] * reduced * taps * size))
    areas = {"BUFFER": reduced * flat.plane + slack, "GRADS": grads.plane + slack}
    for name, count in areas.items():
        table.area(space, name, count * size)
    key = (element.dtype.name, compute.name)
    add = task_code(("conv.planes.weight", *key), lambda m: _Writer(m, element).write())
    collect = task_code(("conv.planes.collect", *key), lambda m: _write_collect(m, element))
    work = math.prod(g.shape) * reduced * taps * _NANOSECONDS_PER_PRODUCT
    phases = [Phase(add, parts * s.groups), Phase(collect, s.groups)]
    return make_kernel(phases, table, space.used, 2, work, spare)


def _write_collect(m: Module, element: TileElement) -> None:
    """Chunk: a group. Its sums over all parts, in order."""
    compute = element.compute
    with m.function("task", TASK) as f:
        place, group, _ = f.args
        c = ConvContext(f, place, _NAMES)
        with f.loop(0, c.LANES) as lane, f.loop(0, c.REDUCED) as q, f.loop(0, c.TAPS) as tap:
            channel = group * c.LANES + lane.index
            index = (channel * c.REDUCED + q.index) * c.TAPS + tap.index
            place_ = f.at(c.space("SUMS"), index, compute)
            with f.loop(0, c.PARTS, 1, [f.zero(compute)]) as parts:
                at = f.at(place_, parts.index * c.SUMS_PART, compute)
                parts.next(parts.carried[0] + f.load(compute, at))
            offset = f.load(I64, c.word_at(c.TAP_LIST + tap.index))
            target = channel * c.W_0 + q.index * c.W_1 + offset
            total = parts.results[0]
            nothing = total - total
            with f.if_(f.compare("uno", nothing, nothing)):
                f.atomic_store(f.constant(1), c.flag, "monotonic")
            element.store(f, total, element.at(f, c.out, target))


class _Writer:
    """Chunk: a part and a group."""

    def __init__(self, m: Module, element: TileElement) -> None:
        self.m, self.element, self.compute = m, element, element.compute
        self.n = lanes_of(self.compute)
        self.copy_x = FlatCopy(m, "X", _NAMES, element)
        self.copy_g = FlatCopy(m, "G", _NAMES, element)

    def write(self) -> None:
        self.copy_x.write()
        self.copy_g.write()
        for together, vectors in _TOGETHER.items():
            self._write_dot(together, vectors)
        with self.m.function("task", TASK) as f:
            place, chunk, thread = f.args
            c = self.c = ConvContext(f, place, _NAMES)
            self.f, self.thread = f, thread
            part, self.group = chunk // c.GROUPS, chunk % c.GROUPS
            self.weights = c.LANES * c.REDUCED * c.TAPS
            at = part * c.SUMS_PART + self.group * self.weights
            self.sums = f.at(c.space("SUMS"), at, self.compute)
            f.fill_bytes(self.sums, 0, self.weights * self.compute.size)
            with f.loop(part * c.UNITS // c.PARTS, (part + 1) * c.UNITS // c.PARTS) as unit:
                self._unit(unit.index)

    def _unit(self, unit: LLVMValue) -> None:
        f, c = self.f, self.c
        unit, row = unit // c.ROW_BLOCKS, unit % c.ROW_BLOCKS * c.ROWS
        image, depth = unit // c.OUT_D, unit % c.OUT_D
        rows = f.minimum(c.ROWS, c.OUT_H - row)
        buffer, grads = c.scratch("BUFFER", self.thread), c.scratch("GRADS", self.thread)
        padded = (rows - 1) * c.X_EVERY_H + c.SPAN_H
        slack = VECTORS_AT_ONCE * self.n * self.compute.size
        # What vectors read past the last plane must be numbers.
        f.fill_bytes(f.at(buffer, c.REDUCED * c.X_PLANE, self.compute), 0, slack)
        f.fill_bytes(f.at(grads, c.G_PLANE, self.compute), 0, slack)
        with f.loop(0, c.REDUCED) as q:
            at = image * c.X_N + (self.group * c.REDUCED + q.index) * c.X_C
            target = f.at(buffer, q.index * c.X_PLANE, self.compute)
            plane = self.element.at(f, c.second, at)
            self.copy_x.call(f, c, plane, target, depth, row, c.SPAN_D, padded)
        length = (rows - 1) * c.X_PITCH + c.OUT_W
        with f.loop(0, c.LANES) as lane:
            at = image * c.G_N + (self.group * c.LANES + lane.index) * c.G_C
            plane = self.element.at(f, c.first, at)
            self.copy_g.call(f, c, plane, grads, depth, row, f.constant(1), rows)
            with f.loop(0, c.REDUCED) as q:
                source = f.at(buffer, q.index * c.X_PLANE, self.compute)
                at = (lane.index * c.REDUCED + q.index) * c.TAPS
                self._taps(source, grads, f.at(self.sums, at, self.compute), length)

    def _taps(self, x: LLVMValue, g: LLVMValue, sums: LLVMValue, length: LLVMValue) -> None:
        f, c = self.f, self.c
        start: LLVMValue = f.constant(0)
        for together in _TOGETHER:
            stop = start + (c.TAPS - start) // together * together
            with f.loop(start, stop, together) as tap:
                offsets = c.word_at(c.OFFSETS + tap.index)
                place = f.at(sums, tap.index, self.compute)
                f.call(f"dot{together}", VOID, [x, g, offsets, place, length])
            start = stop

    def _write_dot(self, together: int, vectors: int) -> None:
        """Add to `together` sums the products of g with x at as many offsets."""
        params = [("x", PTR), ("g", PTR), ("offsets", PTR), ("sums", PTR), ("length", I64)]
        with self.m.function(f"dot{together}", params, internal=True) as f:
            x, g, offsets, sums, length = f.args
            n, size = self.n, self.compute.size
            vector = self.compute.vector(n)
            rows = [f.at(x, f.word(offsets, t)) for t in range(together)]
            zeros = [f.zero(vector)] * (together * vectors)
            with f.loop(0, length, vectors * n, zeros) as loop:
                made = []
                for j in range(vectors):
                    at = loop.index * size + j * n * size
                    grad = f.load(vector, f.at(g, at))
                    for t, row in enumerate(rows):
                        total = loop.carried[j * together + t]
                        made.append(f.mul_add(f.load(vector, f.at(row, at)), grad, total))
                loop.next(*made)
            for t in range(together):
                self._add(f, loop.results[t::together], f.at(sums, t, self.compute))

    def _add(self, f: LLVMFunction, vectors: list[LLVMValue], place: LLVMValue) -> None:
        while len(vectors) > 1:
            half = len(vectors) // 2
            vectors = [a + b for a, b in zip(vectors[:half], vectors[half:], strict=True)]
        total = f.fold("add", vectors[0])
        f.store(f.load(self.compute, place) + total, place)
