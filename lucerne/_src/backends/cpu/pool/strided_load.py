"""Vectors of every first or second element of a row, nothing outside the row being read."""

from __future__ import annotations

from lucerne._src.backends.cpu.emit.builder import I32, LLVMFunction, LLVMValue
from lucerne._src.backends.cpu.emit.types import Type


def columns_from(f: LLVMFunction, start: LLVMValue, stride: int, lanes: int) -> LLVMValue:
    """The column each lane looks at (32 bits): start, start + stride, ..."""
    wide = I32.vector(lanes)
    first = f.splat(f.convert("trunc", start, I32), lanes)
    return first + f.lanes(wide) * stride


def inside(f: LLVMFunction, columns: LLVMValue, size: LLVMValue) -> LLVMValue:
    """Which columns lie in [0, size)."""
    limit = f.splat(f.convert("trunc", size, I32), columns.type.lanes)
    return f.compare("ult", columns, limit)


def load_columns(
    f: LLVMFunction,
    row: LLVMValue,
    type: Type,
    start: LLVMValue,
    size: LLVMValue,
    stride: int,
    lanes: int,
) -> tuple[LLVMValue, LLVMValue]:
    """Elements start, start + stride, ... of a row of `size`, and which of them exist."""
    columns = columns_from(f, start, stride, lanes)
    valid = inside(f, columns, size)
    wide = type.vector(lanes)
    if stride == 1:
        return f.masked_load(wide, f.at(row, start, type), valid), valid
    halves = []
    for k in range(2):
        first = start + k * lanes
        mask = inside(f, columns_from(f, first, 1, lanes), size)
        halves.append(f.masked_load(wide, f.at(row, first, type), mask))
    return f.shuffle(halves[0], halves[1], range(0, 2 * lanes, 2)), valid
