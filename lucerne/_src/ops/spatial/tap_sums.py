"""Sums over taps whose places and weights are tensors: what sampling at points is made of.

Planes are flat: (N, C, S). Point `p` has the taps `index[n, :, p]` of its plane, each with a
weight; an index of -1 is no tap, and counts as zero. The three ops are each other's derivatives.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lucerne._src.ir.define import composite
from lucerne._src.ir.meta import TensorMeta, make_meta
from lucerne._src.ir.op import Tensor


def _spread_index(index: Tensor, channels: int) -> Tensor:
    """The places for every channel, those that are no taps at 0."""
    n, taps, points = index.shape
    rows = index.clamp(min=0).reshape(n, 1, taps * points)
    return rows.expand(n, channels, taps * points)


def _oracle_gather(input: Any, index: Any, weight: Any) -> Any:
    n, c, _ = input.shape
    flat = np.maximum(index, 0).reshape(n, 1, -1).repeat(c, 1)
    values = np.take_along_axis(input, flat, 2).reshape(n, c, *index.shape[1:])
    return (values * np.where(index < 0, 0, weight)[:, None]).sum(2)


def _gather_meta(input: TensorMeta, index: TensorMeta, weight: TensorMeta) -> TensorMeta:
    shape = (*input.shape[:2], index.shape[2])
    return make_meta(input.dtype, shape, None, input.device)


@composite(
    internal=True,
    out=False,
    meta=_gather_meta,
    vjp={
        "input": lambda g, index, weight, input_meta: tap_scatter(
            g, index, weight, input_meta.shape[2]
        ),
        "weight": lambda g, input, index: tap_products(g, input, index),
    },
    oracle=_oracle_gather,
    samples=[((2, 3, 4), [[[0, 3, -1], [1, 1, 2]]] * 2, (2, 2, 3))],
)
def tap_gather(input: Tensor, index: Tensor, weight: Tensor) -> Tensor:
    """For every point the weighted sum of its taps: (N, C, S) to (N, C, P)."""
    n, c = input.shape[:2]
    values = input.gather(2, _spread_index(index, c)).reshape(n, c, *index.shape[1:])
    values = values.masked_fill((index < 0).unsqueeze(1), 0)
    return (values * weight.unsqueeze(1)).sum(2).to(input.dtype)


def _oracle_scatter(input: Any, index: Any, weight: Any, size: int) -> Any:
    made = np.zeros((*input.shape[:2], size), input.dtype)
    for n, t, p in zip(*np.nonzero(index >= 0), strict=True):
        made[n, :, index[n, t, p]] += input[n, :, p] * weight[n, t, p]
    return made


def _scatter_meta(
    input: TensorMeta, index: TensorMeta, weight: TensorMeta, size: int
) -> TensorMeta:
    return make_meta(input.dtype, (*input.shape[:2], size), None, input.device)


@composite(
    internal=True,
    out=False,
    meta=_scatter_meta,
    vjp={
        "input": lambda g, index, weight: tap_gather(g, index, weight),
        "weight": lambda g, input, index: tap_products(input, g, index),
    },
    oracle=_oracle_scatter,
    samples=[((2, 3, 3), [[[0, 3, -1], [1, 1, 2]]] * 2, (2, 2, 3), 4)],
)
def tap_scatter(input: Tensor, index: Tensor, weight: Tensor, size: int) -> Tensor:
    """The transpose: every point adds its number, by weight, at its taps."""
    n, c = input.shape[:2]
    parts = (input.unsqueeze(2) * weight.unsqueeze(1)).masked_fill((index < 0).unsqueeze(1), 0)
    rows = _spread_index(index, c)
    return input.new_zeros((n, c, size)).scatter_add(2, rows, parts.reshape(rows.shape))


def _oracle_products(left: Any, right: Any, index: Any) -> Any:
    made = np.zeros(index.shape, left.dtype)
    for n, t, p in zip(*np.nonzero(index >= 0), strict=True):
        made[n, t, p] = (left[n, :, p] * right[n, :, index[n, t, p]]).sum(dtype=left.dtype)
    return made


def _products_meta(left: TensorMeta, right: TensorMeta, index: TensorMeta) -> TensorMeta:
    return make_meta(left.dtype, tuple(index.shape), None, left.device)


@composite(
    internal=True,
    out=False,
    meta=_products_meta,
    vjp={
        "left": lambda g, right, index: tap_gather(right, index, g),
        "right": lambda g, left, index, right_meta: tap_scatter(
            left, index, g, right_meta.shape[2]
        ),
    },
    oracle=_oracle_products,
    samples=[((2, 3, 3), (2, 3, 4), [[[0, 3, -1], [1, 1, 2]]] * 2)],
)
def tap_products(left: Tensor, right: Tensor, index: Tensor) -> Tensor:
    """For every tap, `left` at its point times `right` at its place, summed over channels."""
    n, c = left.shape[:2]
    values = right.gather(2, _spread_index(index, c)).reshape(n, c, *index.shape[1:])
    values = values.masked_fill((index < 0).unsqueeze(1), 0)
    return (values * left.unsqueeze(2)).sum(1).to(left.dtype)
