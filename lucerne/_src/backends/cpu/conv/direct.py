"""The task of a convolution: copy padded rows into a cached buffer, sweep tiles, write results.

A task is a block of images, rows and columns of outputs (of one group, at one depth). It copies
what the block reads into its thread's buffer as [image][depth][row][column][channel], zeros where
the source ends, changing type and turning planes into channels on the way. Then for each panel of
output channels and each class of outputs the micro-kernels run over all pixels of the block.
Results go straight to the target when it keeps channels adjacent in the type of the sums; else
into a block [pixel][lanes] that is turned or converted as it is written out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lucerne._src.backends.cpu.conv.epilogue import BLOCK_STARTS, After, write_after
from lucerne._src.backends.cpu.conv.fields import GATHER, GATHER_JOB
from lucerne._src.backends.cpu.conv.launch import TASK, ConvContext, task_code
from lucerne._src.backends.cpu.conv.microkernel import LOW, TALL, VECTORS
from lucerne._src.backends.cpu.conv.padded import ANY, CHANNELS, IN_PLACE, PLANES, PaddedCopy
from lucerne._src.backends.cpu.emit.builder import LLVMValue, Module
from lucerne._src.backends.cpu.emit.tiles import TileElement, lanes_of
from lucerne._src.backends.cpu.emit.types import I64, PTR, VOID


@dataclass(frozen=True)
class DirectWay:
    """Which task: layouts and types of source and target, and whether tiles take free pixels."""

    source: TileElement
    target: TileElement
    reads: str
    writes: str
    free: bool
    after: After | None = None

    @property
    def key(self) -> tuple[Any, ...]:
        names = (self.source.dtype.name, self.target.dtype.name, self.source.compute.name)
        after = () if self.after is None else self.after.key
        return (*names, self.reads, self.writes, self.free, after)


def gather_code(way: DirectWay) -> int:
    return task_code(("conv.gather", *way.key), lambda m: GatherWriter(m, way).write())


def tile_heights(count: int) -> set[int]:
    """Heights of the tiles that cover `count` pixels of a row: what `GatherWriter._row` calls."""
    if count <= 0:
        return set()
    if count % TALL == 0:
        return {TALL}
    tiles = -(-count // LOW)
    return {count // tiles, -(-count // tiles)}


def free_heights(count: int) -> set[int]:
    """The same for a list of free pixels."""
    return {h for h in (min(count, LOW), count % LOW) if h > 0}


class GatherWriter:
    """Writes the task. `names` are those of its table, `job` those of a class's job."""

    names, job = GATHER, GATHER_JOB

    def __init__(self, m: Module, way: DirectWay) -> None:
        self.m, self.way = m, way
        self.compute = way.source.compute
        self.size = self.compute.size
        self.n = lanes_of(self.compute)
        self.width = VECTORS * self.n
        self.copy = PaddedCopy(m, "X", self.names, way.source, way.reads)

    def write(self) -> None:
        if self.way.reads != IN_PLACE:
            self.copy.write_row()
        if self.way.after is not None:
            write_after(self.m, self.way.after, self.names)
        with self.m.function("task", TASK) as f:
            place, chunk, thread = f.args
            c = self.c = ConvContext(f, place, self.names)
            self.f, self.thread = f, thread
            self._locate(chunk)
            source = self.way.source
            at = self.group * c.X_GROUP + self.image * c.X_N
            self.x = source.at(f, c.first, at)
            if self.way.reads == IN_PLACE:
                at = self.depth * c.IN_D * c.X_D + self.row * c.IN_H * c.X_H
                at = at + self.col * c.IN_W * c.X_W
                self.buffer = source.at(f, self.x, at)
            else:
                self.buffer = c.scratch("BUFFER", thread)
                self._fill()
            if self.way.writes != IN_PLACE:
                self.results = c.scratch("RESULTS", thread)
            if self.way.free:
                self._list_pixels()
            with f.loop(0, c.PANELS) as panels:
                self._panel(panels.index)
            self._after()

    def _after(self) -> None:
        """The element-wise ops on this block."""
        f, c = self.f, self.c
        if self.way.after is not None:
            lane = self.group * c.LANES
            first = dict(
                zip("NCDHW", (self.image, lane, self.depth, self.row, self.col), strict=True)
            )
            at = f.constant(0)
            for dim in BLOCK_STARTS:
                at = at + first[dim] * getattr(c, f"Y_{dim}")
            args = [c.place, at, self.images, self.rows, self.cols, lane, c.LANES]
            f.call("after", VOID, args)

    def _locate(self, chunk: LLVMValue) -> None:
        """Which block this is: group, first image, depth, first row, first column."""
        f, c = self.f, self.c
        chunk, col = chunk // c.COL_BLOCKS, chunk % c.COL_BLOCKS
        chunk, row = chunk // c.ROW_BLOCKS, chunk % c.ROW_BLOCKS
        chunk, self.depth = chunk // c.A_D, chunk % c.A_D
        self.group, image = chunk // c.IMAGE_BLOCKS, chunk % c.IMAGE_BLOCKS
        self.image, self.row, self.col = image * c.IMAGES, row * c.ROWS, col * c.COLS
        self.images = f.minimum(c.IMAGES, c.N - self.image)
        self.rows = f.minimum(c.ROWS, c.A_H - self.row)
        self.cols = f.minimum(c.COLS, c.A_W - self.col)

    def _fill(self) -> None:
        c = self.c
        start = (
            self.depth * c.IN_D + c.LOW_D,
            self.row * c.IN_H + c.LOW_H,
            self.col * c.IN_W + c.LOW_W,
        )
        rows = (self.rows - 1) * c.IN_H + c.SPAN_H
        pixels = (self.cols - 1) * c.IN_W + c.SPAN_W
        counts = (c.SPAN_D, rows, pixels)
        self.copy.fill(self.f, c, self.x, self.buffer, self.images, start, counts, c.REDUCED)

    # ---- tiles -------------------------------------------------------------------------------

    def _job(self, index: LLVMValue) -> LLVMValue:
        f, c = self.f, self.c
        return c.word_at(f.load(I64, c.word_at(c.JOBS + index)))

    def _get(self, job: LLVMValue, names: str) -> list[LLVMValue]:
        return [self.f.word(job, self.job.index(name)) for name in names.split()]

    def _extent(self, job: LLVMValue) -> tuple[LLVMValue, LLVMValue]:
        """Rows and columns that a class has in this block; none when it lacks this depth."""
        f = self.f
        depths, rows, cols = self._get(job, "COUNT_D COUNT_H COUNT_W")
        rows = f.maximum(f.minimum(self.rows, rows - self.row), 0)
        cols = f.maximum(f.minimum(self.cols, cols - self.col), 0)
        return f.select(self.depth < depths, rows, 0), cols

    def _enter_panel(self, panel: LLVMValue) -> LLVMValue:
        """Find what belongs to a panel of this task's group; returns its number among all."""
        f, c = self.f, self.c
        whole = self.group * c.PANELS + panel
        self.start = f.at(c.space("START"), whole * self.width, self.compute)
        self.lanes = f.minimum(c.LANES - panel * self.width, self.width)
        if self.way.writes == IN_PLACE:
            at = self.image * c.Y_N + self.group * c.Y_GROUP + panel * self.width
            at = at + self.depth * c.STEP_D * c.Y_D + self.row * c.STEP_H * c.Y_H
            at = at + self.col * c.STEP_W * c.Y_W
            self.results = f.at(c.out, at, self.compute)
        return whole

    def _panel(self, panel: LLVMValue) -> None:
        f, c = self.f, self.c
        whole = self._enter_panel(panel)
        vectors = f.select(self.lanes > self.n, f.constant((TALL + 1) * 8), 0)
        self.kernels = f.at(c.word_at(c.KERNELS), vectors)
        with f.loop(0, c.CLASSES) as classes:
            job = self._job(classes.index)
            w_at, w_panel, out = self._get(job, "W_AT W_PANEL OUT_AT")
            weights = f.at(c.space("WEIGHTS"), w_at + whole * w_panel, self.compute)
            target = f.at(self.results, out)
            if self.way.free:
                self._free_tiles(job, classes.index, weights, target)
            else:
                self._even_tiles(job, weights, target)
        if self.way.writes != IN_PLACE:
            self._write_out(panel)

    def _even_tiles(self, job: LLVMValue, weights: LLVMValue, target: LLVMValue) -> None:
        f, c = self.f, self.c
        rows, cols = self._extent(job)
        x_h, out_n, out_h = self._get(job, "X_H OUT_N OUT_H")
        ahead, part = self._ahead(job, weights)
        with f.loop(0, self.images) as image, f.loop(0, rows) as row:
            x = f.at(self.buffer, image.index * c.X_IMAGE * self.size + row.index * x_h)
            out = f.at(target, image.index * out_n + row.index * out_h)
            self._row(job, x, out, cols, weights, f.at(ahead, (row.index & 7) * part))

    def _ahead(self, job: LLVMValue, weights: LLVMValue) -> tuple[LLVMValue, LLVMValue]:
        """The next panel, and the bytes of an eighth of it: each tile fetches one from afar."""
        [w_panel] = self._get(job, "W_PANEL")
        return self.f.at(weights, w_panel, self.compute), (w_panel >> 3) * self.size

    def _row(
        self,
        job: LLVMValue,
        x: LLVMValue,
        out: LLVMValue,
        cols: LLVMValue,
        weights: LLVMValue,
        ahead: LLVMValue,
    ) -> None:
        f = self.f
        step, out_step = self._get(job, "ROW_STEP OUT_STEP")
        tall = f.compare("eq", cols % TALL, 0)
        tiles = f.select(tall, cols // TALL, f.ceil_div(cols, f.constant(LOW)))
        height = cols // f.maximum(tiles, 1)
        higher = cols - height * tiles
        with f.loop(0, tiles, 1, [x, out]) as loop:
            x, out = loop.carried
            h = height + f.convert("zext", loop.index < higher, I64)
            kernel = f.load(PTR, f.at(self.kernels, h, I64))
            args = [x, weights, out, job, self.start, self.lanes, ahead, f.zero(PTR)]
            f.call_at(kernel, VOID, args)
            loop.next(f.at(x, h * step), f.at(out, h * out_step))

    # ---- free pixels -------------------------------------------------------------------------

    def _pixels_of(self, index: LLVMValue) -> LLVMValue:
        """Where the list of pixels of a class is: pairs of byte offsets into buffer and results."""
        c = self.c
        most = c.IMAGES * c.ROWS * c.COLS
        return self.f.at(c.scratch("PIXELS", self.thread), index * most * 16)

    def _image_step(self) -> LLVMValue:
        """Bytes from image to image in what the micro-kernels read."""
        return self.c.X_IMAGE * self.size

    def _list_pixels(self) -> None:
        f, c = self.f, self.c
        with f.loop(0, c.CLASSES) as classes:
            job = self._job(classes.index)
            rows, cols = self._extent(job)
            x_h, x_w, out_n, out_h, out_w = self._get(job, "X_H X_W OUT_N OUT_H OUT_W")
            image_step = self._image_step()
            pairs = self._pixels_of(classes.index)
            with f.loop(0, self.images) as i, f.loop(0, rows) as r, f.loop(0, cols) as k:
                x = i.index * image_step + r.index * x_h + k.index * x_w
                out = i.index * out_n + r.index * out_h + k.index * out_w
                at = f.at(pairs, ((i.index * rows + r.index) * cols + k.index) * 16)
                f.store(x, at)
                f.store(out, f.at(at, 8))

    def _free_tiles(
        self, job: LLVMValue, index: LLVMValue, weights: LLVMValue, target: LLVMValue
    ) -> None:
        f = self.f
        rows, cols = self._extent(job)
        count = self.images * rows * cols
        pairs = self._pixels_of(index)
        ahead, part = self._ahead(job, weights)
        with f.loop(0, count, LOW) as loop:
            h = f.minimum(count - loop.index, LOW)
            kernel = f.load(PTR, f.at(self.kernels, h, I64))
            pixels = f.at(pairs, loop.index * 16)
            next_ = f.at(ahead, (loop.index // LOW & 7) * part)
            args = [self.buffer, weights, target, job, self.start, self.lanes, next_, pixels]
            f.call_at(kernel, VOID, args)

    # ---- results -----------------------------------------------------------------------------

    def _write_out(self, panel: LLVMValue) -> None:
        """The block of results of one panel to the target, row by row (planes that continue from
        row to row in one piece)."""
        f, c, element = self.f, self.c, self.way.target
        slices = f.minimum(c.STEP_D, c.OUT_D - self.depth * c.STEP_D)
        rows = f.minimum(self.rows * c.STEP_H, c.OUT_H - self.row * c.STEP_H)
        cols = f.minimum(self.cols * c.STEP_W, c.OUT_W - self.col * c.STEP_W)
        joined = f.compare("eq", c.Y_H, cols * c.Y_W) & f.compare("eq", c.T_ROW, cols)
        pixels = f.select(joined, rows * cols, cols)
        pieces = f.select(joined, f.minimum(rows, 1), rows)
        at = self.image * c.Y_N + self.group * c.Y_GROUP + panel * self.width * c.Y_C
        at = at + self.depth * c.STEP_D * c.Y_D + self.row * c.STEP_H * c.Y_H
        first = element.at(f, c.out, at + self.col * c.STEP_W * c.Y_W)
        with f.loop(0, self.images) as i, f.loop(0, slices) as d, f.loop(0, pieces) as r:
            at = i.index * c.T_IMAGE + d.index * c.T_SLICE + r.index * c.T_ROW
            source = f.at(self.results, at * self.width, self.compute)
            at = i.index * c.Y_N + d.index * c.Y_D + r.index * c.Y_H
            target = element.at(f, first, at)
            {CHANNELS: self._put_channels, PLANES: self._put_planes, ANY: self._put_any}[
                self.way.writes
            ](source, target, pixels)

    def _put_channels(self, source: LLVMValue, target: LLVMValue, pixels: LLVMValue) -> None:
        f, c, element, n = self.f, self.c, self.way.target, self.n
        masks = [f.low_mask(self.lanes - j * n, n) for j in range(VECTORS)]
        with f.loop(0, pixels) as pixel:
            row = f.at(source, pixel.index * self.width, self.compute)
            place = element.at(f, target, pixel.index * c.Y_W)
            for j, mask in enumerate(masks):
                v = f.load(self.compute.vector(n), f.at(row, j * n, self.compute))
                element.store(f, v, element.at(f, place, j * n), mask)

    def _put_planes(self, source: LLVMValue, target: LLVMValue, pixels: LLVMValue) -> None:
        c = self.c
        args: list[Any] = [source, self.width, target, c.Y_C, pixels, pixels, self.lanes]
        self.f.call_at(c.pointer("TRANSPOSE_OUT"), VOID, args)

    def _put_any(self, source: LLVMValue, target: LLVMValue, pixels: LLVMValue) -> None:
        f, c, element = self.f, self.c, self.way.target
        with f.loop(0, pixels) as pixel, f.loop(0, self.lanes) as lane:
            v = f.load(
                self.compute, f.at(source, pixel.index * self.width + lane.index, self.compute)
            )
            at = pixel.index * c.Y_W + lane.index * c.Y_C
            element.store(f, v, element.at(f, target, at))
