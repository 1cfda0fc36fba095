"""Scaled dot-product attention."""

from __future__ import annotations

import math
from typing import Any

from lucerne.base import dtype as dt
from lucerne.ir.define import composite, front
from lucerne.ir.op import Tensor
from lucerne.ops.convolution import CXX_TYPES
from lucerne.ops.dropout import dropout


def _name(t: Tensor) -> str:
    return str(CXX_TYPES.get(t.dtype, t.dtype.name))


def _check(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None) -> None:
    if not query.dtype is key.dtype is value.dtype:
        raise RuntimeError(
            "Expected query, key, and value to have the same dtype, but got query.dtype: "
            f"{_name(query)} key.dtype: {_name(key)} and value.dtype: {_name(value)} instead."
        )
    if min(query.ndim, key.ndim, value.ndim) < 2:
        raise RuntimeError(
            "Expected query, key, and value to all be  at least 2 dimensional, but got query.dim: "
            f"{query.ndim} key.dim: {key.ndim} and value.dim: {value.ndim} instead."
        )
    if attn_mask is not None and attn_mask.dtype not in (dt.bool_, dt.float32, query.dtype):
        raise RuntimeError(
            "Expected attn_mask dtype to be bool or float or to match query dtype, but got "
            f"attn_mask.dtype: {_name(attn_mask)} and  query.dtype: {_name(query)} instead."
        )


def _shared_heads(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Grouped-query attention: each head of key and value serves several of the query."""
    heads = query.shape[-3]
    if heads % key.shape[-3] or heads % value.shape[-3]:
        raise RuntimeError(
            "Number of heads in key and value must divide the number of heads in query"
        )
    return (
        key.repeat_interleave(heads // key.shape[-3], -3),
        value.repeat_interleave(heads // value.shape[-3], -3),
    )


@composite(namespace="ops.aten", opmath=True, out=False)
def _safe_softmax(input: Tensor, dim: int, dtype: Any = None) -> Tensor:
    """Softmax, with zeros where a whole row is minus infinity."""
    x = input if dtype is None else input.to(dtype)
    if x.dtype.category < dt.FLOAT:
        x = x.to(dt.float32)
    hidden = (x == -math.inf).all(dim, keepdim=True)
    # Hidden rows are made harmless before, so that no nan appears in the gradient either.
    return x.masked_fill(hidden, 0.0).softmax(dim).masked_fill(hidden, 0.0)


@composite(internal=True, name="attend", opmath=True, out=False)
def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    dropout_p: float,
    is_causal: bool,
    scale: float,
) -> Tensor:
    """`softmax(query @ key.mT * scale + mask) @ value`."""
    half = math.sqrt(abs(scale))
    # Both factors scaled before the product: as torch does it, against overflow.
    scores = (query * math.copysign(half, scale)) @ (key * half).transpose(-2, -1)
    hidden = None
    if is_causal:
        rows = scores.new_ones(scores.shape[-2:], dtype=dt.bool_)
        scores = scores.masked_fill(rows.tril().logical_not(), -math.inf)
    if attn_mask is not None and attn_mask.dtype is dt.bool_:
        hidden = attn_mask.logical_not()
        scores = scores.masked_fill(hidden, -math.inf)
    elif attn_mask is not None:
        scores = scores + attn_mask
    weights = scores.softmax(-1) if attn_mask is None else _safe_softmax(scores, -1)
    if dropout_p > 0:
        weights = dropout(weights, dropout_p, True)
    return weights @ value


def _in_query_layout(result: Tensor, query: Tensor) -> Tensor:
    """Heads inside positions, when the query came so (the next reshape is then free)."""
    if result.ndim == 4 and not query.is_contiguous() and query.transpose(1, 2).is_contiguous():
        return result.transpose(1, 2).contiguous().transpose(1, 2)
    return result


@front(namespace="nn.functional")
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Each query's mean of the values, weighted by how well its key fits.

    >>> import lucerne as torch
    >>> q, k, v = torch.ones(1, 2, 4), torch.ones(1, 3, 4), torch.ones(1, 3, 5)
    >>> torch.nn.functional.scaled_dot_product_attention(q, k, v).shape
    torch.Size([1, 2, 5])
    """
    _check(query, key, value, attn_mask)
    if enable_gqa:
        key, value = _shared_heads(query, key, value)
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None and query.shape[-1] else scale or 1.0
    result = attend(query, key, value, attn_mask, dropout_p, is_causal, factor)
    return _in_query_layout(result, query)
