"""The loops of a walk in IR: chunks of rows, each row handed to `line` to be filled in."""

from __future__ import annotations

from lucerne._src.backends.cpu.emit.builder import I64, PTR, VOID, LLVMFunction, LLVMValue, Module

_HEAD_WORDS = 6
Loops = list[tuple[LLVMValue, list[LLVMValue]]]
"""Size and strides of each loop, outermost first."""


class RowCode:
    """Writes `void name(ptr block, i64 chunk, i64 tid)` and `void name_all(ptr block)`.

    `numbers` is the first word of the walk's numbers in the block, `operands` how many strides each
    loop has. Subclasses write what happens in the rows of a chunk.
    """

    def __init__(self, m: Module, name: str, rank: int, operands: int, numbers: int) -> None:
        self.m, self.name = m, name
        self.rank, self.operands, self.numbers = rank, operands, numbers

    def number(self, f: LLVMFunction, block: LLVMValue, k: int) -> LLVMValue:
        """rows, size of a row, rows of a chunk, pieces of a row, size of a piece, chunks."""
        return f.word(block, self.numbers + k)

    def loops(self, f: LLVMFunction, block: LLVMValue) -> Loops:
        """Size and strides of each loop."""
        each = 1 + self.operands
        found: Loops = []
        for d in range(self.rank):
            first = self.numbers + _HEAD_WORDS + d * each
            words = [f.word(block, first + k) for k in range(each)]
            found.append((words[0], words[1:]))
        return found

    def write(self) -> None:
        """The task, and `name_all`, which runs every chunk of it."""
        with self.m.function(
            self.name, [("block", PTR), ("chunk", I64), ("tid", I64)], internal=True
        ) as f:
            block, chunk, _ = f.args
            rows, n, chunk_rows, pieces, piece = (self.number(f, block, k) for k in range(5))
            part = chunk // pieces
            first = part * chunk_rows
            last = f.minimum(first + chunk_rows, rows)
            start = (chunk - part * pieces) * piece
            stop = f.minimum(start + piece, n)
            self.rows(f, block, first, last, start, stop)
        with self.m.function(f"{self.name}_all", [("block", PTR)], internal=True) as f:
            (block,) = f.args
            chunks = self.number(f, block, 5)
            with f.if_(f.compare("eq", chunks, 1)) as one:
                f.call(self.name, VOID, [block, 0, 0])
            with one.else_():
                f.call("lucerne_pfor", VOID, [f.symbol(self.name), block, chunks])

    def rows(
        self,
        f: LLVMFunction,
        block: LLVMValue,
        first: LLVMValue,
        last: LLVMValue,
        start: LLVMValue,
        stop: LLVMValue,
    ) -> None:
        """Rows [first, last), of each the elements [start, stop)."""
        raise NotImplementedError

    @staticmethod
    def offsets(f: LLVMFunction, row: LLVMValue, dims: Loops, operands: int) -> list[LLVMValue]:
        """Byte offsets of a row: its number taken apart into coordinates."""
        offsets: list[LLVMValue] = [f.constant(0)] * operands
        rest = row
        for d in reversed(range(len(dims))):
            size, strides = dims[d]
            at = rest
            if d:
                above = rest // size
                at = rest - above * size
                rest = above
            offsets = [o + at * s for o, s in zip(offsets, strides, strict=True)]
        return offsets
