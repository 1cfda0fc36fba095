"""Padding: around a tensor, between its elements, by a constant or by its own values."""

from __future__ import annotations

from typing import Any

import numpy as np

from lucerne.base import shape as sh
from lucerne.ir.convert import IntList
from lucerne.ir.define import structural
from lucerne.ir.meta import TensorMeta
from lucerne.ir.op import Scalar, Tensor
from lucerne.ops.move import filled


def _pad_meta(input: TensorMeta, value: Any, low: Any, high: Any, interior: Any) -> TensorMeta:
    shape = tuple(
        lo + hi + n + max(n - 1, 0) * gap
        for n, lo, hi, gap in zip(input.shape, low, high, interior, strict=True)
    )
    strides = sh.format_strides(shape, sh.suggested_format(input.shape, input.strides))
    return input.like(shape=shape, strides=strides)


def _pad_vjp(g: Tensor, input_meta: TensorMeta, low: Any, interior: Any) -> Tensor:
    for d, (n, start, gap) in enumerate(zip(input_meta.shape, low, interior, strict=True)):
        end = start + (n - 1) * (gap + 1) + 1 if n else start
        if start or gap or end != g.shape[d]:
            g = g.narrow(d, start, end - start)
            g = g[(slice(None),) * d + (slice(None, None, gap + 1),)] if gap else g
    return g


@structural(meta=_pad_meta, vjp={"input": _pad_vjp}, out=False)
def padded(input: Tensor, value: Scalar, low: IntList, high: IntList, interior: IntList) -> Tensor:
    """`value` before, after and between the elements, per dimension (all counts non-negative)."""


def embed_slice(g: Tensor, shape: Any, dim: int, start: int, step: int) -> Tensor:
    """Zeros of `shape` with `g` at `start, start + step, ...` of one dimension."""
    n, have = shape[dim], g.shape[dim]
    if have == n:
        return g
    if not have:
        return filled(tuple(shape), 0, g.dtype, g.device, None)
    zero = (0,) * len(shape)
    low, high, gap = ((*zero[:dim], k, *zero[dim + 1 :]) for k in _room(n, have, start, step))
    return padded(g, 0, low, high, gap)


def _room(n: int, have: int, start: int, step: int) -> tuple[int, int, int]:
    return start, n - start - (have - 1) * step - 1, step - 1


def embed_diagonal(g: Tensor, shape: Any, offset: int, dim1: int, dim2: int) -> Tensor:
    """Zeros of `shape` with the last dimension of `g` on a diagonal of two dimensions."""
    ndim = len(shape)
    a, b = sh.wrap_dim(dim1, ndim), sh.wrap_dim(dim2, ndim)
    rows, cols, size = shape[a], shape[b], g.shape[-1]
    if not size or not g.numel():
        return filled(tuple(shape), 0, g.dtype, g.device, None)
    # Row by row, the diagonal is every (cols + 1)-th element.
    start = offset if offset >= 0 else -offset * cols
    rest = tuple(g.shape[:-1])
    flat = embed_slice(g, (*rest, rows * cols), ndim - 2, start, cols + 1)
    return flat.reshape(*rest, rows, cols).movedim((-2, -1), (a, b))
