"""Tile kernels in LLVM: one function for a chunk of programs, the statements in their order.

Rows and matrices are never whole in registers. A statement is a walk over its elements, a vector at
a time; statements that follow each other over the same elements share one walk (`group`). What is
kept lies in the program's scratch memory, on the stack.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lucerne._src.backends.cpu.emit.builder import (
    F64,
    I64,
    PTR,
    VOID,
    LLVMFunction,
    LLVMValue,
    Module,
)
from lucerne._src.backends.cpu.emit.target import VECTOR_BYTES
from lucerne._src.backends.cpu.machine import LlvmScalar
from lucerne._src.backends.cpu.math.number import Num
from lucerne._src.backends.cpu.tile.group import groups
from lucerne._src.backends.cpu.tile.walk import Walker
from lucerne._src.base import dtype as dt
from lucerne._src.ir import tile as ir
from lucerne._src.ir.tile import (
    GRID,
    SIZE,
    STRIDE,
    Affine,
    Let,
    Set,
    Store,
    TileDim,
    TileExpr,
    TileLoop,
    TileProgram,
    TileSizes,
    TileVariable,
)

_ALIGN = 64


class TileScratch:
    """Where in the scratch memory everything is that a program keeps."""

    def __init__(self, program: TileProgram) -> None:
        self.at: dict[Any, tuple[int, int]] = {}
        """Of an expression (by number) or a variable: offset, and bytes from row to row."""
        self.size = 0
        for s in _all(program.body):
            if isinstance(s, Let) and is_buffered(s.expr):
                self._room(s.expr.number, [d.length for d in s.expr.dims], s.expr.dtype)
            elif isinstance(s, Set):
                self._room(s.variable, s.variable.lengths, s.variable.dtype)

    def _room(self, key: Any, lengths: Sequence[int], dtype: dt.dtype) -> None:
        if key in self.at:
            return
        # A vector more than there are elements: the last one of a row is written whole.
        columns = lengths[-1] if lengths else 1
        row = -(-(columns * dtype.itemsize + VECTOR_BYTES) // _ALIGN) * _ALIGN
        if dtype.itemsize > 4 or columns == 1:
            row += VECTOR_BYTES
        rows = lengths[0] if len(lengths) == 2 else 1
        self.at[key] = self.size, row
        self.size += rows * row


def is_buffered(e: TileExpr) -> bool:
    return e.kind in ir.BUFFERED or (e.kind == "fold" and bool(e.dims))


def _all(body: Sequence[Any]) -> list[Any]:
    found: list[Any] = []
    for s in body:
        found += _all(s.body) if isinstance(s, TileLoop) else [s]
    return found


class TileWriter:
    """Writes the functions of a program into a module."""

    def __init__(self, m: Module, program: TileProgram, sizes: TileSizes) -> None:
        self.m, self.program, self.given = m, program, sizes
        axes = len(program.grid)
        self.total_at, self.chunks_at = (GRID, axes), (GRID, axes + 1)
        self.scratch_map = TileScratch(program)
        tensors = len(program.tensors)
        self.first_number = tensors + 1
        self.failure_word = self.first_number + 2 * len(program.numbers)

    def write(self) -> None:
        params = [("block", PTR), ("chunk", I64), ("tid", I64)]
        with self.m.function("task", params, internal=True) as f:
            self._task(f)
        with self.m.function("entry", [("block", PTR)], I64) as f:
            (block,) = f.args
            self._read_sizes(f, block)
            f.call("lucerne_pfor", VOID, [f.symbol("task"), block, self.size(self.chunks_at)])
            place = f.at(block, 8 * self.failure_word)
            status = f.load(I64, place)
            f.store(f.constant(0), place)
            f.ret(status)

    def _read_sizes(self, f: LLVMFunction, block: LLVMValue) -> None:
        first = self.failure_word + 1
        self.sizes = [f.word(block, first + k) for k in range(len(self.given.values))]

    def size(self, role: Any) -> LLVMValue:
        """An integer that comes from the shapes of the call (see `TileSizes.number`)."""
        return self.sizes[self.given.number(role)]

    def stride(self, tensor: int, axis: int) -> Any:
        """Bytes from one element of an axis to the next."""
        if (tensor, axis) in self.given.fixed:
            return self.program.tensors[tensor].byte_strides[axis]
        return self.size((STRIDE, tensor, axis))

    def _task(self, f: LLVMFunction) -> None:
        self.f, self.block = f, f.args[0]
        self._read_sizes(f, self.block)
        self.scratch = f.stack(max(self.scratch_map.size, 8))
        self.pointers = [f.word(self.block, k, PTR) for k in range(len(self.program.tensors))]
        self.one = LlvmScalar(f, 1)
        self.numbers = [
            Num(dt.float64, f.word(self.block, self.first_number + 2 * k, F64))
            for k in range(len(self.program.numbers))
        ]
        self.vars: dict[ir.Var, LLVMValue] = {}
        self.scalars: dict[int, Num] = {}
        total, chunks = self.size(self.total_at), self.size(self.chunks_at)
        size = (total + (chunks - 1)) // chunks
        start = f.args[1] * size
        with f.loop(start, f.minimum(start + size, total)) as loop:
            rest = loop.index
            for k in range(len(self.program.grid) - 1, 0, -1):
                count = self.size((GRID, k))
                self.vars[self.program.ids[k]] = rest % count
                rest = rest // count
            self.vars[self.program.ids[0]] = rest
            self.body(self.program.body)

    def body(self, statements: Sequence[Any]) -> None:
        """Statements of one scope; what is known about scalars ends with it."""
        before = dict(self.scalars)
        for group in groups(statements):
            first = group[0]
            if isinstance(first, TileLoop):
                self._loop(first)
            elif isinstance(first, Let) and first.expr.kind == "read":
                variable = first.expr.data[0]
                self.scalars[first.expr.number] = self.one.load(
                    variable.dtype, self.variable_place(variable)
                )
            else:
                Walker(self).walk(group)
        self.scalars = before

    def _loop(self, s: TileLoop) -> None:
        f = self.f
        stop = self.affine(s.extents[0])
        for other in s.extents[1:]:
            stop = f.minimum(stop, self.affine(other))
        with f.loop(0, stop, s.step) as loop:
            self.vars[s.var] = loop.index
            self.body(s.body)

    # ---- what walks ask ----------------------------------------------------------------------

    def affine(self, a: Affine) -> LLVMValue:
        found = self.size(a.constant) if a.constant else self.f.constant(0)
        for var, k in a.terms:
            found = found + self.vars[var] * k
        return found

    def extent(self, dim: TileDim) -> LLVMValue:
        """How many elements a dim really has."""
        found = self.f.constant(dim.length)
        for limit in dim.limits:
            found = self.f.minimum(found, self.affine(limit))
        return found

    def variable_place(self, v: TileVariable) -> LLVMValue:
        return self.f.at(self.scratch, self.scratch_map.at[v][0])

    def scalar(self, e: TileExpr) -> Num:
        """A single number, computed once in its scope."""
        found = self.scalars.get(e.number)
        if found is None:
            found = self.scalars[e.number] = self._scalar(e)
        return found

    def _scalar(self, e: TileExpr) -> Num:
        f, one = self.f, self.one
        if e.kind == "const":
            return one.to(e.data, e.dtype)
        if e.kind == "given":
            return self.numbers[e.data]
        if e.kind == "index":
            return Num(dt.int64, self.affine(e.data))
        if e.kind == "count":
            return Num(dt.int64, f.maximum(self.extent(e.data), 0))
        if e.kind == "cast":
            return one.to(self.scalar(e.args[0]), e.dtype)
        if e.kind == "point":
            made: Num = getattr(one, e.data)(*[self.scalar(a) for a in e.args])
            return one.to(made, e.dtype)
        assert e.kind == "load", e.text()
        dtype = self.program.tensors[e.data.tensor].dtype
        return one.load(dtype, self.view_start(e.data, e.args, e.place))

    def view_start(self, view: ir.View, dynamic: Sequence[TileExpr], place: str) -> LLVMValue:
        """The address of the first element of a view; an index that is data is checked."""
        f = self.f
        at = self.pointers[view.tensor]
        axis, left = 0, iter(dynamic)
        for p in view.parts:
            if isinstance(p, ir.New):
                continue
            stride = self.stride(view.tensor, axis)
            if isinstance(p, ir.Span):
                index = self.affine(p.start)
            elif p.place is not None:
                index = self.affine(p.place)
            else:
                size = self.size((SIZE, view.tensor, axis))
                index = self._checked(self.scalar(next(left)), size, view.tensor)
            at = f.at(at, index * stride)
            axis += 1
        return at

    def _checked(self, index: Num, size: Any, tensor: int) -> LLVMValue:
        """An index that came from memory: if it is outside, 0 is taken and the call fails."""
        f = self.f
        good = f.compare("ult", index.re, size)
        with f.if_(f.bits("xor", good, True)):
            f.store(f.constant(tensor + 1), f.at(self.block, 8 * self.failure_word))
        return f.select(good, index.re, 0)


def write_program(m: Module, program: TileProgram, sizes: TileSizes) -> None:
    """All functions of a tile program. `sizes` (with the number of chunks that its grid is cut into
    as the last) are read from the block, behind the word for failures."""
    TileWriter(m, program, sizes).write()


__all__ = ["Store", "TileScratch", "TileWriter", "write_program"]
