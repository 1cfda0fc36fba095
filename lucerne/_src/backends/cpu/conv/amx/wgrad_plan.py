"""Plans of the gradient of the weights by AMX tiles (see `tiled_weight`)."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from lucerne._src.backends.cpu.conv.amx.fprop_plan import PARTS
from lucerne._src.backends.cpu.conv.amx.microkernel import (
    DEPTH,
    ROWS,
    SIDE,
    SLIDE_OFFSETS,
    STEP,
    tiles_code,
)
from lucerne._src.backends.cpu.conv.amx.wgrad import NAMES, tiled_collect_code, tiled_sum_code
from lucerne._src.backends.cpu.conv.direct_plan import SUMS, even_parts
from lucerne._src.backends.cpu.conv.launch import ConvSpace, ConvTable, Phase, make_kernel
from lucerne._src.backends.cpu.conv.padded import CHANNELS, PLANES, describe, layout_of
from lucerne._src.backends.cpu.conv.problem import Array, ConvSetting, Gather, conv_gather
from lucerne._src.backends.cpu.conv.wgrad import TAPS, WgradWay
from lucerne._src.backends.cpu.conv.wgrad_plan import target_of
from lucerne._src.backends.cpu.emit.tiles import TileElement, transpose_code
from lucerne._src.backends.cpu.gemm.amx.products import has_amx
from lucerne._src.backends.cpu.runtime.kernel import NativeKernel
from lucerne._src.base import dtype as dt

_LEAST_PRODUCTS = 1 << 21
_MOST_WASTE = 1.7
_CHUNKS = 8
_MOST_PARTS = 16
_PARTS_BYTES = 5 << 20
_BLOCK_BYTES = 900 << 10
_COLUMN_COST, _PRODUCT_COST = 0.6, 6 / 512
"""Cycles to make one slot of a column, and for one product."""
_NANOSECONDS_PER_PRODUCT = {3: 0.006, 1: 0.002}


@dataclass(frozen=True)
class Slots:
    """How x lies in columns: where each variant begins in the padded plane and how many rows it has
    besides those of the outputs; the pitch of a row; whether images follow one another without
    gaps; and (variant, slots) of every tap."""

    starts: tuple[tuple[int, int], ...]
    extra: tuple[int, ...]
    pitch: int
    flat: bool
    taps: tuple[tuple[int, int], ...]

    @property
    def twice(self) -> bool:
        """Whether some tap moves by an odd number of slots."""
        return any(at % 2 for _, at in self.taps)

    @property
    def copies(self) -> int:
        return len(self.starts) * (2 if self.twice else 1)

    def _rounded(self, used: int) -> int:
        unit = ROWS if self.flat else DEPTH
        return -(-used // unit) * unit

    def of_g(self, rows: int, cols: int) -> int:
        """Slots of an image in g."""
        return self._rounded((rows - 1) * self.pitch + cols)

    def of_x(self, rows: int) -> int:
        return self._rounded((rows + max(self.extra)) * self.pitch)


def all_slots(p: Gather) -> list[Slots]:
    """The three ways: by pitch, by columns, by taps."""
    _, step_h, step_w = p.in_step
    down = [o - p.low[1] for _, o in p.classes[1][0].taps]
    across = [o - p.low[2] for _, o in p.classes[2][0].taps]
    cols = p.counts[2]

    def made(split_h: bool, split_w: bool) -> Slots:
        """Taps along a dimension have variants of their own, or share those of a residue."""
        found: dict[tuple[int, int], int] = {}
        places = []
        wide = cols if split_w else cols + max(a // step_w for a in across)
        for h, w in itertools.product(down, across):
            start = (h if split_h else h % step_h, w if split_w else w % step_w)
            below, beside = (h - start[0]) // step_h, (w - start[1]) // step_w
            found[start] = max(found.get(start, 0), below)
            places.append((start, below * wide + beside))
        starts = tuple(sorted(found))
        taps = tuple((starts.index(s), slots) for s, slots in places)
        return Slots(starts, tuple(found[s] for s in starts), wide, split_h and split_w, taps)

    return [made(False, False), made(False, True), made(True, True)]


def cost_of(slots: Slots, p: Gather) -> float:
    """Cycles for each channel of x and image."""
    rows, cols = p.counts[1:]
    products = slots.of_g(rows, cols) * len(slots.taps) * p.lanes * _PRODUCT_COST
    return products + slots.copies * slots.of_x(rows) * _COLUMN_COST


def suits(x: Array, w: Array, g: Array, s: ConvSetting) -> bool:
    if x.dtype not in PARTS or not has_amx() or target_of(w) is None:
        return False
    p = conv_gather(x, w, g, s, bias=False)
    flat = x.space[0] == g.space[0] == w.space[0] == 1 and s.padding[0] == 0
    if p.work < _LEAST_PRODUCTS or not flat or layout_of(g) not in (PLANES, CHANNELS):
        return False
    rows, cols = p.counts[1:]
    waste = -(-p.reduced // SIDE) * SIDE / p.reduced * (-(-p.lanes // SIDE) * SIDE / p.lanes)
    used = min(slots.of_g(rows, cols) for slots in all_slots(p))
    return waste * used / (rows * cols) <= _MOST_WASTE


def plan_tiled_weight(
    x: Array, w: Array, g: Array, s: ConvSetting, spare: NativeKernel | None
) -> NativeKernel:
    """The kernel of `conv_weight` (w: its result). `spare` does what tiles can't."""
    return _Planner(x, w, g, s).plan(spare)


class _Planner:
    def __init__(self, x: Array, w: Array, g: Array, s: ConvSetting) -> None:
        self.x, self.w, self.g = x, w, g
        self.p = p = conv_gather(x, w, g, s, bias=False)
        self.element = TileElement(x.dtype, SUMS[x.dtype])
        self.sums = TileElement(dt.float32, SUMS[x.dtype])
        self.size = self.element.compute.size
        self.number = PARTS[x.dtype]
        self.panels, self.lane_room = -(-p.reduced // SIDE), -(-p.lanes // SIDE) * SIDE
        self.taps = math.prod(w.space)
        self.slots = min(all_slots(p), key=lambda slots: cost_of(slots, p))
        self.table, self.space = ConvTable(NAMES), ConvSpace()

    def plan(self, spare: NativeKernel | None) -> NativeKernel:
        p = self.p
        self._split_work()
        self._describe()
        self._scratch()
        way = WgradWay(self.element, layout_of(self.x), layout_of(self.g))
        if way.reads_x == PLANES:
            self.table.set(X_TRANSPOSE=transpose_code(self.element, self.sums))
        chunks = self.parts * p.groups * self.table.values["C_GROUPS"]
        phases = [Phase(tiled_sum_code(way, self.number), chunks), self._collecting()]
        work = p.work * _NANOSECONDS_PER_PRODUCT[self.number]
        return make_kernel(phases, self.table, self.space.used, 2, work, spare)

    # ---- sizes -------------------------------------------------------------------------------

    def _block_bytes(self, rows: int, panels: int) -> int:
        """What tiles read of one image."""
        slots = self.slots
        x = slots.copies * slots.of_x(rows) * panels * SIDE
        g = slots.of_g(rows, self.p.counts[2]) * self.lane_room
        return (x + g) * 2 * self.number

    def _split_work(self) -> None:
        """Parts of the pixels while all sums are small, groups of channels; then blocks."""
        p, set_ = self.p, self.table.set
        n, (_, rows, _) = self.x.shape[0], p.counts
        panel = self.taps * self.lane_room * SIDE
        whole = p.groups * self.panels * panel
        most = max(1, min(_PARTS_BYTES // (whole * self.size), _MOST_PARTS))
        groups = min(self.panels, -(-_CHUNKS // (min(most, n) * p.groups)))
        each = -(-self.panels // groups)
        groups = -(-self.panels // each)
        take = rows
        while take > 1 and self._block_bytes(take, each) > _BLOCK_BYTES:
            take -= 1
        take = even_parts(rows, take)
        images = 1
        if take == rows:
            images = max(1, min(n, _BLOCK_BYTES // self._block_bytes(take, each)))
            images = min(images, -(-n // min(most, n)))
        self.images, self.rows, self.panels_each = even_parts(n, images), take, each
        row_blocks = -(-rows // take)
        units = -(-n // self.images) * row_blocks
        self.parts = min(units, most)
        set_(IMAGES=self.images, ROWS=take, ROW_BLOCKS=row_blocks, UNITS=units)
        set_(PANELS=self.panels, C_GROUPS=groups, PANELS_EACH=each, PARTS=self.parts)
        set_(SUMS_PART=whole, SUMS_PANEL=panel, SUMS_TAP=self.lane_room * SIDE)
        set_(SUMS=self.space.take(self.parts * whole * self.size))

    def _describe(self) -> None:
        p, set_ = self.p, self.table.set
        set_(GROUPS=p.groups, LANES=p.lanes, LANE_ROOM=self.lane_room, REDUCED=p.reduced)
        set_(N=self.x.shape[0], A_H=p.counts[1], A_W=p.counts[2])
        set_(X_GROUP=p.reduced * self.x.strides[1], G_GROUP=p.lanes * self.g.strides[1])
        set_(IN_H=p.in_step[1], IN_W=p.in_step[2], LOW_H=p.low[1], LOW_W=p.low[2])
        set_(SPAN_H=p.high[1] - p.low[1] + 1, SPAN_W=p.high[2] - p.low[2] + 1)
        set_(**describe("X", self.x), **describe("G", self.g))
        set_(STEP_H=p.in_step[1], STEP_W=p.in_step[2], PITCH=self.slots.pitch)
        set_(FLAT=int(self.slots.flat), TWICE=int(self.slots.twice))

    def _scratch(self) -> None:
        self._lines()
        self._columns()
        p, set_ = self.p, self.table.set
        rows = (self.rows - 1) * p.in_step[1] + p.high[1] - p.low[1] + 1
        cols = (p.counts[2] - 1) * p.in_step[2] + p.high[2] - p.low[2] + 1
        pixel = min(self.panels_each * SIDE, p.reduced)
        set_(X_PIXEL=pixel, X_ROW=cols * pixel)
        # A line by pitch takes all columns, the last of them from beyond a strided block.
        beyond = self.slots.pitch * p.in_step[2] * pixel
        self.table.area(self.space, "BUFFER", (rows * cols * pixel + beyond) * self.size)
        listed = []
        for (h, w), extra in zip(self.slots.starts, self.slots.extra, strict=True):
            listed += [(h * cols + w) * pixel, extra]
        set_(VARIANTS=len(self.slots.starts), VARIANT_LIST=self.table.append(listed))
        self.table.area(self.space, "RUNS", (SLIDE_OFFSETS + 2 * self.images) * 8)
        set_(MULTIPLY=tiles_code(self.number, slides=True))

    def _lines(self) -> None:
        """Scratch of g."""
        slots, set_ = self.slots, self.table.set
        used = slots.of_g(self.rows, self.p.counts[2])
        set_(G_SLOTS=used, RUN_STEPS=used // DEPTH)
        self.table.area(self.space, "LINE", -(-used // DEPTH) * DEPTH * self.size)
        # A line is written by whole tiles; the odd line of memory keeps rows of a tile apart.
        channel = ((self.images * used + DEPTH) * 2 // 64) | 1
        set_(GT_CHANNEL=channel * 64, GT_IMAGE=used * 2, GT_PART=self.lane_room * channel * 64)
        self.table.area(self.space, "GT", self.number * self.lane_room * channel * 64)
        if layout_of(self.g) != PLANES:
            self.table.area(
                self.space, "TURNED", self.rows * self.p.counts[2] * self.p.lanes * self.size
            )
            set_(TURN=transpose_code(self.element, self.sums))

    def _columns(self) -> None:
        """Scratch of x."""
        slots, set_ = self.slots, self.table.set
        room = slots.of_x(self.rows)
        used = slots.of_g(self.rows, self.p.counts[2])
        # The last tap reads on for its offset, and up to a whole tile.
        beyond = max(at for _, at in slots.taps) + used + DEPTH
        pairs = ((self.images - 1) * room + max(room, beyond)) // 2 + 2
        half = pairs * STEP
        variant = self.panels_each * 2 * half
        set_(XT_HALF=half, XT_PANEL=2 * half, XT_VARIANT=variant, XT_IMAGE=room // 2 * STEP)
        set_(XT_PART=slots.copies * variant)
        self.table.area(self.space, "XT", self.number * slots.copies * variant)
        odd = len(slots.starts) * variant
        places = [v * variant + at % 2 * odd + at // 2 * STEP for v, at in slots.taps]
        set_(TAPS=self.taps, TAP_PLACES=self.table.append(places))

    def _collecting(self) -> Phase:
        p, w, set_ = self.p, self.w, self.table.set
        target = target_of(w)
        assert target is not None
        taps = [
            sum(k * s for k, s in zip(at, w.strides[2:], strict=True))
            for at in itertools.product(*map(range, w.space))
        ]
        set_(TAP_LIST=self.table.append(taps))
        row = max(1, min(p.lanes, 2048 // self.taps))
        set_(ROW_PARTS=-(-p.lanes // row), ROW_PART=row)
        set_(W_0=w.strides[0], W_1=w.strides[1], W_SIZE=self.element.size)
        self.table.area(self.space, "ASIDE", self.taps * SIDE * self.size)
        if target == TAPS:
            set_(TRANSPOSE_OUT=transpose_code(self.sums, self.element))
        chunks = p.groups * self.panels * self.table.values["ROW_PARTS"]
        return Phase(tiled_collect_code(self.element, target), chunks)
