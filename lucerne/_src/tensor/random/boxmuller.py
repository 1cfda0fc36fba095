"""Normal numbers from uniform ones, sixteen at a time, with the bits of PyTorch's AVX2 kernel.

Box and Muller's transform of eight pairs.  In float32 the logarithm, sine and cosine are the
polynomials of the Cephes library (S. Moshier) with the multiply-adds fused, so the order of the
operations below is part of the contract.  In float64 they are libm's.
"""

from __future__ import annotations

import math

import numpy as np

from lucerne._src.tensor.random.exact import each, fma32, fma64, log, round_product_sum
from lucerne._src.tensor.random.kinds import F32, F64

# Rows of sixteen worked on at once: the temporaries stay in the second-level cache.
_ROWS = 768

_ZERO = np.float32(0)
_ONE = np.float32(1)
_HALF = np.float32(0.5)
_SQRT_HALF = np.float32(0.707106781186547524)
_TWO_PI = np.float32(2 * math.pi)
_FOUR_OVER_PI = np.float32(1.27323954473516)


def _coefficients(*values: float) -> list[np.float64]:
    """Float32 constants, widened once so that products with them are exact in float64."""
    return [np.float64(np.float32(v)) for v in values]


_LOG = _coefficients(
    7.0376836292e-2,
    -1.1514610310e-1,
    1.1676998740e-1,
    -1.2420140846e-1,
    1.4249322787e-1,
    -1.6668057665e-1,
    2.0000714765e-1,
    -2.4999993993e-1,
    3.3333331174e-1,
)
_LN2_LOW = np.float32(-2.12194440e-4)
(_LN2_HIGH,) = _coefficients(0.693359375)
_COS = _coefficients(2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)
_SIN = _coefficients(-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)
_PI_OVER_4 = _coefficients(-0.78515625, -2.4187564849853515625e-4, -3.77489497744594108e-8)


def _wide(values: F32) -> F64:
    return values.astype(np.float64)


def _horner(coefficients: list[np.float64], x: F64) -> F32:
    """Evaluate a polynomial by fused steps; `x` holds float32 values."""
    second = np.full_like(x, coefficients[1])
    y = round_product_sum(x * coefficients[0], second)
    for c in coefficients[2:]:
        second.fill(c)
        y = round_product_sum(_wide(y) * x, second)
    return y


def log32(x: F32) -> F32:
    """Natural logarithm of positive normal numbers."""
    bits = x.view(np.uint32)
    exponent = ((bits >> np.uint32(23)).astype(np.int32) - 126).astype(np.float32)
    m = ((bits & np.uint32(0x007FFFFF)) | np.uint32(0x3F000000)).view(np.float32)  # [0.5, 1)
    low = m < _SQRT_HALF
    exponent -= low
    m = (m - _ONE) + np.where(low, m, _ZERO)  # in [sqrt(1/2) - 1, sqrt(2) - 1)
    z = m * m
    y = _horner(_LOG, _wide(m)) * m
    y = round_product_sum(_wide(y) * _wide(z), _wide(exponent * _LN2_LOW))
    y -= z * _HALF
    return round_product_sum(_wide(exponent) * _LN2_HIGH, _wide(m + y))


def sincos32(x: F32) -> tuple[F32, F32]:
    """Sine and cosine of angles in [0, 2 pi], reduced by the nearest even eighth of a turn."""
    octant = ((x * _FOUR_OVER_PI).astype(np.int32) + 1) & ~1
    turns = octant.astype(np.float64)
    for part in _PI_OVER_4:
        x = round_product_sum(turns * part, _wide(x))
    z = x * x
    wide_x, wide_z = _wide(x), _wide(z)
    c = _horner(_COS, wide_z) * z
    c = round_product_sum(_wide(c) * wide_z, _wide(z * -_HALF)) + _ONE
    s = _horner(_SIN, wide_z) * z
    s = round_product_sum(_wide(s) * wide_x, wide_x)
    straight = (octant & 2) == 0
    sine, cosine = np.where(straight, s, c), np.where(straight, c, s)
    np.negative(sine, out=sine, where=(octant & 4) != 0)
    np.negative(cosine, out=cosine, where=(~(octant - 2) & 4) != 0)
    return sine, cosine


def normal16_f32(uniforms: F32, mean: float, std: float) -> F32:
    """Transform rows of sixteen uniforms: (k, 16) -> (k, 16)."""
    out = np.empty_like(uniforms)
    standard = mean == 0 and std == 1
    shift, scale = np.array(mean, np.float32), np.array(std, np.float32)
    for first in range(0, len(uniforms), _ROWS):
        u = uniforms[first : first + _ROWS]
        radius = np.sqrt(np.float32(-2) * log32(_ONE - u[:, :8]))
        sine, cosine = sincos32(_TWO_PI * u[:, 8:])
        pair = np.concatenate([radius * cosine, radius * sine], axis=1)
        # Adding zero is what a multiply-add by (1, 0) leaves: no negative zero.
        out[first : first + _ROWS] = pair + _ZERO if standard else fma32(pair, scale, shift)
    return out


def normal16_f64(uniforms: F64, mean: float, std: float) -> F64:
    """The same in float64, with libm's functions."""
    radius = np.sqrt(-2.0 * each(log, 1.0 - uniforms[:, :8]))
    theta = (2.0 * math.pi) * uniforms[:, 8:]
    pair = np.concatenate([radius * each(math.cos, theta), radius * each(math.sin, theta)], axis=1)
    if mean == 0 and std == 1:
        return pair + 0.0
    return fma64(pair, np.array(std), np.array(mean))
