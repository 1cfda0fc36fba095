"""Copies, casts and fills."""

from __future__ import annotations

from typing import Any

import numpy as np

from lucerne._src.backends.reference import codec
from lucerne._src.backends.reference.table import rule

Array = np.ndarray[Any, Any]


@rule("copy")
def copy(input: Array, src: Any) -> Array:
    return np.broadcast_to(src, input.shape)


@rule("cast")
def cast(input: Array, dtype: Any) -> Array:
    return input


@rule("clone_as", raw=True)
def clone_as(input: Array, memory_format: Any) -> Array:
    return input


@rule("filled")
def filled(size: Any, value: Any, dtype: Any, device: Any, strides: Any) -> Array:
    return np.broadcast_to(codec.cast(np.asarray(value), dtype.compute.storage), size)


@rule("uninitialized")
def uninitialized(size: Any, dtype: Any, device: Any, strides: Any) -> Array:
    return np.zeros(1, dtype.compute.storage)


@rule("counted")
def counted(start: Any, step: Any, length: int, dtype: Any, device: Any) -> Array:
    whole = isinstance(start, int) and isinstance(step, int)
    steps = np.arange(length, dtype=np.int64 if whole else np.float64)
    return np.asarray(start + step * steps)


@rule("padded")
def padded(input: Array, value: Any, low: Any, high: Any, interior: Any) -> Array:
    sizes = [
        lo + hi + n + max(n - 1, 0) * gap
        for n, lo, hi, gap in zip(input.shape, low, high, interior, strict=True)
    ]
    made = np.full(sizes, codec.cast(np.asarray(value), input.dtype), input.dtype)
    if input.size:
        made[
            tuple(
                slice(lo, lo + (n - 1) * (gap + 1) + 1, gap + 1)
                for n, lo, gap in zip(input.shape, low, interior, strict=True)
            )
        ] = input
    return made


@rule("put_region")
def put_region(input: Array, src: Any, size: Any, stride: Any, offset: int) -> Array:
    """Regions are told by steps in memory, so the copy is laid out as the input is."""
    unit = input.itemsize
    steps = [s // unit for s in input.strides]
    first = sum((n - 1) * s for n, s in zip(input.shape, steps, strict=True) if s < 0)
    span = 1 + sum((n - 1) * abs(s) for n, s in zip(input.shape, steps, strict=True))
    reach = 1 + offset + sum((n - 1) * s for n, s in zip(size, stride, strict=True))
    flat = np.empty(max(span, reach, 1), input.dtype)
    made = np.lib.stride_tricks.as_strided(flat[-first:], input.shape, input.strides)
    made[...] = input
    part = np.lib.stride_tricks.as_strided(
        flat[offset - first :], tuple(size), [s * unit for s in stride]
    )
    part[...] = src
    return made
