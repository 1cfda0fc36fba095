"""Scaled dot-product attention."""

from __future__ import annotations

import math
from typing import Any

from lucerne._src.base import dtype as dt
from lucerne._src.base.process import notices
from lucerne._src.ir import dispatch
from lucerne._src.ir.define import composite, front
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.ir.op import Tensor
from lucerne._src.ir.symbolic.numbers import sqrt
from lucerne._src.ops.copy.join import cat
from lucerne._src.ops.nn.attention_choice import FLASH, choice
from lucerne._src.ops.nn.dropout import dropout
from lucerne._src.ops.spatial.convolution import CXX_TYPES


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


def _check_sharing(query: Tensor, key: Tensor, value: Tensor) -> None:
    heads = query.shape[-3]
    if heads % key.shape[-3] or heads % value.shape[-3]:
        raise RuntimeError(
            "Number of heads in key and value must divide the number of heads in query"
        )


def _shared_heads(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Grouped-query attention: each head of key and value serves several of the query."""
    heads = query.shape[-3]
    return (
        key.repeat_interleave(heads // key.shape[-3], -3),
        value.repeat_interleave(heads // value.shape[-3], -3),
    )


@composite(namespace="ops.aten", opmath="first", out=False)
def _safe_softmax(input: Tensor, dim: int, dtype: Any = None) -> Tensor:
    """Softmax, with zeros where a whole row is minus infinity."""
    x = input if dtype is None else input.to(dtype)
    if x.dtype.category < dt.FLOAT:
        x = x.to(dt.float32)
    hidden = (x == -math.inf).all(dim, keepdim=True)
    # Hidden rows are made harmless before, so that no nan appears in the gradient either.
    return x.masked_fill(hidden, 0.0).softmax(dim).masked_fill(hidden, 0.0)


def _scores(
    query: Tensor, key: Tensor, attn_mask: Tensor | None, is_causal: bool, scale: float
) -> Tensor:
    """`query @ key.mT * scale`, with minus infinity where a key is hidden from a query."""
    half = math.sqrt(abs(scale))
    # Both factors scaled before the product: as torch does it, against overflow.
    scores = (query * math.copysign(half, scale)) @ (key * half).transpose(-2, -1)
    if is_causal:
        rows = scores.new_ones(scores.shape[-2:], dtype=dt.bool_)
        scores = scores.masked_fill(rows.tril().logical_not(), -math.inf)
    if attn_mask is None:
        return scores
    if attn_mask.dtype is dt.bool_:
        return scores.masked_fill(attn_mask.logical_not(), -math.inf)
    return scores + attn_mask


@composite(
    internal=True,
    name="attend",
    opmath="first",
    out=False,
    autocast="lower",
    torch="_scaled_dot_product_flash_attention_for_cpu",
)
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
    scores = _scores(query, key, attn_mask, is_causal, scale)
    weights = scores.softmax(-1) if attn_mask is None else _safe_softmax(scores, -1)
    if dropout_p > 0:
        weights = dropout(weights, dropout_p, True)
    return weights @ value


# ---- as one kernel forward and one backward -----------------------------------------------------


def _layout_like(shape: tuple[int, ...], meta: TensorMeta) -> TensorMeta:
    """A result in the memory order of an operand: what follows is often a view of that order."""
    if tuple(meta.shape) == shape and meta.is_dense and meta.strides[-1] == 1:
        return meta
    if len(shape) == meta.ndim == 4 and meta.strides[1] < meta.strides[2]:
        _, h, t, d = shape
        return meta.like(shape, strides=(t * h * d, d, h * d, 1))
    return meta.like(shape)


def flash_meta(
    query: TensorMeta, key: TensorMeta, value: TensorMeta, *rest: Any
) -> tuple[TensorMeta, TensorMeta]:
    shape = (*query.shape[:-1], value.shape[-1])
    stats = (*query.shape[:-2], 2, query.shape[-2])
    return _layout_like(shape, query), query.like(stats, dtype=dt.float32)


def _flash_backward_meta(
    query: TensorMeta, key: TensorMeta, value: TensorMeta, *rest: Any
) -> tuple[TensorMeta, ...]:
    return tuple(_layout_like(tuple(t.shape), t) for t in (query, key, value))


@composite(
    internal=True,
    opmath="first",
    out=False,
    meta=_flash_backward_meta,
    torch="_scaled_dot_product_flash_attention_for_cpu_backward",
)
def flash_attention_backward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    grad: Tensor,
    out: Tensor,
    stats: Tensor,
    is_causal: bool,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of `flash_attention` for query, key and value.

    `out` and `stats` spare a kernel the first half of its work. The meaning doesn't need them, and
    without them second derivatives are those of the plain formula.
    """
    wide_key, wide_value = _expanded_heads(query, key, value)
    scores = _scores(query, wide_key, attn_mask, is_causal, scale)
    weights = scores.softmax(-1) if attn_mask is None else _safe_softmax(scores, -1)
    by_weight = grad @ wide_value.transpose(-2, -1)
    by_score = weights * (by_weight - (by_weight * weights).sum(-1, True)) * scale
    by_key = by_score.transpose(-2, -1) @ query
    by_value = weights.transpose(-2, -1) @ grad
    return by_score @ wide_key, _summed_heads(by_key, key), _summed_heads(by_value, value)


def _expanded_heads(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    grouped = min(query.ndim, key.ndim, value.ndim) > 2 and (
        1 < key.shape[-3] != query.shape[-3] or 1 < value.shape[-3] != query.shape[-3]
    )
    return _shared_heads(query, key, value) if grouped else (key, value)


def _summed_heads(g: Tensor, shared: Tensor) -> Tensor:
    """The sum over the query heads that one head of `shared` served."""
    if g.ndim < 3 or shared.ndim < 3 or shared.shape[-3] in (1, g.shape[-3]):
        return g
    return g.unflatten(-3, (shared.shape[-3], -1)).sum(-3)


def _flash_vjp(
    g: Any,
    y: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Any,
    is_causal: bool,
    scale: float,
) -> Any:
    # The gradient of a sum has strides of zero, which a kernel would read one by one.
    grad = g[0] if g[0].stride(-1) == 1 else g[0].contiguous()
    return flash_attention_backward(query, key, value, attn_mask, grad, *y, is_causal, scale)


@composite(
    internal=True,
    opmath="first",
    out=False,
    meta=flash_meta,
    vjp={("query", "key", "value"): _flash_vjp},
    autocast="lower",
    torch="_scaled_dot_product_flash_attention_for_cpu",
)
def flash_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    is_causal: bool,
    scale: float,
) -> tuple[Tensor, Tensor]:
    """Attention, and for each query its largest score (in powers of two) and the inverse of the sum
    of `exp(score - largest)`: from these a kernel makes the weights again in the backward pass.

    Heads of key and value may each serve several of the query.
    """
    key, value = _expanded_heads(query, key, value)
    scores = _scores(query, key, attn_mask, is_causal, scale)
    largest = scores.amax(-1, True)
    if attn_mask is not None:
        largest = largest.masked_fill(largest == -math.inf, 0.0)
    weights = (scores - largest).exp()
    inverse = weights.sum(-1, True).reciprocal()
    if attn_mask is not None:
        inverse = inverse.masked_fill(inverse == math.inf, 0.0)
    stats = cat([largest / math.log(2), inverse], -1).transpose(-2, -1)
    return (weights * inverse) @ value, stats


def _in_one_kernel(query: Tensor, key: Tensor, value: Tensor, mask: Any, dropout_p: float) -> bool:
    """Whether nothing is asked that the fused form lacks."""
    return (
        not dropout_p
        and query.dtype in (dt.float32, dt.bfloat16, dt.float16)
        and (mask is None or not mask.requires_grad)
        and bool(query.numel() and key.numel() and value.numel())
    )


def _in_query_layout(result: Tensor, query: Tensor) -> Tensor:
    """Heads inside positions, when the query came so (the next reshape is then free)."""
    if result.ndim == 4 and not query.is_contiguous() and query.transpose(1, 2).is_contiguous():
        return result.transpose(1, 2).contiguous().transpose(1, 2)
    return result


def _why_not_fused(query: Tensor, mask: Any, dropout_p: float, *others: Tensor) -> str:
    """What a call asks that no fused kernel gives; nothing when it can be used."""
    if dropout_p:
        return "Both fused kernels do not support non-zero dropout."
    if mask is not None and mask.requires_grad:
        return "Both fused kernels do not support an attn_mask that requires a gradient."
    if not all(t.numel() for t in (query, *others)):
        return "Both fused kernels do not support empty inputs."
    return ""


def _chosen(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Any,
    dropout_p: float,
    causal: bool,
    scale: float,
    gqa: bool,
) -> Tensor:
    """Attention by whoever is enabled, the first that can."""
    for candidate in choice.candidates():
        if candidate != FLASH:
            if gqa:
                key, value = _shared_heads(query, key, value)
            return attend(query, key, value, mask, dropout_p, causal, scale)
        if choice.provided is not None:
            found = choice.provided(query, key, value, mask, dropout_p, causal, scale, gqa)
            if found is not NotImplemented:
                return found
        reason = _why_not_fused(query, mask, dropout_p, key, value)
        if not reason:
            return flash_attention(query, key, value, mask, causal, scale)[0]
        if choice.warn or len(choice.candidates()) == 1:
            notices.warn(f"Flash attention kernel not used because: {reason}")
    raise RuntimeError("No available kernel.  Aborting execution.")


@front(namespace="nn.functional", autocast="lower")
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
    described: Any = attn_mask
    if type(attn_mask) not in dispatch.familiar and hasattr(described, "attend"):
        # A mask that is only described (nn.attention.bias) knows its best form.
        return described.attend(query, key, value, dropout_p, is_causal, scale, enable_gqa)
    _check(query, key, value, attn_mask)
    if scale is None:
        scale = 1 / sqrt(query.shape[-1]) if query.shape[-1] else 1.0
    if enable_gqa:
        _check_sharing(query, key, value)
    if not choice.usual:
        result = _chosen(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    elif _in_one_kernel(query, key, value, attn_mask, dropout_p):
        result = flash_attention(query, key, value, attn_mask, is_causal, scale)[0]
    else:
        if enable_gqa:
            key, value = _shared_heads(query, key, value)
        result = attend(query, key, value, attn_mask, dropout_p, is_causal, scale)
    return _in_query_layout(result, query)
