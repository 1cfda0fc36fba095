"""exp and its kin in float32: exp, exp2, sigmoid, silu, tanh.

The argument is taken to [-ln 2 / 2, ln 2 / 2] by a multiple n of ln 2 (subtracted in two pieces),
e ** r is a polynomial of degree 6, and the exponent n is put back. Coefficients: minimax fits of
the relative error (2 ** -28), rounded to float32 from the lowest power on, the rest refitted.
"""

from __future__ import annotations

import math

from lucerne._src.backends.cpu.emit.builder import LLVMFunction, LLVMValue
from lucerne._src.backends.cpu.math.piecewise import gated, piecewise
from lucerne._src.backends.cpu.math.tables import LOGISTIC_GATE, TANH, TANH_OFFSET
from lucerne._src.backends.cpu.math.vector import (
    absolute,
    at_most,
    copysign,
    nearest,
    polynomial,
    reciprocal_guess,
    rounded,
    scale,
)

_LN2_HIGH = 0.693145751953125  # 15 bits: its products with the exponents are exact
_LN2_LOW = 1.428606765330187e-06
_EXP = (
    0.0013818938750773668, 0.008368703536689281, 0.04166828840970993, 0.1666652113199234,
    0.4999999403953552,
)  # fmt: skip
_LOWEST = -103.97208
"""Below it exp(x) rounds to zero."""


def exp(f: LLVMFunction, x: LLVMValue) -> LLVMValue:
    """e ** x with denormal results; nothing is computed where the result is zero."""
    keep = f.compare("uge", x, _LOWEST)
    r, n = reduced(f, at_most(f, x, 89.0))
    return scale(f, polynomial(f, r, (*_EXP, 1.0, 1.0)), n, keep)


def reduced(
    f: LLVMFunction, x: LLVMValue, low: LLVMValue | None = None
) -> tuple[LLVMValue, LLVMValue]:
    """(r, n) with x + low = r + n ln 2: `low` is what x lost in rounding, if it is known."""
    n = nearest(f, x * math.log2(math.e))
    r = f.fma(n, -_LN2_HIGH, x)
    r = f.fma(n, -_LN2_LOW, r)
    return (r if low is None else r + low), n


def expm1_near(f: LLVMFunction, r: LLVMValue) -> LLVMValue:
    """e ** r - 1 for |r| up to ln 2 / 2."""
    return f.fma(polynomial(f, r, _EXP), r * r, r)


def expm1_parts(f: LLVMFunction, r: LLVMValue) -> tuple[LLVMValue, LLVMValue]:
    """e ** r - 1 and what it lost in rounding."""
    rest = polynomial(f, r, _EXP) * (r * r)
    found = r + rest
    return found, rest - (found - r)


def exp2(f: LLVMFunction, x: LLVMValue) -> LLVMValue:
    """2 ** x: the whole part is exact, the fraction goes by e ** (r ln 2)."""
    keep = f.compare("uge", x, -150.0)
    bounded = at_most(f, x, 129.0)
    n = nearest(f, bounded)
    mantissa = polynomial(f, (bounded - n) * math.log(2.0), (*_EXP, 1.0, 1.0))
    return scale(f, mantissa, n, keep)


# ---- the logistic function ----------------------------------------------------------------------


def logistic(
    f: LLVMFunction, x: LLVMValue, low: LLVMValue | None = None, times: LLVMValue | None = None
) -> LLVMValue:
    """times / (1 + exp(-x)), by the exponential that does not overflow: t = exp(-|x|).

    For x < 0 it is t / (1 + t), where t enters as (1 + q) * 2 ** n: rounding it would cost half a
    unit, or all digits if it is denormal. So with the quotient, guess * (1 + off). For large x, t
    is lost beside 1: it is kept from becoming denormal. `low` is what x lost in rounding.
    """
    negative = f.compare("lt", x, 0.0)
    bounded = f.select(negative, x, -at_most(f, x, 80.0))
    if low is not None:
        low = f.select(negative, low, -low)
    r, n = reduced(f, bounded, low)
    q = expm1_near(f, r)
    power = scale(f, f.constant(1.0, x.type), n, f.compare("uge", x, -80.0))
    near = power + 1.0
    under = f.fma(q, power, near)
    guess = reciprocal_guess(f, under)
    off = f.fma(-under, guess, 1.0)
    if times is not None:  # one more rounding to come: `under` must not cost one
        off = f.fma(f.fma(q, power, near - under), -guess, off)
    above, share, nothing = f.fma(guess, off, guess), guess, None
    if times is not None:
        above, share, nothing = above * times, guess * times, times * 0.0
    below = f.fma(share, f.fma(q, off, q) + off, share)
    below = scale(f, below, n, f.compare("uge", x, _NOTHING), nothing)
    return f.select(negative, below, above)


_NOTHING = -110.0
"""Below it even x * exp(x) is less than the least denormal number."""


def sigmoid(f: LLVMFunction, x: LLVMValue) -> LLVMValue:
    return logistic(f, x)


def silu(f: LLVMFunction, x: LLVMValue) -> LLVMValue:
    """x * sigmoid(x); nan at minus infinity, as inf * 0 is."""
    return logistic(f, x, times=x)


_GELU_LINEAR = 2 * math.sqrt(2 / math.pi)
_GELU_CUBIC = _GELU_LINEAR * 0.044715
_LINEAR_REST = _GELU_LINEAR - rounded(_GELU_LINEAR)
_CUBIC_REST = _GELU_CUBIC - rounded(_GELU_CUBIC)


def gelu_tanh(f: LLVMFunction, x: LLVMValue) -> LLVMValue:
    return gated(f, x, LOGISTIC_GATE, _gelu_tanh_anywhere)


def _gelu_tanh_anywhere(f: LLVMFunction, x: LLVMValue) -> LLVMValue:
    """x * (1 + tanh(z / 2)) / 2 = x * sigmoid(z), z = x * (a + b x x) with the part z loses.

    z is large where the result is small, and an error in it counts as a whole.
    """
    bounded = f.select(f.compare("gt", absolute(f, x), 20.0), copysign(f, 20.0, x), x)
    square = bounded * bounded
    square_low = f.fma(bounded, bounded, -square)
    cubic = square * _GELU_CUBIC
    cubic_low = f.fma(square, _GELU_CUBIC, -cubic)
    cubic_low = f.fma(square_low, _GELU_CUBIC, f.fma(square, _CUBIC_REST, cubic_low))
    slope = cubic + _GELU_LINEAR
    added = slope - cubic
    slope_low = (cubic - (slope - added)) + (_GELU_LINEAR - added)
    slope_low = slope_low + (cubic_low + _LINEAR_REST)
    z = bounded * slope
    z_low = f.fma(bounded, slope, -z)
    return logistic(f, z, f.fma(bounded, slope_low, z_low), times=x)


# ---- tanh ---------------------------------------------------------------------------------------


def tanh(f: LLVMFunction, x: LLVMValue) -> LLVMValue:
    size = at_most(f, absolute(f, x), 9.0)
    return copysign(f, piecewise(f, size, size + TANH_OFFSET, TANH, "tanh"), x)
