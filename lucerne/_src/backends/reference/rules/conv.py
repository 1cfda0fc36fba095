"""Convolution by windows and matrix products, over any number of spatial dimensions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from lucerne._src.backends.reference.table import rule

Array = np.ndarray[Any, Any]
Ints = Sequence[int]


def wide(x: Array) -> Array:
    """Half precision is summed in float32."""
    return x.astype(np.float32) if x.dtype == np.float16 else x


def pad_spatial(x: Array, before: Ints, after: Ints, value: Any = 0) -> Array:
    """Zeros around the spatial dimensions; a negative amount after cuts."""
    if not any(before) and not any(after):
        return x
    keep = (
        slice(None),
        slice(None),
        *(slice(0, n + min(a, 0)) for n, a in zip(x.shape[2:], after, strict=True)),
    )
    widths = [(0, 0), (0, 0), *((b, max(a, 0)) for b, a in zip(before, after, strict=True))]
    return np.pad(x[keep], widths, constant_values=value)


def windows(x: Array, size: Ints, kernel: Ints, stride: Ints, dilation: Ints) -> Array:
    """A view (N, C, *size, *kernel) of padded `x`: what the kernel sees at each position."""
    steps = x.strides[2:]
    strides = (
        *x.strides[:2],
        *(s * b for s, b in zip(stride, steps, strict=True)),
        *(d * b for d, b in zip(dilation, steps, strict=True)),
    )
    shape = (*x.shape[:2], *size, *kernel)
    return np.lib.stride_tricks.as_strided(x, shape, strides, writeable=False)


def _columns(
    x: Array, size: Ints, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> Array:
    """(groups, N * positions, C/groups * taps): one row for each position of the kernel."""
    n = len(size)
    need = [
        (m - 1) * s + d * (k - 1) + 1
        for m, s, d, k in zip(size, stride, dilation, kernel, strict=True)
    ]
    after = [w - p - have for w, p, have in zip(need, padding, x.shape[2:], strict=True)]
    seen = windows(pad_spatial(x, padding, after), size, kernel, stride, dilation)
    seen = seen.reshape(x.shape[0], groups, x.shape[1] // groups, *size, *kernel)
    order = (1, 0, *range(3, 3 + n), 2, *range(3 + n, 3 + 2 * n))
    rows, cols = x.shape[0] * math.prod(size), x.shape[1] // groups * math.prod(kernel)
    return seen.transpose(order).reshape(groups, rows, cols)


def _rows(g: Array, groups: int) -> Array:
    """(groups, N * positions, O/groups) of an output (N, O, m...)."""
    per = g.shape[1] // groups
    split = g.reshape(g.shape[0], groups, per, math.prod(g.shape[2:]))
    return (
        split.transpose(1, 0, 3, 2).reshape(groups, -1, per)
        if g.size
        else split.reshape(groups, 0, per)
    )


def _matrix(weight: Array, groups: int) -> Array:
    """(groups, O/groups, C/groups * taps)."""
    return weight.reshape(groups, weight.shape[0] // groups, math.prod(weight.shape[1:]))


@rule("conv")
def conv(
    input: Array,
    weight: Array,
    bias: Any,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    groups: int,
) -> Array:
    input, weight = wide(input), wide(weight)
    kernel = weight.shape[2:]
    size = [
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, s, p, d in zip(input.shape[2:], kernel, stride, padding, dilation, strict=True)
    ]
    columns = _columns(input, size, kernel, stride, padding, dilation, groups)
    flat = columns @ _matrix(weight, groups).transpose(0, 2, 1)
    split = flat.reshape(groups, input.shape[0], math.prod(size), weight.shape[0] // groups)
    y = split.transpose(1, 0, 3, 2).reshape(input.shape[0], weight.shape[0], *size)
    return y if bias is None else y + bias.reshape(-1, *(1 for _ in size))


@rule("conv_input")
def conv_input(
    input: Array,
    weight: Array,
    bias: Any,
    size: Ints,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    groups: int,
) -> Array:
    input, weight = wide(input), wide(weight)
    kernel, positions = weight.shape[2:], input.shape[2:]
    taps = (_rows(input, groups) @ _matrix(weight, groups)).reshape(
        groups, input.shape[0], *positions, weight.shape[1], *kernel
    )
    n = len(kernel)
    taps = taps.transpose(1, 0, 2 + n, *range(2, 2 + n), *range(3 + n, 3 + 2 * n))
    need = [
        max(m + 2 * p, (have - 1) * s + d * (k - 1) + 1)
        for m, p, have, s, d, k in zip(
            size, padding, positions, stride, dilation, kernel, strict=True
        )
    ]
    total = np.zeros((input.shape[0], groups, weight.shape[1], *need), taps.dtype)
    for at in itertools.product(*map(range, kernel)):
        place: Any = tuple(
            slice(i * d, i * d + (have - 1) * s + 1, s)
            for i, d, s, have in zip(at, dilation, stride, positions, strict=True)
        )
        tap: Any = (..., *at)
        total[(..., *place)] += taps[tap]
    inner: Any = tuple(slice(p, p + m) for p, m in zip(padding, size, strict=True))
    y = total[(..., *inner)].reshape(input.shape[0], groups * weight.shape[1], *size)
    return y if bias is None else y + bias.reshape(-1, *(1 for _ in size))


@rule("conv_weight")
def conv_weight(
    g_out: Array,
    input: Array,
    size: Ints,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    groups: int,
) -> Array:
    g_out, input = wide(g_out), wide(input)
    columns = _columns(input, g_out.shape[2:], size, stride, padding, dilation, groups)
    flat = _rows(g_out, groups).transpose(0, 2, 1) @ columns
    return flat.reshape(g_out.shape[1], input.shape[1] // groups, *size)
