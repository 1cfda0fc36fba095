"""A machine whose instructions have types, as those of chips do.

Bodies of pointwise ops mix Python numbers, bools, integers and complex numbers freely. `Typed` does
what such a machine would have to do about it: operands are brought to one dtype, complex numbers
become pairs of real ones, and what only a few machines have is made of what all have. Left to the
machine are `emit` (one instruction on operands of one real dtype), `constant`, `convert`, and
`widen` and `narrow` for dtypes that are stored in fewer bits than they are computed in.

    class Text(Typed):
        def emit(self, name, dtype, *operands): ...        # "add", float32, "x", "y" -> "x + y"
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lucerne._src.base import dtype as dt
from lucerne._src.ir.scalar.protocol import OPTIONAL, Scalar

INSTRUCTIONS = (
    "add", "sub", "mul", "div", "neg", "fmod", "quotient", "rest", "pow", "abs",
    "floor", "ceil", "trunc", "round", "sqrt", "exp", "log", "sin", "cos", "tan", "atan", "atan2",
    "tanh", "erf", "lgamma", "nextafter",
    "lt", "le", "eq", "bit_and", "bit_or", "bit_xor", "bit_not", "shift_left", "shift_right",
    "where",
)  # fmt: skip
"""What `emit` must know. `quotient` and `rest` are C's division of integers; `div` and all that
stands from `floor` to `nextafter` is asked of floating numbers only, bits of integers and bools."""


class TypedNum:
    """A number of the machine: its compute dtype, the machine's value, another one if complex.

    `weak` marks a number given at run time that promotes as a Python number does.
    """

    __slots__ = ("dtype", "im", "re", "weak")

    def __init__(self, dtype: dt.dtype, re: Any, im: Any = None, *, weak: bool = False) -> None:
        self.dtype, self.re, self.im, self.weak = dtype, re, im, weak

    def __repr__(self) -> str:
        return f"Num({self.dtype.name}, {self.re!r}{'' if self.im is None else f', {self.im!r}'})"


_PYTHON: dict[int, Any] = {dt.BOOL: False, dt.INTEGER: 0, dt.FLOAT: 0.0, dt.COMPLEX: 0j}


def common_dtype(*operands: Any) -> dt.dtype:
    """NumPy's common type: Python numbers (and weak ones) bend to the other operands."""
    return dt.from_numpy_dtype(np.result_type(*[_promoting(x) for x in operands]))


def _promoting(x: Any) -> Any:
    if isinstance(x, TypedNum):
        return _PYTHON[x.dtype.category] if x.weak else x.dtype.storage
    return type(x)() if isinstance(x, (bool, int, float, complex)) else x


def _same(name: str) -> Any:
    """An instruction on operands of one dtype, whose result has it too."""

    def instruction(self: Typed, *operands: Any) -> TypedNum:
        return self._emit(name, *self._together(*operands))

    return instruction


def _function(name: str) -> Any:
    """A function of floating numbers."""

    def instruction(self: Typed, *operands: Any) -> TypedNum:
        nums = self._floats(*operands)
        if nums[0].im is not None:
            return _complex_function(self, name, nums)
        if not self.has(name):
            found: TypedNum = getattr(Scalar, name)(self, *nums)
            return found
        return self._emit(name, *nums)

    return instruction


def _bits(name: str) -> Any:
    def instruction(self: Typed, *operands: Any) -> TypedNum:
        nums = self._together(*operands)
        if nums[0].dtype.category > dt.INTEGER:
            raise TypeError(f"{name} of {nums[0].dtype}")
        return self._emit(name, *nums)

    return instruction


class Typed(Scalar):
    """The scalar protocol on `TypedNum`s, for machines with typed instructions.

    >>> from lucerne._src.base import dtype as dt
    >>> from lucerne._src.ir.scalar.protocol import ScalarValue
    >>> class Text(Typed):
    ...     def emit(self, name, dtype, *operands):
    ...         return f"{name}({', '.join(operands)})"
    ...     def constant(self, value, dtype):
    ...         return f"{value}:{dtype.name}"
    >>> machine = Text()
    >>> x = ScalarValue(machine, TypedNum(dt.float32, "x"))
    >>> (1 / (x + 2)).raw
    Num(float32, 'div(1.0:float32, add(x, 2.0:float32))')
    """

    # ---- what the machine says -------------------------------------------------------------------

    def emit(self, name: str, dtype: dt.dtype, *operands: Any) -> Any:
        """One instruction on operands of this dtype (of `where`: those after the condition).
        Comparisons give bools, everything else what it is given."""
        raise NotImplementedError(f"{type(self).__name__} has no instruction {name!r}")

    def has(self, name: str) -> bool:
        """Whether `emit` knows a function besides INSTRUCTIONS, of those that this class makes of
        others: `expm1`, `asinh`, `hypot` and so on."""
        return name in INSTRUCTIONS

    def constant(self, value: Any, dtype: dt.dtype) -> Any:
        """A number of Python in a real compute dtype."""
        raise NotImplementedError

    def convert(self, value: Any, source: dt.dtype, target: dt.dtype) -> Any:
        """A value from one real compute dtype to another, neither of them bool."""
        raise NotImplementedError

    def widen(self, stored: Any, dtype: dt.dtype) -> Any:
        """Stored bits of a dtype as a number of its compute dtype."""
        raise NotImplementedError(f"{type(self).__name__} has no {dtype}")

    def narrow(self, value: Any, dtype: dt.dtype) -> Any:
        """The other way: rounded once, to nearest even."""
        raise NotImplementedError(f"{type(self).__name__} has no {dtype}")

    def require(self, condition: TypedNum, error: type[Exception], text: str) -> None:
        """The call fails where the condition does not hold. (A machine that can't tell goes on.)"""

    # ---- types -----------------------------------------------------------------------------------

    def _emit(self, name: str, *nums: TypedNum) -> TypedNum:
        dtype = nums[0].dtype
        return TypedNum(dtype, self.emit(name, dtype, *[x.re for x in nums]))

    def number(self, x: Any, dtype: dt.dtype) -> TypedNum:
        """A Python number, or one of the machine, as this compute dtype."""
        if isinstance(x, TypedNum):
            return x if x.dtype is dtype and not x.weak else self._cast(x, dtype)
        if dtype.category == dt.COMPLEX:
            z, part = complex(x), dtype.to_real()
            return TypedNum(dtype, self.constant(z.real, part), self.constant(z.imag, part))
        if isinstance(x, (complex, np.complexfloating)):
            x = x.real
        return TypedNum(dtype, self.constant(_as_c(x, dtype), dtype))

    def _cast(self, x: TypedNum, dtype: dt.dtype) -> TypedNum:
        if dtype.category == dt.COMPLEX:
            part = dtype.to_real()
            im = TypedNum(x.dtype.to_real(), x.im) if x.im is not None else 0
            re = self.number(TypedNum(x.dtype.to_real(), x.re), part)
            return TypedNum(dtype, re.re, self.number(im, part).re)
        if x.im is not None:
            re = TypedNum(x.dtype.to_real(), x.re)
            if dtype is not dt.bool_:
                return self.number(re, dtype)
            im = TypedNum(x.dtype.to_real(), x.im)
            return self.bit_or(self.number(re, dtype), self.number(im, dtype))
        if x.dtype is dtype:
            return TypedNum(dtype, x.re)
        if dtype is dt.bool_:
            return self.bit_not(self.eq(TypedNum(x.dtype, x.re), 0))
        if x.dtype is dt.bool_:
            zero, one = self.constant(_as_c(0, dtype), dtype), self.constant(_as_c(1, dtype), dtype)
            return TypedNum(dtype, self.emit("where", dtype, x.re, one, zero))
        return TypedNum(dtype, self.convert(x.re, x.dtype, dtype))

    def cast(self, x: Any, dtype: dt.dtype) -> TypedNum:
        return self.number(x, dtype.compute)

    def rounded(self, x: Any, dtype: dt.dtype) -> TypedNum:
        """A number of the compute dtype as `dtype` would hold it."""
        num = self.number(x, dtype.compute)
        if dtype.compute is dtype or num.im is not None:
            return num
        return TypedNum(num.dtype, self.widen(self.narrow(num.re, dtype), dtype))

    def dtype_of(self, x: Any) -> dt.dtype:
        return common_dtype(x)

    def _together(self, *operands: Any) -> list[TypedNum]:
        common = common_dtype(*operands)
        return [self.number(x, common) for x in operands]

    def _floats(self, *operands: Any) -> list[TypedNum]:
        common = common_dtype(*operands)
        common = common if common.category >= dt.FLOAT else dt.float64
        return [self.number(x, common) for x in operands]

    def _parts(self, x: TypedNum) -> tuple[TypedNum, TypedNum]:
        part = x.dtype.to_real()
        im = TypedNum(part, x.im) if x.im is not None else self.number(0, part)
        return TypedNum(part, x.re), im

    def pair(self, re: Any, im: Any) -> TypedNum:
        """A complex number of two real ones."""
        re, im = self._floats(re, im)
        return TypedNum(re.dtype.to_complex(), re.re, im.re)

    # ---- arithmetic ------------------------------------------------------------------------------

    def add(self, a: Any, b: Any) -> TypedNum:
        a, b = self._together(a, b)
        if a.im is not None:
            return self._by_parts("add", a, b)
        return self._emit("bit_or" if a.dtype is dt.bool_ else "add", a, b)

    def sub(self, a: Any, b: Any) -> TypedNum:
        a, b = self._together(a, b)
        return self._emit("sub", a, b) if a.im is None else self._by_parts("sub", a, b)

    def _by_parts(self, name: str, a: TypedNum, b: TypedNum) -> TypedNum:
        (ar, ai), (br, bi) = self._parts(a), self._parts(b)
        return self.pair(self._emit(name, ar, br), self._emit(name, ai, bi))

    def mul(self, a: Any, b: Any) -> TypedNum:
        a, b = self._together(a, b)
        if a.im is None:
            return self._emit("bit_and" if a.dtype is dt.bool_ else "mul", a, b)
        (ar, ai), (br, bi) = self._parts(a), self._parts(b)
        re = self.sub(self.mul(ar, br), self.mul(ai, bi))
        return self.pair(re, self.add(self.mul(ar, bi), self.mul(ai, br)))

    def div(self, a: Any, b: Any) -> TypedNum:
        a, b = self._floats(a, b)
        return self._emit("div", a, b) if a.im is None else self._divide(a, b)

    def _divide(self, a: TypedNum, b: TypedNum) -> TypedNum:
        """By the ratio of the divisor's parts (Smith), so that squares can't overflow."""
        (ar, ai), (br, bi) = self._parts(a), self._parts(b)
        flat = self.le(self.abs(bi), self.abs(br))
        large, small = self.where(flat, br, bi), self.where(flat, bi, br)
        ratio = self.div(small, large)
        size = self.add(large, self.mul(small, ratio))
        up, over = self.where(flat, ar, ai), self.where(flat, ai, ar)
        re = self.div(self.add(up, self.mul(over, ratio)), size)
        turned = self.sub(over, self.mul(up, ratio))
        im = self.div(self.where(flat, turned, self.neg(turned)), size)
        none = self.bit_and(self.eq(br, 0), self.eq(bi, 0))
        zero = self.abs(br)
        return self.pair(
            self.where(none, self.div(ar, zero), re), self.where(none, self.div(ai, zero), im)
        )

    def neg(self, x: Any) -> TypedNum:
        (x,) = self._together(x)
        if x.im is None:
            return self._emit("neg", x)
        re, im = self._parts(x)
        return self.pair(self.neg(re), self.neg(im))

    def abs(self, x: Any) -> TypedNum:
        (x,) = self._together(x)
        if x.im is not None:
            return self.hypot(*self._parts(x))
        if x.dtype.category == dt.FLOAT:
            return self._emit("abs", x)
        return self.where(self.lt(x, 0), self.neg(x), x) if x.dtype.is_signed else x

    def minimum(self, a: Any, b: Any) -> TypedNum:
        return self._extreme(a, b, self.lt)

    def maximum(self, a: Any, b: Any) -> TypedNum:
        return self._extreme(a, b, self.gt)

    def _extreme(self, a: Any, b: Any, wins: Any) -> TypedNum:
        """The operand that wins the comparison; nan wins always."""
        a, b = self._together(a, b)
        if a.dtype is dt.bool_:
            return self.bit_and(a, b) if wins == self.lt else self.bit_or(a, b)
        found = self.where(wins(b, a), b, a)
        return found if a.dtype.category < dt.FLOAT else self.where(self.is_nan(b), b, found)

    def _divided(self, a: Any, b: Any) -> tuple[TypedNum, TypedNum, TypedNum]:
        """Operands, and C's remainder; a divisor that would trap is replaced by 1."""
        a, b = self._together(a, b)
        none = self.eq(b, 0)
        self.require(self.bit_not(none), RuntimeError, "ZeroDivisionError")
        trap = self.bit_or(none, self.eq(b, -1)) if a.dtype.is_signed else none
        divisor = self.where(trap, 1, b)
        rest = self.where(trap, 0, self._emit("rest", a, divisor))
        return a, b, rest

    def fmod(self, a: Any, b: Any) -> TypedNum:
        if common_dtype(a, b).category <= dt.INTEGER:
            return self._divided(a, b)[2]
        return self._emit("fmod", *self._floats(a, b))

    def floor_div_int(self, a: Any, b: Any) -> TypedNum:
        a, b, rest = self._divided(a, b)
        if not a.dtype.is_signed:
            return self._emit("quotient", a, self.where(self.eq(b, 0), 1, b))
        minus = self.eq(b, -1)
        trap = self.bit_or(minus, self.eq(b, 0))
        found = self._emit("quotient", a, self.where(trap, 1, b))
        apart = self.bit_not(self.eq(self.lt(rest, 0), self.lt(b, 0)))
        down = self.bit_and(self.bit_not(self.eq(rest, 0)), apart)
        found = self.where(down, self.sub(found, 1), found)
        return self.where(minus, self.neg(a), found)

    def pow(self, a: Any, b: Any) -> TypedNum:
        a, b = self._together(a, b)
        if a.im is not None:
            return self._complex_power(a, b)
        if a.dtype.category == dt.FLOAT:
            return self._emit("pow", a, b)
        if a.dtype is dt.bool_:
            a, b = self.number(a, dt.int8), self.number(b, dt.int8)
        found = self._emit("pow", a, self.where(self.lt(b, 0), 0, b))
        if not a.dtype.is_signed:
            return found
        odd = self.eq(self.bit_and(b, 1), 1)
        unit = self.where(self.eq(a, -1), self.where(odd, -1, 1), self.where(self.eq(a, 1), 1, 0))
        return self.where(self.lt(b, 0), self.number(unit, a.dtype), found)

    def _complex_power(self, a: TypedNum, b: TypedNum) -> TypedNum:
        """Anything to the power 0 is 1, zero to a power with positive real part is 0."""
        found = self.exp(self.mul(b, self.log(a)))
        vanish = self.bit_and(self.eq(a, 0), self.lt(0, self.real(b)))
        return self.where(self.eq(b, 0), 1, self.where(vanish, 0, found))

    # ---- rounding, comparison, bits --------------------------------------------------------------

    def _rounding(self, name: str, x: Any) -> TypedNum:
        (x,) = self._together(x)
        return x if x.dtype.category < dt.FLOAT else self._emit(name, x)

    def floor(self, x: Any) -> TypedNum:
        return self._rounding("floor", x)

    def ceil(self, x: Any) -> TypedNum:
        return self._rounding("ceil", x)

    def trunc(self, x: Any) -> TypedNum:
        return self._rounding("trunc", x)

    def round(self, x: Any) -> TypedNum:
        return self._rounding("round", x)

    def _compare(self, name: str, a: Any, b: Any) -> TypedNum:
        a, b = self._together(a, b)
        if a.im is not None:
            raise TypeError("complex numbers have no order")
        return TypedNum(dt.bool_, self.emit(name, a.dtype, a.re, b.re))

    def lt(self, a: Any, b: Any) -> TypedNum:
        return self._compare("lt", a, b)

    def le(self, a: Any, b: Any) -> TypedNum:
        return self._compare("le", a, b)

    def eq(self, a: Any, b: Any) -> TypedNum:
        a, b = self._together(a, b)
        found = TypedNum(dt.bool_, self.emit("eq", a.dtype.to_real(), a.re, b.re))
        if a.im is None:
            return found
        same = TypedNum(dt.bool_, self.emit("eq", a.dtype.to_real(), a.im, b.im))
        return self.bit_and(found, same)

    def is_nan(self, x: Any) -> TypedNum:
        (x,) = self._together(x)
        if x.dtype.category < dt.FLOAT:
            return self.number(False, dt.bool_)
        return self.bit_not(self.eq(x, x))

    def is_inf(self, x: Any) -> TypedNum:
        (x,) = self._together(x)
        if x.dtype.category < dt.FLOAT:
            return self.number(False, dt.bool_)
        sizes = [self.eq(self.abs(part), math.inf) for part in self._parts(x)]
        return sizes[0] if x.im is None else self.bit_or(*sizes)

    bit_and, bit_or, bit_xor, bit_not = map(_bits, ("bit_and", "bit_or", "bit_xor", "bit_not"))

    def _shift(self, name: str, a: Any, b: Any, beyond: Any) -> TypedNum:
        """Moving by all the bits or more leaves 0, or the sign."""
        a, b = self._together(a, b)
        bits = 8 * a.dtype.itemsize
        inside = self.bit_and(self.le(0, b), self.lt(b, bits))
        moved = self._emit(name, a, self.where(inside, b, 0))
        return self.where(inside, moved, beyond(a))

    def shift_left(self, a: Any, b: Any) -> TypedNum:
        return self._shift("shift_left", a, b, lambda a: 0)

    def shift_right(self, a: Any, b: Any) -> TypedNum:
        def sign(a: TypedNum) -> Any:
            return self.where(self.lt(a, 0), -1, 0) if a.dtype.is_signed else 0

        return self._shift("shift_right", a, b, sign)

    def where(self, condition: Any, a: Any, b: Any) -> TypedNum:
        chosen = self.number(condition, dt.bool_).re
        a, b = self._together(a, b)
        part = a.dtype.to_real()
        found = TypedNum(a.dtype, self.emit("where", part, chosen, a.re, b.re))
        if a.im is not None:
            found.im = self.emit("where", part, chosen, a.im, b.im)
        return found

    # ---- complex, functions ----------------------------------------------------------------------

    def complex(self, re: Any, im: Any) -> TypedNum:
        return self.pair(re, im)

    def real(self, x: Any) -> TypedNum:
        return self._parts(*self._together(x))[0]

    def imag(self, x: Any) -> TypedNum:
        return self._parts(*self._together(x))[1]

    def conj(self, x: Any) -> TypedNum:
        (x,) = self._together(x)
        re, im = self._parts(x)
        return x if x.im is None else self.pair(re, self.neg(im))

    sqrt, exp, log, sin, cos, tan = map(_function, ("sqrt", "exp", "log", "sin", "cos", "tan"))
    atan, atan2, tanh, erf, lgamma, nextafter = map(
        _function, ("atan", "atan2", "tanh", "erf", "lgamma", "nextafter")
    )
    expm1, log1p, log2, log10, exp2 = map(_function, ("expm1", "log1p", "log2", "log10", "exp2"))
    asin, acos, sinh, cosh = map(_function, ("asin", "acos", "sinh", "cosh"))
    asinh, acosh, atanh, hypot = map(_function, ("asinh", "acosh", "atanh", "hypot"))
    copysign, rsqrt, erfc = map(_function, ("copysign", "rsqrt", "erfc"))

    def __getattr__(self, name: str) -> Any:
        if name in OPTIONAL and self.has(name):
            return lambda *operands: self._emit(name, *self._floats(*operands))
        return super().__getattr__(name)


def _as_c(x: Any, dtype: dt.dtype) -> Any:
    """A Python number as C converts it."""
    if dtype is dt.bool_:
        return bool(x)
    if dtype.category == dt.FLOAT:
        return float(x)
    kept = int(x) & ((1 << (8 * dtype.itemsize)) - 1)
    sign = dtype.is_signed and kept >> (8 * dtype.itemsize - 1)
    return kept - (1 << (8 * dtype.itemsize)) if sign else kept


# ---- functions of complex numbers ----------------------------------------------------------------


def _complex_function(m: Typed, name: str, nums: list[TypedNum]) -> TypedNum:
    if name in _COMPLEX:
        return _COMPLEX[name](m, nums[0])
    default = getattr(Scalar, name, None)
    if default is None:
        raise TypeError(f"{name} of complex numbers")
    found: TypedNum = default(m, *nums)
    return found


def _exp(m: Typed, z: TypedNum) -> TypedNum:
    re, im = m._parts(z)
    size = m.exp(re)
    return m.where(
        m.eq(im, 0), m.pair(size, im), m.pair(m.mul(size, m.cos(im)), m.mul(size, m.sin(im)))
    )


def _log(m: Typed, z: TypedNum) -> TypedNum:
    re, im = m._parts(z)
    return m.pair(m.log(m.abs(z)), m.atan2(im, re))


def _sqrt(m: Typed, z: TypedNum) -> TypedNum:
    re, im = m._parts(z)
    root = m.sqrt(m.mul(m.add(m.abs(z), m.abs(re)), 0.5))
    half = m.where(m.eq(root, 0), 0, m.div(im, m.mul(root, 2)))
    right = m.le(0, re)
    turned = m.where(m.signbit(im), m.neg(root), root)
    return m.pair(m.where(right, root, m.abs(half)), m.where(right, half, turned))


def _sin(m: Typed, z: TypedNum) -> TypedNum:
    re, im = m._parts(z)
    return m.pair(m.mul(m.sin(re), m.cosh(im)), m.mul(m.cos(re), m.sinh(im)))


def _cos(m: Typed, z: TypedNum) -> TypedNum:
    re, im = m._parts(z)
    return m.pair(m.mul(m.cos(re), m.cosh(im)), m.neg(m.mul(m.sin(re), m.sinh(im))))


def _sinh(m: Typed, z: TypedNum) -> TypedNum:
    re, im = m._parts(z)
    return m.pair(m.mul(m.sinh(re), m.cos(im)), m.mul(m.cosh(re), m.sin(im)))


def _cosh(m: Typed, z: TypedNum) -> TypedNum:
    re, im = m._parts(z)
    return m.pair(m.mul(m.cosh(re), m.cos(im)), m.mul(m.sinh(re), m.sin(im)))


def _tanh(m: Typed, z: TypedNum) -> TypedNum:
    """(sinh 2x + i sin 2y) / (cosh 2x + cos 2y); far out it is 1 or -1."""
    re, im = m._parts(z)
    x, y = m.mul(re, 2), m.mul(im, 2)
    below = m.add(m.cosh(x), m.cos(y))
    near = m.pair(m.div(m.sinh(x), below), m.div(m.sin(y), below))
    far = m.pair(m.where(m.lt(re, 0), -1.0, m.number(1.0, re.dtype)), m.mul(im, 0))
    return m.where(m.lt(20, m.abs(re)), far, near)


def _tan(m: Typed, z: TypedNum) -> TypedNum:
    return m.mul(-1j, m.tanh(m.mul(1j, z)))


def _atanh(m: Typed, z: TypedNum) -> TypedNum:
    return m.mul(0.5, m.sub(m.log(m.add(1, z)), m.log(m.sub(1, z))))


def _atan(m: Typed, z: TypedNum) -> TypedNum:
    return m.mul(-1j, _atanh(m, m.mul(1j, z)))


def _asinh(m: Typed, z: TypedNum) -> TypedNum:
    return m.log(m.add(z, m.sqrt(m.add(m.mul(z, z), 1))))


def _asin(m: Typed, z: TypedNum) -> TypedNum:
    return m.mul(-1j, _asinh(m, m.mul(1j, z)))


def _acos(m: Typed, z: TypedNum) -> TypedNum:
    return m.sub(math.pi / 2, _asin(m, z))


def _acosh(m: Typed, z: TypedNum) -> TypedNum:
    return m.log(m.add(z, m.mul(m.sqrt(m.add(z, 1)), m.sqrt(m.sub(z, 1)))))


_COMPLEX: dict[str, Any] = {
    fn.__name__[1:]: fn
    for fn in (
        _exp, _log, _sqrt, _sin, _cos, _tan, _sinh, _cosh, _tanh, _asin, _acos, _atan, _asinh,
        _acosh, _atanh,
    )
}  # fmt: skip
