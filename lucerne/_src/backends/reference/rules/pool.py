"""Maxima over sliding windows: one vectorised pass for each tap of the kernel."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from lucerne._src.backends.reference.rules.conv import pad_spatial
from lucerne._src.backends.reference.table import rule

Array = np.ndarray[Any, Any]
Ints = Sequence[int]


def _lowest(dtype: np.dtype[Any]) -> Any:
    return -np.inf if dtype.kind == "f" else np.iinfo(dtype).min


def _first_inside(size: Ints, stride: Ints, padding: Ints, dilation: Ints, shape: Ints) -> Array:
    """Flat index of the first element of each window that is not padding."""
    total = np.zeros((1,) * len(size), np.int64)
    for d, (m, s, p, gap, n) in enumerate(zip(size, stride, padding, dilation, shape, strict=True)):
        start = np.arange(m) * s - p
        start += np.where(start < 0, (-start + gap - 1) // gap * gap, 0)
        total = total * n + start.reshape(tuple(-1 if i == d else 1 for i in range(len(size))))
    return total


@rule("max_pool")
def max_pool(
    input: Array, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, size: Ints
) -> tuple[Array, Array]:
    spatial = input.shape[2:]
    need = [
        (m - 1) * s + d * (k - 1) + 1
        for m, s, d, k in zip(size, stride, dilation, kernel, strict=True)
    ]
    after = [w - p - n for w, p, n in zip(need, padding, spatial, strict=True)]
    low = _lowest(input.dtype)
    padded = pad_spatial(input, padding, after, low)
    at = pad_spatial(np.arange(int(np.prod(spatial))).reshape(1, 1, *spatial), padding, after, -1)
    shape = (*input.shape[:2], *size)
    best = np.full(shape, low, input.dtype)
    where = np.broadcast_to(_first_inside(size, stride, padding, dilation, spatial), shape).copy()
    for tap in itertools.product(*map(range, kernel)):
        place = (
            slice(None),
            slice(None),
            *(
                slice(i * d, i * d + (m - 1) * s + 1, s)
                for i, d, s, m in zip(tap, dilation, stride, size, strict=True)
            ),
        )
        value, index = padded[place], at[place]
        better = (index >= 0) & ((value > best) | (value != value))
        np.copyto(best, value, where=better)
        np.copyto(where, np.broadcast_to(index, shape), where=better)
    return best, where
