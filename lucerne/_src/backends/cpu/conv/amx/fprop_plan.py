"""Plans of convolutions and transposed convolutions by AMX tiles (see `tiled`)."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from lucerne._src.backends.cpu.conv import pack
from lucerne._src.backends.cpu.conv.amx.fprop import tiled_code, tiled_pack_code
from lucerne._src.backends.cpu.conv.amx.microkernel import (
    DEPTH,
    OUT_BYTES,
    ROWS,
    SIDE,
    TILE,
    tiles_code,
)
from lucerne._src.backends.cpu.conv.direct import DirectWay
from lucerne._src.backends.cpu.conv.direct_plan import (
    SUMS,
    ConvBlock,
    ConvTail,
    GatherPlanner,
    even_parts,
)
from lucerne._src.backends.cpu.conv.fields import TILED
from lucerne._src.backends.cpu.conv.launch import Phase, make_kernel
from lucerne._src.backends.cpu.conv.padded import CHANNELS, IN_PLACE, layout_of
from lucerne._src.backends.cpu.conv.problem import Class, Gather
from lucerne._src.backends.cpu.emit.tiles import transpose_code
from lucerne._src.backends.cpu.gemm.amx.products import has_amx
from lucerne._src.backends.cpu.runtime.kernel import NativeKernel
from lucerne._src.base import dtype as dt

PARTS = {dt.float32: 3, dt.bfloat16: 1}
"""Of how many bfloat16 numbers one of each type is made; others are not taken here."""
_LEAST_PRODUCTS = 1 << 21
_MOST_WASTE = 1.4
_PARTS_BYTES = 1 << 20
_CHAIN = 1152
"""So many products are summed before they meet other sums: long chains would round more, and this
much of the operands stays in cache."""
_LARGE_WEIGHTS = 2 << 20
_NANOSECONDS_PER_PRODUCT = {3: 0.006, 1: 0.002}


def suits(p: Gather) -> bool:
    """Whether tiles pay: flat images, enough channels on both sides, and enough to do."""
    if p.source.dtype not in PARTS or p.work < _LEAST_PRODUCTS or not has_amx():
        return False
    flat = p.source.space[0] == p.target.space[0] == p.taps[0] == 1 and p.in_step[0] == 1
    if not flat or p.low[0] != 0 or len(p.classes[0]) != 1:
        return False
    waste = _rounded(p.reduced, DEPTH) / p.reduced * _rounded(p.lanes, SIDE) / p.lanes
    rows, cols = p.counts[1:]
    waste *= min(_rounded(cols, ROWS) / cols, _rounded(rows * cols, ROWS) / (rows * cols))
    return waste <= _MOST_WASTE


def plan_tiled(
    p: Gather, bias_step: int, spare: NativeKernel | None, tail: ConvTail | None = None
) -> NativeKernel:
    """The kernel. `spare` does what tiles can't (see `launch`)."""
    return _TiledPlanner(p, bias_step, tail).plan_with(spare)


def _rounded(n: int, unit: int) -> int:
    return -(-n // unit) * unit


@dataclass(frozen=True)
class Order:
    """How the parts of a padded block lie: see `tiled`. Rows and columns of the padded block that
    a variant begins at, and the distance of those it takes."""

    flat: bool
    starts: tuple[tuple[int, int], ...]
    extra: tuple[int, ...]
    steps: tuple[int, int]
    row_step: int
    cols: int
    rows: int


def order_of(p: Gather, block: ConvBlock) -> Order:
    spans = [p.high[d] - p.low[d] + 1 for d in (1, 2)]
    all_cols = {c.count for c in p.classes[2]}
    whole_rows = block.cols == p.counts[2] and all(n % ROWS == 0 for n in all_cols)
    if whole_rows or block.cols < p.counts[2]:
        rows = (block.rows - 1) * p.in_step[1] + spans[0]
        cols = (block.cols - 1) * p.in_step[2] + spans[1]
        return Order(False, ((0, 0),), (spans[0] - 1,), (1, 1), p.in_step[1], cols, rows)
    step = p.in_step[1]
    down: dict[tuple[int, int], int] = {}
    for a, b in itertools.product(p.classes[1], p.classes[2]):
        for (_, h), (_, w) in itertools.product(a.taps, b.taps):
            h, w = h - p.low[1], w - p.low[2]
            key = (h % step, w)
            down[key] = max(down.get(key, 0), h // step)
    starts = tuple(sorted(down)) or ((0, 0),)
    extra = tuple(down.get(at, 0) for at in starts)
    rows = block.rows + max(extra)
    return Order(True, starts, extra, (step, p.in_step[2]), 1, block.cols, rows)


class _TiledPlanner(GatherPlanner):
    names = TILED

    def __init__(self, p: Gather, bias_step: int, tail: ConvTail | None) -> None:
        super().__init__(p, SUMS[p.source.dtype], bias_step, tail)
        self.parts = PARTS[p.source.dtype]
        self.tile_bytes = 2 * TILE * self.parts
        taps = math.prod(p.taps)
        room = _rounded(p.reduced, DEPTH)
        self.weight_bytes = taps * room * _rounded(p.lanes, SIDE) * 2 * self.parts
        most = max(DEPTH, _CHAIN // taps // DEPTH * DEPTH)
        self.k_block = _rounded(-(-room // -(-room // most)), DEPTH)
        self.k_blocks = -(-p.reduced // self.k_block)
        self.free = True

    def plan_with(self, spare: NativeKernel | None) -> NativeKernel:
        p = self.p
        reads, writes = layout_of(p.source), layout_of(p.target)
        if self.element.is_plain and writes == CHANNELS:
            writes = IN_PLACE
        self.block = self._choose_block()
        self.order = order_of(p, self.block)
        self.way = DirectWay(self.element, self.element, reads, writes, True, self.after)
        self._describe()
        self._buffers()
        self._parts()
        self._jobs()
        self._sums()
        phases = [self._packing(spare is not None), self._gathering()]
        work = p.work * _NANOSECONDS_PER_PRODUCT[self.parts]
        tensors = 3 if p.bias else 2
        return make_kernel(phases, self.table, self.space.used, tensors, work, spare, self.given)

    def _choose_block(self) -> ConvBlock:
        """Enough pixels to pay for streaming the weights, few enough to stay in cache."""
        p = self.p
        _, rows, cols = p.counts
        n = p.source.shape[0]
        outputs = n * rows * cols * p.groups
        least = 256 if self.weight_bytes > _LARGE_WEIGHTS else 64
        wanted = min(max(outputs // 16, least), 512)
        cols = cols if cols <= 256 else 128

        def fits(block: ConvBlock) -> bool:
            order = order_of(p, block)
            pixels = len(order.starts) * order.rows * order.cols * block.images
            return pixels * self.k_block * 2 * self.parts <= _PARTS_BYTES

        take = max(1, min(rows, wanted // cols))
        while take > 1 and not fits(ConvBlock(1, take, cols)):
            take -= 1
        take = even_parts(rows, take)
        images = 1
        if take == rows and cols == p.counts[2]:
            images = max(1, min(n, wanted // (take * cols)))
            while images > 1 and not fits(ConvBlock(images, take, cols)):
                images -= 1
        return ConvBlock(even_parts(n, images), take, cols)

    # ---- scratch -----------------------------------------------------------------------------

    def _buffers(self) -> None:
        """The padded block of one image and one block of channels; results as in `gather`."""
        p, b = self.p, self.block
        rows = (b.rows - 1) * p.in_step[1] + p.high[1] - p.low[1] + 1
        cols = (b.cols - 1) * p.in_step[2] + p.high[2] - p.low[2] + 1
        self.pixel = min(self.k_block, p.reduced)
        self.row = cols * self.pixel
        self.slice = self.image = rows * self.row
        self.table.area(self.space, "BUFFER", self.image * self.size)
        self.table.set(X_PIXEL=self.pixel, X_ROW=self.row, X_SLICE=self.slice, X_IMAGE=self.image)
        self._results()

    def _parts(self) -> None:
        o, b = self.order, self.block
        self.p_pixel = self.k_block * 2
        self.p_row = o.cols * self.p_pixel
        self.p_variant = o.rows * self.p_row
        self.p_image = len(o.starts) * self.p_variant
        # The last tile of a row or image reads on for up to 15 pixels.
        slack = ROWS * self.p_pixel * max(1, self.p.in_step[2])
        self.p_part = _rounded(b.images * self.p_image + slack, 64) + 64
        self.table.area(self.space, "PARTS", self.parts * self.p_part)
        listed = []
        for (h, w), extra in zip(o.starts, o.extra, strict=True):
            listed += [h * self.row + w * self.pixel, extra]
        self.table.set(
            P_IMAGE=self.p_image, P_VARIANT=self.p_variant, P_ROW=self.p_row,
            P_PIXEL=self.p_pixel, P_PART=self.p_part, FLAT=int(o.flat),
            VARIANTS=len(o.starts), VARIANT_LIST=self.table.append(listed),
            V_ROW_STEP=o.row_step, V_H=o.steps[0] * self.row, V_W=o.steps[1] * self.pixel,
            K_BLOCK=self.k_block, K_BLOCKS=self.k_blocks, TILES=tiles_code(self.parts),
        )  # fmt: skip

    def _sums(self) -> None:
        """One block of sums, or all of a task when they wait for more channels."""
        b, whole = self.block, -(-self.block.rows * self.block.cols // ROWS)
        if not self.order.flat or any(c.count != self.block.cols for c in self.p.classes[2]):
            whole = max(whole, b.rows * -(-b.cols // ROWS))
        pairs = -(-b.images * whole // 2)
        self.table.area(self.space, "TILE_NOW", OUT_BYTES)
        if self.k_blocks == 1:
            return
        each = pairs * OUT_BYTES
        whole = len(self.classes) * each
        self.table.set(S_PAIR=OUT_BYTES, S_CLASS=each, S_PANEL=whole)
        self.table.area(self.space, "TILE_SUMS", self.panels * whole)

    # ---- jobs --------------------------------------------------------------------------------

    def _jobs(self) -> None:
        p = self.p
        places, taps, at = [], [], 0
        steps = _rounded(p.reduced, DEPTH) // DEPTH
        for trio in self.classes:
            order = list(itertools.product(*(c.taps for c in trio)))
            panel = len(order) * steps * self.tile_bytes
            k_step = len(order) * (self.k_block // DEPTH) * self.tile_bytes
            for index, trio_taps in enumerate(order):
                source = sum(k * s for (k, _), s in zip(trio_taps, p.w_taps, strict=True))
                taps += [source, at, panel, k_step, index]
            places.append(self.table.append(self._job(trio, at, panel)))
            at += p.groups * self.panels * panel
        self.table.set(WEIGHTS=self.space.take(at), CLASSES=len(places))
        self.table.set(JOBS=self.table.append(places), TAPS=len(taps) // 5)
        self.table.set(TAP_LIST=self.table.append(taps), TAP_COUNT=math.prod(p.taps))

    def _job(self, trio: tuple[Class, ...], at: int, panel: int) -> list[int]:
        p, o = self.p, self.order
        runs = [self._run(h, w) for (_, h), (_, w) in itertools.product(trio[1].taps, trio[2].taps)]
        across = self.p_pixel * (1 if o.flat else p.in_step[2])
        down = self.p_row * (1 if o.flat else p.in_step[1])
        last = p.reduced - (self.k_blocks - 1) * self.k_block
        jobs = [
            self.table.append([len(runs), -(-channels // DEPTH), across, self.p_part, *runs])
            for channels in (self.k_block, last)
        ]
        out_at, out_n, out = self._places_out(trio)
        counts = [c.count for c in trio]
        return [*[0] * 8, at, panel, down, across, *counts, out_at, out_n, *out, len(runs), *jobs]

    def _run(self, h: int, w: int) -> int:
        """Bytes from a pixel to what a tap reads for it."""
        p, o = self.p, self.order
        h, w = h - p.low[1], w - p.low[2]
        if not o.flat:
            return h * self.p_row + w * self.p_pixel
        variant = o.starts.index((h % o.steps[0], w))
        return variant * self.p_variant + h // o.steps[0] * self.p_row

    # ---- code --------------------------------------------------------------------------------

    def _packing(self, watch: bool = False) -> Phase:
        p = self.p
        channels = DEPTH if p.w_reduced == math.prod(p.taps) else 1
        # Rows of lanes: for every tap of the weights, and a tap may serve no class or several.
        taps = max(self.table.values["TAPS"], math.prod(p.taps))
        self.table.area(self.space, "ASIDE", (taps + 1) * DEPTH * self.width * self.size)
        parts = -(-p.reduced // DEPTH)
        self.table.set(W_LANE=p.w_lane, W_REDUCED=p.w_reduced, W_GROUP=p.w_group)
        self.table.set(REDUCED_BLOCKS=parts, REDUCED_BLOCK=DEPTH, PACKING_CHANNELS=channels)
        if pack.pack_way(p) in (pack.TAPS, pack.REDUCED):
            self.table.set(TRANSPOSE_W=transpose_code(self.element, self.sums))
        task = tiled_pack_code(p, self.element, self.parts, watch)
        return Phase(task, p.groups * self.panels * parts)

    def _gathering(self) -> Phase:
        return Phase(tiled_code(self.way, self.parts), self._tasks())
