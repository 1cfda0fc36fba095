"""Fused multiply-adds and libm calls that give the same bits as compiled C, over whole arrays.

NumPy has no fused multiply-add, and its float64 log, sin and cos may differ from libm's in the
last bit on machines with wide vectors.  PyTorch's streams depend on both, so both are spelled out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from lucerne._src.tensor.random.kinds import F32, F64, Mask

_LOW29 = np.uint64((1 << 29) - 1)  # bits of a float64 below the last bit of a float32
_HALF29 = np.uint64(1 << 28)
_TINY32 = 2.0**-126
_SPLIT = 134217729.0  # 2^27 + 1: cuts a float64 into two halves of 26 bits


def two_sum(a: F64, b: F64) -> tuple[F64, F64]:
    """The rounded sum and the exact rounding error."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def add_to_odd(a: F64, b: F64) -> F64:
    """a + b rounded to odd: a later rounding to fewer bits is then the only one that counts."""
    s, err = two_sum(a, b)
    bits = np.ascontiguousarray(s).view(np.int64)
    step = np.where((err > 0) == (s > 0), 1, -1)
    return np.where((err != 0) & (bits & 1 == 0), bits + step, bits).view(np.float64)


def round_product_sum(product: F64, addend: F64) -> F32:
    """product + addend rounded once to float32, when `product` is an exact product of float32s.

    The float64 sum decides unless it falls on the middle between two float32s: only those few
    elements are summed again with their error in view.  Results must not be subnormal.
    """
    total = product + addend
    result = total.astype(np.float32)
    middle = (total.view(np.uint64) & _LOW29) == _HALF29
    if middle.any():
        result[middle] = _careful(product, addend, middle)
    return result


def _careful(product: F64, addend: F64, where: Mask) -> F32:
    product, addend = np.broadcast_arrays(product, addend)
    return add_to_odd(product[where], addend[where]).astype(np.float32)


def fma32(a: F32, b: F32, c: F32) -> F32:
    """a * b + c with one rounding, in float32, for any finite values."""
    with np.errstate(over="ignore", under="ignore"):
        product, addend = np.broadcast_arrays(
            np.asarray(a, np.float64) * np.asarray(b, np.float64), np.asarray(c, np.float64)
        )
        result = round_product_sum(np.array(product, ndmin=1), np.array(addend, ndmin=1))
        tiny = np.abs(np.atleast_1d(product + addend)) < _TINY32
        if tiny.any():
            result[tiny] = _careful(np.atleast_1d(product), np.atleast_1d(addend), tiny)
    return result.reshape(product.shape)


def _two_product(a: F64, b: F64) -> tuple[F64, F64]:
    """The rounded product and its exact error (Dekker, with Veltkamp's split)."""
    product = a * b
    t = _SPLIT * a
    a_high = t - (t - a)
    a_low = a - a_high
    t = _SPLIT * b
    b_high = t - (t - b)
    b_low = b - b_high
    err = a_low * b_low - (((product - a_high * b_high) - a_low * b_high) - a_high * b_low)
    return product, err


def _fma_extreme(a: float, b: float, c: float) -> float:
    """One element beyond the range where the error terms are exact: rational arithmetic."""
    if not (math.isfinite(a) and math.isfinite(b) and math.isfinite(c)):
        return a * b + c
    total = Fraction(a) * Fraction(b) + Fraction(c)
    try:
        return float(total) if total else a * b + c
    except OverflowError:
        return math.inf if total > 0 else -math.inf


def _needs_rationals(a: F64, b: F64, c: F64, product: F64) -> Mask:
    big, small = 2.0**900, 2.0**-900
    wild = ~((np.abs(a) < big) & (np.abs(b) < big) & (np.abs(product) < big) & (np.abs(c) < big))
    faint = (np.abs(product) < small) & (a != 0) & (b != 0)
    unsafe: Mask = wild | faint | ((np.abs(c) < small) & (c != 0))
    return unsafe


def fma64(a: F64, b: F64, c: F64) -> F64:
    """a * b + c with one rounding, in float64 (Boldo and Melquiond's sum of three terms)."""
    arrays = np.broadcast_arrays(*(np.asarray(v, np.float64) for v in (a, b, c)))
    x, y, z = (np.ascontiguousarray(v).reshape(-1) for v in arrays)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        high, low = _two_product(x, y)
        mid, mid_low = two_sum(z, low)
        top, top_low = two_sum(high, mid)
        result = top + add_to_odd(mid_low, top_low)
        odd_cases = _needs_rationals(x, y, z, high)
    for i in np.flatnonzero(odd_cases):
        result[i] = _fma_extreme(float(x[i]), float(y[i]), float(z[i]))
    return result.reshape(arrays[0].shape)


def each(function: Callable[[float], float], values: F64) -> F64:
    """Call libm (through `math`) on every element: slower than NumPy's loops, but its very bits."""
    flat = np.fromiter(map(function, values.ravel().tolist()), np.float64, values.size)
    return flat.reshape(values.shape)


def log(value: float) -> float:
    """C's log: minus infinity at zero instead of an exception."""
    return math.log(value) if value > 0 else -math.inf


def exp(value: float) -> float:
    """C's exp: infinity on overflow instead of an exception."""
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf
