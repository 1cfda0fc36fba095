"""The scalar protocol: the instructions that bodies of pointwise ops are written in.

A body such as `x * s.sigmoid(x)` runs against whatever `Scalar` its operands carry: NumPy values in
the reference backend, LLVM vectors in the CPU engine, HLO in XLA. A backend must supply the
instructions listed in REQUIRED; every other has a default made of those, which a backend may
override when the machine has something better. `python -m lucerne primitives` prints the list.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import Any

from lucerne._src.base.dtype import dtype as DType

REQUIRED = (
    "add", "sub", "mul", "div", "neg", "abs", "minimum", "maximum", "fmod", "floor_div_int",
    "floor", "ceil", "trunc", "round", "sqrt", "exp", "log", "sin", "cos", "tan", "atan", "atan2",
    "tanh", "pow", "erf", "lgamma",
    "lt", "le", "eq", "bit_and", "bit_or", "bit_xor", "bit_not", "shift_left", "shift_right",
    "where", "cast", "dtype_of", "is_nan", "nextafter", "complex", "real", "imag",
)  # fmt: skip

COMPARISONS = tuple(
    fn.__name__
    for fn in (operator.lt, operator.le, operator.eq, operator.ne, operator.gt, operator.ge)
)
"""In Python's order of rich comparisons."""
ROUNDING = ("floor", "ceil", "trunc", "round")
"""To a whole number; `round` to the even one of two that are as near."""

OPTIONAL = (
    "digamma", "zeta", "gammainc", "gammaincc", "erfinv", "erfcx", "ndtr", "ndtri",
    "log_ndtr", "i0", "i0e", "i1", "i1e", "j0", "j1", "y0", "y1", "k0", "k1", "k0e", "k1e",
    "airy_ai", "trigamma", "gcd", "lcm", "frexp_mantissa", "frexp_exponent", "repeat",
)  # fmt: skip
"""Functions a machine may lack: the op that needs one then says so."""

FORMULAS: dict[str, Callable[..., Any]] = {}
"""Those of them that are made of other instructions (`special.py` enters them)."""


class Scalar:
    """One machine's way to compute. Operands are the machine's own values, never wrapped."""

    def ne(self, a: Any, b: Any) -> Any:
        return self.bit_not(self.eq(a, b))

    def gt(self, a: Any, b: Any) -> Any:
        return self.lt(b, a)

    def ge(self, a: Any, b: Any) -> Any:
        return self.le(b, a)

    def mul_add(self, a: Any, b: Any, c: Any) -> Any:
        """`a * b + c`; a machine may round once."""
        return self.add(self.mul(a, b), c)

    def is_inf(self, x: Any) -> Any:
        return self.eq(self.abs(x), math.inf)

    def signbit(self, x: Any) -> Any:
        """Whether the sign is negative, that of zero included: atan2 tells -0.0 from 0.0."""
        return self.lt(self.where(self.eq(x, 0), self.atan2(x, -1.0), x), 0)

    def copysign(self, a: Any, b: Any) -> Any:
        size = self.abs(a)
        return self.where(self.signbit(b), self.neg(size), size)

    def hypot(self, a: Any, b: Any) -> Any:
        a, b = self.abs(a), self.abs(b)
        big, small = self.maximum(a, b), self.minimum(a, b)
        ratio = self.where(self.eq(big, 0), 0.0, self.div(small, big))
        length = self.mul(big, self.sqrt(self.add(1, self.mul(ratio, ratio))))
        return self.where(self.is_inf(big), math.inf, length)

    def rsqrt(self, x: Any) -> Any:
        return self.div(1, self.sqrt(x))

    def reciprocal(self, x: Any) -> Any:
        return self.div(1, x)

    def exp2(self, x: Any) -> Any:
        return self.exp(self.mul(x, math.log(2.0)))

    def expm1(self, x: Any) -> Any:
        """Kahan: the rounding error of exp(x) cancels against that of its logarithm."""
        u = self.exp(x)
        low = self.sub(u, 1)
        exact = self.div(self.mul(low, x), self.log(u))
        done = self.bit_or(self.eq(low, -1), self.is_inf(u))
        return self.where(self.eq(u, 1), x, self.where(done, low, exact))

    def log1p(self, x: Any) -> Any:
        u = self.add(1, x)
        exact = self.div(self.mul(self.log(u), x), self.sub(u, 1))
        return self.where(self.eq(u, 1), x, self.where(self.is_inf(u), u, exact))

    def log2(self, x: Any) -> Any:
        return self.div(self.log(x), math.log(2.0))

    def log10(self, x: Any) -> Any:
        return self.div(self.log(x), math.log(10.0))

    def sin_pi(self, x: Any) -> Any:
        """`sin(pi x)`: whole turns are taken off before pi is multiplied."""
        whole = self.round(x)
        half = self.mul(whole, 0.5)
        sine = self.sin(self.mul(self.sub(x, whole), math.pi))
        return self.where(self.eq(half, self.trunc(half)), sine, self.neg(sine))

    def sinh(self, x: Any) -> Any:
        u = self.expm1(x)
        return self.div(self.add(u, self.div(u, self.add(u, 1))), 2)

    def cosh(self, x: Any) -> Any:
        return self.div(self.add(self.exp(x), self.exp(self.neg(x))), 2)

    def asin(self, x: Any) -> Any:
        return self.atan2(x, self.sqrt(self.mul(self.sub(1, x), self.add(1, x))))

    def acos(self, x: Any) -> Any:
        return self.atan2(self.sqrt(self.mul(self.sub(1, x), self.add(1, x))), x)

    def asinh(self, x: Any) -> Any:
        size = self.abs(x)
        root = self.sqrt(self.add(self.mul(size, size), 1))
        inner = self.add(size, self.div(self.mul(size, size), self.add(1, root)))
        return self.copysign(self.log1p(inner), x)

    def acosh(self, x: Any) -> Any:
        root = self.mul(self.sqrt(self.sub(x, 1)), self.sqrt(self.add(x, 1)))
        return self.log(self.add(x, root))

    def atanh(self, x: Any) -> Any:
        return self.div(self.sub(self.log1p(x), self.log1p(self.neg(x))), 2)

    def sigmoid(self, x: Any) -> Any:
        return self.div(1, self.add(1, self.exp(self.neg(x))))

    def silu(self, x: Any) -> Any:
        """`x * sigmoid(x)`."""
        return self.div(x, self.add(1, self.exp(self.neg(x))))

    def gelu(self, x: Any) -> Any:
        """`x` times the share of a normal distribution below it."""
        below = self.add(1, self.erf(self.mul(x, math.sqrt(0.5))))
        return self.mul(self.mul(x, 0.5), below)

    def gelu_tanh(self, x: Any) -> Any:
        """`gelu` by the tanh formula."""
        cube = self.mul(self.mul(self.mul(x, x), x), 0.044715)
        inner = self.mul(self.add(x, cube), math.sqrt(2 / math.pi))
        return self.mul(self.mul(x, 0.5), self.add(1, self.tanh(inner)))

    def logaddexp(self, a: Any, b: Any) -> Any:
        return self._log_sum(a, b, self.log1p(self.exp(self._gap(a, b))))

    def logaddexp2(self, a: Any, b: Any) -> Any:
        tail = self.log1p(self.exp2(self._gap(a, b)))
        return self._log_sum(a, b, self.mul(tail, 1 / math.log(2.0)))

    def logit(self, x: Any) -> Any:
        """`log(x / (1 - x))`."""
        odds = self.div(x, self.sub(1, x))
        # Near 1 the logarithm is as small as what the quotient lost: that is added, over `x`, which
        # counts around 1/2 alone and is taken for that. The difference is exact up to odds of 1.6.
        lost = self.mul_add(odds, x, self.sub(x, odds))
        found = self.log(odds)
        return self.where(self.lt(odds, 1.5), self.mul_add(lost, 2.0, found), found)

    def _gap(self, a: Any, b: Any) -> Any:
        return self.neg(self.abs(self.sub(a, b)))

    def _log_sum(self, a: Any, b: Any, tail: Any) -> Any:
        """The larger and a correction; equal infinities stay as they are."""
        same = self.bit_and(self.eq(a, b), self.is_inf(a))
        return self.where(same, a, self.add(self.maximum(a, b), tail))

    def erfc(self, x: Any) -> Any:
        return self.sub(1, self.erf(x))

    def conj(self, x: Any) -> Any:
        return x

    def recurrence(self, steps: Any, first: Any, step: Any) -> Any:
        """Term number `steps` of 1, first, ..., p(k+1) = step(k, p(k-1), p(k)), by element."""
        both = self.add(steps, first)
        zero = self.where(self.lt(both, both), both, 0)  # everywhere, in the common dtype

        def advance(k: ScalarValue, p: ScalarValue, q: ScalarValue) -> tuple[ScalarValue, ...]:
            following = step(k, p, q)
            more = (ScalarValue(self, steps) > k + 1) & ~s.is_nan(following)
            return more, k + 1, q, following

        one = self.add(zero, 1)
        state = [one, one, self.add(zero, first)]
        last = self.repeat(advance, state)[2]
        found = self.where(self.lt(steps, 2), state[2], last)
        return self.where(self.lt(steps, 1), state[1], found)

    def _formula(self, name: str, *operands: Any) -> Any:
        """A special function by its formula."""
        return FORMULAS[name](*[ScalarValue(self, x) for x in operands]).raw

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in FORMULAS:
            return functools.partial(self._formula, name)
        if name in OPTIONAL:
            raise NotImplementedError(f"{type(self).__name__} has no function {name!r}")
        raise NotImplementedError(
            f"{type(self).__name__} has no instruction {name!r}; required are: "
            f"{', '.join(REQUIRED)}"
        )


class ScalarValue:
    """An operand inside a body: a machine value and the machine it belongs to, with operators."""

    __slots__ = ("machine", "raw")

    def __init__(self, machine: Scalar, raw: Any) -> None:
        self.machine = machine
        self.raw = raw

    @property
    def dtype(self) -> DType:
        return self.machine.dtype_of(self.raw)

    def __add__(self, other: Any) -> ScalarValue:
        return self._binary("add", self, other)

    def __radd__(self, other: Any) -> ScalarValue:
        return self._binary("add", other, self)

    def __sub__(self, other: Any) -> ScalarValue:
        return self._binary("sub", self, other)

    def __rsub__(self, other: Any) -> ScalarValue:
        return self._binary("sub", other, self)

    def __mul__(self, other: Any) -> ScalarValue:
        return self._binary("mul", self, other)

    def __rmul__(self, other: Any) -> ScalarValue:
        return self._binary("mul", other, self)

    def __truediv__(self, other: Any) -> ScalarValue:
        return self._binary("div", self, other)

    def __rtruediv__(self, other: Any) -> ScalarValue:
        return self._binary("div", other, self)

    def __pow__(self, other: Any) -> ScalarValue:
        return self._binary("pow", self, other)

    def __and__(self, other: Any) -> ScalarValue:
        return self._binary("bit_and", self, other)

    def __or__(self, other: Any) -> ScalarValue:
        return self._binary("bit_or", self, other)

    def __xor__(self, other: Any) -> ScalarValue:
        return self._binary("bit_xor", self, other)

    def __lt__(self, other: Any) -> ScalarValue:
        return self._binary("lt", self, other)

    def __le__(self, other: Any) -> ScalarValue:
        return self._binary("le", self, other)

    def __gt__(self, other: Any) -> ScalarValue:
        return self._binary("gt", self, other)

    def __ge__(self, other: Any) -> ScalarValue:
        return self._binary("ge", self, other)

    def __eq__(self, other: Any) -> ScalarValue:  # type: ignore[override]
        return self._binary("eq", self, other)

    def __ne__(self, other: Any) -> ScalarValue:  # type: ignore[override]
        return self._binary("ne", self, other)

    __hash__ = None  # type: ignore[assignment]

    def __neg__(self) -> ScalarValue:
        return ScalarValue(self.machine, self.machine.neg(self.raw))

    def __invert__(self) -> ScalarValue:
        return ScalarValue(self.machine, self.machine.bit_not(self.raw))

    def __bool__(self) -> bool:
        raise TypeError("a pointwise body can't branch on a value: use s.where(condition, a, b)")

    def _binary(self, name: str, a: Any, b: Any) -> ScalarValue:
        return ScalarValue(self.machine, getattr(self.machine, name)(_raw(a), _raw(b)))


def _raw(x: Any) -> Any:
    return x.raw if type(x) is ScalarValue else x


class _Instructions:
    """`s.exp(x)`: find the machine among the operands and run the instruction there."""

    def __getattr__(self, name: str) -> Any:
        def instruction(*operands: Any) -> ScalarValue:
            for o in operands:
                if type(o) is ScalarValue:
                    result = getattr(o.machine, name)(*map(_raw, operands))
                    return ScalarValue(o.machine, result)
            raise TypeError(f"s.{name} needs at least one operand of the body")

        instruction.__name__ = name
        setattr(self, name, instruction)
        return instruction


s = _Instructions()
"""The instruction set as bodies call it: `s.exp(x)`, `s.where(c, a, b)`, `s.cast(x, dtype)`."""
