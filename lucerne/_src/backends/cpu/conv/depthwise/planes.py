"""Convolutions with few channels in a group, of planes: depthwise ones, and those to few outputs.

Vectors run over pixels (see `flat`), weights are single numbers. A task is a block of rows of one
image and group: it lays the planes it reads out flat, and for every output channel adds up all taps
of all planes over eight vectors of pixels at a time.
"""

from __future__ import annotations

import math
from typing import Any

from lucerne._src.backends.cpu.conv.flat import (
    VECTORS_AT_ONCE,
    FlatCopy,
    FlatGeometry,
    block_rows,
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
from lucerne._src.backends.cpu.conv.padded import PLANES
from lucerne._src.backends.cpu.conv.problem import Gather
from lucerne._src.backends.cpu.emit.builder import LLVMValue, Module
from lucerne._src.backends.cpu.emit.tiles import TileElement, lanes_of
from lucerne._src.backends.cpu.emit.types import I64
from lucerne._src.backends.cpu.runtime.kernel import NativeKernel

NAMES = words(
    "GROUPS LANES REDUCED A_D A_H A_W ROWS ROW_BLOCKS SPAN_D SPAN_H",
    "X_N X_C Y_N Y_C Y_D Y_H Y_W",
    "ENTRIES OFFSETS",  # taps of all planes of a group, and the place of their byte offsets
    "WEIGHTS TAPS TAP_LIST W_LANE W_REDUCED W_GROUP B_STEP",
    "BUFFER BUFFER_SIZE RESULTS RESULTS_SIZE",
    *flat_words("X"),
)
_NANOSECONDS_PER_PRODUCT = 0.03
_MOST_LANES = 4


def suits(p: Gather, layouts: set[str]) -> bool:
    """Whether vectors over pixels beat vectors over channels: few output channels in a group. Other
    layouts than planes are gathered number by number, which only single channels are worth."""
    most = _MOST_LANES if layouts == {PLANES} else 1
    spread = math.prod(p.step)  # zeros are put between the elements of a strided transpose
    return p.lanes <= most and p.reduced * spread <= 16 * most


def plan_planes(
    p: Gather, geometry: Any, element: TileElement, bias_step: int, mend: NativeKernel | None = None
) -> NativeKernel:
    """`geometry(rows, cols)` says how planes lie flat for a block of so many outputs."""
    x, y, size = p.source, p.target, element.compute.size
    _, high, wide = y.space
    whole: FlatGeometry = geometry(high, wide)
    rows = block_rows(high, whole.pitch, p.reduced * whole.slices, size, whole.every)
    g: FlatGeometry = geometry(rows, wide)
    table, space = ConvTable(NAMES), ConvSpace()
    describe_flat(table, "X", x, g)
    n, taps = lanes_of(element.compute), math.prod(p.taps)
    slack = VECTORS_AT_ONCE * n
    table.set(GROUPS=p.groups, LANES=p.lanes, REDUCED=p.reduced)
    table.set(A_D=y.space[0], A_H=high, A_W=wide, ROWS=rows, ROW_BLOCKS=-(-high // rows))
    table.set(SPAN_D=g.slices, SPAN_H=1 + max(g.taps[1]))
    table.set(X_N=x.strides[0], X_C=x.strides[1])
    table.set(**dict(zip((f"Y_{d}" for d in "NCDHW"), y.strides, strict=True)))
    offsets = [(q * g.plane + at) * size for q in range(p.reduced) for at in g.offsets()]
    table.set(ENTRIES=len(offsets), OFFSETS=table.append(offsets))
    table.set(TAPS=taps, TAP_LIST=table.append(tap_offsets(p.taps, p.w_taps)))
    table.set(W_LANE=p.w_lane, W_REDUCED=p.w_reduced, W_GROUP=p.w_group, B_STEP=bias_step)
    table.set(WEIGHTS=space.take(p.groups * p.lanes * (len(offsets) + 1) * size))
    areas = {"BUFFER": p.reduced * g.plane + slack, "RESULTS": g.length + slack}
    for name, count in areas.items():
        table.area(space, name, count * size)
    key = (element.dtype.name, element.compute.name)
    watch = mend is not None
    pack = task_code(
        ("conv.planes.pack", *key, p.bias, watch), lambda m: _write_pack(m, element, p.bias, watch)
    )
    task = task_code(("conv.planes", *key), lambda m: _Writer(m, element).write())
    chunks = x.shape[0] * p.groups * y.space[0] * table.values["ROW_BLOCKS"]
    phases = [Phase(pack, p.groups), Phase(task, chunks)]
    work = math.prod(y.shape) * p.reduced * taps * _NANOSECONDS_PER_PRODUCT
    return make_kernel(phases, table, space.used, 3 if p.bias else 2, work, mend)


def tap_offsets(taps: tuple[int, ...], strides: tuple[int, ...]) -> list[int]:
    """Element offsets of the taps of a weight, in order."""
    (a, b, c), (x, y, z) = taps, strides
    return [i * x + j * y + k * z for i in range(a) for j in range(b) for k in range(c)]


def _write_pack(m: Module, element: TileElement, bias: bool, watch: bool) -> None:
    """Chunk: a group. Every output channel's weights in the order of the offsets, then its bias."""
    compute = element.compute
    with m.function("task", TASK) as f:
        place, group, _ = f.args
        c = ConvContext(f, place, NAMES)
        source = element.at(f, c.second, group * c.W_GROUP)
        with f.loop(0, c.LANES) as lane:
            channel = group * c.LANES + lane.index
            target = f.at(c.space("WEIGHTS"), channel * (c.ENTRIES + 1), compute)
            with f.loop(0, c.REDUCED) as q, f.loop(0, c.TAPS) as tap:
                at = lane.index * c.W_LANE + q.index * c.W_REDUCED
                at = at + f.load(I64, c.word_at(c.TAP_LIST + tap.index))
                v = element.load(f, element.at(f, source, at))
                f.store(v, f.at(target, q.index * c.TAPS + tap.index, compute))
                if watch:
                    nothing = v - v  # unless it is infinite, or no number
                    with f.if_(f.compare("uno", nothing, nothing)):
                        f.atomic_store(f.constant(1), c.flag, "monotonic")
            start = f.zero(compute)
            if bias:
                start = element.load(f, element.at(f, c.third, channel * c.B_STEP))
            f.store(start, f.at(target, c.ENTRIES, compute))


class _Writer:
    def __init__(self, m: Module, element: TileElement) -> None:
        self.m, self.element, self.compute = m, element, element.compute
        self.n = lanes_of(self.compute)
        self.copy = FlatCopy(m, "X", NAMES, element)

    def write(self) -> None:
        self.copy.write()
        with self.m.function("task", TASK) as f:
            place, chunk, thread = f.args
            c = self.c = ConvContext(f, place, NAMES)
            self.f = f
            chunk, row = chunk // c.ROW_BLOCKS, chunk % c.ROW_BLOCKS * c.ROWS
            chunk, depth = chunk // c.A_D, chunk % c.A_D
            image, group = chunk // c.GROUPS, chunk % c.GROUPS
            rows = f.minimum(c.ROWS, c.A_H - row)
            buffer = c.scratch("BUFFER", thread)
            self.results = c.scratch("RESULTS", thread)
            padded_rows = (rows - 1) * c.X_EVERY_H + c.SPAN_H
            with f.loop(0, c.REDUCED) as q:
                at = image * c.X_N + (group * c.REDUCED + q.index) * c.X_C
                plane = self.element.at(f, c.first, at)
                target = f.at(buffer, q.index * c.X_PLANE, self.compute)
                self.copy.call(f, c, plane, target, depth, row, c.SPAN_D, padded_rows)
            with f.loop(0, c.LANES) as lane:
                channel = group * c.LANES + lane.index
                self._channel(buffer, channel, rows)
                at = image * c.Y_N + channel * c.Y_C + depth * c.Y_D + row * c.Y_H
                self._put(self.element.at(f, c.out, at), rows)

    def _channel(self, buffer: LLVMValue, channel: LLVMValue, rows: LLVMValue) -> None:
        f, c, n, size = self.f, self.c, self.n, self.compute.size
        vector = self.compute.vector(n)
        weights = f.at(c.space("WEIGHTS"), channel * (c.ENTRIES + 1), self.compute)
        offsets = c.word_at(c.OFFSETS)
        length = (rows - 1) * c.X_PITCH + c.A_W
        entries = c.ENTRIES
        start = f.splat(f.load(self.compute, f.at(weights, entries, self.compute)), n)
        with f.loop(0, length, VECTORS_AT_ONCE * n) as at:
            x = f.at(buffer, at.index, self.compute)
            with f.loop(0, entries, 1, [start] * VECTORS_AT_ONCE) as taps:
                place = f.at(x, f.load(I64, f.at(offsets, taps.index, I64)))
                w = f.splat(f.load(self.compute, f.at(weights, taps.index, self.compute)), n)
                made = [
                    f.mul_add(f.load(vector, f.at(place, j * n * size)), w, total)
                    for j, total in enumerate(taps.carried)
                ]
                taps.next(*made)
            target = f.at(self.results, at.index, self.compute)
            for j, v in enumerate(taps.results):
                f.store(v, f.at(target, j * n * size))

    def _put(self, target: LLVMValue, rows: LLVMValue) -> None:
        """Rows of results without what lies between them."""
        f, c, n, element = self.f, self.c, self.n, self.element
        vector = self.compute.vector(n)
        width, step = c.A_W, c.Y_W
        whole = width & -n
        tail = f.low_mask(width - whole, n)
        adjacent = f.compare("eq", step, 1)
        with f.loop(0, rows, 1, [self.results, target]) as loop:
            source, line = loop.carried
            with f.if_(adjacent) as straight:
                with f.loop(0, whole, n) as k:
                    v = f.load(vector, f.at(source, k.index, self.compute))
                    element.store(f, v, element.at(f, line, k.index))
                v = f.load(vector, f.at(source, whole, self.compute))
                element.store(f, v, element.at(f, line, whole), tail)
            with straight.else_(), f.loop(0, width) as k:
                v = f.load(self.compute, f.at(source, k.index, self.compute))
                element.store(f, v, element.at(f, line, k.index * step))
            loop.next(f.at(source, c.X_PITCH, self.compute), element.at(f, line, c.Y_H))
