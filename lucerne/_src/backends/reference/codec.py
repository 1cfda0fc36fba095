"""Types NumPy lacks, carried as unsigned bits: widen to a type it has, and round back."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from lucerne._src.base import dtype as dt

Array = np.ndarray[Any, Any]


def widen(bits: Array, dtype: dt.dtype) -> Array:
    """Stored bits as values of `dtype.compute`; native types pass through."""
    if dtype.native:
        return bits
    return _WIDEN[dtype](bits)


def narrow(values: Array, dtype: dt.dtype) -> Array:
    """Values rounded to `dtype`, as the array that is stored (ties to even)."""
    if dtype.native:
        return cast(values, dtype.storage)
    return _NARROW[dtype](values)


def cast(values: Array, to: np.dtype[Any]) -> Array:
    """NumPy conversion with C's meaning: complex to real drops the imaginary part."""
    if values.dtype == to:
        return values
    if values.dtype.kind == "c" and to.kind not in "cb":
        values = values.real
    if values.dtype.kind == "f" and to.kind in "iu":
        return _float_to_int(values, to)
    return values.astype(to)


def _float_to_int(values: Array, to: np.dtype[Any]) -> Array:
    """Truncate; out-of-range values wrap through int64, as x86 code does."""
    if to.itemsize == 8:
        return values.astype(to)
    if to.kind == "i" and to.itemsize == 4:
        return (
            values.astype(np.int64).astype(to) if values.dtype == np.float64 else values.astype(to)
        )
    return values.astype(np.int64).astype(to)


def _widen_bfloat16(bits: Array) -> Array:
    wide: Array = (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    if bits.flags.c_contiguous or not wide.flags.c_contiguous:
        return wide
    spread: Array = np.empty((*bits.shape, 2), np.float32)[..., 0]  # draws ask whether it has gaps
    spread[...] = wide
    return spread


def _narrow_bfloat16(values: Array) -> Array:
    v = np.ascontiguousarray(cast(values, np.dtype(np.float32)))
    b = v.view(np.uint32)
    rounded = (b + (np.uint32(0x7FFF) + ((b >> np.uint32(16)) & np.uint32(1)))) >> np.uint32(16)
    return np.where(np.isnan(v), np.uint32(0x7FC0), rounded).astype(np.uint16).reshape(values.shape)


def _widen_complex32(bits: Array) -> Array:
    halves = np.ascontiguousarray(bits).view(np.float16).reshape(*bits.shape, 2).astype(np.float32)
    return halves.view(np.complex64).reshape(bits.shape)


def _narrow_complex32(values: Array) -> Array:
    v = np.ascontiguousarray(cast(values, np.dtype(np.complex64)))
    halves = v.view(np.float32).reshape(*values.shape, 2).astype(np.float16)
    return halves.view(np.uint32).reshape(values.shape)


_LAYOUTS = {
    dt.float8_e4m3fn: (4, 3, 7, "fn"),
    dt.float8_e5m2: (5, 2, 15, "ieee"),
    dt.float8_e4m3fnuz: (4, 3, 8, "fnuz"),
    dt.float8_e5m2fnuz: (5, 2, 16, "fnuz"),
    dt.float8_e8m0fnu: (8, 0, 127, "e8m0"),
}


@functools.cache
def float8_values(dtype: dt.dtype) -> Array:
    """The value of each of the 256 codes."""
    e_bits, m_bits, bias, special = _LAYOUTS[dtype]
    code = np.arange(256)
    if special == "e8m0":
        return np.where(code == 255, np.nan, 2.0 ** (code.astype(np.float64) - bias)).astype(
            np.float32
        )
    sign = np.where(code >> 7, -1.0, 1.0)
    exponent = (code >> m_bits) & ((1 << e_bits) - 1)
    mantissa = (code & ((1 << m_bits) - 1)) / (1 << m_bits)
    values = np.where(
        exponent == 0, mantissa * 2.0 ** (1 - bias), (1 + mantissa) * 2.0 ** (exponent - bias)
    )
    values = sign * values
    if special == "fnuz":
        values[0x80] = np.nan
    elif special == "fn":
        values[[0x7F, 0xFF]] = np.nan
    else:
        top = exponent == (1 << e_bits) - 1
        values = np.where(top, np.where(mantissa == 0, sign * np.inf, np.nan), values)
    return values.astype(np.float32)


def _widen_float8(bits: Array, dtype: dt.dtype) -> Array:
    return float8_values(dtype)[bits]


def _narrow_float8(values: Array, dtype: dt.dtype) -> Array:
    """Round to nearest, ties to even; what is too large becomes inf, nan or the largest."""
    v = cast(values, np.dtype(np.float32))
    if dtype is dt.float8_e8m0fnu:
        return _narrow_e8m0(v)
    table = float8_values(dtype)
    special = _LAYOUTS[dtype][3]
    positive = table[: 0x7F if special == "fn" else 0x80 if special == "fnuz" else 0x7C]
    magnitude = np.abs(v).astype(np.float64)
    upper = np.searchsorted(positive, magnitude).clip(1, len(positive) - 1)
    lower = upper - 1
    low, high = positive[lower].astype(np.float64), positive[upper].astype(np.float64)
    middle = (low + high) / 2
    pick_up = (magnitude > middle) | ((magnitude == middle) & (upper % 2 == 0))
    code = np.where(pick_up, upper, lower)
    limit = positive[-1] + (positive[-1] - positive[-2]).astype(np.float64) / 2
    too_big = magnitude > limit if len(positive) % 2 else magnitude >= limit
    if special == "fn":  # this type has no infinity: larger values stop at the largest
        too_big = np.zeros_like(too_big)
    nan_code = 0x80 if special == "fnuz" else 0x7F
    over = 0x7C if special == "ieee" else nan_code
    code = np.where(too_big, over, code)
    negative = np.signbit(v) & ~((special == "fnuz") & ((code == 0) | (code == 0x80)))
    code = np.where(negative, code | 0x80, code)
    return np.where(np.isnan(v), nan_code, code).astype(np.uint8)


def _narrow_e8m0(v: Array) -> Array:
    bits = np.ascontiguousarray(v).view(np.uint32)
    exponent = (bits >> np.uint32(23)) & np.uint32(0xFF)
    mantissa = bits & np.uint32(0x7FFFFF)
    half = np.uint32(0x400000)
    up = np.where(exponent == 0, mantissa > half, mantissa >= half)
    return (
        np.where(np.isnan(v), 255, np.minimum(exponent + up, 255)).astype(np.uint8).reshape(v.shape)
    )


_WIDEN: dict[dt.dtype, Callable[[Array], Array]] = {
    dt.bfloat16: _widen_bfloat16,
    dt.complex32: _widen_complex32,
    **{t: functools.partial(_widen_float8, dtype=t) for t in _LAYOUTS},
}
_NARROW: dict[dt.dtype, Callable[[Array], Array]] = {
    dt.bfloat16: _narrow_bfloat16,
    dt.complex32: _narrow_complex32,
    **{t: functools.partial(_narrow_float8, dtype=t) for t in _LAYOUTS},
}
