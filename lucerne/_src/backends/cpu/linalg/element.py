"""Elements of matrices in machine code: real numbers by vectors, complex ones as pairs."""

from __future__ import annotations

from lucerne._src.backends.cpu.emit.builder import F32, F64, LLVMFunction, LLVMValue
from lucerne._src.backends.cpu.emit.target import VECTOR_BYTES
from lucerne._src.backends.cpu.math.complexes import divide
from lucerne._src.base import dtype as dt

Parts = tuple[LLVMValue, ...]

KINDS = {dt.float32: F32, dt.float64: F64, dt.complex64: F32, dt.complex128: F64}
"""Dtypes that matrices may have, and the type of their (real and imaginary) parts."""
LETTERS = {dt.float32: "s", dt.float64: "d", dt.complex64: "c", dt.complex128: "z"}
"""As LAPACK names them."""


class MatrixElement:
    """How to load, store and compute with one element, or with several of a column at once."""

    def __init__(self, dtype: dt.dtype, one_by_one: bool = False) -> None:
        """`one_by_one`: no vectors (for matrices of a few rows)."""
        self.dtype, self.type = dtype, KINDS[dtype]
        self.parts = 2 if dtype.category == dt.COMPLEX else 1
        self.size = self.type.size * self.parts
        vectors = self.parts == 1 and not one_by_one
        self.lanes = VECTOR_BYTES // self.type.size if vectors else 1

    def at(self, f: LLVMFunction, base: LLVMValue, index: LLVMValue | int) -> LLVMValue:
        """Where element number `index` is."""
        return f.at(base, f.constant(index) * self.parts, self.type)

    def load(self, f: LLVMFunction, place: LLVMValue) -> Parts:
        return tuple(f.load(self.type, f.at(place, k * self.type.size)) for k in range(self.parts))

    def store(self, f: LLVMFunction, parts: Parts, place: LLVMValue) -> None:
        for k, v in enumerate(parts):
            f.store(v, f.at(place, k * self.type.size))

    def constant(self, f: LLVMFunction, value: float) -> Parts:
        """A real number."""
        return tuple(f.constant(value if k == 0 else 0.0, self.type) for k in range(self.parts))

    def conj(self, f: LLVMFunction, a: Parts) -> Parts:
        return a if len(a) == 1 else (a[0], f.neg(a[1]))

    def mul(self, f: LLVMFunction, a: Parts, b: Parts) -> Parts:
        if len(a) == 1:
            return (a[0] * b[0],)
        re = f.mul_add(a[0], b[0], f.neg(a[1] * b[1]))
        return re, f.mul_add(a[0], b[1], a[1] * b[0])

    def minus_product(self, f: LLVMFunction, c: Parts, a: Parts, b: Parts) -> Parts:
        """`c - a * b`."""
        less = f.neg(a[0])
        if len(a) == 1:
            return (f.mul_add(less, b[0], c[0]),)
        re = f.mul_add(a[1], b[1], f.mul_add(less, b[0], c[0]))
        return re, f.mul_add(f.neg(a[1]), b[0], f.mul_add(less, b[1], c[1]))

    def div(self, f: LLVMFunction, a: Parts, b: Parts) -> Parts:
        if len(a) == 1:
            return (a[0] / b[0],)
        return divide(f, (a[0], a[1]), (b[0], b[1]))

    def size_of(self, f: LLVMFunction, a: Parts) -> LLVMValue:
        """|re| + |im|: what LAPACK chooses pivots by."""
        sizes = [f.intrinsic("llvm.fabs", v.type, [v]) for v in a]
        return sizes[0] if len(sizes) == 1 else sizes[0] + sizes[1]

    def is_zero(self, f: LLVMFunction, a: Parts) -> LLVMValue:
        found = [f.compare("eq", v, 0.0) for v in a]
        return found[0] if len(found) == 1 else found[0] & found[1]

    def load_part(self, f: LLVMFunction, place: LLVMValue, mask: LLVMValue | None) -> Parts:
        """Several elements one after the other: as many as `lanes`, where the mask is on."""
        if self.lanes == 1 or mask is None:
            return self.load(f, place)
        return (f.masked_load(self.type.vector(self.lanes), place, mask),)

    def store_part(
        self, f: LLVMFunction, parts: Parts, place: LLVMValue, mask: LLVMValue | None
    ) -> None:
        if self.lanes == 1 or mask is None:
            self.store(f, parts, place)
        else:
            f.masked_store(parts[0], place, mask)

    def spread(self, f: LLVMFunction, a: Parts) -> Parts:
        """One number in all lanes."""
        return a if self.lanes == 1 else (f.splat(a[0], self.lanes),)

    def mask(self, f: LLVMFunction, left: LLVMValue) -> LLVMValue | None:
        """The lanes of a stretch that has `left` elements to go."""
        return None if self.lanes == 1 else f.low_mask(left, self.lanes)
