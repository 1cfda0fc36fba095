"""Nested loops for any strides: two innermost dimensions as loops, all others by index arithmetic.

A call is a grid of chunks: (a range of the outer dimensions) x (a range of rows) x (a range of
columns), cut by shape at plan time. TURNED operands, which run along the rows, are brought into
order tile by tile: a tile is transposed into scratch memory on the stack and read from there.

Extra words: the fields of `Field`, then for each operand the byte strides of the two inner loops,
then one record (size, strides of all operands) per outer dimension, innermost first.
"""

from __future__ import annotations

from enum import IntEnum

from lucerne._src.backends.cpu.elementwise.access import Lane
from lucerne._src.backends.cpu.elementwise.recipe import (
    Failures,
    Recipe,
    emit_span,
    read_numbers,
    read_pointers,
)
from lucerne._src.backends.cpu.elementwise.space import STRIDED, TURNED, UNIT, Space, outer_words
from lucerne._src.backends.cpu.emit.builder import I64, PTR, VOID, LLVMFunction, LLVMValue, Module
from lucerne._src.ir.symbolic.numbers import if_at_least, least, most

TILE_ROWS, TILE_COLUMNS = 32, 64


class Field(IntEnum):
    """Where the extra words stand, counted from the first."""

    STATUS = 0
    CHUNKS = 1
    COLUMNS = 2
    ROWS = 3
    OUTER = 4
    CHUNK_COLUMNS = 5
    CHUNK_ROWS = 6
    CHUNK_OUTER = 7
    COLUMN_CHUNKS = 8
    ROW_CHUNKS = 9
    OUTER_RANK = 10
    TURN = 11
    """Address of the function that transposes a tile, per operand."""


def extra_words(space: Space, chunk: int, turns: list[int]) -> list[int]:
    """The words a nested kernel reads after its numbers; about `chunk` elements at a time."""
    columns, rows = (*space.sizes, 1, 1)[:2]
    outer = space.numel // (columns * rows)
    chunk_columns = if_at_least(2 * chunk, columns, columns, _even(columns, chunk))
    chunk_rows = _share(rows, chunk // chunk_columns)
    chunk_outer = _share(outer, chunk // (chunk_columns * chunk_rows))
    if space.turned:
        chunk_rows = least(rows, -(-chunk_rows // TILE_ROWS) * TILE_ROWS)
    column_chunks, row_chunks = -(-columns // chunk_columns), -(-rows // chunk_rows)
    chunks = column_chunks * row_chunks * -(-outer // chunk_outer)
    words = [0, chunks, columns, rows, outer, chunk_columns, chunk_rows, chunk_outer]
    words += [column_chunks, row_chunks, max(0, space.rank - 2), *turns]
    for strides in space.strides:
        words += (*strides, 0, 0)[:2]
    return words + outer_words(space, 2)


def _even(n: int, chunk: int) -> int:
    """Columns of a chunk, as a multiple of 1024: parts that start on vectors."""
    found: int = if_at_least(chunk, n, n, most(1024, chunk // 1024 * 1024))
    return found


def _share(n: int, wanted: int) -> int:
    found: int = least(n, most(1, wanted))
    return found


class _Frame:
    """The words of a call inside a function of the nest."""

    def __init__(self, f: LLVMFunction, recipe: Recipe, block: LLVMValue) -> None:
        self.f, self.block = f, block
        self.first = recipe.first_extra
        self.count = len(recipe.operands)

    def field(self, which: Field) -> LLVMValue:
        return self.f.word(self.block, self.first + which)

    def turn(self, operand: int) -> LLVMValue:
        return self.f.word(self.block, self.first + Field.TURN + operand, PTR)

    def stride(self, operand: int, loop: int) -> LLVMValue:
        return self.f.word(self.block, self.first + Field.TURN + self.count + 2 * operand + loop)

    @property
    def outer_records(self) -> LLVMValue:
        return self.f.at(self.block, 8 * (self.first + Field.TURN + 3 * self.count))


def write_nest(m: Module, recipe: Recipe, ways: str) -> None:
    """The functions of a nested kernel."""
    failures = Failures(recipe)
    _write_run(m, recipe, ways, failures)
    with m.function("task", [("block", PTR), ("chunk", I64), ("tid", I64)]) as f:
        _write_task(f, recipe)
    with m.function("entry", [("block", PTR)], I64) as f:
        (block,) = f.args
        frame = _Frame(f, recipe, block)
        failures.clear(f, block)
        chunks = frame.field(Field.CHUNKS)
        with f.if_(chunks > 1) as several:
            f.call("lucerne_pfor", VOID, [f.symbol("task"), block, chunks])
        with several.else_():
            ends = [frame.field(k) for k in (Field.OUTER, Field.ROWS, Field.COLUMNS)]
            f.call("run", VOID, [block, 0, ends[0], 0, ends[1], 0, ends[2]])
        f.ret(failures.status(f, block))


def _write_task(f: LLVMFunction, recipe: Recipe) -> None:
    """The ranges of chunk number `chunk`."""
    block, chunk, _ = f.args
    frame = _Frame(f, recipe, block)
    column_chunks, row_chunks = frame.field(Field.COLUMN_CHUNKS), frame.field(Field.ROW_CHUNKS)
    line = chunk // column_chunks
    outer = line // row_chunks
    places = (outer, line - outer * row_chunks, chunk - line * column_chunks)
    sizes = (Field.CHUNK_OUTER, Field.CHUNK_ROWS, Field.CHUNK_COLUMNS)
    ends = (Field.OUTER, Field.ROWS, Field.COLUMNS)
    ranges: list[LLVMValue] = []
    for place, size, end in zip(places, sizes, ends, strict=True):
        step = frame.field(size)
        start = place * step
        ranges += [start, f.minimum(start + step, frame.field(end))]
    f.call("run", VOID, [block, *ranges])


def _write_run(m: Module, recipe: Recipe, ways: str, failures: Failures) -> None:
    names = ("o0", "o1", "r0", "r1", "c0", "c1")
    params = [("block", PTR), *((n, I64) for n in names)]
    with m.function("run", params, internal=True) as f:
        block, o0, o1, r0, r1, c0, c1 = f.args
        frame = _Frame(f, recipe, block)
        direct = recipe.moves and ways == UNIT + TURNED
        scratch = {
            k: f.stack(TILE_ROWS * TILE_COLUMNS * e.size)
            for k, (e, way) in enumerate(zip(recipe.operands, ways, strict=True))
            if way == TURNED and not direct
        }
        ready = recipe.prepare(f, read_numbers(f, recipe, block))
        bases = read_pointers(f, recipe, block)
        steps = [(frame.stride(k, 0), frame.stride(k, 1)) for k in range(frame.count)]
        with f.loop(o0, o1) as outer:
            places = _outer_places(frame, bases, outer.index)
            span = _Span(f, recipe, ways, block, ready, steps, places, failures)
            if direct:
                span.turn_over(r0, r1, c0, c1, frame.turn(1))
            elif scratch:
                turns = {k: frame.turn(k) for k in scratch}
                span.tiles(r0, r1, c0, c1, scratch, turns)
            else:
                span.rows(r0, r1, c0, c1)


def _outer_places(frame: _Frame, bases: list[LLVMValue], index: LLVMValue) -> list[LLVMValue]:
    """Where the operands are at this position of the outer dimensions."""
    f = frame.f
    rank = frame.field(Field.OUTER_RANK)
    record = 8 * (1 + frame.count)
    first = frame.outer_records
    with f.loop(0, rank, 1, [index, *bases]) as dims:
        rest, *places = dims.carried
        here = f.at(first, dims.index * record)
        size = f.word(here, 0)
        quotient = f.unsigned("div", rest, size)
        at = rest - quotient * size
        moved = [f.at(p, at * f.word(here, 1 + k)) for k, p in enumerate(places)]
        dims.next(quotient, *moved)
    return dims.results[1:]


class _Span:
    """The two inner loops of one position of the outer ones."""

    def __init__(
        self,
        f: LLVMFunction,
        recipe: Recipe,
        ways: str,
        block: LLVMValue,
        ready: object,
        steps: list[tuple[LLVMValue, LLVMValue]],
        places: list[LLVMValue],
        failures: Failures,
    ) -> None:
        self.f, self.recipe, self.ways, self.block = f, recipe, ways, block
        self.ready, self.steps, self.places, self.failures = ready, steps, places, failures

    def rows(self, r0: LLVMValue, r1: LLVMValue, c0: LLVMValue, c1: LLVMValue) -> None:
        """Row after row, along the columns."""
        with self.f.loop(r0, r1) as row:
            self._row([self._lane(k, row.index) for k in range(len(self.ways))], c0, c1)

    def turn_over(
        self, r0: LLVMValue, r1: LLVMValue, c0: LLVMValue, c1: LLVMValue, turn: LLVMValue
    ) -> None:
        """A plain transpose: from memory to memory, without scratch."""
        (_, out_row), (column_step, _) = self.steps
        size = self.recipe.operands[0].size
        target = self.f.at(self.places[0], r0 * out_row + c0 * size)
        source = self.f.at(self.places[1], r0 * size + c0 * column_step)
        self.f.call_at(turn, VOID, [source, column_step, target, out_row, c1 - c0, r1 - r0])

    def tiles(
        self,
        r0: LLVMValue,
        r1: LLVMValue,
        c0: LLVMValue,
        c1: LLVMValue,
        scratch: dict[int, LLVMValue],
        turns: dict[int, LLVMValue],
    ) -> None:
        """Tile after tile: turned operands through scratch, the others where they are."""
        f = self.f
        with f.loop(r0, r1, TILE_ROWS) as tile_row, f.loop(c0, c1, TILE_COLUMNS) as tile_column:
            top, left = tile_row.index, tile_column.index
            bottom = f.minimum(top + TILE_ROWS, r1)
            right = f.minimum(left + TILE_COLUMNS, c1)
            for k, space in scratch.items():
                self._turn(k, turns[k], space, top, bottom, left, right)
            with f.loop(top, bottom) as row:
                lanes = [
                    self._scratch_lane(k, scratch[k], row.index - top, left)
                    if k in scratch
                    else self._lane(k, row.index)
                    for k in range(len(self.ways))
                ]
                self._row(lanes, left, right)

    def _row(self, lanes: list[Lane], start: LLVMValue, stop: LLVMValue) -> None:
        emit_span(self.f, self.recipe, self.block, self.ready, lanes, start, stop, self.failures)

    def _lane(self, k: int, row: LLVMValue) -> Lane:
        """Operand `k` in a row, element 0 at column 0."""
        column_step, row_step = self.steps[k]
        pointer = self.f.at(self.places[k], row * row_step)
        way = self.ways[k]
        stride = column_step if way == STRIDED else None
        return Lane(self.recipe.operands[k], way, pointer, stride)

    def _scratch_lane(self, k: int, space: LLVMValue, row: LLVMValue, left: LLVMValue) -> Lane:
        """Operand `k` in a row of its transposed tile; column `left` is the first there."""
        element = self.recipe.operands[k]
        pointer = self.f.at(space, (row * TILE_COLUMNS - left) * element.size)
        return Lane(element, UNIT, pointer)

    def _turn(
        self,
        k: int,
        turn: LLVMValue,
        space: LLVMValue,
        top: LLVMValue,
        bottom: LLVMValue,
        left: LLVMValue,
        right: LLVMValue,
    ) -> None:
        """Transpose a tile of operand `k` into its scratch memory."""
        f = self.f
        size = self.recipe.operands[k].size
        column_step = self.steps[k][0]
        source = f.at(self.places[k], top * size + left * column_step)
        width = TILE_COLUMNS * size
        f.call_at(turn, VOID, [source, column_step, space, width, right - left, bottom - top])
