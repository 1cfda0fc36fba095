"""Positions of the elements that aren't zero: counted chunk by chunk, then written.

The elements are visited in logical order, row by row. Within a row, positions go branch-free into a
small buffer first: which elements are zero can't be predicted, how many hits a buffer holds can.
"""

from __future__ import annotations

from dataclasses import dataclass

from lucerne._src.backends.cpu.emit.builder import I64, PTR, VOID, LLVMFunction, LLVMValue, Module
from lucerne._src.backends.cpu.emit.target import VECTOR_BYTES
from lucerne._src.backends.cpu.emit.types import INT, Type
from lucerne._src.backends.cpu.math.storage import STORED, deinterleave, unpack
from lucerne._src.base import dtype as dt

BUFFERED = 256

# Words of the block: result, input, per-chunk counts, the total, then these.
RESULT, INPUT, COUNTS, TOTAL = 0, 1, 2, 3
ROWS, SIZE, CHUNK_ROWS, PIECES, PIECE, CHUNKS, STEP, DIMS = range(4, 12)


@dataclass(frozen=True)
class NonzeroKernel:
    """What changes the code. `ndim` is at least 1; `unit`: rows lie together in memory."""

    ndim: int
    dtype: str
    unit: bool


class NonzeroCode:
    """Writes `i64 count(ptr block)`, which returns how many there are, and `i64 write(ptr block)`.

    Between the calls the caller makes room for the result, a column of `total` positions for each
    dimension, and tells the total. The words from DIMS on are (size, byte
    stride) of each dimension but the last, outermost first; STEP is the byte stride of the last.
    """

    def __init__(self, m: Module, form: NonzeroKernel) -> None:
        self.m, self.form = m, form
        self.dtype = dt.by_name(form.dtype)
        self.parts = 2 if self.dtype.category == dt.COMPLEX else 1
        self.stored: Type = STORED[self.dtype]

    def write(self) -> None:
        self._task("count_chunk", 0)
        self._task("write_chunk", 8 * BUFFERED)
        with self.m.function("count", [("block", PTR)], I64) as f:
            (block,) = f.args
            self._run(f, block, "count_chunk")
            counts = f.word(block, COUNTS, PTR)
            with f.loop(0, f.word(block, CHUNKS), carry=[f.constant(0)]) as loop:
                place = f.at(counts, loop.index, I64)
                here = f.load(I64, place)
                f.store(loop.carried[0], place)
                loop.next(loop.carried[0] + here)
            f.ret(loop.results[0])
        with self.m.function("write", [("block", PTR)], I64) as f:
            self._run(f, f.args[0], "write_chunk")
            f.ret(0)

    @staticmethod
    def _run(f: LLVMFunction, block: LLVMValue, task: str) -> None:
        f.call("lucerne_pfor", VOID, [f.symbol(task), block, f.word(block, CHUNKS)])

    def _task(self, name: str, stack: int) -> None:
        """Rows of a chunk, with a running count that starts at (and ends in) the chunk's word."""
        counting = name == "count_chunk"
        params = [("block", PTR), ("chunk", I64), ("tid", I64)]
        with self.m.function(name, params, internal=True) as f:
            block, chunk, _ = f.args
            buffer = f.stack(stack) if stack else None
            rows, n, chunk_rows, pieces, piece = (f.word(block, ROWS + k) for k in range(5))
            part = chunk // pieces
            first, start = part * chunk_rows, (chunk - part * pieces) * piece
            last, stop = f.minimum(first + chunk_rows, rows), f.minimum(start + piece, n)
            mine = f.at(f.word(block, COUNTS, PTR), chunk, I64)
            count = f.constant(0) if counting else f.load(I64, mine)
            with f.loop(first, last, carry=[count]) as row:
                source, where = self._row(f, block, row.index)
                if buffer is None:
                    row.next(self._count_row(f, block, source, start, stop, row.carried[0]))
                else:
                    row.next(
                        self._write_row(
                            f, block, source, where, start, stop, row.carried[0], buffer
                        )
                    )
            if counting:
                f.store(row.results[0], mine)

    def _row(
        self, f: LLVMFunction, block: LLVMValue, row: LLVMValue
    ) -> tuple[LLVMValue, list[LLVMValue]]:
        """Where a row begins, and its coordinates."""
        place = f.word(block, INPUT, PTR)
        where: list[LLVMValue] = []
        rest = row
        for d in reversed(range(self.form.ndim - 1)):
            size, stride = f.word(block, DIMS + 2 * d), f.word(block, DIMS + 2 * d + 1)
            at = rest
            if d:
                above = rest // size
                at = rest - above * size
                rest = above
            where.insert(0, at)
            place = f.at(place, at * stride)
        return place, where

    def _truth(self, f: LLVMFunction, v: LLVMValue) -> LLVMValue:
        """Which lanes aren't zero (of a complex number: in either part)."""
        if self.parts == 2:
            re, im = deinterleave(f, v)
            return self._nonzero(f, re) | self._nonzero(f, im)
        return self._nonzero(f, v)

    def _nonzero(self, f: LLVMFunction, v: LLVMValue) -> LLVMValue:
        if self.dtype is dt.bool_ or self.dtype.category == dt.INTEGER:
            return f.compare("ne", v, f.zero(v.type))
        v = unpack(f, self.dtype, v)
        return f.compare("ne", v, 0.0)

    def _one(self, f: LLVMFunction, block: LLVMValue, source: LLVMValue, j: LLVMValue) -> LLVMValue:
        """1 or 0 for the element `j` of a row."""
        size = self.dtype.itemsize
        place = f.at(source, j * (size if self.form.unit else f.word(block, STEP)))
        v = f.load(self.stored.vector(self.parts), place, align=self.stored.size)
        return f.convert("zext", self._truth(f, v), I64)

    def _count_row(
        self,
        f: LLVMFunction,
        block: LLVMValue,
        source: LLVMValue,
        start: LLVMValue,
        stop: LLVMValue,
        count: LLVMValue,
    ) -> LLVMValue:
        lanes = VECTOR_BYTES // self.dtype.itemsize
        if self.form.unit and lanes >= 8:
            whole = start + ((stop - start) // lanes) * lanes
            wide = self.stored.vector(lanes * self.parts)
            mask = Type(f"i{lanes}", INT, lanes)
            with f.loop(start, whole, lanes, carry=[count]) as loop:
                place = f.at(source, loop.index * self.dtype.itemsize)
                truth = f.bitcast(self._truth(f, f.load(wide, place, self.stored.size)), mask)
                ones = f.intrinsic("llvm.ctpop", mask, [truth])
                wider = ones if lanes == 64 else f.convert("zext", ones, I64)
                loop.next(loop.carried[0] + LLVMValue(f, I64, wider.text))
            start, count = whole, loop.results[0]
        with f.loop(start, stop, carry=[count]) as rest:
            rest.next(rest.carried[0] + self._one(f, block, source, rest.index))
        return rest.results[0]

    def _write_row(
        self,
        f: LLVMFunction,
        block: LLVMValue,
        source: LLVMValue,
        where: list[LLVMValue],
        start: LLVMValue,
        stop: LLVMValue,
        count: LLVMValue,
        buffer: LLVMValue,
    ) -> LLVMValue:
        """The positions of a row's hits, from place `count` of each column of the result on."""
        total = f.word(block, TOTAL)
        results = [f.word(block, RESULT, PTR)]
        for _ in where:
            results.append(f.at(results[-1], total, I64))
        with f.loop(start, stop, BUFFERED, carry=[count]) as loop:
            end = f.minimum(loop.index + BUFFERED, stop)
            with f.loop(loop.index, end, carry=[f.constant(0)]) as find:
                f.store(find.index, f.at(buffer, find.carried[0], I64))
                find.next(find.carried[0] + self._one(f, block, source, find.index))
            hits = find.results[0]
            with f.loop(0, hits) as move:
                to = loop.carried[0] + move.index
                j = f.load(I64, f.at(buffer, move.index, I64))
                for at, column in zip([*where, j], results, strict=True):
                    f.store(at, f.at(column, to, I64))
            loop.next(loop.carried[0] + hits)
        return loop.results[0]
