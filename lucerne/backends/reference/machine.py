"""The scalar protocol in NumPy: an instruction is a ufunc."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lucerne.backends.reference import codec
from lucerne.base import dtype as dt
from lucerne.ir.scalar import Scalar, Value

try:
    from scipy import special
except ImportError:  # SciPy is optional: required instructions have slow stand-ins
    special = None

# Instruction of the scalar protocol -> function of scipy.special.
_SCIPY = {
    "digamma": "digamma", "polygamma": "polygamma", "zeta": "zeta", "gammainc": "gammainc",
    "gammaincc": "gammaincc", "erfinv": "erfinv", "erfcx": "erfcx", "ndtr": "ndtr", "ndtri": "ndtri",
    "log_ndtr": "log_ndtr", "i0": "i0", "i0e": "i0e", "i1": "i1", "i1e": "i1e", "j0": "j0",
    "j1": "j1", "y0": "y0", "y1": "y1", "k0": "k0", "k1": "k1", "k0e": "k0e", "k1e": "k1e",
}  # fmt: skip


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


def _refuse_zero(divisor: Any) -> None:
    divisor = np.asarray(divisor)
    if divisor.dtype.kind in "iub" and not divisor.all():
        raise RuntimeError("ZeroDivisionError")


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
    else:
        erf = staticmethod(_vectorized(math.erf))
        erfc = staticmethod(_vectorized(math.erfc))
        lgamma = staticmethod(_vectorized(_lgamma))

    sub = staticmethod(np.subtract)
    neg = staticmethod(np.negative)
    div = staticmethod(np.true_divide)
    shift_left = staticmethod(np.left_shift)
    shift_right = staticmethod(np.right_shift)
    gcd = staticmethod(np.gcd)
    lcm = staticmethod(np.lcm)

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

    def recurrence(self, steps: Any, first: Any, step: Any) -> Any:
        """Term number `steps` of 1, first, ..., p(k+1) = step(k, p(k-1), p(k)); counts may differ."""
        steps, q = np.broadcast_arrays(steps, first)
        p = np.ones_like(q)
        found = np.where(steps < 1, p, q)
        k = 1
        while True:
            going = (steps > k) & ~np.isnan(q)
            if not going.any():
                return np.where((steps > k) & np.isnan(q), q, found)
            p, q = q, step(k, Value(self, p), Value(self, q)).raw
            k += 1
            found = np.where(steps == k, q, found)

    def airy_ai(self, x: Any) -> Any:
        return _scipy("airy")(x)[0]

    def __getattr__(self, name: str) -> Any:
        if name in _SCIPY:
            return _scipy(_SCIPY[name])
        return super().__getattr__(name)


def _scipy(name: str) -> Any:
    if special is None:
        raise NotImplementedError(
            f"this function needs scipy.special.{name} on the reference backend: pip install scipy"
        )
    return getattr(special, name)


MACHINE = NumpyScalar()
