"""Plans of the gradient of the weights."""

from __future__ import annotations

import itertools
import math

from lucerne._src.backends.cpu.conv.direct_plan import SUMS, choose_block
from lucerne._src.backends.cpu.conv.launch import ConvSpace, ConvTable, Phase, make_kernel
from lucerne._src.backends.cpu.conv.microkernel import INNER, TALL, VECTORS, ConvTile, tile_code
from lucerne._src.backends.cpu.conv.padded import CHANNELS, IN_PLACE, PLANES, describe, layout_of
from lucerne._src.backends.cpu.conv.problem import SPATIAL, Array, ConvSetting, conv_gather
from lucerne._src.backends.cpu.conv.wgrad import CHANNELS as BY_CHANNELS
from lucerne._src.backends.cpu.conv.wgrad import (
    FULL,
    OFFSETS,
    TAPS,
    WEIGHT,
    WgradWay,
    collect_code,
    sum_code,
)
from lucerne._src.backends.cpu.emit.tiles import TileElement, lanes_of, transpose_code
from lucerne._src.backends.cpu.runtime.kernel import NativeKernel
from lucerne._src.base import dtype as dt

_CHUNKS = 16
_MOST_PARTS = 16
_PARTS_BYTES = 3 << 20
_PIXELS_AT_ONCE = 256
_TAPS_AT_ONCE = 256
_NANOSECONDS_PER_PRODUCT = 0.014


def plan_weight(x: Array, w: Array, g: Array, s: ConvSetting) -> NativeKernel | None:
    """The kernel of `conv_weight` (w: its result), or None when this engine does not take it."""
    return None if target_of(w) is None else WeightPlanner(x, w, g, s).plan()


def target_of(w: Array) -> str | None:
    """What is adjacent in the result; None: nothing that these engines write."""
    taps = math.prod(w.space)
    dense = [math.prod(w.space[d + 1 :]) for d in range(SPATIAL)]
    adjacent = all(a == b or n == 1 for a, b, n in zip(dense, w.strides[2:], w.space, strict=True))
    if w.strides[1] == 1 or w.shape[1] == 1:
        return BY_CHANNELS
    return TAPS if adjacent and w.strides[1] == taps else None


class WeightPlanner:
    """Sizes, scratch and phases of one gradient."""

    def __init__(self, x: Array, w: Array, g: Array, s: ConvSetting) -> None:
        self.x, self.w, self.g = x, w, g
        target, compute = target_of(w), SUMS[x.dtype]
        assert target is not None
        self.target = target
        self.p = conv_gather(x, w, g, s, bias=False)
        self.compute, self.size = compute, compute.size
        self.element = TileElement(x.dtype, compute)
        self.sums = TileElement(dt.float64 if self.size == 8 else dt.float32, compute)
        self.width = VECTORS * lanes_of(compute)
        self.panels = -(-self.p.lanes // self.width)
        self.taps = math.prod(w.space)
        self.table, self.space = ConvTable(WEIGHT), ConvSpace()

    def plan(self) -> NativeKernel:
        p, plain = self.p, self.element.is_plain
        reads_x, reads_g = layout_of(self.x), layout_of(self.g)
        if plain and reads_x == CHANNELS and p.inside:
            reads_x = IN_PLACE
        self.block = choose_block(p, 1 << 20, p.reduced * self.size, reads_x != IN_PLACE)
        if plain and reads_g == CHANNELS and self._even(self.g):
            reads_g = IN_PLACE
        self.way = WgradWay(self.element, reads_x, reads_g)
        self._describe()
        self._buffers()
        self._strips()
        phases = [self._adding(), self._collecting()]
        work = p.work * _NANOSECONDS_PER_PRODUCT
        return make_kernel(phases, self.table, self.space.used, 2, work)

    def _even(self, g: Array) -> bool:
        """Whether rows follow one another at one distance, over images as well."""
        return self.block.images == 1 or g.strides[0] == g.space[1] * g.strides[3]

    def _describe(self) -> None:
        p, b, set_ = self.p, self.block, self.table.set
        set_(GROUPS=p.groups, LANES=p.lanes, REDUCED=p.reduced, PANELS=self.panels)
        set_(N=self.x.shape[0], A_D=p.counts[0], A_H=p.counts[1], A_W=p.counts[2])
        set_(IMAGES=b.images, ROWS=b.rows, COLS=b.cols)
        blocks = [
            -(-total // size)
            for total, size in zip(
                (self.x.shape[0], *p.counts[1:]), (b.images, b.rows, b.cols), strict=True
            )
        ]
        set_(IMAGE_BLOCKS=blocks[0], ROW_BLOCKS=blocks[1], COL_BLOCKS=blocks[2])
        self.units = math.prod(blocks) * p.counts[0]
        set_(UNITS=self.units, RUNS_AT_ONCE=max(1, _PIXELS_AT_ONCE // b.cols))
        set_(X_GROUP=p.reduced * self.x.strides[1], G_GROUP=p.lanes * self.g.strides[1])
        set_(**describe("X", self.x), **describe("G", self.g))
        for d, name in enumerate("DHW"):
            words = {
                f"IN_{name}": p.in_step[d], f"LOW_{name}": p.low[d],
                f"SPAN_{name}": p.high[d] - p.low[d] + 1,
            }  # fmt: skip
            set_(**words)

    def _buffers(self) -> None:
        p, b = self.p, self.block
        rows = (b.rows - 1) * p.in_step[1] + p.high[1] - p.low[1] + 1
        cols = (b.cols - 1) * p.in_step[2] + p.high[2] - p.low[2] + 1
        slices = p.high[0] - p.low[0] + 1
        self.pitch = self._copy("X", self.way.reads_x, self.x, p.reduced, (slices, rows, cols))
        self._copy("G", self.way.reads_g, self.g, p.lanes, (1, b.rows, b.cols))
        runs = self.table.values["RUNS_AT_ONCE"]
        self.table.area(self.space, "RUNS", (OFFSETS + runs) * 8)

    def _copy(
        self, letter: str, reads: str, a: Array, channels: int, shape: tuple[int, int, int]
    ) -> tuple[int, int, int]:
        """Strides (slice, row, pixel) of the copy of an array, or of the array itself."""
        slices, rows, cols = shape
        if reads == IN_PLACE:
            image, _, slice_, row, pixel = a.strides
        else:
            pixel = channels
            row = cols * pixel
            slice_ = rows * row
            image = slices * slice_
            area = {"X": "BUFFER", "G": "GRADS"}[letter]
            self.table.area(self.space, area, self.block.images * image * self.size)
            if reads == PLANES:
                code = transpose_code(self.element, self.sums)
                self.table.set(**{f"{letter}_TRANSPOSE": code})
        words = {"PIXEL": pixel, "ROW": row, "SLICE": slice_, "IMAGE": image}
        self.table.set(**{f"{letter}_{name}": v for name, v in words.items()})
        return slice_, row, pixel

    def _strips(self) -> None:
        """Where strips start in the copy of x, and the tiles that cover one."""
        p = self.p
        trio = [row[0] for row in p.classes]
        low = (0, 0, 0) if self.way.reads_x == IN_PLACE else p.low
        offsets = [[(o - low[d]) * self.pitch[d] for _, o in trio[d].taps] for d in range(SPATIAL)]
        length = p.reduced
        if trio[2].adjacent and self.pitch[2] == p.reduced:
            length *= len(trio[2].taps)
            offsets[2] = offsets[2][:1]
        strips = [sum(at) * self.size for at in itertools.product(*offsets)]
        tiles = -(-length // TALL)
        height, higher = divmod(length, tiles)
        self.table.set(STRIPS=len(strips), STRIP_LIST=self.table.append(strips))
        self.table.set(STRIP_LENGTH=length, TILES=tiles, HEIGHT=height, HIGHER=higher)
        self._kernels({height, height + 1} if higher else {height})

    def _kernels(self, heights: set[int]) -> None:
        """Micro-kernels of every height for full panels, and for the tail of the last."""
        tail = self.p.lanes % self.width
        forms = {FULL: (VECTORS, True)} if self.p.lanes >= self.width else {}
        if tail:
            vectors = -(-tail // (self.width // VECTORS))
            forms[vectors - 1] = (vectors, False)
        words = [0] * ((VECTORS + 1) * (TALL + 1))
        for h, (row, (vectors, full)) in itertools.product(sorted(heights), forms.items()):
            form = ConvTile(INNER, h, vectors, self.compute, full)
            words[row * (TALL + 1) + h] = tile_code(form, OFFSETS)
        self.table.set(KERNELS=self.table.append(words))

    def _adding(self) -> Phase:
        """Split the work by pixels while all sums are small, else by panels."""
        p = self.p
        panel = self.taps * p.reduced * self.width
        whole = p.groups * self.panels * panel
        affordable = max(1, _PARTS_BYTES // (whole * self.size))
        parts = min(self.units, affordable, _MOST_PARTS, -(-_CHUNKS // p.groups))
        panel_groups = min(self.panels, -(-_CHUNKS // (parts * p.groups)))
        each = -(-self.panels // panel_groups)
        panel_groups = -(-self.panels // each)
        self.parts = parts
        self.table.set(PARTS=parts, PANEL_GROUPS=panel_groups, PANELS_EACH=each)
        self.table.set(SUMS_PART=whole, SUMS_PANEL=panel, SUMS_TAP=p.reduced)
        self.table.set(SUMS=self.space.take(parts * whole * self.size))
        return Phase(sum_code(self.way), parts * p.groups * panel_groups)

    def _collecting(self) -> Phase:
        p, w = self.p, self.w
        block = min(p.reduced, max(1, _TAPS_AT_ONCE // self.taps))
        if self.target == BY_CHANNELS:
            block = min(p.reduced, _TAPS_AT_ONCE)
        blocks = -(-p.reduced // block)
        lines = block * (self.taps if self.target == TAPS else 1)
        self.table.area(self.space, "ASIDE", lines * self.width * self.size)
        taps = [
            sum(k * s for k, s in zip(at, w.strides[2:], strict=True))
            for at in itertools.product(*map(range, w.space))
        ]
        self.table.set(TAPS=self.taps, TAP_LIST=self.table.append(taps))
        self.table.set(CHANNEL_BLOCKS=blocks, CHANNEL_BLOCK=block)
        self.table.set(W_0=w.strides[0], W_1=w.strides[1], W_SIZE=self.element.size)
        self.table.set(TRANSPOSE_OUT=transpose_code(self.sums, self.element))
        return Phase(collect_code(self.sums, self.target), p.groups * self.panels * blocks)
