"""The tasks of the gradient of the weights.

    dW[o][c][tap] = sum over pixels of g[pixel][o] * x[pixel moved by tap][c]

`sum` tasks: each takes a part of the pixels, one group and some panels of output channels, and adds
up tiles [channels of x][lanes of g] while k runs over pixels. It goes through its part in blocks:
the padded block of x is copied to cached scratch (and g, unless it can be read where it is), then
every tile of every strip runs over a few rows of pixels at a time, so that g stays in the first
cache. A *strip* is what is adjacent in the copy: the channels of one tap, or of all along a row.

`collect` tasks: add the parts in order and lay the result out as the target wants it. Parts and
blocks follow from the shape alone, so results do not depend on the number of threads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lucerne._src.backends.cpu.conv.launch import TASK, ConvContext, task_code, words
from lucerne._src.backends.cpu.conv.microkernel import JOB, TALL, VECTORS
from lucerne._src.backends.cpu.conv.padded import IN_PLACE, PaddedCopy, copy_words
from lucerne._src.backends.cpu.emit.builder import LLVMValue, Module
from lucerne._src.backends.cpu.emit.tiles import TileElement, lanes_of
from lucerne._src.backends.cpu.emit.types import I64, PTR, VOID

WEIGHT = words(
    "GROUPS LANES REDUCED PANELS PANEL_GROUPS PANELS_EACH",
    "PARTS UNITS N A_D A_H A_W",  # a unit is a block of pixels: images x rows x columns
    "IMAGES ROWS COLS IMAGE_BLOCKS ROW_BLOCKS COL_BLOCKS RUNS_AT_ONCE",
    "X_GROUP G_GROUP IN_D IN_H IN_W LOW_D LOW_H LOW_W SPAN_D SPAN_H SPAN_W",
    "STRIPS STRIP_LIST STRIP_LENGTH TILES HEIGHT HIGHER KERNELS",
    "SUMS SUMS_PART SUMS_PANEL SUMS_TAP",  # sums; elements of a part, of a panel, rows of a tap
    "BUFFER BUFFER_SIZE GRADS GRADS_SIZE RUNS RUNS_SIZE ASIDE ASIDE_SIZE",
    "TAPS TAP_LIST CHANNEL_BLOCKS CHANNEL_BLOCK W_0 W_1 W_SIZE TRANSPOSE_OUT",
    *copy_words("X"),
    *copy_words("G"),
)
OFFSETS = len(JOB)
FULL = VECTORS
"""Kernels are listed by vectors - 1 and height; those for panels without a tail come last."""
TAPS, CHANNELS = "taps", "channels"
"""What is adjacent in the target: channels and their taps, or channels alone."""


@dataclass(frozen=True)
class WgradWay:
    """Which `sum` task: the element, and how x and g are read."""

    element: TileElement
    reads_x: str
    reads_g: str


def sum_code(way: WgradWay) -> int:
    key = (
        "conv.weight",
        way.element.dtype.name,
        way.element.compute.name,
        way.reads_x,
        way.reads_g,
    )
    return task_code(key, lambda m: _SumWriter(m, way).write())


def collect_code(sums: TileElement, target: str) -> int:
    key = ("conv.collect", sums.compute.name, target)
    return task_code(key, lambda m: _CollectWriter(m, sums, target).write())


class _SumWriter:
    def __init__(self, m: Module, way: WgradWay) -> None:
        self.m, self.way = m, way
        self.compute = way.element.compute
        self.size = self.compute.size
        self.n = lanes_of(self.compute)
        self.width = VECTORS * self.n
        self.copy_x = PaddedCopy(m, "X", WEIGHT, way.element, way.reads_x)
        self.copy_g = PaddedCopy(m, "G", WEIGHT, way.element, way.reads_g)

    def write(self) -> None:
        for copy in (self.copy_x, self.copy_g):
            if copy.reads != IN_PLACE:
                copy.write_row()
        with self.m.function("task", TASK) as f:
            place, chunk, thread = f.args
            c = self.c = ConvContext(f, place, WEIGHT)
            self.f, self.thread = f, thread
            each = c.PANELS_EACH
            self.first_panel = chunk % c.PANEL_GROUPS * each
            self.panels = f.minimum(each, c.PANELS - self.first_panel)
            chunk = chunk // c.PANEL_GROUPS
            self.group, part = chunk % c.GROUPS, chunk // c.GROUPS
            at = part * c.SUMS_PART + (self.group * c.PANELS + self.first_panel) * c.SUMS_PANEL
            self.sums = f.at(c.space("SUMS"), at, self.compute)
            f.fill_bytes(self.sums, 0, self.panels * c.SUMS_PANEL * self.size)
            start, stop = part * c.UNITS // c.PARTS, (part + 1) * c.UNITS // c.PARTS
            with f.loop(start, stop) as units:
                self._unit(units.index)

    # ---- one block of pixels -----------------------------------------------------------------

    def _unit(self, unit: LLVMValue) -> None:
        f, c = self.f, self.c
        unit, col = unit // c.COL_BLOCKS, unit % c.COL_BLOCKS * c.COLS
        unit, row = unit // c.ROW_BLOCKS, unit % c.ROW_BLOCKS * c.ROWS
        image, depth = unit // c.A_D * c.IMAGES, unit % c.A_D
        self.images = f.minimum(c.IMAGES, c.N - image)
        self.rows = f.minimum(c.ROWS, c.A_H - row)
        self.cols = f.minimum(c.COLS, c.A_W - col)
        self._get_x(image, depth, row, col)
        self._get_g(image, depth, row, col)
        runs = self.images * self.rows
        with f.loop(0, runs, c.RUNS_AT_ONCE) as loop:
            self._runs(loop.index, f.minimum(runs - loop.index, c.RUNS_AT_ONCE))

    def _get_x(self, image: LLVMValue, depth: LLVMValue, row: LLVMValue, col: LLVMValue) -> None:
        f, c, element = self.f, self.c, self.way.element
        x = element.at(f, c.second, self.group * c.X_GROUP + image * c.X_N)
        if self.way.reads_x == IN_PLACE:
            at = depth * c.IN_D * c.X_D + row * c.IN_H * c.X_H + col * c.IN_W * c.X_W
            self.x = element.at(f, x, at)
            return
        self.x = c.scratch("BUFFER", self.thread)
        start = (depth * c.IN_D + c.LOW_D, row * c.IN_H + c.LOW_H, col * c.IN_W + c.LOW_W)
        rows = (self.rows - 1) * c.IN_H + c.SPAN_H
        pixels = (self.cols - 1) * c.IN_W + c.SPAN_W
        counts = (c.SPAN_D, rows, pixels)
        self.copy_x.fill(f, c, x, self.x, self.images, start, counts, c.REDUCED)

    def _get_g(self, image: LLVMValue, depth: LLVMValue, row: LLVMValue, col: LLVMValue) -> None:
        f, c, element = self.f, self.c, self.way.element
        lane = self.first_panel * self.width
        g = self.group * c.G_GROUP + image * c.G_N + lane * c.G_C
        g = element.at(f, c.first, g)
        if self.way.reads_g == IN_PLACE:
            self.g = element.at(f, g, depth * c.G_D + row * c.G_H + col * c.G_W)
            return
        self.g = c.scratch("GRADS", self.thread)
        counts = (f.constant(1), self.rows, self.cols)
        lanes = f.minimum(c.LANES - lane, self.panels * self.width)
        self.copy_g.fill(f, c, g, self.g, self.images, (depth, row, col), counts, lanes)

    # ---- tiles -------------------------------------------------------------------------------

    def _runs(self, first: LLVMValue, count: LLVMValue) -> None:
        """Every tile over `count` rows of pixels."""
        f, c, size = self.f, self.c, self.size
        job = c.scratch("RUNS", self.thread)
        jump = c.G_ROW - self.cols * c.G_PIXEL
        step = f.constant(self.width * size)
        k_step = c.IN_W * c.X_PIXEL * size
        values = [count, self.cols, f.constant(size), k_step, c.G_PIXEL * size, jump * size]
        for i, v in enumerate([*values, step, step]):
            f.store(v, f.at(job, i * 8))
        with f.loop(0, count) as run:
            image, row = (first + run.index) // self.rows, (first + run.index) % self.rows
            offset = (image * c.X_IMAGE + row * c.IN_H * c.X_ROW) * size
            f.store(offset, f.at(job, (run.index + OFFSETS) * 8))
        image, row = first // self.rows, first % self.rows
        g = f.at(self.g, image * c.G_IMAGE + row * c.G_ROW, self.compute)
        with f.loop(0, self.panels) as panel, f.loop(0, c.STRIPS) as strip:
            lanes = c.LANES - (self.first_panel + panel.index) * self.width
            lanes = f.minimum(lanes, self.width)
            at = panel.index * self.width
            offset = f.load(I64, c.word_at(c.STRIP_LIST + strip.index))
            at_sums = panel.index * c.SUMS_PANEL + strip.index * c.STRIP_LENGTH * self.width
            self._strip(
                job, f.at(self.x, offset), f.at(g, at, self.compute),
                f.at(self.sums, at_sums, self.compute), lanes,
            )  # fmt: skip

    def _strip(
        self, job: LLVMValue, x: LLVMValue, g: LLVMValue, sums: LLVMValue, lanes: LLVMValue
    ) -> None:
        f, c = self.f, self.c
        row = f.select(lanes > self.n, f.constant(1), 0)
        row = f.select(f.compare("eq", lanes, self.width), FULL, row)
        kernels = f.at(c.word_at(c.KERNELS), row * (TALL + 1), I64)
        with f.loop(0, c.TILES, 1, [x, sums]) as loop:
            x, sums = loop.carried
            height = c.HEIGHT + f.convert("zext", loop.index < c.HIGHER, I64)
            kernel = f.load(PTR, f.at(kernels, height, I64))
            f.call_at(kernel, VOID, [x, g, sums, job, sums, lanes, g, f.zero(PTR)])
            ahead = f.at(sums, height * self.width, self.compute)
            loop.next(f.at(x, height, self.compute), ahead)


class _CollectWriter:
    """Chunk: a panel of a group, and a block of its channels."""

    def __init__(self, m: Module, sums: TileElement, target: str) -> None:
        self.m, self.sums, self.target = m, sums, target
        self.compute = sums.compute
        self.n = lanes_of(self.compute)
        self.width = VECTORS * self.n

    def write(self) -> None:
        with self.m.function("task", TASK) as f:
            place, chunk, thread = f.args
            c = self.c = ConvContext(f, place, WEIGHT)
            self.f = f
            panel, block = chunk // c.CHANNEL_BLOCKS, chunk % c.CHANNEL_BLOCKS
            first = block * c.CHANNEL_BLOCK
            count = f.minimum(c.REDUCED - first, c.CHANNEL_BLOCK)
            self.place = f.at(c.space("SUMS"), panel * c.SUMS_PANEL, self.compute)
            self.aside = c.scratch("ASIDE", thread)
            lane = panel % c.PANELS * self.width
            lanes = f.minimum(c.LANES - lane, self.width)
            row = panel // c.PANELS * c.LANES + lane
            at = row * c.W_0 + first * c.W_1
            if self.target == TAPS:
                with f.loop(0, count) as channel, f.loop(0, c.TAPS) as tap:
                    line = channel.index * c.TAPS + tap.index
                    self._add_parts(tap.index * c.SUMS_TAP + first + channel.index, line)
                self._put(at, count * c.TAPS, lanes)
                return
            with f.loop(0, c.TAPS) as tap:
                with f.loop(0, count) as channel:
                    self._add_parts(tap.index * c.SUMS_TAP + first + channel.index, channel.index)
                offset = f.load(I64, c.word_at(c.TAP_LIST + tap.index))
                self._put(at + offset, count, lanes)

    def _add_parts(self, row: LLVMValue, line: LLVMValue) -> None:
        """One row of lanes summed over all parts, in order, and kept aside."""
        f, c, n = self.f, self.c, self.n
        wide = self.compute.vector(n)
        place = f.at(self.place, row * self.width, self.compute)
        first = [f.load(wide, f.at(place, j * n, self.compute)) for j in range(VECTORS)]
        with f.loop(1, c.PARTS, 1, first) as parts:
            at = f.at(place, parts.index * c.SUMS_PART, self.compute)
            more = [f.load(wide, f.at(at, j * n, self.compute)) for j in range(VECTORS)]
            parts.next(*(a + b for a, b in zip(parts.carried, more, strict=True)))
        target = f.at(self.aside, line * self.width, self.compute)
        for j, v in enumerate(parts.results):
            f.store(v, f.at(target, j * n, self.compute))

    def _put(self, at: LLVMValue, rows: LLVMValue, lanes: LLVMValue) -> None:
        """Lines aside become rows of the target, one for each lane."""
        c = self.c
        target = self.f.at(c.out, at * c.W_SIZE)
        args: list[Any] = [self.aside, self.width, target, c.W_0, rows, rows, lanes]
        self.f.call_at(c.pointer("TRANSPOSE_OUT"), VOID, args)
