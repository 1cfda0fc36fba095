"""Convolutions 1x1 of planes: a matrix product for each image, with the pixels in the lanes.

    y[channel][pixel] = sum over k of w[channel][k] * x[k][pixel]

The micro-kernels of `tile` serve with the roles exchanged: their rows are output channels, read
from weights laid out as [channel][k]; their lanes are pixels, from panels [k][pixels] into which
each task copies its block of the source. Nothing is turned.
"""

from __future__ import annotations

import itertools
import math

from lucerne._src.backends.cpu.conv.direct import tile_heights
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
from lucerne._src.backends.cpu.conv.microkernel import (
    EVEN,
    JOB,
    LOW,
    TALL,
    VECTORS,
    ConvTile,
    tile_code,
)
from lucerne._src.backends.cpu.conv.problem import Gather
from lucerne._src.backends.cpu.emit.builder import LLVMValue, Module
from lucerne._src.backends.cpu.emit.target import VECTOR_BYTES
from lucerne._src.backends.cpu.emit.tiles import TileElement, lanes_of, transpose_code
from lucerne._src.backends.cpu.emit.types import F32, I64, PTR, VOID
from lucerne._src.backends.cpu.runtime.kernel import NativeKernel
from lucerne._src.backends.cpu.runtime.pool import MAX_THREADS

_NAMES = words(
    "GROUPS LANES REDUCED PIXELS PANELS BLOCKS",  # panels of a block, blocks of an image
    "X_N X_C Y_N Y_C W_LANE W_REDUCED W_GROUP B_STEP",
    "PITCH WEIGHTS START STARTS BUFFER BUFFER_SIZE KERNELS JOB TILES HEIGHT HIGHER TRANSPOSE",
    "ROW_BLOCKS ROW_BLOCK",
)
_BLOCK_BYTES = 256 << 10
_MOST_PANELS = 8
_NANOSECONDS_PER_PRODUCT = 0.013
_ROWS_AT_ONCE = 64
_MOST_WASTE = 1.25
"""Lanes computed for each that is wanted; beyond this turning the planes pays."""


def suits(p: Gather) -> bool:
    """One tap, planes in one piece, and types that need no change. `p` is flattened."""
    one = p.taps == (1, 1, 1) and p.in_step == (1, 1, 1) and p.step == (1, 1, 1)
    inside = p.low == (0, 0, 0) and p.counts == p.source.space
    flat = all(a.space[:2] == (1, 1) and a.strides[4] == 1 for a in (p.source, p.target))
    width = VECTORS * lanes_of(F32)
    pixels = p.source.space[2]
    full = -(-pixels // width) * width <= _MOST_WASTE * pixels
    return one and inside and flat and full and p.lanes >= 4


def plan_pointwise(p: Gather, element: TileElement, bias_step: int) -> NativeKernel:
    compute, table, space = element.compute, ConvTable(_NAMES), ConvSpace()
    size, width = compute.size, VECTORS * lanes_of(compute)
    pixels = p.source.space[2]
    panels = min(_MOST_PANELS, -(-pixels // width), _BLOCK_BYTES // (p.reduced * width * size))
    panels = max(1, panels)
    blocks = -(-pixels // (panels * width))
    pitch = -(-p.reduced // 16) * 16 + 16
    table.set(GROUPS=p.groups, LANES=p.lanes, REDUCED=p.reduced, PIXELS=pixels)
    table.set(PANELS=panels, BLOCKS=blocks, PITCH=pitch)
    table.set(X_N=p.source.strides[0], X_C=p.source.strides[1])
    table.set(Y_N=p.target.strides[0], Y_C=p.target.strides[1])
    table.set(W_LANE=p.w_lane, W_REDUCED=p.w_reduced, W_GROUP=p.w_group, B_STEP=bias_step)
    table.set(WEIGHTS=space.take(p.groups * p.lanes * pitch * size))
    start_step = width * size if p.bias else 0
    table.set(START=space.take(p.groups * p.lanes * width * size), STARTS=start_step)
    nbytes = panels * p.reduced * width * size + 64
    table.set(BUFFER=space.take(nbytes * MAX_THREADS), BUFFER_SIZE=nbytes)
    _add_tiles(p, table, element, pitch, start_step)
    rows = _ROWS_AT_ONCE if p.lanes > _ROWS_AT_ONCE else p.lanes
    table.set(ROW_BLOCKS=-(-p.lanes // rows), ROW_BLOCK=rows)
    across = p.w_lane == 1
    if across:
        table.set(TRANSPOSE=transpose_code(element, element))
    key = (element.dtype.name, compute.name)
    pack = task_code(
        ("conv.pointwise.pack", *key, across, p.bias),
        lambda m: _write_pack(m, element, across, p.bias),
    )
    task = task_code(("conv.pointwise", *key), lambda m: _Writer(m, element).write())
    packs = p.groups * table.values["ROW_BLOCKS"]
    chunks = p.source.shape[0] * p.groups * blocks
    work = math.prod(p.target.shape) * p.reduced * _NANOSECONDS_PER_PRODUCT
    phases = [Phase(pack, packs), Phase(task, chunks)]
    return make_kernel(phases, table, space.used, 3 if p.bias else 2, work)


def _add_tiles(
    p: Gather, table: ConvTable, element: TileElement, pitch: int, start_step: int
) -> None:
    """The one job of all tiles, and the micro-kernels of the heights that occur."""
    size, panel = element.size, VECTORS * VECTOR_BYTES
    job = [1, p.reduced, pitch * size, size, panel, 0, p.target.strides[1] * size, start_step]
    table.set(JOB=table.append([*job, 0]))
    tall = p.lanes % TALL == 0
    tiles = p.lanes // TALL if tall else -(-p.lanes // LOW)
    table.set(TILES=tiles, HEIGHT=p.lanes // tiles, HIGHER=p.lanes % tiles)
    kernels = [0] * (VECTORS * (TALL + 1))
    width = VECTORS * lanes_of(element.compute)
    left = p.source.space[2] % width
    vectors = {VECTORS} if p.source.space[2] >= width else set()
    if left:
        vectors.add(-(-left // lanes_of(element.compute)))
    for h, v in itertools.product(tile_heights(p.lanes), vectors):
        form = ConvTile(EVEN, h, v, element.compute)
        kernels[(v - 1) * (TALL + 1) + h] = tile_code(form, len(JOB))
    table.set(KERNELS=table.append(kernels))


def _write_pack(m: Module, element: TileElement, across: bool, bias: bool) -> None:
    """Chunk: some output channels of a group. Their weights as rows, and what sums start from."""
    compute, n = element.compute, lanes_of(element.compute)
    width = VECTORS * n
    with m.function("task", TASK) as f:
        place, chunk, _ = f.args
        c = ConvContext(f, place, _NAMES)
        group, first = chunk // c.ROW_BLOCKS, chunk % c.ROW_BLOCKS * c.ROW_BLOCK
        count = f.minimum(c.ROW_BLOCK, c.LANES - first)
        source = element.at(f, c.second, group * c.W_GROUP + first * c.W_LANE)
        row = group * c.LANES + first
        target = f.at(c.space("WEIGHTS"), row * c.PITCH, compute)
        if across:
            args = [source, c.W_REDUCED, target, c.PITCH, c.REDUCED, c.REDUCED, count]
            f.call_at(c.pointer("TRANSPOSE"), VOID, args)
        else:
            with f.loop(0, count) as i, f.loop(0, c.REDUCED) as k:
                at = i.index * c.W_LANE + k.index * c.W_REDUCED
                v = element.load(f, element.at(f, source, at))
                f.store(v, f.at(target, i.index * c.PITCH + k.index, compute))
        with f.loop(0, count) as i:
            start = f.zero(compute)
            if bias:
                start = element.load(f, element.at(f, c.third, (row + i.index) * c.B_STEP))
            place = f.at(c.space("START"), (row + i.index) * width, compute)
            for j in range(VECTORS):
                f.store(f.splat(start, n), f.at(place, j * n, compute))


class _Writer:
    """Chunk: a block of pixels of one image and group."""

    def __init__(self, m: Module, element: TileElement) -> None:
        self.m, self.element, self.compute = m, element, element.compute
        self.n = lanes_of(self.compute)
        self.width = VECTORS * self.n

    def write(self) -> None:
        with self.m.function("task", TASK) as f:
            place, chunk, thread = f.args
            c = self.c = ConvContext(f, place, _NAMES)
            self.f = f
            chunk, block = chunk // c.BLOCKS, chunk % c.BLOCKS
            image, group = chunk // c.GROUPS, chunk % c.GROUPS
            first = block * c.PANELS * self.width
            pixels = f.minimum(c.PANELS * self.width, c.PIXELS - first)
            at = image * c.X_N + group * c.REDUCED * c.X_C + first
            buffer = c.scratch("BUFFER", thread)
            self._copy(f.at(c.first, at, self.compute), buffer, pixels)
            channel = group * c.LANES
            at = image * c.Y_N + channel * c.Y_C + first
            y = f.at(c.out, at, self.compute)
            weights = f.at(c.space("WEIGHTS"), channel * c.PITCH, self.compute)
            start = f.at(c.space("START"), channel * c.STARTS)
            self._tiles(weights, buffer, y, start, pixels)

    def _copy(self, source: LLVMValue, buffer: LLVMValue, pixels: LLVMValue) -> None:
        """The block as panels [k][pixels]."""
        f, c, n = self.f, self.c, self.n
        panel = c.REDUCED * self.width
        vector = self.compute.vector(n)
        with f.loop(0, c.REDUCED) as k, f.loop(0, pixels, self.width) as at:
            row = f.at(source, k.index * c.X_C + at.index, self.compute)
            place = at.index // self.width * panel + k.index * self.width
            target = f.at(buffer, place, self.compute)
            for j in range(VECTORS):
                mask = f.low_mask(pixels - at.index - j * n, n)
                v = f.masked_load(vector, f.at(row, j * n, self.compute), mask)
                f.store(v, f.at(target, j * n, self.compute))

    def _tiles(
        self,
        weights: LLVMValue,
        buffer: LLVMValue,
        y: LLVMValue,
        start: LLVMValue,
        pixels: LLVMValue,
    ) -> None:
        """Some channels over all pixels, then the next: stores stay on few pages."""
        f, c = self.f, self.c
        size, width = self.compute.size, self.width
        row_step, out_step, start_step = c.PITCH * size, c.Y_C * size, c.STARTS
        panel_bytes = c.REDUCED * width * size
        job = c.word_at(c.JOB)
        with f.loop(0, c.TILES, 1, [weights, y, start]) as tiles:
            weights, y, start = tiles.carried
            h = c.HEIGHT + f.convert("zext", tiles.index < c.HIGHER, I64)
            with f.loop(0, f.ceil_div(pixels, f.constant(width))) as panel:
                lanes = f.minimum(pixels - panel.index * width, width)
                vectors = f.select(lanes > self.n, f.constant(TALL + 1), 0)
                kernel = f.load(PTR, f.at(c.word_at(c.KERNELS), vectors + h, I64))
                source = f.at(buffer, panel.index * panel_bytes)
                out = f.at(y, panel.index * width, self.compute)
                args = [weights, source, out, job, start, lanes, source, f.zero(PTR)]
                f.call_at(kernel, VOID, args)
            weights, y = f.at(weights, h * row_step), f.at(y, h * out_step)
            tiles.next(weights, y, f.at(start, h * start_step))
