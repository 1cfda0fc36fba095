"""Which numbers a matrix product multiplies: element types, vector lanes and tile sizes.

A product reads elements of one type, adds in a wider or equal one, and stores a third:

    float32 -> float32 -> float32          bfloat16, float16 -> float32 -> the same
    int8, uint8, int16 -> int32 -> the same (wrapping, as their sums do)

Micro-kernels keep a tile of `rows` x (`vectors` * lanes) sums in registers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lucerne._src.backends.cpu.emit.builder import LLVMFunction, LLVMValue
from lucerne._src.backends.cpu.emit.target import VECTOR_BYTES
from lucerne._src.backends.cpu.emit.types import (
    BF16,
    F16,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    Type,
    int_of,
)
from lucerne._src.backends.cpu.math.storage import narrowed
from lucerne._src.base.process.forks import once

_TILES = {64: (14, 2), 32: (6, 2), 16: (6, 2)}
TILE_ROWS, TILE_VECTORS = _TILES[VECTOR_BYTES]
"""Rows and vectors of a micro-kernel's tile: as many sums as there are registers to hold them."""


@dataclass(frozen=True)
class GemmKind:
    """Types of one product. `unsigned`: integer elements widen with zeros."""

    source: Type
    sums: Type
    result: Type
    unsigned: bool = False

    @once
    def key(self) -> tuple[Any, ...]:
        return (self.source.name, self.sums.name, self.result.name, self.unsigned)

    @property
    def lanes(self) -> int:
        """Sums in one vector register."""
        return VECTOR_BYTES // self.sums.size

    @property
    def columns(self) -> int:
        """Columns of a micro-kernel's tile, the width of a packed panel."""
        return TILE_VECTORS * self.lanes

    @property
    def vector(self) -> Type:
        return self.sums.vector(self.lanes)

    @property
    def narrows(self) -> bool:
        """Whether partial sums cannot be kept in the result."""
        return self.sums is not self.result

    # ---- values ------------------------------------------------------------------------------

    def widen(self, f: LLVMFunction, v: LLVMValue) -> LLVMValue:
        """Source elements as sums."""
        if self.source is self.sums:
            return v
        if self.source.is_float:
            return f.convert("fpext", v, self.sums)
        return f.convert("zext" if self.unsigned else "sext", v, self.sums)

    def narrow(self, f: LLVMFunction, v: LLVMValue) -> LLVMValue:
        """Sums as result elements, rounded once or wrapped."""
        if self.sums is self.result:
            return v
        if self.sums.is_float:
            return narrowed(f, v, self.result)
        return f.convert("trunc", v, self.result)

    def multiply_add(self, f: LLVMFunction, a: LLVMValue, b: LLVMValue, c: LLVMValue) -> LLVMValue:
        return f.mul_add(a, b, c) if self.sums.is_float else a * b + c

    # ---- memory ------------------------------------------------------------------------------

    def load(self, f: LLVMFunction, place: LLVMValue, mask: LLVMValue | None = None) -> LLVMValue:
        """One vector of source elements, widened; lanes off in `mask` are not read."""
        return self.widen(f, masked(f, self.source.vector(self.lanes), place, mask))

    def broadcast(self, f: LLVMFunction, place: LLVMValue) -> LLVMValue:
        """One source element in every lane."""
        return f.splat(self.widen(f, f.load(self.source, place)), self.lanes)

    def store(
        self, f: LLVMFunction, v: LLVMValue, place: LLVMValue, mask: LLVMValue | None
    ) -> None:
        """One vector of sums as results."""
        store_masked(f, self.narrow(f, v), place, mask)


def masked(f: LLVMFunction, type: Type, place: LLVMValue, mask: LLVMValue | None) -> LLVMValue:
    """A load under a mask; 16-bit floats travel as integers, which every target can mask."""
    if mask is None:
        return f.load(type, place)
    if type.is_float and type.bits == 16:
        return f.bitcast(f.masked_load(int_of(type), place, mask), type)
    return f.masked_load(type, place, mask)


def store_masked(f: LLVMFunction, v: LLVMValue, place: LLVMValue, mask: LLVMValue | None) -> None:
    if mask is None:
        f.store(v, place)
        return
    if v.type.is_float and v.type.bits == 16:
        v = f.bitcast(v, int_of(v.type))
    f.masked_store(v, place, mask)


KINDS: dict[str, GemmKind] = {
    "float32": GemmKind(F32, F32, F32),
    "float64": GemmKind(F64, F64, F64),
    "float16": GemmKind(F16, F32, F16),
    "bfloat16": GemmKind(BF16, F32, BF16),
    "int8": GemmKind(I8, I32, I8),
    "uint8": GemmKind(I8, I32, I8, unsigned=True),
    "int16": GemmKind(I16, I32, I16),
    "int32": GemmKind(I32, I32, I32),
    "int64": GemmKind(I64, I64, I64),
}
"""The product of each dtype with itself."""
