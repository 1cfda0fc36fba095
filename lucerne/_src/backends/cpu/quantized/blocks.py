"""`quantized_linear` in machine code.

A task takes *units* of the weight, strips of some panels of 16 rows, and all rows of the input. A
block is some rows by one strip: its sums stay in registers while the codes of the strip pass by,
group by group; at the end of a group they are scaled and added to the results. Codes are read in
the order in which they lie, so with one row of input it is memory that limits.

    i64 entry(ptr block)                 rows first (rows.py), then the units
    void block_H_W(block, row, panel)    H rows by W panels
"""

from __future__ import annotations

from lucerne._src.backends.cpu.emit.builder import F32, I32, I64, PTR, VOID, LLVMFunction, Module
from lucerne._src.backends.cpu.emit.values import LLVMValue
from lucerne._src.backends.cpu.quantized.dots import FloatDot, IntegerDot, dot_of
from lucerne._src.backends.cpu.quantized.frame import (
    FLOATS,
    HEIGHTS,
    LANES,
    PARTS,
    WIDTH,
    WORDS,
    QuantizedFrame,
    QuantizedKind,
)
from lucerne._src.backends.cpu.quantized.rows import write_rows
from lucerne._src.ops.linalg.quantized import MIDDLE, PANEL

_TASK = [("block", PTR), ("chunk", I64), ("tid", I64)]
_STEP_BYTES = 64
_AHEAD = 1024
"""With one row codes are used once, and asked for so many bytes before."""


def write_quantized(m: Module, kind: QuantizedKind) -> None:
    """All functions of a kind."""
    for width in sorted({WIDTH, 1}):
        for height in HEIGHTS:
            with m.function(f"block_{height}_{width}", _BLOCK, internal=True) as f:
                _Block(f, kind, height, width).write()
    if kind.prepares:
        with m.function("rows", _TASK, internal=True) as f:
            write_rows(f, QuantizedFrame(f, f.args[0], kind), kind, f.args[1])
    with m.function("units", _TASK, internal=True) as f:
        _write_units(f, QuantizedFrame(f, f.args[0], kind))
    with m.function("entry", [("block", PTR)], I64) as f:
        frame = QuantizedFrame(f, f.args[0], kind)
        if kind.prepares:
            _each(f, "rows", frame.row_chunks)
        _each(f, "units", frame.unit_chunks)
        f.ret(0)


def _each(f: LLVMFunction, task: str, chunks: LLVMValue) -> None:
    with f.if_(chunks > 1) as several:
        f.call("lucerne_pfor", VOID, [f.symbol(task), f.args[0], chunks])
    with several.else_():
        f.call(task, VOID, [f.args[0], 0, 0])


def _write_units(f: LLVMFunction, frame: QuantizedFrame) -> None:
    """Strips of `WIDTH` panels, then the panels that are left."""
    block, chunk, _ = f.args
    first = chunk * frame.unit_chunk
    with f.loop(first, f.minimum(first + frame.unit_chunk, frame.units)) as units:
        with f.if_(f.compare("lt", units.index, frame.strips)) as whole:
            _write_heights(f, frame, block, units.index * WIDTH, WIDTH)
        with whole.else_():
            panel = units.index + frame.strips * (WIDTH - 1)
            _write_heights(f, frame, block, panel, 1)


def _write_heights(
    f: LLVMFunction, frame: QuantizedFrame, block: LLVMValue, panel: LLVMValue, width: int
) -> None:
    """All rows, the tallest blocks first."""
    tallest = HEIGHTS[0]
    whole = frame.rows & -tallest
    with f.loop(0, whole, tallest) as rows:
        f.call(f"block_{tallest}_{width}", VOID, [block, rows.index, panel])
    for height in HEIGHTS[1:]:
        with f.if_(f.compare("ne", frame.rows & height, 0)):
            row = frame.rows & -(2 * height)
            f.call(f"block_{height}_{width}", VOID, [block, row, panel])


_BLOCK = [("block", PTR), ("row", I64), ("panel", I64)]


class _Block:
    """`height` rows by `width` panels."""

    def __init__(self, f: LLVMFunction, kind: QuantizedKind, height: int, width: int) -> None:
        self.f, self.kind, self.height, self.width = f, kind, height, width
        block, self.row, self.panel = f.args
        self.frame = QuantizedFrame(f, block, kind)
        self.dot: FloatDot | IntegerDot = dot_of(kind.stored, kind.dynamic)
        self.vectors = width * PARTS
        self.first = self.panel * PANEL
        left = self.frame.outputs - self.first
        self.masks = [f.low_mask(left - LANES * v, LANES) for v in range(self.vectors)]

    def write(self) -> None:
        f, frame = self.f, self.frame
        count = self.height * self.vectors
        rows = self._rows()
        with f.loop(0, frame.groups, 1, [f.zero(FLOATS)] * count, at_least_once=True) as groups:
            begin = groups.index * frame.group_steps
            stop = begin + frame.group_steps
            sums = [f.zero(self.dot.sums)] * count
            with f.loop(begin, stop, 1, sums, at_least_once=True) as steps:
                steps.next(*self._step(steps.index, rows, steps.carried))
            groups.next(*self._scaled(groups.index, steps.results, groups.carried))
        self._store(groups.results)

    def _rows(self) -> list[LLVMValue]:
        """Where the rows begin, as the dot reads them."""
        start = self.frame.space if self.kind.dynamic else self.frame.input
        step = self.frame.columns * self.dot.row_bytes
        return [self.f.at(start, (self.row + i) * step) for i in range(self.height)]

    def _step(
        self, step: LLVMValue, rows: list[LLVMValue], sums: list[LLVMValue]
    ) -> list[LLVMValue]:
        f, frame = self.f, self.frame
        words = []
        for v in range(self.vectors):
            panel = f.at(frame.codes, (self.panel + v // PARTS) * frame.panel_bytes)
            place = f.at(panel, step * _STEP_BYTES + v % PARTS * WORDS.nbytes)
            words.append(f.load(WORDS, place, 1))
            if self.height == 1 and v % PARTS == 0:
                f.prefetch(f.at(place, _AHEAD))
        held = [sums[i : i + self.vectors] for i in range(0, len(sums), self.vectors)]
        places = [f.at(row, step * self.dot.step_bytes) for row in rows]
        return [s for own in self.dot.step(f, words, places, held) for s in own]

    def _scale(self, start: LLVMValue, group: LLVMValue, v: int) -> LLVMValue:
        """A vector of the scales or bases of a group."""
        f, frame = self.f, self.frame
        place = ((self.panel + v // PARTS) * frame.groups + group) * PANEL + v % PARTS * LANES
        return f.load(FLOATS, f.at(start, place, F32))

    def _scaled(
        self, group: LLVMValue, sums: list[LLVMValue], before: list[LLVMValue]
    ) -> list[LLVMValue]:
        """Results with the sums of a group."""
        f, frame = self.f, self.frame
        scales = [self._scale(frame.scale, group, v) for v in range(self.vectors)]
        bases = [] if frame.base is None else [
            self._scale(frame.base, group, v) for v in range(self.vectors)
        ]  # fmt: skip
        made = []
        for i in range(self.height):
            total = self._total(i, group)
            for v in range(self.vectors):
                k = i * self.vectors + v
                part = f.mul_add(self._centred(sums[k], total), scales[v], before[k])
                made.append(f.mul_add(bases[v], self._as_float(total), part) if bases else part)
        return made

    def _total(self, i: int, group: LLVMValue) -> LLVMValue | None:
        """The sum of a row's group in every lane, where it was asked for."""
        if not self.kind.prepares:
            return None
        f, type = self.f, I32 if self.kind.dynamic else F32
        return f.splat(f.load(type, self.frame.sum_of(self.row + i, group)), LANES)

    def _centred(self, sums: LLVMValue, total: LLVMValue | None) -> LLVMValue:
        """The sum of products with codes as that with their numbers."""
        if not self.kind.dynamic:
            return sums
        assert total is not None
        return self.f.convert("sitofp", sums - total * MIDDLE[self.kind.stored], F32)

    def _as_float(self, total: LLVMValue | None) -> LLVMValue:
        assert total is not None
        return total if total.type.is_float else self.f.convert("sitofp", total, F32)

    def _store(self, results: list[LLVMValue]) -> None:
        f, frame = self.f, self.frame
        biases = [] if frame.bias is None else [
            f.masked_load(FLOATS, f.at(frame.bias, self.first + v * LANES, F32), self.masks[v])
            for v in range(self.vectors)
        ]  # fmt: skip
        for i in range(self.height):
            row = self.row + i
            line = f.at(frame.out, row * frame.outputs + self.first, F32)
            by = f.splat(f.load(F32, frame.step_of(row)), LANES) if self.kind.dynamic else None
            for v in range(self.vectors):
                made = results[i * self.vectors + v]
                made = made if by is None else made * by
                made = made + biases[v] if biases else made
                f.masked_store(made, f.at(line, v * LANES, F32), self.masks[v])
