"""Complex arithmetic on pairs of values, and the C library's complex functions."""

from __future__ import annotations

from lucerne._src.backends.cpu.emit.builder import F64, LLVMFunction, LLVMValue
from lucerne._src.backends.cpu.math.calls import libm_complex
from lucerne._src.backends.cpu.math.table import real_function

Pair = tuple[LLVMValue, LLVMValue]

LIBRARY = {
    "exp": "cexp", "log": "clog", "sqrt": "csqrt", "sin": "csin", "cos": "ccos", "tan": "ctan",
    "sinh": "csinh", "cosh": "ccosh", "tanh": "ctanh", "asin": "casin", "acos": "cacos",
    "atan": "catan", "asinh": "casinh", "acosh": "cacosh", "atanh": "catanh",
}  # fmt: skip
"""Instruction to the C function of complex doubles."""


def multiply(f: LLVMFunction, a: Pair, b: Pair) -> Pair:
    (ar, ai), (br, bi) = a, b
    return ar * br - ai * bi, ar * bi + ai * br


def divide(f: LLVMFunction, a: Pair, b: Pair) -> Pair:
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


def library(f: LLVMFunction, name: str, x: Pair) -> Pair:
    """A function of one complex number."""
    return COMPOSED[name](f, x) if name in COMPOSED else libm_complex(f, LIBRARY[name], *x)


def expm1(f: LLVMFunction, x: Pair) -> Pair:
    """exp(x) - 1 from real functions that are exact for small numbers."""
    re, im = x
    grown = real_function(f, "expm1", re)
    half = real_function(f, "sin", im * 0.5)
    cosine, sine = real_function(f, "cos", im), real_function(f, "sin", im)
    return grown * cosine - half * half * 2.0, real_function(f, "exp", re) * sine


def log1p(f: LLVMFunction, z: Pair) -> Pair:
    """log(1 + z): the size of 1 + z by log1p of its square less 1, unless that overflows."""
    re, im = z
    angle = real_function(f, "atan2", im, re + 1.0)
    x, y = f.convert("fpext", re, F64), f.convert("fpext", im, F64)
    less_one = f.convert("fptrunc", x * (x + 2.0) + y * y, re.type)
    near = real_function(f, "log1p", less_one) * 0.5
    far = real_function(f, "log", real_function(f, "hypot", re + 1.0, im))
    size = f.intrinsic("llvm.fabs", re.type, [re]) + f.intrinsic("llvm.fabs", im.type, [im])
    return f.select(f.compare("lt", size, 1e6), near, far), angle


COMPOSED = {"expm1": expm1, "log1p": log1p}
"""Functions the C library lacks."""


def power(f: LLVMFunction, a: Pair, b: Pair) -> Pair:
    """`a ** b`; anything to the power 0 is 1, and zero to a power with positive real part is 0."""
    re, im = libm_complex(f, "cpow", *a, *b)
    origin = f.compare("eq", a[0], 0.0) & f.compare("eq", a[1], 0.0)
    vanish = origin & f.compare("gt", b[0], 0.0)
    re, im = f.select(vanish, f.zero(re.type), re), f.select(vanish, f.zero(im.type), im)
    one = f.compare("eq", b[0], 0.0) & f.compare("eq", b[1], 0.0)
    return f.select(one, f.constant(1.0, re.type), re), f.select(one, f.zero(im.type), im)
