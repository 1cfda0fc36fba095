"""Special functions of one double, as loops; vectors go through them lane by lane.

Each function takes the function being written and scalar F64 values, and returns one. They are
rare and slow: a call costs tens of nanoseconds an element.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from lucerne.backends.cpu.emit.builder import F64, Function, Value
from lucerne.backends.cpu.math.calls import per_lane

Special = Callable[..., Value]


def special(f: Function, name: str, *args: Value) -> Value:
    """The special function `name` on each lane."""
    type = args[0].type.element

    def one(g: Function, *xs: Value) -> list[Value]:
        found = FUNCTIONS[name](g, *[g.convert("fpext", x, F64) for x in xs])
        return [g.convert("fptrunc", found, type)]

    return per_lane(f, f"special_{name}", args, [type], one)[0]


def _call(f: Function, name: str, *args: Any) -> Value:
    return f.call(name, F64, [f.constant(a, F64) for a in args])


def _absolute(f: Function, x: Value) -> Value:
    return f.intrinsic("llvm.fabs", F64, [x])


def _copysign(f: Function, size: Any, x: Value) -> Value:
    return f.intrinsic("llvm.copysign", F64, [f.constant(size, F64), x])


def _floor(f: Function, x: Value) -> Value:
    return f.intrinsic("llvm.floor", F64, [x])


# ---- gamma --------------------------------------------------------------------------------------

_BERNOULLI = (
    1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798,
    -174611 / 330, 854513 / 138, -236364091 / 2730,
)  # fmt: skip
"""B(2), B(4), ..."""


def digamma(f: Function, x: Value) -> Value:
    """Upwards by recurrence to 10, then the asymptotic series; reflection below zero."""
    below = f.compare("lt", x, 0.0)
    with f.while_([f.constant(0.0, F64), f.select(below, 1.0 - x, x)]) as loop:
        total, y = loop.carried
        small = f.compare("lt", y, 10.0)
        total = f.select(small, total - 1.0 / y, total)
        y = f.select(small, y + 1.0, y)
        loop.again(f.compare("lt", y, 10.0), total, y)
    total, y = loop.results
    square = 1.0 / (y * y)
    series = f.constant(0.0, F64)
    for k, b in reversed(list(enumerate(_BERNOULLI[:8], 1))):
        series = (series - b / (2 * k)) * square
    total = total + (_call(f, "log", y) - 0.5 / y + series)
    part = x - f.intrinsic("llvm.trunc", F64, [x])
    mirrored = total - math.pi / _call(f, "tan", part * math.pi)
    found = f.select(below, mirrored, total)
    pole = below & f.compare("eq", part, 0.0)
    found = f.select(pole, f.constant(math.nan, F64), found)
    return f.select(f.compare("eq", x, 0.0), -_copysign(f, math.inf, x), found)


def zeta(f: Function, s: Value, q: Value) -> Value:
    """Hurwitz's sum of (q + n) ** -s by Euler and Maclaurin: ten terms, an integral, the rest."""
    with f.while_([f.constant(0.0, F64), q, f.constant(0.0, F64)]) as loop:
        total, at, count = loop.carried
        total = total + _call(f, "pow", at, -s)
        at, count = at + 1.0, count + 1.0
        more = f.compare("lt", count, 10.0) | f.compare("lt", at, 10.0)
        loop.again(more, total, at, count)
    total, at, _ = loop.results
    last = _call(f, "pow", at, -s)
    total = total + last * at / (s - 1.0) + last * 0.5
    square = 1.0 / (at * at)
    rising, factor = s, last / at
    for k, b in enumerate(_BERNOULLI, 1):
        total = total + rising * factor * (b / math.factorial(2 * k))
        rising = rising * (s + (2.0 * k - 1.0)) * (s + 2.0 * k)
        factor = factor * square
    found = f.select(f.compare("lt", s, 1.0), f.constant(math.nan, F64), total)
    found = f.select(f.compare("eq", s, 1.0), f.constant(math.inf, F64), found)
    whole_q, whole_s = (f.compare("eq", _floor(f, v), v) for v in (q, s))
    left = f.select(whole_s, found, f.constant(math.nan, F64))
    left = f.select(whole_q, f.constant(math.inf, F64), left)
    beyond = f.compare("le", q, 0.0) & f.compare("ge", s, 1.0)
    found = f.select(beyond, left, found)
    return f.select(f.compare("uno", s, q), s + q, found)


# ---- the error function -------------------------------------------------------------------------


def erfinv(f: Function, x: Value) -> Value:
    """Winitzki's estimate, made exact by steps of third order.

    Near one the difference of complements keeps the digits that erf - x would lose.
    """
    size = _absolute(f, x)
    inside = f.select(f.compare("gt", size, 1 - 1e-16), f.constant(1 - 1e-16, F64), size)
    a = 0.147
    log = _call(f, "log1p", -(inside * inside))
    term = log * 0.5 + 2 / (math.pi * a)
    root = f.intrinsic("llvm.sqrt", F64, [term * term - log / a])
    y = f.intrinsic("llvm.sqrt", F64, [root - term])
    large = f.compare("gt", inside, 0.5)
    with f.loop(0, 4, carry=[y], at_least_once=True) as loop:
        (y,) = loop.carried
        slope = _call(f, "exp", -(y * y)) * (2 / math.sqrt(math.pi))
        over = (1.0 - inside) - _call(f, "erfc", y)
        error = f.select(large, over, _call(f, "erf", y) - inside)
        loop.next(y - error / (slope + y * error))
    found = _copysign(f, loop.results[0], x)
    found = f.select(f.compare("eq", size, 1.0), _copysign(f, math.inf, x), found)
    found = f.select(f.compare("gt", size, 1.0), f.constant(math.nan, F64), found)
    return f.select(f.compare("eq", x, 0.0), x, found)


def ndtr(f: Function, x: Value) -> Value:
    """The share of a normal distribution below x."""
    return _call(f, "erfc", x * -math.sqrt(0.5)) * 0.5


# ---- Bessel -------------------------------------------------------------------------------------


def _bessel_i(order: int, scaled: bool) -> Special:
    """I of order 0 or 1: the power series up to 30, the asymptotic one beyond; `scaled`: times
    exp(-|x|). Both run until a term no longer counts."""

    def function(f: Function, x: Value) -> Value:
        size = _absolute(f, x)
        with f.if_(f.compare("lt", size, 30.0)) as branch:
            near = _power_series(f, size, order)
            branch.give(near * _call(f, "exp", -size) if scaled else near)
        with branch.else_():
            branch.give(_asymptotic(f, size, order, scaled))
        (found,) = branch.results
        found = f.select(f.compare("eq", size, math.inf), 0.0 if scaled else math.nan, found)
        return _copysign(f, found, x) if order else found

    return function


def _power_series(f: Function, x: Value, order: int) -> Value:
    """Sum of (x x / 4) ** k / (k! (k + order)!), times (x / 2) ** order."""
    quarter = x * x * 0.25
    first = x * 0.5 if order else f.constant(1.0, F64)
    with f.while_([first, first, f.constant(1.0, F64)]) as loop:
        total, term, k = loop.carried
        term = term * quarter / (k * (k + float(order)))
        more = f.compare("gt", term, total * 1e-17) & f.compare("lt", k, 200.0)
        loop.again(more, total + term, term, k + 1.0)
    return loop.results[0]


def _asymptotic(f: Function, x: Value, order: int, scaled: bool) -> Value:
    """exp(x) / sqrt(2 pi x) * (1 - (m - 1) / 8x + (m - 1)(m - 9) / 2! (8x)^2 - ...), m = 4 nu^2."""
    m = 4.0 * order * order
    one = f.constant(1.0, F64)
    with f.while_([one, one, one]) as loop:
        total, term, k = loop.carried
        odd = k * 2.0 - 1.0
        term = term * (odd * odd - m) / (k * 8.0 * x)
        more = f.compare("gt", _absolute(f, term), 1e-17) & f.compare("lt", k, 40.0)
        loop.again(more, total + term, term, k + 1.0)
    series = loop.results[0] / f.intrinsic("llvm.sqrt", F64, [x * (2 * math.pi)])
    if scaled:
        return series
    half = _call(f, "exp", x * 0.5)  # in two steps: exp(x) may overflow where the result does not
    return series * half * half


def _library(name: str) -> Special:
    return lambda f, x: _call(f, name, x)


FUNCTIONS: dict[str, Special] = {
    "digamma": digamma,
    "zeta": zeta,
    "erfinv": erfinv,
    "ndtr": ndtr,
    "i0": _bessel_i(0, False),
    "i0e": _bessel_i(0, True),
    "i1": _bessel_i(1, False),
    "i1e": _bessel_i(1, True),
    **{name: _library(name) for name in ("j0", "j1", "y0", "y1")},
}
"""By instruction name."""
