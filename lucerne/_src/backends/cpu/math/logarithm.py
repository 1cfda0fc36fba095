"""Logarithms in float32: x = m * 2 ** e with m in [2/3, 4/3), log(x) = e log(2) + log(1 + (m - 1)).

The coefficients are minimax fits of (log(1 + t) - t) / (t t) in the base (relative error 2 ** -25
to -27), rounded to float32 one by one from the lowest power, the rest refitted.
"""

from __future__ import annotations

import math

from lucerne._src.backends.cpu.emit.builder import LLVMFunction, LLVMValue
from lucerne._src.backends.cpu.math.exponential import expm1_parts, reduced_parts
from lucerne._src.backends.cpu.math.vector import (
    absolute,
    at_most,
    nearest,
    polynomial,
    rounded,
    scale,
    split_exponent,
)

_LOG = (
    -0.12874488532543182, 0.13986706733703613, -0.12188343703746796, 0.1400534063577652,
    -0.1668018102645874, 0.20010444521903992, -0.2499980479478836, 0.3333321511745453, -0.5,
)  # fmt: skip
_LOG2 = (
    0.20230574905872345, -0.22193898260593414, 0.20192845165729523, -0.23684744536876678,
    0.28869932889938354, -0.360785573720932, 0.4808964133262634, -0.7213466167449951,
)  # fmt: skip
_LOG10 = (
    0.06089944392442703, -0.06683377176523209, 0.06078652665019035, -0.07129316031932831,
    0.08690717071294785, -0.10860760509967804, 0.144764244556427, -0.21714696288108826,
)  # fmt: skip
_LOG10_2_HIGH = 0.301025390625  # 14 bits: its products with the exponents are exact
_LOG10_2_LOW = 4.605038981195214e-06
_LOG2_E = (1.4426950216293335, 1.925963033500011e-08)
_LOG10_E = (0.4342944920063019, -1.0103049952192578e-08)


def _reduced(f: LLVMFunction, x: LLVMValue) -> tuple[LLVMValue, LLVMValue]:
    """(t, e): x = (1 + t) * 2 ** e with t in [-1/3, 1/3]."""
    mantissa, exponent = split_exponent(f, x)
    large = f.compare("ge", mantissa, 4.0 / 3.0)
    mantissa = f.select(large, mantissa * 0.5, mantissa)
    return mantissa - 1.0, f.select(large, exponent + 1.0, exponent)


def log(f: LLVMFunction, x: LLVMValue) -> LLVMValue:
    t, exponent = _reduced(f, x)
    found = f.fma(polynomial(f, t, _LOG), t * t, t)
    return f.fma(exponent, math.log(2.0), found)


def log1p(f: LLVMFunction, x: LLVMValue) -> LLVMValue:
    """As log(u) with u = 1 + x; what u lost in rounding, c / u = c (1 - t), goes into the tail."""
    u = x + 1.0
    t, exponent = _reduced(f, u)
    lost = x - (u - 1.0)
    usual = f.compare("lt", absolute(f, exponent), 100.0)
    lost = scale(f, lost, -exponent, usual)
    lost = f.fma(-lost, t, lost)
    found = f.fma(polynomial(f, t, _LOG), t * t, lost) + t
    found = f.fma(exponent, math.log(2.0), found)
    return f.select(f.compare("eq", x, 0.0), x, found)


def log2(f: LLVMFunction, x: LLVMValue) -> LLVMValue:
    t, exponent = _reduced(f, x)
    return _in_base(f, t, exponent, f.zero(x.type), _LOG2_E, _LOG2)


def log10(f: LLVMFunction, x: LLVMValue) -> LLVMValue:
    t, exponent = _reduced(f, x)
    whole, low = exponent * _LOG10_2_HIGH, exponent * _LOG10_2_LOW
    return _in_base(f, t, whole, low, _LOG10_E, _LOG10)


def _in_base(
    f: LLVMFunction,
    t: LLVMValue,
    whole: LLVMValue,
    low: LLVMValue,
    factor: tuple[float, float],
    tail: tuple[float, ...],
) -> LLVMValue:
    """whole + low + t * factor + ..., what the first two sums lose added at the end.

    Infinite exponents (of 0 and infinity) would lose nan: they are kept out of it.
    """
    first = t * factor[0]
    rest = f.fma(t, factor[1], f.fma(t, factor[0], -first))
    rest = f.fma(polynomial(f, t, tail), t * t, rest + low)
    total = whole + first
    lost = first - (total - whole)
    usual = f.compare("ult", absolute(f, whole), math.inf)
    return total + f.select(usual, rest + lost, 0.0)


# ---- sums of exponentials -----------------------------------------------------------------------

_LN2_HIGH, _LN2_LOW = rounded(math.log(2.0)), math.log(2.0) - rounded(math.log(2.0))


def logaddexp(f: LLVMFunction, a: LLVMValue, b: LLVMValue) -> LLVMValue:
    larger, gap, lost = _apart(f, a, b, 110.0)
    r, low, n = reduced_parts(f, -gap)
    t, doubled, rest = _one_plus(f, r, low - lost, n)
    whole, more = (f.select(doubled, f.constant(c, t.type), 0.0) for c in (_LN2_HIGH, _LN2_LOW))
    rest = f.fma(polynomial(f, t, _LOG), t * t, rest + more)
    return _joined(f, a, b, larger, whole, t, rest)


def logaddexp2(f: LLVMFunction, a: LLVMValue, b: LLVMValue) -> LLVMValue:
    larger, gap, lost = _apart(f, a, b, 160.0)
    n = nearest(f, -gap)
    part = -gap - n
    r = part * _LN2_HIGH
    low = f.fma(part, _LN2_LOW, f.fma(part, _LN2_HIGH, -r))
    t, doubled, rest = _one_plus(f, r, f.fma(lost, -_LN2_HIGH, low), n)
    rest = f.fma(polynomial(f, t, _LOG), t * t, rest)
    first = t * _LOG2_E[0]
    rest = f.fma(rest, _LOG2_E[0], f.fma(t, _LOG2_E[1], f.fma(t, _LOG2_E[0], -first)))
    whole = f.select(doubled, f.constant(1.0, t.type), 0.0)
    return _joined(f, a, b, larger, whole, first, rest)


def _apart(
    f: LLVMFunction, a: LLVMValue, b: LLVMValue, most: float
) -> tuple[LLVMValue, LLVMValue, LLVMValue]:
    """(the larger of two, how far the other is below, `most` at most, and what that distance lost
    in rounding: exactly if both are negative, where alone the larger may cancel the logarithm)."""
    above = f.compare("gt", a, b)
    larger, smaller = f.select(above, a, b), f.select(above, b, a)
    gap = larger - smaller
    lost = larger - (gap + smaller)
    far = f.compare("gt", gap, most)
    return larger, at_most(f, gap, most), f.select(far, f.zero(a.type), lost)


def _one_plus(
    f: LLVMFunction, r: LLVMValue, low: LLVMValue, n: LLVMValue
) -> tuple[LLVMValue, LLVMValue, LLVMValue]:
    """(t, doubled, rest): 1 + e ** (r + low) * 2 ** n is 1 + t, twice that where `doubled`, and a
    little, by which its logarithm is `rest` larger. The larger operand may cancel nearly all of
    that logarithm, so no rounding on the way to it is left out."""
    q, q_low = expm1_parts(f, r, low)
    power = scale(f, f.constant(1.0, n.type), n)
    p = f.fma(power, q, power)
    u = p + 1.0
    lost = (p - (u - 1.0)) + f.fma(power, q_low, f.fma(power, q, power - p))
    large = f.compare("ge", u, 4.0 / 3.0)
    factor = f.select(large, f.constant(0.5, u.type), 1.0)
    t = f.fma(u, factor, -1.0)
    rest = lost * factor * f.fma(t, t - 1.0, 1.0)
    return t, large, rest


def _joined(
    f: LLVMFunction,
    a: LLVMValue,
    b: LLVMValue,
    larger: LLVMValue,
    whole: LLVMValue,
    first: LLVMValue,
    rest: LLVMValue,
) -> LLVMValue:
    """larger + whole + first + rest, what the sums lose added at the end (of the second one exactly
    if the larger is what its name says, or cancels). Infinities stay as they are, nan wins."""
    middle = whole + first
    total = larger + middle
    lost = (first - (middle - whole)) + (middle - (total - larger))
    found = total + (lost + rest)  # nan, where an operand is nan or infinite
    infinite = f.compare("eq", absolute(f, larger), math.inf) & f.compare("ord", a, b)
    return f.select(infinite, larger, found)
