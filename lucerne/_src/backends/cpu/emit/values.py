"""SSA values with Python's operators, and the spelling of constants."""

from __future__ import annotations

import struct
from typing import Any

from lucerne._src.backends.cpu.emit.types import BF16, F16, F32, F64, Type

Number = bool | int | float


class LLVMValue:
    """A typed SSA value or constant. `literal` is the Python number of an integer constant."""

    __slots__ = ("f", "literal", "text", "type")

    def __init__(self, f: Any, type: Type, text: str, literal: int | None = None) -> None:
        self.f, self.type, self.text, self.literal = f, type, text, literal

    def __repr__(self) -> str:
        return f"{self.type.text} {self.text}"

    def __add__(self, other: Any) -> LLVMValue:
        return self.f.arithmetic("add", self, other)

    def __radd__(self, other: Any) -> LLVMValue:
        return self.f.arithmetic("add", other, self)

    def __sub__(self, other: Any) -> LLVMValue:
        return self.f.arithmetic("sub", self, other)

    def __rsub__(self, other: Any) -> LLVMValue:
        return self.f.arithmetic("sub", other, self)

    def __mul__(self, other: Any) -> LLVMValue:
        return self.f.arithmetic("mul", self, other)

    def __rmul__(self, other: Any) -> LLVMValue:
        return self.f.arithmetic("mul", other, self)

    def __truediv__(self, other: Any) -> LLVMValue:
        return self.f.arithmetic("div", self, other)

    def __rtruediv__(self, other: Any) -> LLVMValue:
        return self.f.arithmetic("div", other, self)

    def __floordiv__(self, other: Any) -> LLVMValue:
        """Signed division, truncating: index arithmetic on non-negative numbers."""
        return self.f.arithmetic("div", self, other)

    def __mod__(self, other: Any) -> LLVMValue:
        return self.f.arithmetic("rem", self, other)

    def __and__(self, other: Any) -> LLVMValue:
        return self.f.bits("and", self, other)

    def __or__(self, other: Any) -> LLVMValue:
        return self.f.bits("or", self, other)

    def __xor__(self, other: Any) -> LLVMValue:
        return self.f.bits("xor", self, other)

    def __lshift__(self, other: Any) -> LLVMValue:
        return self.f.bits("shl", self, other)

    def __rshift__(self, other: Any) -> LLVMValue:
        """Arithmetic shift; `f.bits("lshr", ...)` is the logical one."""
        return self.f.bits("ashr", self, other)

    def __invert__(self) -> LLVMValue:
        return self.f.bits("xor", self, -1)

    def __neg__(self) -> LLVMValue:
        return self.f.neg(self)

    def __lt__(self, other: Any) -> LLVMValue:
        return self.f.compare("lt", self, other)

    def __le__(self, other: Any) -> LLVMValue:
        return self.f.compare("le", self, other)

    def __gt__(self, other: Any) -> LLVMValue:
        return self.f.compare("gt", self, other)

    def __ge__(self, other: Any) -> LLVMValue:
        return self.f.compare("ge", self, other)

    # `==` and `!=` stay Python's: use f.compare("eq", a, b).

    def __bool__(self) -> bool:
        raise TypeError("a value inside a kernel has no truth: use f.if_ or f.select")


def float_literal(value: float, type: Type) -> str:
    """LLVM's exact spelling of a float constant."""
    element = type.element
    if element is F64:
        return "0x" + struct.pack(">d", value).hex().upper()
    if element is F32:
        try:
            rounded = struct.unpack("<f", struct.pack("<f", value))[0]
        except OverflowError:
            rounded = float("inf") if value > 0 else float("-inf")
        return "0x" + struct.pack(">d", rounded).hex().upper()
    if element is F16:
        return "0xH" + struct.pack(">e", value).hex().upper()
    assert element is BF16, element
    word = struct.unpack("<I", struct.pack("<f", value))[0]
    rounded_word = (word + 0x7FFF + ((word >> 16) & 1)) >> 16 if value == value else 0x7FC0
    return f"0xR{rounded_word:04X}"
