"""The error function and the normal distribution in float32.

Tails go by q(u) = exp(u u / 2) * P(normal < -u), smooth and slowly falling: it has a table.
The bell curve needs u * u to more than float32: the rounding error of the square is carried too.
"""

from __future__ import annotations

import math

from lucerne.backends.cpu.emit.builder import Function, Value
from lucerne.backends.cpu.math.exponential import expm1_near, reduced
from lucerne.backends.cpu.math.piecewise import piecewise
from lucerne.backends.cpu.math.tables import NORMAL_TAIL
from lucerne.backends.cpu.math.vector import (
    absolute,
    at_least,
    at_most,
    copysign,
    polynomial,
    scale,
)

_ERF_NEAR = (
    7.806903158780187e-05, -0.0007997853099368513, 0.005187162198126316, -0.026853347197175026,
    0.11283578723669052, -0.3761262595653534, 0.12837916612625122,
)  # fmt: skip
"""erf(x) / x - 1 in x * x, up to 1."""
_LOG_ERFC = (
    0.00018557316798251122, -0.0029395963065326214, 0.02180527336895466, -0.1030372902750969,
    -0.6382257342338562, -1.1270400285720825, -0.0003537136362865567,
)  # fmt: skip
"""log(erfc(x)) from 1 to 4, its error weighted with erfc."""


def erf(f: Function, x: Value) -> Value:
    """1 - erfc(|x|) with the sign of x; up to 1 a polynomial."""
    size = absolute(f, x)
    r, n = reduced(f, polynomial(f, at_most(f, size, 4.0), _LOG_ERFC))
    rest = scale(f, expm1_near(f, r) + 1.0, n)
    far = copysign(f, 1.0 - rest, x)
    near = f.fma(polynomial(f, x * x, _ERF_NEAR), x, x)
    return f.select(f.compare("ugt", size, 1.0), far, near)


def _tail(
    f: Function, x: Value, per_deviation: float, lowest: float, times: Value | None = None
) -> Value:
    """times * P(normal < -u) for u = |x| * per_deviation; times * 0 below `lowest`.

    On the positive side of x the tail is lost beside 1: x is bounded there before it underflows.
    """
    deviations = absolute(f, x) if per_deviation == 1.0 else absolute(f, x) * per_deviation
    slow = piecewise(f, deviations, NORMAL_TAIL, "tail")
    scaled = x * (-per_deviation * per_deviation / 2)
    bell = scaled * x
    r, n = reduced(f, bell, f.fma(scaled, x, -bell))
    nothing = None
    if times is not None:
        slow, nothing = slow * times, times * 0.0
    mantissa = f.fma(slow, expm1_near(f, r), slow)
    return scale(f, mantissa, n, f.compare("uge", x, lowest), nothing)


def normal_cdf(f: Function, x: Value) -> Value:
    """P(normal < x)."""
    tail = _tail(f, at_most(f, x, 9.0), 1.0, -14.2)
    return f.select(f.compare("gt", x, 0.0), 1.0 - tail, tail)


def erfc(f: Function, x: Value) -> Value:
    """Twice P(normal < -x sqrt 2)."""
    tail = _tail(f, at_most(f, -x, 6.0), math.sqrt(2.0), -10.06)
    double = tail + tail
    return f.select(f.compare("lt", x, 0.0), 2.0 - double, double)


def gelu(f: Function, x: Value) -> Value:
    """x * P(normal < x) = max(x, 0) - |x| * P(normal < -|x|); nan at minus infinity, as inf * 0."""
    bounded = at_most(f, x, 9.0)
    tail = _tail(f, bounded, 1.0, -14.6, absolute(f, bounded))
    return at_least(f, x, -0.0) - tail
