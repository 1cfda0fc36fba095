"""Multi-head attention as one function: projections, attention, output projection."""

from __future__ import annotations

import math
from typing import Any

from lucerne._src.base import dtype as dt
from lucerne._src.base.process import notices
from lucerne._src.ir.define import composite, front
from lucerne._src.ir.op import Tensor
from lucerne._src.ir.symbolic.numbers import sqrt, to_int
from lucerne._src.ops.copy.join import cat
from lucerne._src.ops.linalg.matmul import linear
from lucerne._src.ops.nn.attention import scaled_dot_product_attention
from lucerne._src.ops.nn.dropout import dropout
from lucerne._src.ops.spatial.padding import constant_pad_nd


def _assert(condition: bool, message: str) -> None:
    if not condition:
        raise AssertionError(message)


def _is_batched(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    padding: Tensor | None,
    mask: Tensor | None,
    heads: int,
) -> bool:
    """Whether there is a batch dimension; raises when the arguments disagree about it."""
    n = query.ndim
    _assert(
        n in (2, 3),
        f"query should be unbatched 2D or batched 3D tensor but received {n}-D query tensor",
    )
    label = f"For {'batched (3-D)' if n == 3 else 'unbatched (2-D)'} `query`, expected"
    _assert(
        key.ndim == n and value.ndim == n,
        f"{label} `key` and `value` to be {n}-D but found {key.ndim}-D and {value.ndim}-D tensors "
        "respectively",
    )
    if padding is not None:
        _assert(
            padding.ndim == n - 1,
            f"{label} `key_padding_mask` to be `None` or {n - 1}-D but found {padding.ndim}-D "
            "tensor "
            "instead",
        )
    if mask is not None:
        _assert(
            mask.ndim in (2, 3),
            f"{label} `attn_mask` to be `None`, 2-D or 3-D but found {mask.ndim}-D tensor instead",
        )
        if n == 2 and mask.ndim == 3:
            wanted = (heads, query.shape[0], key.shape[0])
            if tuple(mask.shape) != wanted:
                raise AssertionError(
                    f"Expected `attn_mask` shape to be {wanted} but got {mask.shape}"
                )
    return bool(n == 3)


def _additive(mask: Tensor | None, name: str, dtype: dt.dtype, other: Tensor | None = None) -> Any:
    """A mask as numbers to add: minus infinity where a bool mask is True."""
    if mask is None:
        return None
    _assert(
        mask.dtype is dt.bool_ or mask.is_floating_point(),
        f"only bool and floating types of {name} are supported",
    )
    if other is not None and other.dtype is not mask.dtype:
        notices.warn(
            f"Support for mismatched {name} and attn_mask is deprecated. Use same type for both "
            "instead.",
            stacklevel=3,
        )
    if mask.is_floating_point():
        return mask
    return mask.new_zeros(mask.shape, dtype=dtype).masked_fill(mask, -math.inf)


def _packed(q: Tensor, k: Tensor, v: Tensor, w: Tensor, b: Tensor | None) -> list[Tensor]:
    """The three projections whose weights are stacked in one."""
    size = q.shape[-1]
    if k is v and q is k:
        return _split(linear(q, w, b), 3, size)
    if k is v:
        w_q, w_kv = w.split([size, size * 2])
        b_q, b_kv = (None, None) if b is None else b.split([size, size * 2])
        return [linear(q, w_q, b_q), *_split(linear(k, w_kv, b_kv), 2, size)]
    biases = (None,) * 3 if b is None else b.chunk(3)
    return [linear(x, m, c) for x, m, c in zip((q, k, v), w.chunk(3), biases, strict=True)]


def _split(projected: Tensor, parts: int, size: int) -> list[Tensor]:
    apart = projected.unflatten(-1, (parts, size)).unsqueeze(0).transpose(0, -2).squeeze(-2)
    apart = apart.contiguous()
    return [apart[i] for i in range(parts)]


def _separate(
    inputs: tuple[Tensor, Tensor, Tensor], weights: tuple[Any, Any, Any], bias: Tensor | None
) -> list[Tensor]:
    """Projections with weights of their own: key and value may have other sizes."""
    size = inputs[0].shape[-1]
    for label, w in zip("qkv", weights, strict=True):
        _assert(w is not None, f"use_separate_proj_weight is True but {label}_proj_weight is None")
    for label, x, w in zip(("query", "key", "value"), inputs, weights, strict=True):
        wanted = (size, x.shape[-1])
        _assert(
            tuple(w.shape) == wanted,
            f"expecting {label} weights shape of {wanted}, but got {w.shape}",
        )
    biases = (None,) * 3 if bias is None else bias.chunk(3)
    return [linear(x, w, b) for x, w, b in zip(inputs, weights, biases, strict=True)]


def _checked_mask(mask: Tensor | None, wanted: tuple[int, int], rows: int) -> Tensor | None:
    """The attention mask with three dimensions."""
    if mask is None:
        return None
    if mask.ndim == 2:
        if tuple(mask.shape) != wanted:
            raise RuntimeError(
                f"The shape of the 2D attn_mask is {mask.shape}, but should be {wanted}."
            )
        return mask.unsqueeze(0)
    if mask.ndim != 3:
        raise RuntimeError(f"attn_mask's dimension {mask.ndim} is not supported")
    if tuple(mask.shape) != (rows, *wanted):
        raise RuntimeError(
            f"The shape of the 3D attn_mask is {mask.shape}, but should be {(rows, *wanted)}."
        )
    return mask


def _longer(*masks: Tensor | None) -> list[Tensor | None]:
    """Masks with one more visible key at the end."""
    return [None if m is None else constant_pad_nd(m, (0, 1), 0) for m in masks]


def _heads(x: Tensor, rows: int, size: int) -> Tensor:
    """(length, batch, embedding) as (batch * heads, length, size)."""
    return x.reshape(x.shape[0], rows, size).transpose(0, 1)


def _static(given: Tensor | None, made: Tensor, rows: int, size: int, name: str) -> Tensor:
    if given is None:
        return _heads(made, rows, size)
    for d, n in ((0, rows), (2, size)):
        _assert(
            given.shape[d] == n,
            f"expecting {name}.size({d}) of {n}, but got {given.shape[d]}",
        )
    return given


def _with_padding(mask: Any, padding: Tensor | None, batch: int, heads: int, length: int) -> Any:
    """Key padding merged into the attention mask."""
    if padding is None:
        return mask
    if padding.shape[0] != batch:
        raise AssertionError(
            f"Expected key_padded_mask.shape[0] to be {batch}, but got {padding.shape[0]}"
        )
    if padding.shape[1] != length:
        raise AssertionError(
            f"Expected key_padded_mask.shape[1] to be {length}, but got {padding.shape[1]}"
        )
    wide = padding.reshape(batch, 1, 1, length).expand(-1, heads, -1, -1)
    wide = wide.reshape(batch * heads, 1, length)
    return wide if mask is None else mask + wide


def _weighted(
    q: Tensor, k: Tensor, v: Tensor, mask: Any, dropout_p: float
) -> tuple[Tensor, Tensor]:
    """Attention that also hands out its weights."""
    scores = (q * sqrt(1.0 / q.shape[-1])).bmm(k.transpose(-2, -1))
    weights = (scores if mask is None else scores + mask).softmax(-1)
    if dropout_p > 0.0:
        weights = dropout(weights, p=dropout_p)
    return weights.bmm(v), weights


def _attended(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Any,
    dropout_p: float,
    causal: bool,
    batch: int,
    heads: int,
) -> Tensor:
    """(target, batch, embedding) without weights, through scaled_dot_product_attention."""
    length = k.shape[1]
    if mask is not None:
        shared = mask.shape[0] == 1 and mask.ndim == 3
        mask = mask.unsqueeze(0) if shared else mask.reshape(batch, heads, -1, length)
    parts = [x.reshape(batch, heads, x.shape[1], x.shape[2]) for x in (q, k, v)]
    found = scaled_dot_product_attention(*parts, mask, dropout_p, causal)
    return found.permute(2, 0, 1, 3).reshape(q.shape[1], batch, heads * v.shape[2])


def _masks(
    padding: Any, mask: Any, causal: bool, need_weights: bool, dtype: dt.dtype
) -> tuple[Any, Any, bool]:
    """Both masks as numbers, and whether the causal hint alone may be used."""
    padding = _additive(padding, "key_padding_mask", dtype, mask)
    if causal and mask is None:
        raise RuntimeError(
            "Need attn_mask if specifying the is_causal hint. You may use the Transformer module "
            "method `generate_square_subsequent_mask` to create this mask."
        )
    if causal and padding is None and not need_weights:
        return padding, None, True
    return padding, _additive(mask, "attn_mask", dtype), causal and padding is None


@front(namespace="nn.functional", torch=None)
def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Attention with several heads: (length, batch, embedding), and the weights if needed."""
    batched = _is_batched(query, key, value, key_padding_mask, attn_mask, num_heads)
    if not batched:
        query, key, value = _unsqueezed(query, key, value)
        key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
    padding, mask, causal = _masks(
        key_padding_mask, attn_mask, is_causal, need_weights, query.dtype
    )
    size = _check_sizes(query, key, value, embed_dim_to_check, num_heads, use_separate_proj_weight)
    target, batch, embed = query.shape
    if use_separate_proj_weight:
        weights = (q_proj_weight, k_proj_weight, v_proj_weight)
        q, k, v = _separate((query, key, value), weights, in_proj_bias)
    else:
        _assert(
            in_proj_weight is not None,
            "use_separate_proj_weight is False but in_proj_weight is None",
        )
        q, k, v = _packed(query, key, value, in_proj_weight, in_proj_bias)
    rows = batch * num_heads
    mask = _checked_mask(mask, (target, key.shape[0]), rows)
    if bias_k is not None and bias_v is not None:
        _assert(static_k is None, "bias cannot be added to static key.")
        _assert(static_v is None, "bias cannot be added to static value.")
        k, v = (cat([x, extra.repeat(1, batch, 1)]) for x, extra in ((k, bias_k), (v, bias_v)))
        mask, padding = _longer(mask, padding)
    else:
        _assert(bias_k is None, "bias_k is set but bias_v is None")
        _assert(bias_v is None, "bias_v is set but bias_k is None")
    q = _heads(q, rows, size)
    k, v = (
        _static(static_k, k, rows, size, "static_k"),
        _static(static_v, v, rows, size, "static_v"),
    )
    if add_zero_attn:
        k, v = (cat([x, x.new_zeros((rows, 1, size))], 1) for x in (k, v))
        mask, padding = _longer(mask, padding)
    mask = _with_padding(mask, padding, batch, num_heads, k.shape[1])
    rate = dropout_p if training else 0.0
    if not need_weights:
        mixed = _attended(q, k, v, mask, rate, causal, batch, num_heads)
        result = linear(mixed, out_proj_weight, out_proj_bias)
        return (result if batched else result.squeeze(1)), None
    _assert(not (causal and mask is None), "is_causal not implemented for need_weights")
    mixed, seen = _weighted(q, k, v, mask, rate)
    mixed = mixed.transpose(0, 1).reshape(target, batch, embed)
    result = linear(mixed, out_proj_weight, out_proj_bias)
    seen = seen.reshape(batch, num_heads, target, k.shape[1])
    seen = seen.mean(1) if average_attn_weights else seen
    return (result, seen) if batched else (result.squeeze(1), seen.squeeze(0))


def _unsqueezed(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A batch of one; what was one tensor stays one (self-attention is recognised by that)."""
    q = query.unsqueeze(1)
    k = q if key is query else key.unsqueeze(1)
    v = k if value is key else value.unsqueeze(1)
    return q, k, v


def _check_sizes(
    query: Tensor, key: Tensor, value: Tensor, wanted: int, heads: int, separate: bool
) -> int:
    """The size of one head."""
    embed = query.shape[-1]
    _assert(embed == wanted, f"was expecting embedding dimension of {wanted}, but got {embed}")
    size = embed // heads
    _assert(size * heads == embed, f"embed_dim {embed} not divisible by num_heads {heads}")
    if separate:
        if key.shape[:2] != value.shape[:2]:
            raise AssertionError(
                f"key's sequence and batch dims {key.shape[:2]} do not match value's "
                f"{value.shape[:2]}"
            )
    elif key.shape != value.shape:
        raise AssertionError(f"key shape {key.shape} does not match value shape {value.shape}")
    return to_int(size)


@composite(namespace="nn.functional", opmath=True, out=False, autocast="as given")
def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`input1 @ weight[k] @ input2` for each output feature k, plus `bias`."""
    if input1.shape[:-1] != input2.shape[:-1]:
        raise RuntimeError(
            f"bilinear(): input batch dimensions do not match: got {list(input1.shape)} and "
            f"{list(input2.shape)}"
        )
    for i, x in enumerate((input1, input2)):
        if x.shape[-1] != weight.shape[1 + i]:
            raise RuntimeError(
                f"bilinear(): input{i + 1} size does not match weight size: got {x.shape[-1]} but "
                f"expected {weight.shape[1 + i]}"
            )
    _check_bilinear_types(input1, input2, weight, bias)
    out, left, right = weight.shape
    if bias is not None and bias.shape[0] != out:
        raise RuntimeError(
            f"bilinear(): bias size does not match weight size: got {bias.shape[0]} but expected "
            f"{out}"
        )
    batch = tuple(input1.shape[:-1])
    count = math.prod(batch)
    rows = input1.reshape(count, left)
    half = (rows @ weight.permute(1, 0, 2).reshape(left, out * right)).reshape(count, out, right)
    result = (half * input2.reshape(count, 1, right)).sum(-1)
    result = result.reshape(*batch, out).to(input1.dtype)
    return result if bias is None else result + bias


front()(bilinear)


def _check_bilinear_types(
    input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None
) -> None:
    given = {"input1": input1, "input2": input2, "weight": weight, "bias": bias}
    kinds = {name: x.dtype for name, x in given.items() if x is not None}
    if len(set(kinds.values())) > 1:
        told = ", ".join(f"{n}: {_C_NAMES.get(k.name, k.name)}" for n, k in kinds.items())
        raise RuntimeError(f"All tensors must have the same dtype, got {told}")


_C_NAMES = {
    "float16": "c10::Half", "bfloat16": "c10::BFloat16", "float32": "float", "float64": "double",
    "complex64": "c10::complex<float>", "complex128": "c10::complex<double>",
}  # fmt: skip
"""Number types as C++ has them."""
