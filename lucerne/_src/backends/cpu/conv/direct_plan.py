"""Plans of convolutions and transposed convolutions: blocks, buffers, jobs, micro-kernels."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from lucerne._src.backends.cpu.conv import pack
from lucerne._src.backends.cpu.conv.direct import DirectWay, free_heights, gather_code, tile_heights
from lucerne._src.backends.cpu.conv.epilogue import After
from lucerne._src.backends.cpu.conv.fields import GATHER, OFFSETS
from lucerne._src.backends.cpu.conv.launch import ConvSpace, ConvTable, Given, Phase, make_kernel
from lucerne._src.backends.cpu.conv.microkernel import (
    EVEN,
    FREE,
    LOW,
    TALL,
    VECTORS,
    ConvTile,
    tile_code,
)
from lucerne._src.backends.cpu.conv.padded import CHANNELS, IN_PLACE, PLANES, describe, layout_of
from lucerne._src.backends.cpu.conv.problem import SPATIAL, Class, Gather
from lucerne._src.backends.cpu.emit.tiles import TileElement, lanes_of, transpose_code
from lucerne._src.backends.cpu.emit.types import F32, F64, Type
from lucerne._src.backends.cpu.runtime.kernel import NativeKernel
from lucerne._src.base import dtype as dt

SUMS: dict[dt.dtype, Type] = {
    dt.float32: F32, dt.float64: F64, dt.bfloat16: F32, dt.float16: F32,
}  # fmt: skip
"""What each type is summed in; others are not taken here."""
MAX_CLASSES = 1024
_BUFFER_BYTES = 640 << 10
_BLOCK_COLUMNS = 8 * TALL
_NANOSECONDS_PER_PRODUCT = 0.013


@dataclass
class ConvBlock:
    """What one task computes: images x rows x columns (counted within a class)."""

    images: int
    rows: int
    cols: int


def choose_block(p: Gather, weight_bytes: int, pixel_bytes: int, copied: bool) -> ConvBlock:
    """Enough pixels to pay for streaming the weights, few enough to stay in cache and to leave
    work for many threads."""
    _, rows, cols = p.counts
    n = p.source.shape[0]
    outputs = n * math.prod(p.counts) * p.groups
    least = 128 if weight_bytes > (512 << 10) else 48
    wanted = min(max(outputs // 16, least), 1024)
    cols = cols if cols <= _BLOCK_COLUMNS + TALL else _BLOCK_COLUMNS
    cols = min(cols, max(wanted // TALL * TALL, TALL)) if rows == 1 and n == 1 else cols

    def fits(images: int, rows: int) -> bool:
        high = (rows - 1) * p.in_step[1] + p.high[1] - p.low[1] + 1
        wide = (cols - 1) * p.in_step[2] + p.high[2] - p.low[2] + 1
        deep = p.high[0] - p.low[0] + 1
        return not copied or images * deep * high * wide * pixel_bytes <= _BUFFER_BYTES

    take = max(1, min(rows, wanted // cols))
    while take > 1 and not fits(1, take):
        take -= 1
    take = even_parts(rows, take)
    images = max(1, min(n, wanted // (take * cols))) if take == rows and p.counts[0] == 1 else 1
    if cols < p.counts[2]:
        images = 1
    while images > 1 and not fits(images, take):
        images -= 1
    return ConvBlock(even_parts(n, images), take, cols)


def even_parts(total: int, size: int) -> int:
    """The size nearest below that splits `total` into parts as equal as can be."""
    return -(-total // -(-total // size))


def plan_gather(
    p: Gather, bias_step: int = 1, tail: ConvTail | None = None, mend: NativeKernel | None = None
) -> NativeKernel | None:
    """The kernel of a convolution, or None when there are too many classes."""
    if math.prod(map(len, p.classes)) > MAX_CLASSES:
        return None
    return GatherPlanner(p, SUMS[p.source.dtype], bias_step, tail).plan(mend)


@dataclass(frozen=True)
class ConvTail:
    """Element-wise ops after a convolution, and how their operands come with the call."""

    after: After
    given: Given


class GatherPlanner:
    names = GATHER

    def __init__(
        self, p: Gather, compute: Type, bias_step: int, tail: ConvTail | None = None
    ) -> None:
        self.p, self.compute, self.tail = p, compute, tail
        self.size = compute.size
        self.width = VECTORS * lanes_of(compute)
        self.panels = -(-p.lanes // self.width)
        self.element = TileElement(p.source.dtype, compute)
        self.sums = TileElement(dt.float64 if self.size == 8 else dt.float32, compute)
        self.classes = list(itertools.product(*p.classes))
        self.table, self.space = ConvTable(self.names), ConvSpace()
        self.table.set(B_STEP=bias_step)
        self.after = None if tail is None else tail.after
        self.given = None if tail is None else tail.given
        if self.after is not None:
            self.table.set(**self.after.words())

    def plan(self, mend: NativeKernel | None) -> NativeKernel:
        p, plain = self.p, self.element.is_plain
        reads = layout_of(p.source)
        if plain and reads == CHANNELS and p.inside:
            reads = IN_PLACE
        writes = layout_of(p.target)
        if plain and writes == CHANNELS:
            writes = IN_PLACE
        weight_bytes = math.prod(p.taps) * p.reduced * p.lanes * self.size
        copied = reads != IN_PLACE
        self.block = choose_block(p, weight_bytes, p.reduced * self.size, copied)
        widest = tile_heights(min(self.block.cols, p.counts[2]))
        self.free = min(widest) < 6 or (p.counts[2] < LOW - 1)
        self.way = DirectWay(self.element, self.element, reads, writes, self.free, self.after)
        self._describe()
        self._buffers()
        self._jobs()
        self._kernels()
        phases = [self._packing(mend is not None), self._gathering()]
        work = p.work * _NANOSECONDS_PER_PRODUCT
        tensors = 3 if p.bias else 2
        return make_kernel(phases, self.table, self.space.used, tensors, work, mend, self.given)

    # ---- sizes -------------------------------------------------------------------------------

    def _describe(self) -> None:
        p, b, set_ = self.p, self.block, self.table.set
        x, y = p.source, p.target
        set_(GROUPS=p.groups, LANES=p.lanes, REDUCED=p.reduced, PANELS=self.panels, N=x.shape[0])
        set_(A_D=p.counts[0], A_H=p.counts[1], A_W=p.counts[2])
        set_(IMAGES=b.images, ROWS=b.rows, COLS=b.cols)
        set_(IMAGE_BLOCKS=-(-x.shape[0] // b.images), ROW_BLOCKS=-(-p.counts[1] // b.rows))
        set_(COL_BLOCKS=-(-p.counts[2] // b.cols))
        set_(X_GROUP=p.reduced * x.strides[1], **describe("X", x))
        set_(Y_N=y.strides[0], Y_C=y.strides[1], Y_GROUP=p.lanes * y.strides[1])
        for d, name in enumerate("DHW"):
            words = {
                f"IN_{name}": p.in_step[d],
                f"LOW_{name}": p.low[d], f"SPAN_{name}": p.high[d] - p.low[d] + 1,
                f"Y_{name}": y.strides[2 + d], f"OUT_{name}": y.space[d],
                f"STEP_{name}": p.step[d],
            }  # fmt: skip
            set_(**words)

    def _buffers(self) -> None:
        p, b = self.p, self.block
        rows = (b.rows - 1) * p.in_step[1] + p.high[1] - p.low[1] + 1
        cols = (b.cols - 1) * p.in_step[2] + p.high[2] - p.low[2] + 1
        slices = p.high[0] - p.low[0] + 1
        if self.way.reads == IN_PLACE:
            n, _, d, h, w = p.source.strides
            self.pixel, self.row, self.slice, self.image = w, h, d, n
        else:
            self.pixel = p.reduced
            self.row = cols * self.pixel
            self.slice = rows * self.row
            self.image = slices * self.slice
            self.table.area(self.space, "BUFFER", b.images * self.image * self.size)
        self.table.set(X_PIXEL=self.pixel, X_ROW=self.row, X_SLICE=self.slice, X_IMAGE=self.image)
        self._results()

    def _results(self) -> None:
        """The block of results on its way out, the list of pixels, and where sums start."""
        p, b, space = self.p, self.block, self.space
        out = [step * n for step, n in zip(p.step, (1, b.rows, b.cols), strict=True)]
        self.t_row = min(out[2], p.target.space[2])
        self.t_slice = self.t_row * out[1]
        self.t_image = self.t_slice * out[0]
        self.table.set(T_ROW=self.t_row, T_SLICE=self.t_slice, T_IMAGE=self.t_image)
        if self.way.writes != IN_PLACE:
            # A class may have one column more than others: its pixels past the end need a place.
            pixels = b.images * self.t_image + out[2]
            self.table.area(self.space, "RESULTS", pixels * self.width * self.size)
        if self.free:
            self.table.area(
                self.space, "PIXELS", len(self.classes) * b.images * b.rows * b.cols * 16
            )
        start = p.groups * self.panels * self.width * self.size
        self.table.set(START=space.take(start))

    # ---- jobs --------------------------------------------------------------------------------

    def _jobs(self) -> None:
        """One job for each class, packed weights one class after the other."""
        p = self.p
        places, taps, at = [], [], 0
        for trio in self.classes:
            order = list(itertools.product(*(c.taps for c in trio)))
            products = len(order) * p.reduced
            panel = products * self.width
            for index, trio_taps in enumerate(order):
                source = sum(k * s for (k, _), s in zip(trio_taps, p.w_taps, strict=True))
                taps += [source, at + index * p.reduced * self.width, panel]
            places.append(self.table.append(self._job(trio, at, panel)))
            at += p.groups * self.panels * panel
        self.table.set(WEIGHTS=self.space.take(at * self.size), CLASSES=len(places))
        self.table.set(JOBS=self.table.append(places), TAPS=len(taps) // 3)
        self.table.set(TAP_LIST=self.table.append(taps), TAP_COUNT=math.prod(p.taps))

    def _job(self, trio: tuple[Class, ...], at: int, panel: int) -> list[int]:
        p, size = self.p, self.size
        runs, length = self._runs(trio)
        out_at, out_n, (d, h, w) = self._places_out(trio)
        x_h = p.in_step[1] * self.row * size
        x_w = p.in_step[2] * self.pixel * size
        counts = [c.count for c in trio]
        job = [len(runs), length, x_w, size, self.width * size, 0, w, 0]
        return [*job, at, panel, x_h, x_w, *counts, out_at, out_n, d, h, w, *runs]

    def _places_out(self, trio: tuple[Class, ...]) -> tuple[int, int, list[int]]:
        """Bytes to the first result of a class, to the next image, and to its next positions."""
        size = self.size
        if self.way.writes == IN_PLACE:
            n, _, *space = self.p.target.strides
            out_n, out = n * size, [s * size for s in space]
        else:
            pixel = self.width * size
            out_n = self.t_image * pixel
            out = [self.t_slice * pixel, self.t_row * pixel, pixel]
        out_at = sum(c.start * s for c, s in zip(trio, out, strict=True))
        return out_at, out_n, [c.step * s for c, s in zip(trio, out, strict=True)]

    def _runs(self, trio: tuple[Class, ...]) -> tuple[list[int], int]:
        """Byte offsets of the runs of one class, and the length of each."""
        p = self.p
        low = (0, 0, 0) if self.way.reads == IN_PLACE else p.low
        pitch = (self.slice, self.row, self.pixel)
        wide = trio[2]
        offsets = [[(o - low[d]) * pitch[d] for _, o in trio[d].taps] for d in range(SPATIAL)]
        length = p.reduced
        if wide.adjacent and self.pixel == p.reduced and wide.taps:
            length *= len(wide.taps)
            offsets[2] = offsets[2][:1]
        return [sum(trio) * self.size for trio in itertools.product(*offsets)], length

    # ---- code --------------------------------------------------------------------------------

    def _kernels(self) -> None:
        """Addresses of the micro-kernels of every height that occurs."""
        heights = self._heights()
        lanes = {
            min(VECTORS, -(-min(self.width, self.p.lanes - k * self.width) // (self.width // 2)))
            for k in (0, self.panels - 1)
        }
        words = [0] * (2 * (TALL + 1))
        for h, vectors in itertools.product(sorted(heights), sorted(lanes)):
            form = ConvTile(FREE if self.free else EVEN, h, vectors, self.compute)
            words[(vectors - 1) * (TALL + 1) + h] = tile_code(form, OFFSETS)
        self.table.set(KERNELS=self.table.append(words))

    def _heights(self) -> set[int]:
        b, n = self.block, self.p.source.shape[0]
        found: set[int] = set()
        for trio in self.classes:
            cols = _block_sizes(trio[2].count, b.cols, self.p.counts[2])
            if not self.free:
                found.update(*map(tile_heights, cols))
                continue
            rows = _block_sizes(trio[1].count, b.rows, self.p.counts[1])
            for i, r, c in itertools.product(_block_sizes(n, b.images, n), rows, cols):
                found |= free_heights(i * r * c)
        return found

    def _packing(self, watch: bool = False) -> Phase:
        p = self.p
        channels = pack.channels_at_once(p)
        parts = max(1, min(p.reduced // 16, 16 // (self.panels * p.groups)))
        part = -(-p.reduced // parts)
        part = -(-part // channels) * channels
        parts = -(-p.reduced // part)
        scratch = channels * math.prod(p.taps) * self.width * self.size
        if pack.pack_way(p) == pack.TAPS:
            self.table.area(self.space, "PACKING", scratch)
        self.table.set(W_LANE=p.w_lane, W_REDUCED=p.w_reduced, W_GROUP=p.w_group)
        self.table.set(REDUCED_BLOCKS=parts, REDUCED_BLOCK=part, PACKING_CHANNELS=channels)
        if pack.pack_way(p) in (pack.TAPS, pack.REDUCED):
            self.table.set(TRANSPOSE_W=transpose_code(self.element, self.sums))
        return Phase(pack.pack_code(p, self.element, watch), p.groups * self.panels * parts)

    def _gathering(self) -> Phase:
        return Phase(gather_code(self.way), self._tasks() * self.p.counts[0])

    def _tasks(self) -> int:
        """The blocks of outputs of all groups; code to turn planes is there where it is needed."""
        values = self.table.values
        if self.way.reads == PLANES:
            self.table.set(X_TRANSPOSE=transpose_code(self.element, self.sums))
        if self.way.writes == PLANES:
            self.table.set(TRANSPOSE_OUT=transpose_code(self.sums, self.element))
        blocks: int = values["IMAGE_BLOCKS"] * values["ROW_BLOCKS"] * values["COL_BLOCKS"]
        return self.p.groups * blocks


def _block_sizes(count: int, block: int, most: int) -> set[int]:
    """How many of a class's `count` outputs the blocks of `block` (over `most`) hold."""
    return {max(0, min(block, count - at)) for at in range(0, most, block)}
