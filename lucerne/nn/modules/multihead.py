"""Attention with several heads, as a layer."""

from __future__ import annotations

import math
from typing import Any

from lucerne._src.base.process import notices
from lucerne._src.tensor import api as lu
from lucerne.nn import functional as F
from lucerne.nn import init
from lucerne.nn.modules.linear import NonDynamicallyQuantizableLinear
from lucerne.nn.modules.module import Module
from lucerne.nn.parameter import Parameter

__all__ = ["MultiheadAttention"]


def additive_mask(
    mask: lu.Tensor | None,
    name: str,
    dtype: Any,
    other: lu.Tensor | None = None,
    other_name: str = "",
) -> lu.Tensor | None:
    """A mask as numbers to add to scores: minus infinity where a bool mask is True.

    `other` is a mask given beside it, which should be of the same type.
    """
    if mask is None:
        return None
    if mask.dtype != lu.bool and not mask.is_floating_point():
        raise AssertionError(f"only bool and floating types of {name} are supported")
    if other is not None and mask.dtype != other.dtype:
        notices.warn(
            f"Support for mismatched {name} and {other_name} is deprecated. Use same type for both "
            "instead."
        )
    if mask.is_floating_point():
        return mask
    zeros = lu.zeros(mask.shape, dtype=dtype, device=mask.device)
    numbers: lu.Tensor = zeros.masked_fill(mask, -math.inf)
    return numbers


class MultiheadAttention(Module):
    """Several attentions side by side, each on its own projection of query, key and value.

    >>> import lucerne as torch
    >>> attention = torch.nn.MultiheadAttention(embed_dim=8, num_heads=2, batch_first=True)
    >>> x = torch.randn(3, 5, 8)  # (batch, length, embedding)
    >>> output, weights = attention(x, x, x)
    >>> output.shape, weights.shape
    (torch.Size([3, 5, 8]), torch.Size([3, 5, 5]))
    """

    __constants__ = ["batch_first"]
    bias_k: lu.Tensor | None
    bias_v: lu.Tensor | None

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        if embed_dim <= 0 or num_heads <= 0:
            raise ValueError(
                "embed_dim and num_heads must be greater than 0, got "
                f"embed_dim={embed_dim} and num_heads={num_heads} instead"
            )
        super().__init__()
        self.embed_dim = embed_dim
        self.kdim = kdim if kdim is not None else embed_dim
        self.vdim = vdim if vdim is not None else embed_dim
        self._qkv_same_embed_dim = self.kdim == embed_dim and self.vdim == embed_dim
        self.num_heads = num_heads
        self.dropout = dropout
        self.batch_first = batch_first
        self.head_dim = embed_dim // num_heads
        if self.head_dim * num_heads != embed_dim:
            raise AssertionError("embed_dim must be divisible by num_heads")
        self.add_zero_attn = add_zero_attn
        self._add_projections(bias, add_bias_kv, {"device": device, "dtype": dtype})
        self._reset_parameters()

    def _add_projections(self, bias: bool, add_bias_kv: bool, made: dict[str, Any]) -> None:
        e = self.embed_dim
        together = self._qkv_same_embed_dim
        shapes: dict[str, tuple[int, ...] | None] = {
            "q_proj_weight": None if together else (e, e),
            "k_proj_weight": None if together else (e, self.kdim),
            "v_proj_weight": None if together else (e, self.vdim),
            "in_proj_weight": (3 * e, e) if together else None,
            "in_proj_bias": (3 * e,) if bias else None,
        }
        for name, shape in shapes.items():
            weight = None if shape is None else Parameter(lu.empty(shape, **made))
            self.register_parameter(name, weight)
        self.out_proj = NonDynamicallyQuantizableLinear(e, e, bias=bias, **made)
        self.bias_k = self.bias_v = None
        if add_bias_kv:
            self.bias_k = Parameter(lu.empty((1, 1, e), **made))
            self.bias_v = Parameter(lu.empty((1, 1, e), **made))

    def _reset_parameters(self) -> None:
        """Xavier's distribution for the projections, zeros for their biases."""
        if self._qkv_same_embed_dim:
            init.xavier_uniform_(self.in_proj_weight)
        else:
            for weight in (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight):
                init.xavier_uniform_(weight)
        if self.in_proj_bias is not None:
            init.constant_(self.in_proj_bias, 0.0)
            init.constant_(self.out_proj.bias, 0.0)
        for extra in (self.bias_k, self.bias_v):
            if extra is not None:
                init.xavier_normal_(extra)

    def __setstate__(self, state: dict[str, Any]) -> None:
        state.setdefault("_qkv_same_embed_dim", True)
        super().__setstate__(state)

    def forward(
        self,
        query: lu.Tensor,
        key: lu.Tensor,
        value: lu.Tensor,
        key_padding_mask: lu.Tensor | None = None,
        need_weights: bool = True,
        attn_mask: lu.Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[lu.Tensor, lu.Tensor | None]:
        """The output, and the attention weights if they are needed.

        True in a bool mask hides: `key_padding_mask` (batch, source) hides keys, `attn_mask`
        (target, source) or (batch * heads, target, source) pairs. `is_causal` is a hint that
        `attn_mask` is the causal one.
        """
        swap = self.batch_first and query.dim() == 3
        if swap:
            query, key, value = _time_first(query, key, value)
        output, weights = F.multi_head_attention_forward(
            query, key, value, self.embed_dim, self.num_heads,
            self.in_proj_weight, self.in_proj_bias, self.bias_k, self.bias_v, self.add_zero_attn,
            self.dropout, self.out_proj.weight, self.out_proj.bias,
            training=self.training,
            key_padding_mask=key_padding_mask,
            need_weights=need_weights,
            attn_mask=attn_mask,
            use_separate_proj_weight=not self._qkv_same_embed_dim,
            q_proj_weight=self.q_proj_weight,
            k_proj_weight=self.k_proj_weight,
            v_proj_weight=self.v_proj_weight,
            average_attn_weights=average_attn_weights,
            is_causal=is_causal,
        )  # fmt: skip
        return (output.transpose(1, 0) if swap else output), weights

    def merge_masks(
        self, attn_mask: lu.Tensor | None, key_padding_mask: lu.Tensor | None, query: lu.Tensor
    ) -> tuple[lu.Tensor | None, int | None]:
        """One mask of both, and its kind: 1 for padding alone, 2 for (batch, heads, L, S)."""
        if attn_mask is None:
            return key_padding_mask, None if key_padding_mask is None else 1
        batch, length = query.shape[:2]
        if attn_mask.dim() == 3:
            merged = attn_mask.view(batch, -1, length, length)
        else:
            merged = attn_mask.view(1, 1, length, length).expand(batch, self.num_heads, -1, -1)
        if key_padding_mask is not None:
            wide = key_padding_mask.view(batch, 1, 1, length).expand(-1, self.num_heads, -1, -1)
            merged = merged + wide
        return merged, 2


def _time_first(
    query: lu.Tensor, key: lu.Tensor, value: lu.Tensor
) -> tuple[lu.Tensor, lu.Tensor, lu.Tensor]:
    """(length, batch, ...); what was one tensor stays one, which says that one product will do."""
    q = query.transpose(1, 0)
    k = q if key is query else key.transpose(1, 0)
    v = k if value is key else value.transpose(1, 0)
    return q, k, v
