"""The error function and the normal distribution in float32.

Tails go by q(u) = exp(u u / 2) * P(normal < -u), smooth and slowly falling: it has a table.
The bell curve needs u * u to more than float32: the rounding error of the square is carried too.
"""

from __future__ import annotations

import math

from lucerne._src.backends.cpu.emit.builder import LLVMFunction, LLVMValue
from lucerne._src.backends.cpu.math.exponential import expm1_near, reduced
from lucerne._src.backends.cpu.math.piecewise import gated, piecewise
from lucerne._src.backends.cpu.math.tables import ERF, NORMAL_GATE, NORMAL_TAIL
from lucerne._src.backends.cpu.math.vector import absolute, at_least, at_most, copysign, scale


def erf(f: LLVMFunction, x: LLVMValue) -> LLVMValue:
    size = at_most(f, absolute(f, x), 3.95)
    found = piecewise(f, size, f.fma(size, 0.75, 1.0), ERF, "erf", pieces=8, lead=1.0)
    return copysign(f, found, x)


def _tail(
    f: LLVMFunction,
    x: LLVMValue,
    per_deviation: float,
    lowest: float,
    times: LLVMValue | None = None,
) -> LLVMValue:
    """times * P(normal < -u) for u = |x| * per_deviation; times * 0 below `lowest`.

    On the positive side of x the tail is lost beside 1: x is bounded there before it underflows.
    """
    deviations = absolute(f, x) if per_deviation == 1.0 else absolute(f, x) * per_deviation
    slow = piecewise(f, deviations, deviations + 1.0, NORMAL_TAIL, "tail")
    scaled = x * (-per_deviation * per_deviation / 2)
    bell = scaled * x
    r, n = reduced(f, bell, f.fma(scaled, x, -bell))
    nothing = None
    if times is not None:
        slow, nothing = slow * times, times * 0.0
    mantissa = f.fma(slow, expm1_near(f, r), slow)
    return scale(f, mantissa, n, f.compare("uge", x, lowest), nothing)


def normal_cdf(f: LLVMFunction, x: LLVMValue) -> LLVMValue:
    """P(normal < x)."""
    tail = _tail(f, at_most(f, x, 9.0), 1.0, -14.2)
    return f.select(f.compare("gt", x, 0.0), 1.0 - tail, tail)


def erfc(f: LLVMFunction, x: LLVMValue) -> LLVMValue:
    """Twice P(normal < -x sqrt 2)."""
    tail = _tail(f, at_most(f, -x, 6.0), math.sqrt(2.0), -10.06)
    double = tail + tail
    return f.select(f.compare("lt", x, 0.0), 2.0 - double, double)


def gelu(f: LLVMFunction, x: LLVMValue) -> LLVMValue:
    return gated(f, x, NORMAL_GATE, _gelu_anywhere)


def _gelu_anywhere(f: LLVMFunction, x: LLVMValue) -> LLVMValue:
    """x * P(normal < x) = max(x, 0) - |x| * P(normal < -|x|); nan at minus infinity, as inf * 0."""
    bounded = at_most(f, x, 9.0)
    tail = _tail(f, bounded, 1.0, -14.6, absolute(f, bounded))
    return at_least(f, x, -0.0) - tail
