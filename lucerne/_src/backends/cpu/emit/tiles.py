"""Vectors in and out of memory with a change of type, and blocks turned in registers.

    element = Element(dt.bfloat16, F32)         # stored as bfloat16, computed with as float
    v = element.load(f, place, lanes, mask)     # a vector of floats
    element.store(f, v, place, mask)

`transpose_code(source, target)` is machine code shared by every kernel that turns a matrix:
`void transpose(src, src_step, dst, dst_step, rows, written, columns)` does
`dst[j * dst_step + i] = src[i * src_step + j]` for i < rows, j < columns (steps in elements). It
writes `written` >= rows numbers of each line of dst; those beyond `rows` repeat the last row.
"""

from __future__ import annotations

from dataclasses import dataclass

from lucerne._src.backends.cpu.emit.builder import LLVMFunction, LLVMValue, Module
from lucerne._src.backends.cpu.emit.target import VECTOR_BYTES
from lucerne._src.backends.cpu.emit.types import F16, I16, I64, PTR, VOID, Type
from lucerne._src.backends.cpu.math import storage
from lucerne._src.backends.cpu.runtime.code import compiled
from lucerne._src.base import dtype as dt


@dataclass(frozen=True)
class TileElement:
    """A number as it lies in memory (`dtype`), and the type it is computed with."""

    dtype: dt.dtype
    compute: Type

    @property
    def size(self) -> int:
        return self.dtype.itemsize

    @property
    def stored(self) -> Type:
        """The type that moves: 16-bit floats travel as integers, which every target can mask."""
        found = storage.STORED[self.dtype]
        return I16 if found is F16 else found

    @property
    def is_plain(self) -> bool:
        """Whether memory and registers hold the same bits."""
        return self.stored is self.compute

    def at(self, f: LLVMFunction, pointer: LLVMValue, index: LLVMValue | int) -> LLVMValue:
        return f.at(pointer, index, self.stored)

    def load(
        self, f: LLVMFunction, place: LLVMValue, lanes: int = 0, mask: LLVMValue | None = None
    ) -> LLVMValue:
        wide = self.stored.vector(lanes)
        v = f.load(wide, place) if mask is None else f.masked_load(wide, place, mask)
        return self._unpack(f, v)

    def store(
        self, f: LLVMFunction, v: LLVMValue, place: LLVMValue, mask: LLVMValue | None = None
    ) -> None:
        v = self._pack(f, v)
        if mask is None:
            f.store(v, place)
        else:
            f.masked_store(v, place, mask)

    def _unpack(self, f: LLVMFunction, v: LLVMValue) -> LLVMValue:
        if self.dtype is dt.float16:
            v = f.bitcast(v, F16.vector(v.type.lanes))
        return storage.unpack(f, self.dtype, v)

    def _pack(self, f: LLVMFunction, v: LLVMValue) -> LLVMValue:
        v = storage.pack(f, self.dtype, v)
        return f.bitcast(v, I16.vector(v.type.lanes)) if self.dtype is dt.float16 else v


def lanes_of(compute: Type) -> int:
    """Numbers of this type in one vector register."""
    return VECTOR_BYTES // compute.size


def transpose(f: LLVMFunction, rows: list[LLVMValue]) -> list[LLVMValue]:
    """A square block in registers, turned: log2(n) stages that exchange halves of row pairs."""
    n = len(rows)
    apart = n // 2
    while apart:
        upper = [i if not i & apart else n + i - apart for i in range(n)]
        lower = [i + apart if not i & apart else n + i for i in range(n)]
        made = list(rows)
        for i in range(n):
            if not i & apart:
                made[i] = f.shuffle(rows[i], rows[i + apart], upper)
                made[i + apart] = f.shuffle(rows[i], rows[i + apart], lower)
        rows, apart = made, apart // 2
    return rows


def transpose_code(source: TileElement, target: TileElement) -> int:
    """The address of the shared `transpose` from one stored type to another."""
    key = ("tiles.transpose", source.dtype.name, target.dtype.name, source.compute.name)
    return compiled(key, lambda m: write_transpose(m, source, target))["transpose"]


def write_transpose(m: Module, source: TileElement, target: TileElement) -> None:
    n = lanes_of(source.compute)
    _write_block(m, source, target, n)
    params = [("src", PTR), ("src_step", I64), ("dst", PTR), ("dst_step", I64)]
    params += [("rows", I64), ("written", I64), ("columns", I64)]
    with m.function("transpose", params) as f:
        src, src_step, dst, dst_step, rows, written, columns = f.args
        with f.loop(0, written, n) as down:
            i = down.index
            first = f.minimum(i, rows - 1)
            count = f.minimum(rows - first, n)
            with f.loop(0, columns, n) as along:
                j = along.index
                start = source.at(f, src, first * src_step + j)
                place = target.at(f, dst, j * dst_step + i)
                counts = [count, f.minimum(written - i, n), f.minimum(columns - j, n)]
                f.call("block", VOID, [start, src_step, place, dst_step, *counts])


def _write_block(m: Module, source: TileElement, target: TileElement, n: int) -> None:
    """One block: rows beyond the last are read as the last, columns beyond are masked."""
    params = [("src", PTR), ("src_step", I64), ("dst", PTR), ("dst_step", I64)]
    params += [("rows", I64), ("written", I64), ("columns", I64)]
    with m.function("block", params, internal=True) as f:
        src, src_step, dst, dst_step, rows, written, columns = f.args
        read, wide = f.low_mask(columns, n), f.low_mask(written, n)
        lines, row = [], src
        for i in range(n):
            lines.append(source.load(f, row, n, read))
            row = source.at(f, row, f.select(rows > i + 1, src_step, 0))
        turned = transpose(f, lines)
        places = [target.at(f, dst, dst_step * j) for j in range(n)]
        for place in places:  # the lines that the rows after these go to
            f.prefetch(target.at(f, place, n), 3, write=True)
        with f.if_(f.compare("eq", columns, n)) as whole:
            for line, place in zip(turned, places, strict=True):
                target.store(f, line, place, wide)
        with whole.else_():
            for j, (line, place) in enumerate(zip(turned, places, strict=True)):
                with f.if_(columns > j):
                    target.store(f, line, place, wide)
