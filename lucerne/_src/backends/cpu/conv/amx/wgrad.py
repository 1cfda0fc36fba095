"""The tasks of the gradient of the weights by AMX tiles (see `tiles`).

    dW[o][c][tap] = sum over pixels of g[pixel][o] * x[pixel moved by tap][c]

Rows of A are channels of g, k is pixels, columns are channels of x. A `sum` task takes a part of
the pixels and some channels of x. Block by block it lays out, in parts,

    g as lines      [channel][image][slot]
    x as columns    [variant][panel][half][image][two slots][16 channels]

A *slot* is a place of k: pixels in order, with slots in between that hold zeros in g where rows of
x need room. Columns hold slots in pairs; a tap that moves pixels by an even number of slots reads
the same columns some rows further down, for the odd ones there is a second copy of them. Which
variant and slot a tap begins at is decided by the plan:

    pitch     columns are the padded planes (one variant for each residue of the strides)
    columns   a variant for each tap along the width, rows without gaps
    taps      a variant for each tap, no gaps at all: images follow one another

Sums are added up in place. `collect` tasks add the parts in order and write the result.
"""

from __future__ import annotations

from lucerne._src.backends.cpu.conv.amx.microkernel import (
    DEPTH,
    OUT_ROW,
    ROWS,
    SIDE,
    SLIDE_OFFSETS,
    STEP,
    Splitter,
    begin_tiles,
    end_tiles,
)
from lucerne._src.backends.cpu.conv.launch import TASK, ConvContext, task_code, words
from lucerne._src.backends.cpu.conv.microkernel import VECTORS
from lucerne._src.backends.cpu.conv.padded import PLANES, PaddedCopy, copy_words
from lucerne._src.backends.cpu.conv.wgrad import TAPS, WgradWay
from lucerne._src.backends.cpu.emit.builder import LLVMFunction, LLVMValue, Module
from lucerne._src.backends.cpu.emit.tiles import TileElement, lanes_of
from lucerne._src.backends.cpu.emit.types import F32, I32, I64, PTR, VOID
from lucerne._src.base import dtype as dt

NAMES = [*words(
    "GROUPS LANES LANE_ROOM REDUCED",  # channels of g (rounded up too) and of x, in a group
    "N A_H A_W IMAGES ROWS ROW_BLOCKS UNITS PARTS",
    "PANELS PANELS_EACH C_GROUPS",  # panels of x's channels: all, of a task; how many tasks
    "X_GROUP G_GROUP IN_H IN_W LOW_H LOW_W SPAN_H SPAN_W",
    "SUMS SUMS_PART SUMS_PANEL SUMS_TAP",  # elements
    "LINE LINE_SIZE PITCH G_SLOTS RUN_STEPS FLAT",  # a line of g; slots of an image
    "GT GT_SIZE GT_PART GT_CHANNEL GT_IMAGE",  # g in parts; bytes
    "BUFFER BUFFER_SIZE VARIANTS VARIANT_LIST STEP_H STEP_W TWICE",
    "XT XT_SIZE XT_PART XT_VARIANT XT_PANEL XT_HALF XT_IMAGE",  # x in parts; bytes
    "TAPS TAP_LIST TAP_PLACES MULTIPLY RUNS RUNS_SIZE",
    "TURNED TURNED_SIZE TURN TRANSPOSE_OUT ASIDE ASIDE_SIZE",
    "ROW_PARTS ROW_PART W_0 W_1 W_SIZE",
), *copy_words("X"), *copy_words("G")]  # fmt: skip
VARIANT = words("SOURCE EXTRA")
"""The element of the padded block where a variant begins, and rows besides those of the outputs."""
_BITS = I32.vector(ROWS)


def tiled_sum_code(way: WgradWay, parts: int) -> int:
    element = way.element
    key = ("conv.tiled.weight", element.dtype.name, way.reads_x, way.reads_g, parts)
    return task_code(key, lambda m: _SumWriter(m, way, parts).write())


def tiled_collect_code(element: TileElement, target: str) -> int:
    key = ("conv.tiled.collect", element.dtype.name, target)
    return task_code(key, lambda m: _write_collect(m, element, target))


class _SumWriter:
    def __init__(self, m: Module, way: WgradWay, parts: int) -> None:
        self.m, self.way, self.parts = m, way, parts
        self.compute = way.element.compute
        self.size, self.n = self.compute.size, lanes_of(self.compute)
        self.wide = self.compute.vector(self.n)
        self.turns = way.reads_g != PLANES
        self.copy_x = PaddedCopy(m, "X", NAMES, way.element, way.reads_x)

    def write(self) -> None:
        self.copy_x.write_row()
        self._write_lines_of_g()
        self._write_columns_of_x()
        self._write_odd_columns()
        with self.m.function("task", TASK) as f:
            place, chunk, thread = f.args
            c = self.c = ConvContext(f, place, NAMES)
            self.f, self.thread = f, thread
            first = chunk % c.C_GROUPS * c.PANELS_EACH
            self.panels = f.minimum(c.PANELS_EACH, c.PANELS - first)
            self.channel = first * SIDE
            self.channels = f.minimum(self.panels * SIDE, c.REDUCED - self.channel)
            chunk = chunk // c.C_GROUPS
            self.group, part = chunk % c.GROUPS, chunk // c.GROUPS
            at = part * c.SUMS_PART + (self.group * c.PANELS + first) * c.SUMS_PANEL
            self.sums = f.at(c.space("SUMS"), at, self.compute)
            begin_tiles(f)
            f.fill_bytes(self.sums, 0, self.panels * c.SUMS_PANEL * self.size)
            for name in ("BUFFER", "LINE", "XT", "GT"):  # gaps that are read, but never written
                f.fill_bytes(c.scratch(name, thread), 0, getattr(c, f"{name}_SIZE"))
            start, stop = part * c.UNITS // c.PARTS, (part + 1) * c.UNITS // c.PARTS
            with f.loop(start, stop) as units:
                self._unit(units.index)
            end_tiles(f)

    # ---- one block of pixels -------------------------------------------------------------------

    def _unit(self, unit: LLVMValue) -> None:
        f, c, element = self.f, self.c, self.way.element
        image, row = unit // c.ROW_BLOCKS * c.IMAGES, unit % c.ROW_BLOCKS * c.ROWS
        images = f.minimum(c.IMAGES, c.N - image)
        rows = f.minimum(c.ROWS, c.A_H - row)
        x = self.group * c.X_GROUP + image * c.X_N + self.channel * c.X_C
        g = self.group * c.G_GROUP + image * c.G_N
        buffer = c.scratch("BUFFER", self.thread)
        one, zero = f.constant(1), f.constant(0)
        start = (zero, row * c.IN_H + c.LOW_H, c.LOW_W)
        counts = (one, (rows - 1) * c.IN_H + c.SPAN_H, (c.A_W - 1) * c.IN_W + c.SPAN_W)
        with f.loop(0, images) as i:
            source = element.at(f, c.second, x + i.index * c.X_N)
            self.copy_x.fill(f, c, source, buffer, one, start, counts, self.channels)
            args = [c.place, self.thread, buffer, i.index, rows, self.channels]
            f.call("columns_of_x", VOID, args)
            source = element.at(f, c.first, g + i.index * c.G_N)
            f.call("lines_of_g", VOID, [c.place, self.thread, source, i.index, row, rows])
        with f.if_(f.compare("ne", c.TWICE, 0)):
            f.call("odd_columns", VOID, [c.place, self.thread, self.panels])
        self._multiply(self._job(images))

    def _job(self, images: LLVMValue) -> LLVMValue:
        """What the micro-kernel must know, in this thread's scratch."""
        f, c = self.f, self.c
        job = c.scratch("RUNS", self.thread)
        flat = f.compare("ne", c.FLAT, 0)
        runs = f.select(flat, f.constant(1), images)
        all_steps = f.ceil_div(images * c.G_SLOTS, f.constant(DEPTH))
        steps = f.select(flat, all_steps, c.RUN_STEPS)
        values = (runs, steps, c.GT_CHANNEL, c.GT_PART, c.XT_HALF, c.XT_PART)
        for k, v in enumerate(values):
            f.store(v, f.at(job, k * 8))
        with f.loop(0, runs) as run:
            pair = f.at(job, (run.index * 2 + SLIDE_OFFSETS) * 8)
            f.store(run.index * c.GT_IMAGE, pair)
            f.store(run.index * c.XT_IMAGE, f.at(pair, 8))
        return job

    def _multiply(self, job: LLVMValue) -> None:
        """Every block of sums over all slots."""
        f, c = self.f, self.c
        x, g = c.scratch("XT", self.thread), c.scratch("GT", self.thread)
        multiply, places = c.pointer("MULTIPLY"), c.word_at(c.TAP_PLACES)
        taps, tap_bytes, row_bytes = c.TAPS, c.SUMS_TAP * self.size, c.GT_CHANNEL
        half, lanes = row_bytes * ROWS, c.LANES
        with f.loop(0, self.panels) as panel:
            b = f.at(x, panel.index * c.XT_PANEL)
            sums = f.at(self.sums, panel.index * c.SUMS_PANEL, self.compute)
            with f.loop(0, lanes, SIDE) as lane:
                a = f.at(g, lane.index * row_bytes)
                out = f.at(sums, lane.index * OUT_ROW)
                with f.loop(0, taps) as tap:
                    offset = f.load(I64, f.at(places, tap.index, I64))
                    here = f.at(out, tap.index * tap_bytes)
                    args = [a, f.at(a, half), f.at(b, offset), here, job, 1, a]
                    f.call_at(multiply, VOID, args)

    # ---- g -------------------------------------------------------------------------------------

    def _write_lines_of_g(self) -> None:
        """All channels of one image: a line of slots each, and its parts."""
        params = [("context", PTR), ("thread", I64), ("source", PTR), ("image", I64)]
        params += [("row", I64), ("rows", I64)]
        with self.m.function("lines_of_g", params, internal=True) as f:
            place, thread, source, image, row, rows = f.args
            c, n = ConvContext(f, place, NAMES), self.n
            lanes, cols, slots = c.LANES, c.A_W, c.G_SLOTS
            channel_step, row_step = c.G_C, c.G_H
            at_row, at = self.way.element, row * c.G_H
            if self.turns:
                self._turn(f, c, source, c.scratch("TURNED", thread), row, rows)
                source, at = c.scratch("TURNED", thread), f.constant(0)
                at_row, row_step, channel_step = TileElement(dt.float32, F32), cols, rows * cols
            line, target = c.scratch("LINE", thread), c.scratch("GT", thread)
            out = f.at(target, image * c.GT_IMAGE)
            with f.if_(rows < c.ROWS):
                f.fill_bytes(line, 0, c.LINE_SIZE)
            split, part, step = Splitter(f, self.parts), c.GT_PART, c.GT_CHANNEL
            pitch = c.PITCH
            # Rows without gaps on both sides are one.
            joined = f.compare("eq", row_step, cols) & f.compare("eq", pitch, cols)
            cols = f.select(joined, rows * cols, cols)
            rows = f.select(joined, f.minimum(rows, 1), rows)
            with f.loop(0, lanes, 1, [out, split.none]) as lane:
                out, wrong = lane.carried
                plane = at_row.at(f, source, lane.index * channel_step + at)
                with f.loop(0, rows) as r, f.loop(0, cols, n) as k:
                    mask = f.low_mask(cols - k.index, n)
                    where = at_row.at(f, plane, r.index * row_step + k.index)
                    v = at_row.load(f, where, n, mask)
                    there = f.at(line, r.index * pitch + k.index, self.compute)
                    f.masked_store(v, there, mask)
                with f.loop(0, slots, DEPTH, [wrong]) as k:
                    here = f.at(line, k.index, self.compute)
                    v2 = [f.load(self.wide, f.at(here, j * n, self.compute)) for j in range(2)]
                    k.next(split.row(v2[0], v2[1], f.at(out, k.index * 2), part, k.carried[0]))
                lane.next(f.at(out, step), *k.results)
            split.tell(lane.results[1], c.flag)  # in one part too: slots between rows times zero

    def _turn(
        self,
        f: LLVMFunction,
        c: ConvContext,
        source: LLVMValue,
        target: LLVMValue,
        row: LLVMValue,
        rows: LLVMValue,
    ) -> None:
        """Some rows of all channels as planes of floats."""
        wide = c.A_W
        even = f.compare("eq", c.G_H, wide * c.G_W)
        count = f.select(even, f.constant(1), rows)
        pixels = f.select(even, rows * wide, wide)
        with f.loop(0, count) as r:
            start = self.way.element.at(f, source, (row + r.index) * c.G_H)
            place = f.at(target, r.index * wide, self.compute)
            args = [start, c.G_W, place, rows * wide, pixels, pixels, c.LANES]
            f.call_at(c.pointer("TURN"), VOID, args)

    # ---- x -------------------------------------------------------------------------------------

    def _write_columns_of_x(self) -> None:
        """All variants of one image's padded block."""
        params = [("context", PTR), ("thread", I64), ("buffer", PTR), ("image", I64)]
        params += [("rows", I64), ("channels", I64)]
        with self.m.function("columns_of_x", params, internal=True) as f:
            place, thread, buffer, image, rows, channels = f.args
            c = ConvContext(f, place, NAMES)
            split = Splitter(f, self.parts)
            out = f.at(c.scratch("XT", thread), image * c.XT_IMAGE)
            # Twice as many variants have places, if there are odd columns.
            with f.loop(0, c.VARIANTS, 1, [split.none]) as variant:
                entry = c.word_at(c.VARIANT_LIST + variant.index * len(VARIANT))
                source = f.at(buffer, f.word(entry, 0), self.compute)
                slots = (rows + f.word(entry, 1)) * c.PITCH
                there = f.at(out, variant.index * c.XT_VARIANT)
                wrong = self._pairs(f, c, split, source, there, slots, channels, variant.carried[0])
                variant.next(wrong)
            split.tell(variant.results[0], c.flag)

    def _pairs(
        self, f: LLVMFunction, c: ConvContext, split: Splitter, source: LLVMValue, out: LLVMValue,
        slots: LLVMValue,
        channels: LLVMValue, wrong: LLVMValue,
    ) -> LLVMValue:  # fmt: skip
        """Slots two by two; two places of the padded block walk along, over the ends of rows."""
        n, whole = self.n, channels & -SIDE
        masks = [f.low_mask(channels - whole - j * n, n) for j in range(VECTORS)]
        pitch, across = c.PITCH, c.STEP_W * c.X_PIXEL
        wrap = c.STEP_H * c.X_ROW - pitch * across
        part, panel_bytes, half = c.XT_PART, c.XT_PANEL, c.XT_HALF

        def on(offset: LLVMValue, column: LLVMValue, count: int) -> tuple[LLVMValue, LLVMValue]:
            for _ in range(count):
                column, offset = column + 1, offset + across
                over = f.compare("eq", column, pitch)
                offset = f.select(over, offset + wrap, offset)
                column = f.select(over, f.constant(0), column)
            return offset, column

        zero = f.constant(0)
        with f.loop(0, slots, 2, [zero, zero, out, wrong]) as pair:
            first, column, out, wrong = pair.carried
            second, beside = on(first, column, 1)
            second = f.select(pair.index + 1 < slots, second, first)
            lines = [f.at(source, at, self.compute) for at in (first, second)]

            def both(
                k: LLVMValue,
                place: LLVMValue,
                masked: bool,
                wrong: LLVMValue,
                lines: list[LLVMValue],
            ) -> LLVMValue:
                for j in range(VECTORS):
                    rows = [f.at(line, k + j * n, self.compute) for line in lines]
                    if masked:
                        a, b = (f.masked_load(self.wide, row, masks[j]) for row in rows)
                    else:
                        a, b = (f.load(self.wide, row) for row in rows)
                    wrong = split.pair(a, b, f.at(place, half * j), part, wrong)
                return wrong

            with f.loop(0, whole, SIDE, [out, wrong]) as k:
                place, wrong = k.carried
                wrong = both(k.index, place, False, wrong, lines)
                k.next(f.at(place, panel_bytes), wrong)
            place, wrong = k.results
            with f.if_(whole < channels) as tail:
                tail.give(both(whole, place, True, wrong, lines))
            with tail.else_():
                tail.give(wrong)
            first, column = on(second, beside, 1)
            pair.next(first, column, f.at(out, STEP), *tail.results)
        return pair.results[3]

    def _write_odd_columns(self) -> None:
        """A second copy of all columns, one slot further on."""
        params = [("context", PTR), ("thread", I64), ("panels", I64)]
        with self.m.function("odd_columns", params, internal=True) as f:
            place, thread, panels = f.args
            c = ConvContext(f, place, NAMES)
            start = c.scratch("XT", thread)
            variants, part, half = c.VARIANTS, c.XT_PART, c.XT_HALF
            shift = f.constant(16, _BITS)
            for k in range(self.parts):
                with f.loop(0, variants) as variant, f.loop(0, panels * 2) as column:
                    at = variant.index * c.XT_VARIANT + column.index * half
                    source = f.at(f.at(start, part * k), at)
                    target = f.at(source, variants * c.XT_VARIANT)
                    first = f.load(_BITS, source, align=64)
                    with f.loop(0, half - STEP, STEP, [first]) as row:
                        [now] = row.carried
                        below = f.load(_BITS, f.at(source, row.index + STEP), align=64)
                        v = f.bits("lshr", now, shift) | f.bits("shl", below, shift)
                        f.store(v, f.at(target, row.index), align=64)
                        row.next(below)


# ---- results -------------------------------------------------------------------------------------


def _write_collect(m: Module, element: TileElement, target: str) -> None:
    """Chunk: a panel of x's channels, and some channels of g."""
    compute, n = element.compute, lanes_of(element.compute)
    wide = compute.vector(n)
    with m.function("task", TASK) as f:
        place, chunk, thread = f.args
        c = ConvContext(f, place, NAMES)
        panel, block = chunk // c.ROW_PARTS, chunk % c.ROW_PARTS
        first = block * c.ROW_PART
        stop = f.minimum(first + c.ROW_PART, c.LANES)
        group, channel = panel // c.PANELS, panel % c.PANELS * SIDE
        count = f.minimum(c.REDUCED - channel, SIDE)
        masks = [f.low_mask(count - j * n, n) for j in range(VECTORS)]
        sums = f.at(c.space("SUMS"), panel * c.SUMS_PANEL, compute)
        aside = c.scratch("ASIDE", thread)
        parts, step, taps, tap_step = c.PARTS, c.SUMS_PART, c.TAPS, c.SUMS_TAP
        with f.loop(first, stop) as lane:
            at = (group * c.LANES + lane.index) * c.W_0 + channel * c.W_1
            out = f.at(c.out, at * c.W_SIZE)
            with f.loop(0, taps) as tap:
                row = f.at(sums, tap.index * tap_step + lane.index * SIDE, compute)
                start = [f.load(wide, f.at(row, j * n, compute)) for j in range(VECTORS)]
                with f.loop(1, parts, 1, start) as part:
                    more = f.at(row, part.index * step, compute)
                    part.next(
                        *(
                            v + f.load(wide, f.at(more, j * n, compute))
                            for j, v in enumerate(part.carried)
                        )
                    )
                if target == TAPS:
                    line = f.at(aside, tap.index * SIDE, compute)
                    for j, v in enumerate(part.results):
                        f.store(v, f.at(line, j * n, compute))
                else:
                    offset = f.load(I64, c.word_at(c.TAP_LIST + tap.index))
                    where = element.at(f, out, offset)
                    for j, v in enumerate(part.results):
                        element.store(f, v, element.at(f, where, j * n), masks[j])
            if target == TAPS:
                args = [aside, f.constant(SIDE), out, taps, taps, taps, count]
                f.call_at(c.pointer("TRANSPOSE_OUT"), VOID, args)
