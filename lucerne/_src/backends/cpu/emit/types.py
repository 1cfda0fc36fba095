"""Types of the LLVM values that kernels are built from."""

from __future__ import annotations

from functools import cache

FLOAT, INT, POINTER, NOTHING = "float", "int", "pointer", "nothing"


class Type:
    """An LLVM type: `text` as LLVM spells it, `kind`, bits of one element, lanes (0: a scalar)."""

    __slots__ = ("bits", "kind", "lanes", "name", "text")

    def __init__(self, name: str, kind: str, bits: int, lanes: int = 0) -> None:
        self.name, self.kind, self.bits, self.lanes = name, kind, bits, lanes
        self.text = f"<{lanes} x {name}>" if lanes else name

    def __repr__(self) -> str:
        return self.text

    @property
    def is_float(self) -> bool:
        return self.kind == FLOAT

    @property
    def is_int(self) -> bool:
        return self.kind == INT

    @property
    def size(self) -> int:
        """Bytes of one element in memory."""
        return max(1, self.bits // 8)

    @property
    def nbytes(self) -> int:
        """Bytes of the whole value."""
        return self.size * max(1, self.lanes)

    @property
    def suffix(self) -> str:
        """How intrinsic names spell this type: `v16f32`."""
        letter = {"float": "f", "int": "i"}.get(self.kind)
        base = "p0" if letter is None else "bf16" if self is BF16 else f"{letter}{self.bits}"
        if self.name == "bfloat":
            base = "bf16"
        return f"v{self.lanes}{base}" if self.lanes else base

    def vector(self, lanes: int) -> Type:
        """The vector of this element type with so many lanes (0 or 1: the scalar)."""
        return _vector(self.name, self.kind, self.bits, lanes if lanes > 1 else 0)

    @property
    def element(self) -> Type:
        return _vector(self.name, self.kind, self.bits, 0)


_SCALARS: dict[str, Type] = {}


@cache
def _vector(name: str, kind: str, bits: int, lanes: int) -> Type:
    return Type(name, kind, bits, lanes) if lanes else _SCALARS[name]


def _scalar(name: str, kind: str, bits: int) -> Type:
    return _SCALARS.setdefault(name, Type(name, kind, bits))


I1 = _scalar("i1", INT, 1)
I8 = _scalar("i8", INT, 8)
I16 = _scalar("i16", INT, 16)
I32 = _scalar("i32", INT, 32)
I64 = _scalar("i64", INT, 64)
F16 = _scalar("half", FLOAT, 16)
BF16 = _scalar("bfloat", FLOAT, 16)
F32 = _scalar("float", FLOAT, 32)
F64 = _scalar("double", FLOAT, 64)
PTR = _scalar("ptr", POINTER, 64)
VOID = _scalar("void", NOTHING, 0)


def int_of(type: Type) -> Type:
    """The integer type of the same width and lanes: what a bit cast of a float gives."""
    return {8: I8, 16: I16, 32: I32, 64: I64, 1: I1}[type.bits].vector(type.lanes)
