"""Logarithms in float32: x = m * 2 ** e with m in [2/3, 4/3), log(x) = e log(2) + log(1 + (m - 1)).

The coefficients are minimax fits of (log(1 + t) - t) / (t t) in the base (relative error 2 ** -25
to -27), rounded to float32 one by one from the lowest power, the rest refitted.
"""

from __future__ import annotations

import math

from lucerne._src.backends.cpu.emit.builder import LLVMFunction, LLVMValue
from lucerne._src.backends.cpu.emit.types import int_of
from lucerne._src.backends.cpu.math.exponential import expm1_parts, reduced
from lucerne._src.backends.cpu.math.integer import any_lane
from lucerne._src.backends.cpu.math.vector import (
    absolute,
    at_least,
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

_LN2 = rounded(math.log(2.0))
_LOG_SUM = (
    -0.11155756562948227, 0.1366981416940689, -0.12527133524417877, 0.14068268239498138,
    -0.16659986972808838, 0.2000664621591568, -0.2500015199184418, 0.3333328068256378, -0.5,
)  # fmt: skip
"""As `_LOG`, for -0.323 < t < 0.354 (relative error 2 ** -24.3)."""


def logaddexp(f: LLVMFunction, a: LLVMValue, b: LLVMValue) -> LLVMValue:
    """The larger one + log(2) where `doubled` + t + ...: where the larger cancels the logarithm,
    these sums are exact; elsewhere what log(2) loses beside it is added at the end."""
    larger, below, lost, apart = _apart(f, a, b, 110.0)
    r, n = reduced(f, below, lost)
    t, rest, doubled = _one_plus(f, r, n)
    rest = f.fma(polynomial(f, t, _LOG_SUM), t * t, rest)
    whole = f.select(doubled, larger + _LN2, larger)
    lost = f.select(doubled & apart, larger - (whole - _LN2), f.zero(t.type))
    return (whole + t) + (rest + lost)


def logaddexp2(f: LLVMFunction, a: LLVMValue, b: LLVMValue) -> LLVMValue:
    """The same in units of log(2). Here 1 + the larger one may lose a digit that counts."""
    larger, below, lost, apart = _apart(f, a, b, 160.0)
    n = nearest(f, below)
    part = below - n
    r = part * _LN2
    r = r + f.fma(lost, _LN2, f.fma(part, _LN2, -r))
    t, rest, doubled = _one_plus(f, r, n)
    rest = f.fma(polynomial(f, t, _LOG_SUM), t * t, rest)
    first = t * _LOG2_E[0]
    rest = f.fma(rest, _LOG2_E[0], f.fma(t, _LOG2_E[1], f.fma(t, _LOG2_E[0], -first)))
    whole = f.select(doubled, larger + 1.0, larger)
    lost = f.select(doubled & apart, larger - (whole - 1.0), f.zero(t.type))
    return (whole + first) + (rest + lost)


def _apart(
    f: LLVMFunction, a: LLVMValue, b: LLVMValue, most: float
) -> tuple[LLVMValue, LLVMValue, LLVMValue, LLVMValue]:
    """(the larger of two, how far the other is below it, a number from -`most` to 0, what that lost
    in rounding, whether they differ). Exactly what it lost if the larger is nearer to zero, where
    alone it may cancel the logarithm. Infinities that are equal are 0 apart; nan stays."""
    above, apart = f.compare("gt", a, b), f.compare("une", a, b)
    larger, smaller = f.select(above, a, b), f.select(above, b, a)
    below = f.select(apart, smaller - larger, f.zero(a.type))
    near = f.compare("gt", below, -most) & apart
    lost = f.select(near, (smaller - below) - larger, f.zero(a.type))
    return larger, at_least(f, below, -most), lost, apart


def _one_plus(
    f: LLVMFunction, r: LLVMValue, n: LLVMValue
) -> tuple[LLVMValue, LLVMValue, LLVMValue]:
    """(t, rest, doubled): 1 + e ** r * 2 ** n is 1 + t, twice that where `doubled`, and a little
    more, by which its logarithm is `rest` larger. t comes out of e ** r - 1 in one step, since n
    alone tells whether it is doubled: neither the power nor the sum is rounded before."""
    q, lost = expm1_parts(f, r)
    doubled = f.compare("ge", n, -1.0)
    power = scale(f, f.constant(1.0, n.type), f.select(doubled, n - 1.0, n))
    start = f.select(doubled, power - 0.5, power)
    t = f.fma(q, power, start)
    rest = f.fma(power, lost, f.fma(q, power, start - t))
    return t, f.fma(-rest, t, rest), doubled


# ---- of odds ------------------------------------------------------------------------------------

_LOG_RATIO = (0.0023723794147372246, 0.012486749328672886, 0.08333368599414825)
"""Of (2 artanh(w / 2) - w) / w ** 3 in w * w, for |w| < 0.402 (relative error 2 ** -28.3)."""
_LEAST, _MOST = 0x00800000, 0x3F7FFFFF  # 2 ** -126 and 1 - 2 ** -24, as bits


def logit(f: LLVMFunction, x: LLVMValue) -> LLVMValue:
    """Where x is a normal number and 1 - x more than one unit by the formula for odds between
    powers of two; beside one that is not, and for numbers outside, the logarithm of the odds."""
    outside = f.compare("uge", f.bitcast(x, int_of(x.type)) - _LEAST, _MOST - _LEAST)
    near = _logit_inside(f, x)
    with f.if_(any_lane(f, outside)) as branch:
        branch.give(f.select(outside, log(f, x / (1.0 - x)), near))
    with branch.else_():
        branch.give(near)
    return branch.results[0]


def _logit_inside(f: LLVMFunction, x: LLVMValue) -> LLVMValue:
    """log(x / (1 - x)) = n log(2) + 2 artanh((a - b) / (a + b)) with b = 1 - x and a = x * 2 ** -n.

    n, the whole number next to the odds' logarithm in base 2, is the difference of both numbers'
    bits, nearly. a - b comes of one step, so that what b lost counts beside larger numbers only.
    """
    kind = int_of(x.type)
    b = 1.0 - x
    between = f.bitcast(x, kind) - f.bitcast(b, kind)
    whole = (between + (1 << 22)) & -(1 << 23)
    power = f.bitcast((127 << 23) - whole, x.type)
    apart = f.fma(x, power + 1.0, -1.0)
    w = apart / f.fma(apart, 0.5, b)
    square = w * w
    found = f.fma(w * square, polynomial(f, square, _LOG_RATIO), w)
    return f.fma(f.convert("sitofp", whole, x.type), math.log(2.0) * 2.0**-23, found)
