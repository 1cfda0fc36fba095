"""The tasks of a convolution by AMX tiles (see `tiles`).

Weights are packed once: [class][panel][block of channels][tap][32 channels] [part] tiles of B. A
task is a block of images, rows and columns as in `gather`, and so is the copy of padded rows. What
is new lies between: the padded block is split into parts, in one of two orders.

Rows of 16, 32, ... outputs: [row][column][channel] as it is; a tile takes 16 columns of a row.
Other sizes: several *variants* of the block, one for each tap along the width (and each residue of
the rows' stride), with just the columns that the outputs of one tap read. Then pixel after pixel of
an image is evenly spaced for every tap, over the ends of rows: a tile takes any 16 of them.

With many channels a task goes through them in blocks, so that what tiles read stays in the second
cache; sums wait in scratch meanwhile.
"""

from __future__ import annotations

from lucerne._src.backends.cpu.conv.amx.microkernel import (
    AHEAD,
    DEPTH,
    OUT_BYTES,
    OUT_ROW,
    ROWS,
    STEP,
    TILE,
    Splitter,
    begin_tiles,
    end_tiles,
)
from lucerne._src.backends.cpu.conv.direct import DirectWay, GatherWriter
from lucerne._src.backends.cpu.conv.epilogue import write_after
from lucerne._src.backends.cpu.conv.fields import TILED, TILED_JOB, TILED_TAP, VARIANT
from lucerne._src.backends.cpu.conv.launch import TASK, ConvContext, task_code
from lucerne._src.backends.cpu.conv.microkernel import VECTORS
from lucerne._src.backends.cpu.conv.pack import TAPS, PackWriter, pack_way
from lucerne._src.backends.cpu.conv.padded import IN_PLACE
from lucerne._src.backends.cpu.conv.problem import Gather
from lucerne._src.backends.cpu.emit.builder import LLVMValue, Module
from lucerne._src.backends.cpu.emit.tiles import TileElement
from lucerne._src.backends.cpu.emit.types import I64, PTR, VOID


def tiled_code(way: DirectWay, parts: int) -> int:
    return task_code(("conv.tiled", *way.key, parts), lambda m: _TiledWriter(m, way, parts).write())


def tiled_pack_code(p: Gather, element: TileElement, parts: int, watch: bool) -> int:
    way, bias = pack_way(p), p.bias
    key = ("conv.tiled.pack", way, bias, element.dtype.name, parts, watch)
    return task_code(key, lambda m: _TiledPack(m, way, bias, element, parts, watch).write())


class _TiledPack(PackWriter):
    """Chunk: a panel and 32 of the summed channels. They are packed aside, then split."""

    names, tap = TILED, TILED_TAP

    def __init__(
        self, m: Module, way: str, bias: bool, element: TileElement, parts: int, watch: bool
    ) -> None:
        super().__init__(m, way, bias, element, watch)
        self.parts = parts

    def finish(self) -> None:
        f, c = self.f, self.c
        split = Splitter(f, self.parts)
        count = self.end - self.begin
        block = self.begin // c.K_BLOCK
        first = block * c.K_BLOCK
        steps = f.ceil_div(f.minimum(c.K_BLOCK, c.REDUCED - first), f.constant(DEPTH))
        within = (self.begin - first) // DEPTH
        tile, wide = 2 * TILE * self.parts, self.compute.vector(self.n)
        with f.loop(0, c.TAPS, 1, [split.none]) as taps:
            base, panel, k_step, index = self._tap(taps.index, "TARGET", "PANEL", "K_STEP", "INDEX")
            at = base + self.panel * panel + block * k_step + (index * steps + within) * tile
            target = f.at(c.space("WEIGHTS"), at)
            line, step = self._lines(taps.index)
            with f.loop(0, ROWS, 1, [line, *taps.carried]) as pair:
                line, wrong = pair.carried
                there = [count > pair.index * 2 + i for i in range(2)]
                for j in range(VECTORS):
                    a, b = (
                        f.select(there[i], f.load(wide, f.at(f.at(line, step * i), j * STEP)), 0.0)
                        for i in range(2)
                    )
                    place = f.at(target, pair.index * STEP + j * TILE)
                    wrong = split.pair(a, b, place, 2 * TILE, wrong)
                pair.next(f.at(line, step * 2), wrong)
            taps.next(pair.results[1])
        if self.watch:
            split.tell(taps.results[0], c.flag)

    def _by_taps(self) -> None:
        """Turn adjacent taps into rows of lanes aside; `finish` picks the rows there."""
        f, c = self.f, self.c
        with f.loop(self.begin, self.end, c.PACKING_CHANNELS) as q:
            channels = f.minimum(self.end - q.index, c.PACKING_CHANNELS)
            source = self.element.at(f, self.source, q.index * c.W_REDUCED)
            aside = f.at(
                c.scratch("ASIDE", self.thread),
                (q.index - self.begin) * c.TAP_COUNT * self.width, self.compute,
            )  # fmt: skip
            self._turn(source, c.W_LANE, aside, channels * c.TAP_COUNT)

    def _lines(self, index: LLVMValue) -> tuple[LLVMValue, LLVMValue]:
        """Where the first channel of a tap waits to be split, and the bytes to the next one."""
        f, c, size = self.f, self.c, self.width * self.compute.size
        if self.way != TAPS:
            return self._target(index, self.begin), f.constant(size)
        [at] = self._tap(index, "SOURCE")
        return f.at(c.scratch("ASIDE", self.thread), at * size), c.TAP_COUNT * size

    def _target(self, index: LLVMValue, channel: LLVMValue) -> LLVMValue:
        """Where a channel of a tap waits to be split."""
        aside = self.c.scratch("ASIDE", self.thread)
        at = (index * DEPTH + (channel - self.begin)) * self.width
        return self.f.at(aside, at, self.compute)


class _TiledWriter(GatherWriter):
    names, job = TILED, TILED_JOB

    def __init__(self, m: Module, way: DirectWay, parts: int) -> None:
        super().__init__(m, way)
        self.parts = parts

    def write(self) -> None:
        self.copy.write_row()
        self._write_split()
        if self.way.after is not None:
            write_after(self.m, self.way.after, self.names)
        with self.m.function("task", TASK) as f:
            place, chunk, thread = f.args
            c = self.c = ConvContext(f, place, self.names)
            self.f, self.thread = f, thread
            self._locate(chunk)
            self.buffer = c.scratch("BUFFER", thread)
            self.split = c.scratch("PARTS", thread)
            self.sums = c.scratch("TILE_SUMS", thread)
            if self.way.writes != IN_PLACE:
                self.results = c.scratch("RESULTS", thread)
            begin_tiles(f)
            self._list_pixels()
            with f.loop(0, c.K_BLOCKS) as blocks:
                self.block = blocks.index
                self.is_first = f.compare("eq", blocks.index, 0)
                self.is_last = f.compare("eq", blocks.index, c.K_BLOCKS - 1)
                self._fill_parts()
                with f.loop(0, c.PANELS) as panels:
                    self._panel(panels.index)
            end_tiles(f)
            self._after()

    # ---- parts ---------------------------------------------------------------------------------

    def _fill_parts(self) -> None:
        """Image by image: the padded block, then its parts."""
        f, c, source = self.f, self.c, self.way.source
        first = self.block * c.K_BLOCK
        channels = f.minimum(c.K_BLOCK, c.REDUCED - first)
        at = self.group * c.X_GROUP + self.image * c.X_N + first * c.X_C
        begin = source.at(f, c.first, at)
        start = (f.constant(0), self.row * c.IN_H + c.LOW_H, self.col * c.IN_W + c.LOW_W)
        rows = (self.rows - 1) * c.IN_H + c.SPAN_H
        pixels = (self.cols - 1) * c.IN_W + c.SPAN_W
        counts = (f.constant(1), rows, pixels)
        flat = f.compare("ne", c.FLAT, 0)
        columns = f.select(flat, self.cols, pixels)
        with f.loop(0, self.images) as image:
            x = source.at(f, begin, image.index * c.X_N)
            self.copy.fill(f, c, x, self.buffer, f.constant(1), start, counts, channels)
            target = f.at(self.split, image.index * c.P_IMAGE)
            args = [c.place, self.buffer, target, self.rows, columns, channels]
            f.call("split_block", VOID, args)

    def _write_split(self) -> None:
        """All variants of one image's padded block."""
        params = [("context", PTR), ("buffer", PTR), ("target", PTR)]
        params += [("rows", I64), ("columns", I64), ("channels", I64)]
        with self.m.function("split_block", params, internal=True) as f:
            place, buffer, target, rows, columns, channels = f.args
            c = ConvContext(f, place, self.names)
            split = Splitter(f, self.parts)
            wide, n = self.compute.vector(self.n), self.n
            whole = channels & -DEPTH
            masks = [f.low_mask(channels - whole - j * n, n) for j in range(2)]
            grown = (rows - 1) * c.V_ROW_STEP + 1
            part, pixel, step = c.P_PART, c.P_PIXEL, c.V_W
            with f.loop(0, c.VARIANTS, 1, [split.none]) as variants:
                entry = c.word_at(c.VARIANT_LIST + variants.index * len(VARIANT))
                offset, extra = (f.word(entry, k) for k in range(len(VARIANT)))
                source = f.at(buffer, offset, self.compute)
                start = f.at(target, variants.index * c.P_VARIANT)
                with f.loop(0, grown + extra, 1, variants.carried) as row:
                    line = f.at(source, row.index * c.V_H, self.compute)
                    out = f.at(start, row.index * c.P_ROW)
                    with f.loop(0, columns, 1, [line, out, *row.carried]) as column:
                        line, out, wrong = column.carried
                        with f.loop(0, whole, DEPTH, [wrong]) as k:
                            at = f.at(line, k.index, self.compute)
                            v = [f.load(wide, f.at(at, j * n, self.compute)) for j in range(2)]
                            here = f.at(out, k.index * 2)
                            k.next(split.row(v[0], v[1], here, part, k.carried[0]))
                        with f.if_(whole < channels) as tail:
                            at = f.at(line, whole, self.compute)
                            v = [
                                f.masked_load(wide, f.at(at, j * n, self.compute), masks[j])
                                for j in range(2)
                            ]
                            here = f.at(out, whole * 2)
                            tail.give(split.row(v[0], v[1], here, part, k.results[0]))
                        with tail.else_():
                            tail.give(k.results[0])
                        line = f.at(line, step, self.compute)
                        column.next(line, f.at(out, pixel), *tail.results)
                    row.next(column.results[2])
                variants.next(*row.results)
            if self.parts > 1:
                split.tell(variants.results[0], c.flag)

    # ---- tiles ---------------------------------------------------------------------------------

    def _image_step(self) -> LLVMValue:
        return self.c.P_IMAGE

    def _panel(self, panel: LLVMValue) -> None:
        f, c = self.f, self.c
        whole = self._enter_panel(panel)
        self.panel_sums = f.at(self.sums, panel * c.S_PANEL)
        with f.loop(0, c.CLASSES) as classes:
            job = self._job(classes.index)
            w_at, w_panel, taps, out = self._get(job, "W_AT W_PANEL W_TAPS OUT_AT")
            steps = c.K_BLOCK // DEPTH
            at = w_at + whole * w_panel + self.block * taps * steps * (2 * TILE * self.parts)
            weights = f.at(c.space("WEIGHTS"), at)
            self._tiles(job, classes.index, weights, f.at(self.results, out))
        if self.way.writes != IN_PLACE:
            with f.if_(self.is_last):
                self._write_out(panel)

    def _tiles(
        self, job: LLVMValue, index: LLVMValue, weights: LLVMValue, target: LLVMValue
    ) -> None:
        """All pixels of a class, 32 at a time: two tiles that need not be neighbours."""
        f, c = self.f, self.c
        rows, cols = self._extent(job)
        [full, last] = self._get(job, "FULL_JOB LAST_JOB")
        work = c.word_at(f.select(self.is_last, last, full))
        long = f.compare("ne", c.FLAT, 0) & f.compare("eq", cols, c.COLS)
        segment = f.select(long, rows * cols, cols)
        segments = f.select(long, self.images, self.images * rows)
        tiles = f.ceil_div(segment, f.constant(ROWS))
        count = segments * tiles
        pixels = self._pixels_of(index)
        sums = f.at(self.panel_sums, index * c.S_CLASS)
        alone = f.compare("eq", c.K_BLOCKS, 1)
        [w_panel, taps] = self._get(job, "W_PANEL W_TAPS")
        next_ = f.at(weights, w_panel)
        part = taps * (c.K_BLOCK // DEPTH) * (2 * TILE * self.parts // AHEAD)

        def find(tile: LLVMValue) -> tuple[LLVMValue, LLVMValue]:
            """The first pixel of a tile, and how many it has."""
            start = tile % tiles * ROWS
            return tile // tiles * segment + start, f.minimum(segment - start, ROWS)

        with f.loop(0, count, 2) as loop:
            first, second = loop.index, f.minimum(loop.index + 1, count - 1)
            found = [find(first), find(second)]
            places = [f.at(self.split, f.word(f.at(pixels, p * 16), 0)) for p, _ in found]
            now = c.scratch("TILE_NOW", self.thread)
            ahead = f.at(next_, (loop.index >> 1 & (AHEAD - 1)) * part)
            f.call_at(c.pointer("TILES"), VOID, [*places, weights, now, work, 0, ahead])
            out = f.select(alone, now, f.at(sums, (loop.index >> 1) * c.S_PAIR))
            with f.if_(f.compare("ne", out, now)):
                self._add(now, out)
            with f.if_(self.is_last):
                for half, (pixel, n) in enumerate(found):
                    n = n if half == 0 else f.select(first < second, n, 0)
                    here = f.at(out, half * ROWS * OUT_ROW)
                    self._finish(here, f.at(pixels, pixel * 16), n, target)

    def _add(self, now: LLVMValue, sums: LLVMValue) -> None:
        """A block of channels has its own sums, which are added to those of the others: shorter
        chains round less."""
        f, wide = self.f, self.compute.vector(self.n)
        with f.loop(0, OUT_BYTES, OUT_ROW) as row:
            for j in range(VECTORS):
                at = row.index + j * STEP
                v, place = f.load(wide, f.at(now, at)), f.at(sums, at)
                before = f.load(wide, place)
                f.store(f.select(self.is_first, v, before + v), place)

    def _finish(
        self, sums: LLVMValue, pixels: LLVMValue, count: LLVMValue, target: LLVMValue
    ) -> None:
        """The sums of up to 16 pixels to where they belong."""
        f, n, wide = self.f, self.n, self.compute.vector(self.n)
        masks = [f.low_mask(self.lanes - j * n, n) for j in range(VECTORS)]
        starts = [f.load(wide, f.at(self.start, j * n, self.compute)) for j in range(VECTORS)]
        with f.loop(0, count) as i:
            row = f.at(sums, i.index * OUT_ROW)
            place = f.at(target, f.word(f.at(pixels, i.index * 16), 1))
            for j in range(VECTORS):
                v = f.load(wide, f.at(row, j * n, self.compute)) + starts[j]
                where = f.at(place, j * n, self.compute)
                if self.way.writes == IN_PLACE:
                    f.masked_store(v, where, masks[j])
                else:
                    f.store(v, where)
