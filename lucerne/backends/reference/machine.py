"""The scalar protocol in NumPy: an instruction is a ufunc."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lucerne.backends.reference import codec
from lucerne.base import dtype as dt
from lucerne.ir.scalar import Scalar

try:
    from scipy import special
except ImportError:  # SciPy is optional: the few functions bodies need have slow stand-ins
    special = None


def _vectorized(fn: Any) -> Any:
    ufunc = np.frompyfunc(fn, 1, 1)

    def run(x: Any) -> Any:
        x = np.asarray(x)
        return ufunc(x).astype(x.dtype if x.dtype.kind == "f" else np.float64)

    return run


def _lgamma(x: float) -> float:
    if math.isinf(x):
        return math.inf
    try:
        return math.lgamma(x)
    except ValueError:
        return math.inf


class NumpyScalar(Scalar):
    """Values are NumPy arrays (or NumPy scalars) of a native type."""

    add = staticmethod(np.add)
    mul = staticmethod(np.multiply)
    abs = staticmethod(np.absolute)
    minimum = staticmethod(np.minimum)
    maximum = staticmethod(np.maximum)
    floor = staticmethod(np.floor)
    ceil = staticmethod(np.ceil)
    trunc = staticmethod(np.trunc)
    round = staticmethod(np.rint)
    sqrt = staticmethod(np.sqrt)
    exp = staticmethod(np.exp)
    expm1 = staticmethod(np.expm1)
    log = staticmethod(np.log)
    log1p = staticmethod(np.log1p)
    log2 = staticmethod(np.log2)
    log10 = staticmethod(np.log10)
    exp2 = staticmethod(np.exp2)
    sin = staticmethod(np.sin)
    cos = staticmethod(np.cos)
    tan = staticmethod(np.tan)
    asin = staticmethod(np.arcsin)
    acos = staticmethod(np.arccos)
    atan = staticmethod(np.arctan)
    atan2 = staticmethod(np.arctan2)
    sinh = staticmethod(np.sinh)
    cosh = staticmethod(np.cosh)
    tanh = staticmethod(np.tanh)
    asinh = staticmethod(np.arcsinh)
    acosh = staticmethod(np.arccosh)
    atanh = staticmethod(np.arctanh)
    hypot = staticmethod(np.hypot)
    copysign = staticmethod(np.copysign)
    nextafter = staticmethod(np.nextafter)
    fmod = staticmethod(np.fmod)
    lt = staticmethod(np.less)
    le = staticmethod(np.less_equal)
    gt = staticmethod(np.greater)
    ge = staticmethod(np.greater_equal)
    eq = staticmethod(np.equal)
    ne = staticmethod(np.not_equal)
    bit_and = staticmethod(np.bitwise_and)
    bit_or = staticmethod(np.bitwise_or)
    bit_xor = staticmethod(np.bitwise_xor)
    bit_not = staticmethod(np.bitwise_not)
    is_nan = staticmethod(np.isnan)
    is_inf = staticmethod(np.isinf)
    signbit = staticmethod(np.signbit)
    where = staticmethod(np.where)
    real = staticmethod(np.real)
    imag = staticmethod(np.imag)
    conj = staticmethod(np.conjugate)
    if special is not None:
        erf = staticmethod(special.erf)
        erfc = staticmethod(special.erfc)
        lgamma = staticmethod(special.gammaln)
        digamma = staticmethod(special.digamma)
    else:
        erf = staticmethod(_vectorized(math.erf))
        erfc = staticmethod(_vectorized(math.erfc))
        lgamma = staticmethod(_vectorized(_lgamma))

    @staticmethod
    def sub(a: Any, b: Any) -> Any:
        return np.subtract(a, b)

    @staticmethod
    def neg(x: Any) -> Any:
        return np.negative(x)

    @staticmethod
    def div(a: Any, b: Any) -> Any:
        return np.true_divide(a, b)

    @staticmethod
    def floor_div_int(a: Any, b: Any) -> Any:
        """Integer division rounding down; a zero divisor is torch's ZeroDivisionError."""
        if np.any(np.equal(b, 0)):
            raise RuntimeError("ZeroDivisionError")
        return np.floor_divide(a, b)

    @staticmethod
    def pow(a: Any, b: Any) -> Any:
        return np.power(a, b)

    @staticmethod
    def shift_left(a: Any, b: Any) -> Any:
        return np.left_shift(a, b)

    @staticmethod
    def shift_right(a: Any, b: Any) -> Any:
        return np.right_shift(a, b)

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


MACHINE = NumpyScalar()
