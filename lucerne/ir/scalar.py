"""The scalar protocol: the instructions that bodies of pointwise ops are written in.

A body such as `x * s.sigmoid(x)` runs against whatever `Scalar` its operands carry: NumPy values in the
reference backend, LLVM vectors in the CPU engine, HLO in XLA. A backend must supply the instructions
listed in REQUIRED; every other has a default made of those, which a backend may override when the machine
has something better. `python -m lucerne primitives` prints the list.
"""

from __future__ import annotations

import math
from typing import Any

from lucerne.base.dtype import dtype as DType

REQUIRED = (
    "add", "sub", "mul", "div", "neg", "abs", "minimum", "maximum", "fmod", "floor_div_int",
    "floor", "ceil", "trunc", "round", "sqrt", "exp", "log", "sin", "cos", "tan", "atan", "atan2",
    "tanh", "pow", "erf", "lgamma",
    "lt", "le", "eq", "bit_and", "bit_or", "bit_xor", "bit_not", "shift_left", "shift_right",
    "where", "cast", "dtype_of", "is_nan", "nextafter", "complex", "real", "imag",
)  # fmt: skip


class Scalar:
    """One machine's way to compute. Operands are the machine's own values, never wrapped."""



    def ne(self, a: Any, b: Any) -> Any:
        return self.bit_not(self.eq(a, b))

    def gt(self, a: Any, b: Any) -> Any:
        return self.lt(b, a)

    def ge(self, a: Any, b: Any) -> Any:
        return self.le(b, a)

    def rsqrt(self, x: Any) -> Any:
        return self.div(1, self.sqrt(x))

    def reciprocal(self, x: Any) -> Any:
        return self.div(1, x)

    def exp2(self, x: Any) -> Any:
        return self.exp(self.mul(x, math.log(2.0)))

    def log2(self, x: Any) -> Any:
        return self.div(self.log(x), math.log(2.0))

    def log10(self, x: Any) -> Any:
        return self.div(self.log(x), math.log(10.0))

    def sigmoid(self, x: Any) -> Any:
        return self.div(1, self.add(1, self.exp(self.neg(x))))

    def erfc(self, x: Any) -> Any:
        return self.sub(1, self.erf(x))

    def conj(self, x: Any) -> Any:
        return x

    def __getattr__(self, name: str) -> Any:
        raise NotImplementedError(
            f"{type(self).__name__} has no instruction {name!r}; required are: {', '.join(REQUIRED)}"
        )


class Value:
    """An operand inside a body: a machine value and the machine it belongs to, with operators."""

    __slots__ = ("machine", "raw")

    def __init__(self, machine: Scalar, raw: Any) -> None:
        self.machine = machine
        self.raw = raw

    @property
    def dtype(self) -> DType:
        return self.machine.dtype_of(self.raw)  # type: ignore[no-any-return]

    def __add__(self, other: Any) -> Value:
        return self._binary("add", self, other)

    def __radd__(self, other: Any) -> Value:
        return self._binary("add", other, self)

    def __sub__(self, other: Any) -> Value:
        return self._binary("sub", self, other)

    def __rsub__(self, other: Any) -> Value:
        return self._binary("sub", other, self)

    def __mul__(self, other: Any) -> Value:
        return self._binary("mul", self, other)

    def __rmul__(self, other: Any) -> Value:
        return self._binary("mul", other, self)

    def __truediv__(self, other: Any) -> Value:
        return self._binary("div", self, other)

    def __rtruediv__(self, other: Any) -> Value:
        return self._binary("div", other, self)

    def __pow__(self, other: Any) -> Value:
        return self._binary("pow", self, other)

    def __and__(self, other: Any) -> Value:
        return self._binary("bit_and", self, other)

    def __or__(self, other: Any) -> Value:
        return self._binary("bit_or", self, other)

    def __xor__(self, other: Any) -> Value:
        return self._binary("bit_xor", self, other)

    def __lt__(self, other: Any) -> Value:
        return self._binary("lt", self, other)

    def __le__(self, other: Any) -> Value:
        return self._binary("le", self, other)

    def __gt__(self, other: Any) -> Value:
        return self._binary("gt", self, other)

    def __ge__(self, other: Any) -> Value:
        return self._binary("ge", self, other)

    def __eq__(self, other: Any) -> Value:  # type: ignore[override]
        return self._binary("eq", self, other)

    def __ne__(self, other: Any) -> Value:  # type: ignore[override]
        return self._binary("ne", self, other)

    __hash__ = None  # type: ignore[assignment]

    def __neg__(self) -> Value:
        return Value(self.machine, self.machine.neg(self.raw))

    def __invert__(self) -> Value:
        return Value(self.machine, self.machine.bit_not(self.raw))

    def __bool__(self) -> bool:
        raise TypeError("a pointwise body can't branch on a value: use s.where(condition, a, b)")

    def _binary(self, name: str, a: Any, b: Any) -> Value:
        return Value(self.machine, getattr(self.machine, name)(_raw(a), _raw(b)))


def _raw(x: Any) -> Any:
    return x.raw if type(x) is Value else x


class _Instructions:
    """`s.exp(x)`: find the machine among the operands and run the instruction there."""

    def __getattr__(self, name: str) -> Any:
        def instruction(*operands: Any) -> Value:
            for o in operands:
                if type(o) is Value:
                    result = getattr(o.machine, name)(*map(_raw, operands))
                    return Value(o.machine, result)
            raise TypeError(f"s.{name} needs at least one operand of the body")

        instruction.__name__ = name
        setattr(self, name, instruction)
        return instruction


s = _Instructions()
"""The instruction set as bodies call it: `s.exp(x)`, `s.where(c, a, b)`, `s.cast(x, dtype)`."""
