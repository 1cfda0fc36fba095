"""sin, cos and sin(pi x) in float32; the first two by the nearest of 32 points of the circle.

sin(p + d) = S + (C sin d - S (1 - cos d)), where S and C, the sine and cosine of the point p, are
looked up. d is the argument less n / 32 of a turn, known to twice the digits of float32.
"""

from __future__ import annotations

import math

from lucerne._src.backends.cpu.emit.builder import I32, LLVMFunction, LLVMValue
from lucerne._src.backends.cpu.emit.target import HOST
from lucerne._src.backends.cpu.math import wide
from lucerne._src.backends.cpu.math.integer import any_lane
from lucerne._src.backends.cpu.math.piecewise import by_sixteen, permuted_two
from lucerne._src.backends.cpu.math.vector import absolute, nearest, polynomial, rounded

_ROUNDER = 1.5 * 2.0**23  # added, it leaves the whole part in the low bits
_STEP = math.pi / 16
_STEP_HIGH = rounded(_STEP)  # n * it taken off x is exact: n is the nearest
_STEP_MIDDLE = rounded(_STEP - _STEP_HIGH, 10)  # n * it is exact, for n up to 2 ** 14
_STEP_LOW = _STEP - _STEP_HIGH - _STEP_MIDDLE + 1.2246467991473532e-16 / 16
_FAR = 3200.0


def _sine(quarters: int) -> list[float]:
    """The sines of the points, so many quarters of a turn on; zero and one are exact."""
    first = [math.sin(k * _STEP) for k in range(8)]
    half = [*first, 1.0, *first[:0:-1]]
    turn = [*half, *[-v for v in half]]
    return [*turn[8 * quarters :], *turn[: 8 * quarters]]


def sin(f: LLVMFunction, x: LLVMValue) -> LLVMValue:
    return _shifted(f, x, 0, wide.FUNCTIONS["sin"])


def cos(f: LLVMFunction, x: LLVMValue) -> LLVMValue:
    return _shifted(f, x, 1, wide.FUNCTIONS["cos"])


def _shifted(f: LLVMFunction, x: LLVMValue, quarters: int, anywhere: wide.Wide) -> LLVMValue:
    """The sine of x and so many quarters of a turn: far out, and where there is no lookup, by
    `anywhere`. A lane does not depend on its neighbours."""
    if not HOST.has_avx512:
        return anywhere(f, x)
    return by_sixteen(f, x, lambda wide: _near_or(f, wide, quarters, anywhere))


def _near_or(f: LLVMFunction, x: LLVMValue, quarters: int, anywhere: wide.Wide) -> LLVMValue:
    near = _near(f, x, quarters)
    far = f.compare("ge", absolute(f, x), _FAR)
    with f.if_(any_lane(f, far)) as branch:
        branch.give(f.select(far, anywhere(f, x), near))
    with branch.else_():
        branch.give(near)
    return branch.results[0]


def _near(f: LLVMFunction, x: LLVMValue, quarters: int) -> LLVMValue:
    placed = f.fma(x, 1 / _STEP, _ROUNDER)
    n = placed - _ROUNDER
    exact = f.fma(n, -_STEP_HIGH, x)
    d = f.fma(n, -_STEP_MIDDLE, exact)
    low = f.fma(n, -_STEP_LOW, f.fma(n, -_STEP_MIDDLE, exact - d))
    square = d * d
    bend = f.fma(d * square, f.fma(square, 1 / 120, -1 / 6), low)
    fall = square * f.fma(square, 1 / 24, -0.5)
    index = f.bitcast(placed, I32.vector(16))
    sines = _sine(quarters)
    sine = permuted_two(f, sines, index)
    sine_low = permuted_two(f, [v - rounded(v) for v in sines], index)
    cosine = permuted_two(f, _sine(quarters + 1), index)
    small = f.fma(cosine, bend, f.fma(sine, fall, sine_low))
    found = sine + f.fma(cosine, d, small)
    return found if quarters else f.select(f.compare("eq", x, 0.0), x, found)


# ---- in half turns ------------------------------------------------------------------------------

_HALF_TURNS = (
    -0.006766618229448795, 0.0818888321518898, -0.5992177128791809, 2.5501604080200195,
    -5.167712688446045,
)  # fmt: skip
"""Of (sin(pi r) / r - pi) / (r r) for |r| up to 1/2: a minimax fit of the sine's relative error
(2 ** -32), rounded to float32 one by one."""
_PI_REST = math.pi - rounded(math.pi)


def sin_pi(f: LLVMFunction, x: LLVMValue) -> LLVMValue:
    """sin(pi x) = sin(pi r), turned over for odd n, with n the nearest whole number and r = x - n:
    the difference is exact, however large x is."""
    n = nearest(f, x)
    r = x - n
    square = r * r
    rest = f.fma(polynomial(f, square, _HALF_TURNS), square, _PI_REST)
    found = f.fma(r, rest, r * math.pi)
    half = n * 0.5
    even = f.compare("eq", f.intrinsic("llvm.trunc", x.type, [half]), half)
    return f.select(even, found, -found)
