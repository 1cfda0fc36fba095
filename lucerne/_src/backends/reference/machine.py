"""The scalar protocol in NumPy: an instruction is a ufunc."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import lucerne._src.ir.scalar.special  # noqa: F401 - enters its formulas
from lucerne._src.backends.reference import codec
from lucerne._src.backends.reference.optional import scipy
from lucerne._src.base import dtype as dt
from lucerne._src.ir.scalar.protocol import Scalar, ScalarValue


def elementwise(fn: Callable[[float], float]) -> Callable[[Any], Any]:
    """A function of one float, over an array, in the array's own floating type."""
    ufunc = np.frompyfunc(fn, 1, 1)

    def run(x: Any) -> Any:
        x = np.asarray(x)
        kind = x.dtype if x.dtype.kind == "f" else np.dtype(np.float64)
        return np.asarray(ufunc(x)).astype(kind)

    return run


def _special(name: str, slow: Callable[[float], float]) -> Callable[[Any], Any]:
    """SciPy's function, or a slow one of a single float."""
    stand_in = elementwise(slow)

    def run(x: Any) -> Any:
        special = scipy("special")
        return stand_in(x) if special is None else getattr(special, name)(x)

    return run


def _lgamma(x: float) -> float:
    if math.isinf(x):
        return math.inf
    try:
        return math.lgamma(x)
    except ValueError:
        return math.inf


def instruction(fn: Any) -> Any:
    """A function that does a whole instruction, as a member of the machine."""
    return staticmethod(fn)


def _refuse_zero(divisor: Any) -> None:
    divisor = np.asarray(divisor)
    if divisor.dtype.kind in "iub" and not divisor.all():
        raise RuntimeError("ZeroDivisionError")


class NumpyScalar(Scalar):
    """Values are NumPy arrays (or NumPy scalars) of a native type."""

    add = instruction(np.add)
    mul = instruction(np.multiply)
    abs = instruction(np.absolute)
    minimum = instruction(np.minimum)
    maximum = instruction(np.maximum)
    floor = instruction(np.floor)
    ceil = instruction(np.ceil)
    trunc = instruction(np.trunc)
    round = instruction(np.rint)
    sqrt = instruction(np.sqrt)
    exp = instruction(np.exp)
    expm1 = instruction(np.expm1)
    log = instruction(np.log)
    log1p = instruction(np.log1p)
    log2 = instruction(np.log2)
    log10 = instruction(np.log10)
    exp2 = instruction(np.exp2)
    sin = instruction(np.sin)
    cos = instruction(np.cos)
    tan = instruction(np.tan)
    asin = instruction(np.arcsin)
    acos = instruction(np.arccos)
    atan = instruction(np.arctan)
    atan2 = instruction(np.arctan2)
    sinh = instruction(np.sinh)
    cosh = instruction(np.cosh)
    tanh = instruction(np.tanh)
    asinh = instruction(np.arcsinh)
    acosh = instruction(np.arccosh)
    atanh = instruction(np.arctanh)
    hypot = instruction(np.hypot)
    copysign = instruction(np.copysign)
    nextafter = instruction(np.nextafter)
    lt = instruction(np.less)
    le = instruction(np.less_equal)
    gt = instruction(np.greater)
    ge = instruction(np.greater_equal)
    eq = instruction(np.equal)
    ne = instruction(np.not_equal)
    bit_and = instruction(np.bitwise_and)
    bit_or = instruction(np.bitwise_or)
    bit_xor = instruction(np.bitwise_xor)
    bit_not = instruction(np.bitwise_not)
    is_nan = instruction(np.isnan)
    is_inf = instruction(np.isinf)
    signbit = instruction(np.signbit)
    where = instruction(np.where)
    real = instruction(np.real)
    imag = instruction(np.imag)
    conj = instruction(np.conjugate)
    erf = instruction(_special("erf", math.erf))
    erfc = instruction(_special("erfc", math.erfc))
    lgamma = instruction(_special("gammaln", _lgamma))

    sub = instruction(np.subtract)
    neg = instruction(np.negative)
    div = instruction(np.true_divide)
    shift_left = instruction(np.left_shift)
    shift_right = instruction(np.right_shift)
    gcd = instruction(np.gcd)
    lcm = instruction(np.lcm)

    @staticmethod
    def fmod(a: Any, b: Any) -> Any:
        """C's remainder; for integers a zero divisor is torch's ZeroDivisionError."""
        _refuse_zero(b)
        return np.fmod(a, b)

    @staticmethod
    def floor_div_int(a: Any, b: Any) -> Any:
        """Integer division rounding down."""
        _refuse_zero(b)
        return np.floor_divide(a, b)

    @staticmethod
    def pow(a: Any, b: Any) -> Any:
        """Power; a negative power of an integer is 0 unless the base is 1 or -1."""
        a, b = np.asarray(a), np.asarray(b)
        if a.dtype.kind not in "iu" or b.dtype.kind not in "iu":
            return np.power(a, b)
        negative = b < 0
        if not negative.any():
            return np.power(a, b)
        unit = np.where(a == 1, 1, np.where(a == -1, 1 - 2 * (b & 1), 0))
        return np.where(negative, unit, np.power(a, np.where(negative, 0, b))).astype(a.dtype)

    @staticmethod
    def frexp_mantissa(x: Any) -> Any:
        return np.frexp(x)[0]

    @staticmethod
    def frexp_exponent(x: Any) -> Any:
        return np.frexp(x)[1]

    @staticmethod
    def cast(x: Any, dtype: dt.dtype) -> Any:
        return codec.cast(np.asarray(x), dtype.compute.storage)

    @staticmethod
    def dtype_of(x: Any) -> dt.dtype:
        return dt.from_numpy_dtype(np.asarray(x).dtype)

    @staticmethod
    def complex(re: Any, im: Any) -> Any:
        re, im = np.broadcast_arrays(re, im)
        out = np.empty(re.shape, np.result_type(re.dtype, np.complex64))
        out.real, out.imag = re, im
        return out

    def repeat(self, step: Any, state: list[Any]) -> list[Any]:
        """`step` on all elements until none goes on; those that have come to rest are kept."""
        kept = [np.array(x) for x in np.broadcast_arrays(*state)]
        going = np.ones(kept[0].shape, np.bool_)
        while going.any():
            again, *made = step(*[ScalarValue(self, x) for x in kept])
            kept = [np.where(going, x.raw, old) for x, old in zip(made, kept, strict=True)]
            going &= again.raw
        return kept

    def _formula(self, name: str, *operands: Any) -> Any:
        """Special functions are computed in float64, whatever they are stored in."""
        arrays = [np.asarray(x) for x in operands]
        kind = np.result_type(*arrays)
        wide = [x.astype(np.float64) for x in arrays]
        with np.errstate(all="ignore"):
            found = np.asarray(super()._formula(name, *wide))
            return found.astype(kind if kind.kind == "f" else np.float64)


MACHINE = NumpyScalar()
