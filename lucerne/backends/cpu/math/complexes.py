"""Complex arithmetic on pairs of values, and the C library's complex functions."""

from __future__ import annotations

from lucerne.backends.cpu.emit.builder import Function, Value
from lucerne.backends.cpu.math.calls import libm_complex

Pair = tuple[Value, Value]

LIBRARY = {
    "exp": "cexp", "log": "clog", "sqrt": "csqrt", "sin": "csin", "cos": "ccos", "tan": "ctan",
    "sinh": "csinh", "cosh": "ccosh", "tanh": "ctanh", "asin": "casin", "acos": "cacos",
    "atan": "catan", "asinh": "casinh", "acosh": "cacosh", "atanh": "catanh",
}  # fmt: skip
"""Instruction to the C function of complex doubles."""


def multiply(f: Function, a: Pair, b: Pair) -> Pair:
    (ar, ai), (br, bi) = a, b
    return ar * br - ai * bi, ar * bi + ai * br


def divide(f: Function, a: Pair, b: Pair) -> Pair:
    """By the ratio of the divisor's parts (Smith), so that squares can't overflow."""
    (ar, ai), (br, bi) = a, b
    size_r, size_i = (f.intrinsic("llvm.fabs", v.type, [v]) for v in b)
    flat = f.compare("ge", size_r, size_i)
    large, small = f.select(flat, br, bi), f.select(flat, bi, br)
    ratio = small / large
    scale = 1.0 / (large + small * ratio)
    re = f.select(flat, ar + ai * ratio, ar * ratio + ai) * scale
    im = f.select(flat, ai - ar * ratio, ai * ratio - ar) * scale
    none = f.compare("eq", size_r, 0.0) & f.compare("eq", size_i, 0.0)
    return f.select(none, ar / size_r, re), f.select(none, ai / size_r, im)


def library(f: Function, name: str, x: Pair) -> Pair:
    """A function of the C library; exp2 and the logarithms to other bases by way of e."""
    return libm_complex(f, LIBRARY[name], *x)


def power(f: Function, a: Pair, b: Pair) -> Pair:
    """`a ** b`; anything to the power 0 is 1, and zero to a power with positive real part is 0."""
    re, im = libm_complex(f, "cpow", *a, *b)
    origin = f.compare("eq", a[0], 0.0) & f.compare("eq", a[1], 0.0)
    vanish = origin & f.compare("gt", b[0], 0.0)
    re, im = f.select(vanish, f.zero(re.type), re), f.select(vanish, f.zero(im.type), im)
    one = f.compare("eq", b[0], 0.0) & f.compare("eq", b[1], 0.0)
    return f.select(one, f.constant(1.0, re.type), re), f.select(one, f.zero(im.type), im)
