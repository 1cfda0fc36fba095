"""Functions of float32 computed in float64, two registers for one: right to about half a unit.

In float64 the usual pains (cancellation, range reduction, overflow on the way) are gone, and the
polynomials need only be good to 2 ** -28 or so. Coefficients: minimax fits of the relative error.
Every function takes and returns float64 lanes that hold float32 numbers; `float32_by` wraps them.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from lucerne._src.backends.cpu.emit.builder import I64, LLVMFunction, LLVMValue
from lucerne._src.backends.cpu.math.calls import libm
from lucerne._src.backends.cpu.math.integer import any_lane
from lucerne._src.backends.cpu.math.vector import (
    absolute,
    at_least,
    at_most,
    copysign,
    narrow,
    nearest,
    polynomial,
    power_of_two,
    reciprocal,
    split_exponent,
    widen,
)

Wide = Callable[..., LLVMValue]
INFINITY = math.inf


def float32_by(wide: Wide) -> Wide:
    """A function of float64 lanes as one of float32 lanes."""

    def function(f: LLVMFunction, *args: LLVMValue) -> LLVMValue:
        return narrow(f, wide(f, *[widen(f, a) for a in args]))

    return function


# ---- exponentials -------------------------------------------------------------------------------

_EXPM1 = (
    0.0013814317103649067, 0.008368851228885435, 0.04166840113207922, 0.16666519522203255,
    0.4999999337285452,
)  # fmt: skip


def expm1_parts(f: LLVMFunction, x: LLVMValue) -> tuple[LLVMValue, LLVMValue]:
    """(e ** r - 1, 2 ** n) with x = r + n ln 2, for |x| up to some hundred."""
    n = nearest(f, x * math.log2(math.e))
    r = f.fma(n, -math.log(2.0), x)
    tail = polynomial(f, r, _EXPM1)
    return f.fma(tail, r * r, r), power_of_two(f, n)


def expm1(f: LLVMFunction, x: LLVMValue) -> LLVMValue:
    part, power = expm1_parts(f, at_least(f, at_most(f, x, 100.0), -100.0))
    found = f.fma(part, power, power - 1.0)
    return _kept_zero(f, x, found)


def sinh(f: LLVMFunction, x: LLVMValue) -> LLVMValue:
    """(u + u / (u + 1)) / 2 with u = expm1(|x|)."""
    part, power = expm1_parts(f, at_most(f, absolute(f, x), 100.0))
    u = f.fma(part, power, power - 1.0)
    return copysign(f, (u + u * reciprocal(f, u + 1.0)) * 0.5, x)


def cosh(f: LLVMFunction, x: LLVMValue) -> LLVMValue:
    part, power = expm1_parts(f, at_most(f, absolute(f, x), 100.0))
    e = f.fma(part, power, power)
    return (e + reciprocal(f, e)) * 0.5


def tanh(f: LLVMFunction, x: LLVMValue) -> LLVMValue:
    """u / (u + 2) with u = expm1(2 |x|)."""
    size = at_most(f, absolute(f, x), 10.0)
    part, power = expm1_parts(f, size + size)
    u = f.fma(part, power, power - 1.0)
    return copysign(f, u * reciprocal(f, u + 2.0), x)


def _kept_zero(f: LLVMFunction, x: LLVMValue, found: LLVMValue) -> LLVMValue:
    """-0.0 where x is: sums lose it."""
    return f.select(f.compare("eq", x, 0.0), x, found)


# ---- logarithms ---------------------------------------------------------------------------------

_LOG = (
    0.1001490929314399, -0.10445568449535565, 0.07043391937402234, -0.07741499296190855,
    0.09153676148594357, -0.10051972540217731, 0.11107816118483567, -0.12497595558284216,
    0.14285806574529294, -0.16666723175060022, 0.19999998767016208, -0.24999999420980357,
    0.3333333333902374, -0.5000000000167392,
)  # fmt: skip


def log_parts(f: LLVMFunction, x: LLVMValue) -> tuple[LLVMValue, LLVMValue]:
    """(log(m), e) with x = m * 2 ** e and m in [2/3, 4/3); specials come with e."""
    mantissa, exponent = split_exponent(f, x)
    large = f.compare("ge", mantissa, 4.0 / 3.0)
    t = f.select(large, mantissa * 0.5, mantissa) - 1.0
    tail = polynomial(f, t, _LOG)
    return f.fma(tail, t * t, t), f.select(large, exponent + 1.0, exponent)


def log(f: LLVMFunction, x: LLVMValue) -> LLVMValue:
    part, exponent = log_parts(f, x)
    return f.fma(exponent, math.log(2.0), part)


def log2(f: LLVMFunction, x: LLVMValue) -> LLVMValue:
    part, exponent = log_parts(f, x)
    return f.fma(part, math.log2(math.e), exponent)


def log10(f: LLVMFunction, x: LLVMValue) -> LLVMValue:
    part, exponent = log_parts(f, x)
    return f.fma(exponent, math.log10(2.0), part * math.log10(math.e))


def log1p(f: LLVMFunction, x: LLVMValue) -> LLVMValue:
    """log(u) with u = 1 + x, and what u lost in rounding."""
    u = x + 1.0
    lost = x - (u - 1.0)
    found = log(f, u) + f.select(f.compare("lt", absolute(f, x), 1.0), lost, 0.0)
    return _kept_zero(f, x, found)


def asinh(f: LLVMFunction, x: LLVMValue) -> LLVMValue:
    size = absolute(f, x)
    squared = size * size
    root = f.intrinsic("llvm.sqrt", x.type, [squared + 1.0])
    inner = size + squared / (root + 1.0)
    found = f.select(f.compare("eq", size, INFINITY), size, log1p(f, inner))
    return copysign(f, found, x)


def acosh(f: LLVMFunction, x: LLVMValue) -> LLVMValue:
    t = x - 1.0
    root = f.intrinsic("llvm.sqrt", x.type, [t * (x + 1.0)])
    inner = f.select(f.compare("lt", x, 1.0), f.constant(math.nan, x.type), t + root)
    return log1p(f, inner)


def atanh(f: LLVMFunction, x: LLVMValue) -> LLVMValue:
    size = absolute(f, x)
    return copysign(f, log1p(f, (size + size) / (1.0 - size)) * 0.5, x)


def power(f: LLVMFunction, x: LLVMValue, y: LLVMValue) -> LLVMValue:
    """|x| ** y by way of logarithms, then C's rules for signs, zeros and infinities.

    x = 1 and y = 0 give 1 whatever the other is; the power of a negative number needs a whole y.
    """
    part, exponent = log_parts(f, absolute(f, x))
    bits = f.fma(part, math.log2(math.e), exponent) * y
    bits = at_least(f, at_most(f, bits, 200.0), -200.0)
    n = nearest(f, bits)
    r = (bits - n) * math.log(2.0)
    tail = polynomial(f, r, _EXPM1)
    found = (f.fma(tail, r * r, r) + 1.0) * power_of_two(f, n)
    whole = f.compare("eq", f.intrinsic("llvm.trunc", y.type, [y]), y)
    half = y * 0.5
    odd = whole & f.compare("ne", f.intrinsic("llvm.trunc", y.type, [half]), half)
    signed = f.select(odd, copysign(f, found, x), found)
    below = f.compare("lt", x, 0.0) & f.compare("gt", x, -INFINITY)
    wrong = below & f.bits("xor", whole, True)
    signed = f.select(wrong, f.constant(math.nan, x.type), signed)
    endless = f.compare("eq", absolute(f, y), INFINITY)
    one = f.compare("eq", x, 1.0) | f.compare("eq", y, 0.0)
    one = one | (f.compare("eq", x, -1.0) & endless)
    return f.select(one, f.constant(1.0, x.type), signed)


def fmod(f: LLVMFunction, x: LLVMValue, y: LLVMValue) -> LLVMValue:
    """C's remainder of float32 lanes: exact in float64 while the quotient has few digits, else (and
    for zero divisors and nan) by the C library."""
    a, b = widen(f, x), widen(f, y)
    quotient = a / b
    far = any_lane(f, f.compare("uge", absolute(f, quotient), 2.0**27))
    with f.if_(far) as branch:
        branch.give(libm(f, "fmod", x, y))
    with branch.else_():
        rest = f.fma(-f.intrinsic("llvm.trunc", a.type, [quotient]), b, a)
        rest = f.select(f.compare("eq", absolute(f, b), INFINITY), a, rest)
        branch.give(narrow(f, copysign(f, rest, a)))
    return branch.results[0]


# ---- trigonometric ------------------------------------------------------------------------------

_FAR = 2.0**27  # beyond it the C library reduces the argument
_PI_HIGH = 3.141592653589793
_PI_LOW = 1.2246467991473532e-16
_ROUNDER = 1.5 * 2.0**52  # added, it leaves the whole part in the low bits
_SIN = (
    2.605779985933115e-06, -0.00019809602597787822, 0.008333066241813096, -0.16666659550266746, 1.0,
)  # fmt: skip
_SIN_SHORT = (-0.00019517297359757067, 0.008332178133078027, -0.16666654943483328, 1.0)
_COS_SHORT = (
    2.438356571372566e-05, -0.0013886681629023425, 0.0416666203564533, -0.4999999969446929, 1.0,
)  # fmt: skip


def near_or_library(name: str, near: Wide) -> Wide:
    """A function of float32 lanes: `near` in float64, the C library when any lane is far out."""

    def function(f: LLVMFunction, x: LLVMValue) -> LLVMValue:
        far = any_lane(f, f.compare("ge", absolute(f, x), _FAR))
        with f.if_(far) as branch:
            branch.give(libm(f, name, x))
        with branch.else_():
            branch.give(narrow(f, near(f, widen(f, x))))
        return branch.results[0]

    return function


def _alternating_sine(f: LLVMFunction, x: LLVMValue, n: LLVMValue, sign: LLVMValue) -> LLVMValue:
    """sin(x - n pi), turned over where the lowest bit of `sign` is set."""
    r = f.fma(n, -_PI_HIGH, x)
    r = f.fma(n, -_PI_LOW, r)
    found = polynomial(f, r * r, _SIN) * r
    turned = f.bitcast(found, sign.type) ^ (sign << 63)
    return f.bitcast(turned, x.type)


def sin(f: LLVMFunction, x: LLVMValue) -> LLVMValue:
    rounded = f.fma(x, 1.0 / math.pi, _ROUNDER)
    count = f.bitcast(rounded, I64.vector(x.type.lanes))
    return _alternating_sine(f, x, rounded - _ROUNDER, count)


def cos(f: LLVMFunction, x: LLVMValue) -> LLVMValue:
    """A sine half a turn on: cos(x) = -sin(x - (k + 1/2) pi) for even k."""
    rounded = f.fma(x, 1.0 / math.pi, -0.5) + _ROUNDER
    count = f.bitcast(rounded, I64.vector(x.type.lanes))
    return _alternating_sine(f, x, (rounded - _ROUNDER) + 0.5, count + 1)


def tan(f: LLVMFunction, x: LLVMValue) -> LLVMValue:
    """sin / cos, or -cos / sin in the odd quarters."""
    rounded = f.fma(x, 2.0 / math.pi, _ROUNDER)
    count = f.bitcast(rounded, I64.vector(x.type.lanes))
    n = rounded - _ROUNDER
    r = f.fma(n, -_PI_HIGH / 2, x)
    r = f.fma(n, -_PI_LOW / 2, r)
    s = r * r
    sine = polynomial(f, s, _SIN_SHORT) * r
    cosine = polynomial(f, s, _COS_SHORT)
    odd = f.compare("ne", count & 1, f.zero(count.type))
    over, under = f.select(odd, -cosine, sine), f.select(odd, sine, cosine)
    return over * reciprocal(f, under)


# ---- and back -----------------------------------------------------------------------------------

_ASIN = (
    0.03469286324309146, 0.007469201762325755, 0.02461834327711975, 0.030110254774408162,
    0.044660163492894776, 0.07499948155743001, 0.16666667189850176,
)  # fmt: skip
_ATAN = (
    -0.000697932912522264, 0.004926223773296777, -0.016299136844291965, 0.034475457350339196,
    -0.05451562185820817, 0.07259419971710084, -0.08985433035302282, 0.11094502435639002,
    -0.14284167090621458, 0.19999927236156953, -0.33333332133644766,
)  # fmt: skip


def _asin_parts(f: LLVMFunction, x: LLVMValue) -> tuple[LLVMValue, LLVMValue, LLVMValue]:
    """(whether |x| > 1/2, asin of |x| or of sqrt((1 - |x|) / 2), |x|)."""
    size = absolute(f, x)
    large = f.compare("gt", size, 0.5)
    squared = f.select(large, f.fma(size, -0.5, 0.5), size * size)
    root = f.select(large, f.intrinsic("llvm.sqrt", x.type, [squared]), size)
    return large, f.fma(polynomial(f, squared, _ASIN), squared * root, root), size


def asin(f: LLVMFunction, x: LLVMValue) -> LLVMValue:
    large, angle, _ = _asin_parts(f, x)
    found = f.select(large, f.fma(angle, -2.0, math.pi / 2), angle)
    return copysign(f, found, x)


def acos(f: LLVMFunction, x: LLVMValue) -> LLVMValue:
    large, angle, _ = _asin_parts(f, x)
    doubled = angle + angle
    outer = f.select(f.compare("lt", x, 0.0), math.pi - doubled, doubled)
    return f.select(large, outer, math.pi / 2 - copysign(f, angle, x))


def atan2(f: LLVMFunction, y: LLVMValue, x: LLVMValue) -> LLVMValue:
    """The angle of the smaller side over the larger, then turned into its quarter."""
    high, wide = absolute(f, y), absolute(f, x)
    steep = f.compare("gt", high, wide)
    large, small = f.select(steep, high, wide), f.select(steep, wide, high)
    ratio = small / large
    same = f.compare("eq", large, small)
    ratio = f.select(same, f.select(f.compare("eq", large, 0.0), f.zero(x.type), 1.0), ratio)
    s = ratio * ratio
    angle = f.fma(polynomial(f, s, _ATAN), s * ratio, ratio)
    angle = f.select(steep, math.pi / 2 - angle, angle)
    bits = f.bitcast(x, I64.vector(x.type.lanes))
    angle = f.select(bits < f.zero(bits.type), math.pi - angle, angle)
    found = copysign(f, angle, y)
    return f.select(f.compare("uno", x, y), x + y, found)


def atan(f: LLVMFunction, x: LLVMValue) -> LLVMValue:
    size = absolute(f, x)
    steep = f.compare("gt", size, 1.0)
    ratio = f.select(steep, 1.0 / size, size)
    s = ratio * ratio
    angle = f.fma(polynomial(f, s, _ATAN), s * ratio, ratio)
    return copysign(f, f.select(steep, math.pi / 2 - angle, angle), x)


def hypot(f: LLVMFunction, x: LLVMValue, y: LLVMValue) -> LLVMValue:
    """Squares of float32 don't overflow in float64; infinity wins over nan."""
    found = f.intrinsic("llvm.sqrt", x.type, [f.fma(x, x, y * y)])
    either = f.compare("eq", absolute(f, x), INFINITY) | f.compare("eq", absolute(f, y), INFINITY)
    return f.select(either, f.constant(INFINITY, x.type), found)


FUNCTIONS: dict[str, Wide] = {
    **{fn.__name__: near_or_library(fn.__name__, fn) for fn in (sin, cos, tan)},
    "pow": float32_by(power),
    "fmod": fmod,
    **{
        fn.__name__: float32_by(fn)
        for fn in (
            expm1, sinh, cosh, tanh, log2, log10, log1p, asinh, acosh, atanh, asin, acos, atan,
            atan2, hypot,
        )
    },
}  # fmt: skip
"""By instruction name, on float32 lanes."""
