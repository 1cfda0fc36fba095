"""Normal numbers from uniform ones, sixteen at a time, with the bits of PyTorch's kernels.

Box and Muller's transform of eight pairs. In float32 the logarithm, sine and cosine are the
polynomials of the Cephes library (S. Moshier) with the multiply-adds fused, so the order of the
operations below is part of the contract. In float64 they are libm's.
"""

from __future__ import annotations

import math

from lucerne._src.backends.cpu.emit.builder import (
    F32,
    F64,
    I32,
    PTR,
    LLVMFunction,
    LLVMValue,
    Module,
)

PAIRS = 8
_LOG = (
    7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
    -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
)  # fmt: skip
_COS = (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)
_SIN = (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)
_PI_OVER_4 = (-0.78515625, -2.4187564849853515625e-4, -3.77489497744594108e-8)
_LN2_LOW, _LN2_HIGH = -2.12194440e-4, 0.693359375
_SQRT_HALF = 0.707106781186547524
_FOUR_OVER_PI = 1.27323954473516


def _horner(f: LLVMFunction, coefficients: tuple[float, ...], x: LLVMValue) -> LLVMValue:
    y = f.fma(x, coefficients[0], coefficients[1])
    for c in coefficients[2:]:
        y = f.fma(y, x, c)
    return y


def _log(f: LLVMFunction, x: LLVMValue) -> LLVMValue:
    """Natural logarithm of positive normal numbers."""
    bits = f.bitcast(x, I32.vector(x.type.lanes))
    exponent = f.convert("sitofp", f.bits("lshr", bits, 23) - 126, F32)
    m = f.bitcast((bits & 0x007FFFFF) | 0x3F000000, x.type)
    low = f.compare("lt", m, _SQRT_HALF)
    exponent = exponent - f.select(low, f.constant(1.0, x.type), f.constant(0.0, x.type))
    m = (m - 1.0) + f.select(low, m, f.constant(0.0, x.type))
    z = m * m
    y = _horner(f, _LOG, m) * m
    y = f.fma(y, z, exponent * _LN2_LOW)
    y = y - z * 0.5
    return f.fma(exponent, _LN2_HIGH, m + y)


def _sine_cosine(f: LLVMFunction, x: LLVMValue) -> tuple[LLVMValue, LLVMValue]:
    """Of angles in [0, 2 pi], reduced by the nearest even eighth of a turn."""
    octant = (f.convert("fptosi", x * _FOUR_OVER_PI, I32) + 1) & ~1
    turns = f.convert("sitofp", octant, F32)
    for part in _PI_OVER_4:
        x = f.fma(turns, part, x)
    z = x * x
    c = _horner(f, _COS, z) * z
    c = f.fma(c, z, z * -0.5) + 1.0
    s = _horner(f, _SIN, z) * z
    s = f.fma(s, x, x)
    straight = f.compare("eq", octant & 2, f.zero(octant.type))
    sine, cosine = f.select(straight, s, c), f.select(straight, c, s)
    return (
        _negated_where(f, sine, (octant & 4) << 29),
        _negated_where(f, cosine, (~(octant - 2) & 4) << 29),
    )


def _negated_where(f: LLVMFunction, v: LLVMValue, sign: LLVMValue) -> LLVMValue:
    return f.bitcast(f.bitcast(v, sign.type) ^ sign, v.type)


def sixteen_f32(f: LLVMFunction, u: LLVMValue, mean: LLVMValue, std: LLVMValue) -> LLVMValue:
    """Sixteen uniform float32 as sixteen normal ones."""
    first, second = f.shuffle(u, None, range(PAIRS)), f.shuffle(u, None, range(PAIRS, 2 * PAIRS))
    one = f.constant(1.0, first.type)
    radius = f.intrinsic("llvm.sqrt", first.type, [_log(f, one - first) * -2.0])
    sine, cosine = _sine_cosine(f, second * (2 * math.pi))
    pair = f.shuffle(radius * cosine, radius * sine, range(2 * PAIRS))
    return f.fma(pair, f.splat(std, 2 * PAIRS), f.splat(mean, 2 * PAIRS))


def write_sixteen_f64(m: Module) -> None:
    """`void normal16(ptr u, ptr target, double mean, double std)`, one pair at a time."""
    params = [("u", PTR), ("target", PTR), ("mean", F64), ("std", F64)]
    with m.function("normal16", params, internal=True) as f:
        u, target, mean, std = f.args
        with f.loop(0, PAIRS, at_least_once=True) as loop:
            first = f.load(F64, f.at(u, loop.index, F64))
            second = f.load(F64, f.at(u, loop.index + PAIRS, F64))
            log = f.call("log", F64, [1.0 - first])
            radius = f.intrinsic("llvm.sqrt", F64, [log * -2.0])
            angle = second * (2.0 * math.pi)
            cosine = radius * f.call("cos", F64, [angle])
            sine = radius * f.call("sin", F64, [angle])
            f.store(f.fma(cosine, std, mean), f.at(target, loop.index, F64))
            f.store(f.fma(sine, std, mean), f.at(target, loop.index + PAIRS, F64))
