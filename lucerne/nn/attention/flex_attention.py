"""Attention with scores and masks of your own, written for one pair of query and key.

`score_mod(score, batch, head, q_idx, kv_idx)` changes a score before the softmax;
`mask_mod(batch, head, q_idx, kv_idx)` says whether a pair is visible. Both are called once, with
index tensors that broadcast against each other, so they may use any elementwise ops, `where`, and
index tensors of their own (`bias[head]`, `document[q_idx] == document[kv_idx]`).

>>> import lucerne as torch
>>> from lucerne.nn.attention.flex_attention import flex_attention
>>> slopes = torch.tensor([0.5, 0.25])
>>> def alibi(score, b, h, q_idx, kv_idx):
...     return score + slopes[h] * (kv_idx - q_idx)
>>> q, k, v = (torch.zeros(1, 2, 3, 4) for _ in range(3))
>>> flex_attention(q, k, v, score_mod=alibi).shape
torch.Size([1, 2, 3, 4])
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, TypedDict

from lucerne._src.base.process import notices
from lucerne._src.tensor import api as lu
from lucerne.nn import functional as F
from lucerne.nn.attention.block_mask import DEFAULT_BLOCK_SIZE, MaskMod, ScoreMod, indices, spread
from lucerne.nn.attention.block_mask import BlockMask as BlockMask
from lucerne.nn.attention.block_mask import and_masks as and_masks
from lucerne.nn.attention.block_mask import create_block_mask as create_block_mask
from lucerne.nn.attention.block_mask import create_mask as create_mask
from lucerne.nn.attention.block_mask import create_nested_block_mask as create_nested_block_mask
from lucerne.nn.attention.block_mask import noop_mask as noop_mask
from lucerne.nn.attention.block_mask import or_masks as or_masks

__all__ = [
    "AuxOutput",
    "AuxRequest",
    "BlockMask",
    "FlexKernelOptions",
    "and_masks",
    "create_block_mask",
    "create_mask",
    "flex_attention",
    "noop_mask",
    "or_masks",
]


# Names that libraries take from torch's module.
_DEFAULT_SPARSE_BLOCK_SIZE = DEFAULT_BLOCK_SIZE
_mask_mod_signature = MaskMod
_score_mod_signature = ScoreMod


class FlexKernelOptions(TypedDict, total=False):
    """Hints for GPU kernels; accepted, and of no effect on a CPU."""

    num_warps: int
    num_stages: int
    BLOCK_M: int
    BLOCK_N: int
    BLOCK_M1: int
    BLOCK_N1: int
    BLOCK_M2: int
    BLOCK_N2: int
    PRESCALE_QK: bool
    ROWS_GUARANTEED_SAFE: bool
    BLOCKS_ARE_CONTIGUOUS: bool
    WRITE_DQ: bool
    FORCE_USE_FLEX_ATTENTION: bool
    USE_TMA: bool
    kpack: int
    matrix_instr_nonkdim: int
    waves_per_eu: int
    BACKEND: str


class AuxRequest(NamedTuple):
    """What `flex_attention` shall return beside the result."""

    lse: bool = False
    max_scores: bool = False


class AuxOutput(NamedTuple):
    """What was asked for: log-sum-exp and largest score of each query."""

    lse: lu.Tensor | None = None
    max_scores: lu.Tensor | None = None


def flex_attention(
    query: lu.Tensor,
    key: lu.Tensor,
    value: lu.Tensor,
    score_mod: ScoreMod | None = None,
    block_mask: BlockMask | None = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: FlexKernelOptions | None = None,
    *,
    return_aux: AuxRequest | None = None,
) -> Any:
    """Attention over (batch, heads, length, size) with a `score_mod`, a `block_mask`, or both."""
    if return_lse and return_aux is not None:
        raise ValueError(
            "Cannot specify both return_lse and return_aux. return_lse is deprecated, please use "
            "return_aux=AuxRequest(lse=True) instead."
        )
    if return_lse:
        notices.warn(
            "return_lse is deprecated and will be removed in v2.10. Please use "
            "return_aux=AuxRequest(lse=True) instead.",
            FutureWarning,
        )
    _check_shapes(query, key, value, enable_gqa, block_mask)
    factor = 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale
    aux = AuxRequest(lse=True) if return_lse else return_aux or AuxRequest()
    if score_mod is None and not aux.lse and not aux.max_scores and query.dtype == key.dtype:
        visible = None if block_mask is None else block_mask.visible(query.device)
        key, value = (t.expand(query.shape[0], -1, -1, -1) for t in (key, value))
        result = F.scaled_dot_product_attention(
            query, key, value, visible, scale=factor, enable_gqa=enable_gqa
        )
        return result if return_aux is None else (result, AuxOutput())
    result, found = _attention(query, key, value, score_mod, block_mask, factor, aux)
    if return_lse:
        return result, found.lse
    return result if return_aux is None else (result, found)


def _attention(
    query: lu.Tensor,
    key: lu.Tensor,
    value: lu.Tensor,
    score_mod: Any,
    block_mask: BlockMask | None,
    scale: float,
    aux: AuxRequest,
) -> tuple[lu.Tensor, AuxOutput]:
    """The formula, with scores in float32 at least."""
    dtype = lu.float64 if query.dtype == lu.float64 else lu.float32
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    scores = (query.to(dtype) @ key.to(dtype).mT) * scale
    if score_mod is not None:
        batch, heads, rows, columns = scores.shape
        at = indices((batch, heads, rows, columns), query.device)
        scores = spread(score_mod(scores, *at), tuple(scores.shape), "score_mod").to(dtype)
    if block_mask is not None:
        scores = scores.masked_fill(~block_mask.visible(query.device), -math.inf)
    lse = scores.logsumexp(-1)
    # A query that sees nothing gets zeros, and no nan in its gradient.
    blind = (lse == -math.inf).unsqueeze(-1)
    weights = (scores - lse.unsqueeze(-1).masked_fill(blind, 0.0)).exp()
    result = (weights @ value.to(dtype)).to(query.dtype)
    largest = scores.amax(-1) if aux.max_scores else None
    return _like_query(result, query), AuxOutput(lse if aux.lse else None, largest)


def _like_query(result: lu.Tensor, query: lu.Tensor) -> lu.Tensor:
    """In the query's order of memory, so that a reshape after it is free."""
    if query.is_contiguous() or not query.transpose(1, 2).is_contiguous():
        return result
    laid: lu.Tensor = result.transpose(1, 2).contiguous().transpose(1, 2)
    return laid


def _check_shapes(
    query: lu.Tensor, key: lu.Tensor, value: lu.Tensor, gqa: bool, block_mask: BlockMask | None
) -> None:
    if query.dim() != 4 or key.dim() != 4 or value.dim() != 4:
        raise NotImplementedError("NYI: query, key, and value must be 4D tensors")
    heads, shared = query.shape[1], key.shape[1]
    if not gqa and heads != shared:
        raise ValueError(
            "Expect query and key/value to have the same number of heads but got "
            f"Hq={heads} and Hkv={shared}. Try setting enable_gqa=True for GQA."
        )
    if heads % shared:
        raise ValueError(
            "Expect number of query heads to be a multiple of kv heads for GQA but got "
            f"Hq={heads} and Hkv={shared}."
        )
    batches = query.shape[0], key.shape[0]
    if batches[0] != batches[1] and (block_mask is None or batches[1] != 1):
        raise ValueError(
            "Expect query and key/value to have the same batch size, or non-none block_mask, but "
            f"got block_mask={block_mask}, Bq={batches[0]}, and Bkv={batches[1]}."
        )
    if query.shape[-1] != key.shape[-1]:
        raise ValueError(
            "Expect query and key/value to have the same embedding dimension but got "
            f"E={query.shape[-1]} and E={key.shape[-1]}."
        )
    if block_mask is not None:
        _check_mask(block_mask, query, key)


def _check_mask(mask: BlockMask, query: lu.Tensor, key: lu.Tensor) -> None:
    wanted = query.shape[-2], key.shape[-2]
    said = (
        f"block_mask was created for block_mask.shape={mask.shape} but got q_len={wanted[0]} and "
        f"kv_len={wanted[1]}."
    )
    if wanted[0] > mask.seq_lengths[0] or wanted[1] > mask.seq_lengths[1]:
        raise ValueError(
            f"{said} As the block mask was created for a smaller length than you're using it for, "
            "you likely need to create a new block mask."
        )
    if wanted != mask.seq_lengths:
        raise ValueError(
            f"{said} As the block mask was created for a larger length than you're using it for, "
            "you can either 1. create a new block mask with the correct length, or 2. 'adjust' the "
            "existing block mask to the correct length by calling block_mask._adjust(q_len, "
            "kv_len). This essentially 'crops' the block mask to the upper left corner, which does "
            "not work for all mask_mods!"
        )
    for d, n in enumerate(query.shape[:2]):
        if mask.shape[d] not in (1, n):
            raise ValueError(
                f"block_mask has shape {mask.shape}, which does not fit the query's "
                f"{tuple(query.shape[:2])} batches and heads: create it for these, or for 1"
            )
