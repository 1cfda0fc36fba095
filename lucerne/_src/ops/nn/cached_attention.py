"""Attention over a buffer of keys and values that is filled so far: what generating text needs."""

from __future__ import annotations

from typing import Any

from lucerne._src.base import dtype as dt
from lucerne._src.ir.define import composite
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.ir.op import Tensor
from lucerne._src.ops.checks import need
from lucerne._src.ops.creation.ranges import arange
from lucerne._src.ops.nn.attention import flash_attention, flash_meta


def _meta(
    query: TensorMeta, key: TensorMeta, value: TensorMeta, first: TensorMeta, *rest: Any
) -> tuple[TensorMeta, TensorMeta]:
    need(
        query.ndim == key.ndim == value.ndim == 4,
        lambda: (
            "cached_attention: expected query, keys and values as (batch, heads, places, columns), "
            f"got {[list(t.shape) for t in (query, key, value)]}"
        ),
    )
    need(
        first.dtype is dt.int64 and first.shape == (query.shape[0],),
        lambda: (
            f"cached_attention: `first` says for each of {query.shape[0]} rows, as int64, where "
            f"its first query stands; got {first.dtype} {list(first.shape)}"
        ),
    )
    return flash_meta(query, key, value)


@composite(internal=True, out=False, meta=_meta)
def cached_attention(
    query: Tensor, key: Tensor, value: Tensor, first: Tensor, scale: float
) -> tuple[Tensor, Tensor]:
    """Query i of row b sees the keys 0 to `first[b] + i`: result and statistics, as
    `flash_attention` has them.

    Keys and values beyond what a query sees must be finite; a kernel need not read them. That is
    the difference to attention with a mask, where one nan behind the mask is seen by all.
    """
    places = first.clamp(min=0).unsqueeze(1) + arange(query.shape[2], device=query.device)
    seen = arange(key.shape[2], device=query.device) <= places.unsqueeze(2)
    return flash_attention(query, key, value, seen.unsqueeze(1), False, scale)
