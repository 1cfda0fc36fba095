"""Exponentials and logarithms of float64, by lanes; right to about one unit of the last place.

exp: x = r + n ln 2 with |r| <= ln 2 / 2, then the series of e ** r, long enough for 2 ** -57.
log: x = (1 + f) 2 ** e with 1 + f between the roots of 1/2 and 2; with s = f / (2 + f) the
logarithm is 2 atanh(s), whose series needs ten terms; what f has beyond the series is added last,
where little is lost. Other functions of float64 are those of the C library.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from lucerne._src.backends.cpu.emit.builder import LLVMFunction, LLVMValue
from lucerne._src.backends.cpu.math.vector import (
    absolute,
    at_least,
    at_most,
    copysign,
    nearest,
    polynomial,
    polynomial_pairs,
    power_of_two,
    scale,
    split_exponent,
)

_LN2, _LN2_REST = math.log(2.0), 2.3190468138462996e-17
_LN2_HIGH, _LN2_LOW = 0.6931471803691238, 1.9082149292705877e-10
"""32 bits of ln 2, whose products with exponents are exact, and the rest."""
_LOG2E, _LOG2E_LOW = math.log2(math.e), 2.0355273740931033e-17
_EXP = tuple(1 / math.factorial(k) for k in range(13, 1, -1))
_LOG = tuple(2 / (2 * k + 1) for k in range(10, 0, -1))
_LOWEST, _HIGHEST = -745.2, 710.0
"""Where exp(x) rounds to zero, and where it has overflowed."""


def _expm1_near(f: LLVMFunction, r: LLVMValue) -> LLVMValue:
    """e ** r - 1 for |r| up to ln 2 / 2."""
    square = r * r
    return f.fma(polynomial_pairs(f, r, square, _EXP), square, r)


def _reduced(f: LLVMFunction, x: LLVMValue) -> tuple[LLVMValue, LLVMValue]:
    """(r, n) with x = r + n ln 2."""
    n = nearest(f, x * _LOG2E)
    return f.fma(n, -_LN2_REST, f.fma(n, -_LN2, x)), n


def exp(f: LLVMFunction, x: LLVMValue) -> LLVMValue:
    keep = f.compare("uge", x, _LOWEST)
    r, n = _reduced(f, at_most(f, x, _HIGHEST))
    return scale(f, _expm1_near(f, r) + 1.0, n, keep)


def exp2(f: LLVMFunction, x: LLVMValue) -> LLVMValue:
    """2 ** x: the whole part is exact."""
    keep = f.compare("uge", x, -1076.0)
    bounded = at_most(f, x, 1025.0)
    n = nearest(f, bounded)
    return scale(f, _expm1_near(f, (bounded - n) * _LN2) + 1.0, n, keep)


def expm1(f: LLVMFunction, x: LLVMValue) -> LLVMValue:
    """2 ** n ((e ** r - 1) + (1 - 2 ** -n))."""
    r, n = _reduced(f, at_least(f, at_most(f, x, _HIGHEST), -40.0))
    rest = 1.0 - power_of_two(f, f.neg(at_most(f, n, 1000.0)))
    found = scale(f, _expm1_near(f, r) + rest, n)
    return f.select(f.compare("eq", x, 0.0), x, found)


def sigmoid(f: LLVMFunction, x: LLVMValue) -> LLVMValue:
    """By the exponential that does not overflow."""
    small = exp(f, f.neg(absolute(f, x)))
    over = f.select(f.compare("lt", x, 0.0), small, f.constant(1.0, x.type))
    return over / (small + 1.0)


def tanh(f: LLVMFunction, x: LLVMValue) -> LLVMValue:
    grown = expm1(f, at_most(f, absolute(f, x), 22.0) * 2.0)
    return copysign(f, grown / (grown + 2.0), x)


class _Parts(NamedTuple):
    """x = (1 + f) 2 ** exponent: what logarithms are put together from."""

    f: LLVMValue
    exponent: LLVMValue
    half_square: LLVMValue
    tail: LLVMValue
    """log(1 + f) = f - (half_square - tail)."""


def _parts(f: LLVMFunction, x: LLVMValue) -> _Parts:
    mantissa, exponent = split_exponent(f, x)
    large = f.compare("ge", mantissa, math.sqrt(2.0))
    t = f.select(large, mantissa * 0.5, mantissa) - 1.0
    exponent = f.select(large, exponent + 1.0, exponent)
    s = t / (t + 2.0)
    z = s * s
    half_square = t * t * 0.5
    series = polynomial(f, z, _LOG) * z
    return _Parts(t, exponent, half_square, s * (half_square + series))


def _put_together(f: LLVMFunction, p: _Parts, lost: LLVMValue | None = None) -> LLVMValue:
    low = f.fma(p.exponent, _LN2_LOW, p.tail if lost is None else p.tail + lost)
    return f.fma(p.exponent, _LN2_HIGH, p.f - (p.half_square - low))


def log(f: LLVMFunction, x: LLVMValue) -> LLVMValue:
    return _put_together(f, _parts(f, x))


def log1p(f: LLVMFunction, x: LLVMValue) -> LLVMValue:
    """As log(u) with u = 1 + x; what u lost in rounding, divided by u, goes into the tail."""
    u = x + 1.0
    p = _parts(f, u)
    usual = f.compare("lt", absolute(f, p.exponent), 1100.0)
    lost = f.select(usual, (x - (u - 1.0)) / u, 0.0)
    found = _put_together(f, p, lost)
    return f.select(f.compare("eq", x, 0.0), x, found)


def log2(f: LLVMFunction, x: LLVMValue) -> LLVMValue:
    """The exponent is exact: powers of two have exact logarithms."""
    p = _parts(f, x)
    near = p.f - (p.half_square - p.tail)
    return f.fma(near, _LOG2E, f.fma(near, _LOG2E_LOW, p.exponent))


FUNCTIONS = {fn.__name__: fn for fn in (exp, exp2, expm1, sigmoid, tanh, log, log1p, log2)}
