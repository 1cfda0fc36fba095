"""Attention over ragged batches: entries of one length are one call of the dense kernel.

No place is padded, so nothing is computed for padding, and no mask is needed.
"""

from __future__ import annotations

from typing import Any

from lucerne._src.base import dtype as dt
from lucerne._src.ops.copy.join import cat
from lucerne._src.ops.creation.ranges import arange
from lucerne._src.tensor.nested.kinds import (
    JaggedTensor,
    NestedList,
    NestedTensor,
    make_list,
    refuse,
)


def attention(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`scaled_dot_product_attention` of nested queries, keys and values (batch, heads, ragged,
    features)."""
    names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
    named = dict(zip(names, args, strict=False)) | kwargs
    query, key, value = (named.pop(n) for n in names[:3])
    mask = named.pop("attn_mask", None)
    if isinstance(mask, NestedTensor):
        refuse("scaled_dot_product_attention with a nested attn_mask", query)
    if isinstance(query, NestedList):
        parts = zip(query.unbind(), key.unbind(), value.unbind(), strict=True)
        return make_list(
            func(*(t.unsqueeze(0) for t in three), attn_mask=_cut(mask, [i], three), **named)
            .squeeze(0)
            for i, three in enumerate(parts)
        )  # fmt: skip
    if not all(
        isinstance(t, JaggedTensor) and t.ndim == 4 and t._at == 2 for t in (query, key, value)
    ):
        raise RuntimeError(
            "scaled_dot_product_attention: expected query, key and value of shape (batch, heads, "
            f"ragged, features), got {tuple(query.shape)}. Hint: x.unflatten(-1, (heads, -1))"
            ".transpose(1, 2)"
        )
    if (
        not key._ragged.same(value._ragged)
        and key._ragged.length_list() != value._ragged.length_list()
    ):
        raise RuntimeError("scaled_dot_product_attention: keys and values differ in their lengths")
    return query.like([_bucketed(func, query, key, value, mask, named)])


def _cut(mask: Any, entries: list[int], parts: Any) -> Any:
    """A dense mask (of the longest entries: (L, S), with batch and heads in front or without), for
    some entries of one length."""
    if mask is None:
        return None
    length, other = parts[0].shape[-2], parts[1].shape[-2]
    if mask.ndim < 2 or mask.ndim > 4 or mask.shape[-2] < length or mask.shape[-1] < other:
        raise RuntimeError(
            f"scaled_dot_product_attention: an attn_mask of shape {tuple(mask.shape)} does not "
            f"cover an entry with {length} queries and {other} keys. Hint: make it for the "
            "longest entry, (..., L, S); each entry uses its own corner of it"
        )
    if mask.ndim == 4 and mask.shape[0] > 1:
        mask = mask[mask.new_tensor(entries, dtype=dt.int64)]
    return mask[..., :length, :other]


def _bucketed(func: Any, query: Any, key: Any, value: Any, mask: Any, named: dict[str, Any]) -> Any:
    """The packed result: (heads, places of all queries, features)."""
    pairs = list(zip(query._ragged.length_list(), key._ragged.length_list(), strict=True))
    buckets: dict[tuple[int, int], list[int]] = {}
    for i, pair in enumerate(pairs):
        buckets.setdefault(pair, []).append(i)
    results, places = [], []
    for (length, other), entries in buckets.items():
        if not length:
            continue
        at = [_places(t, entries, n) for t, n in ((query, length), (key, other), (value, other))]
        parts = [
            _picked(t, a, len(entries), n)
            for t, a, n in zip((query, key, value), at, (length, other, other), strict=True)
        ]
        made = func(*parts, attn_mask=_cut(mask, entries, parts), **named)
        results.append(made.transpose(0, 1).reshape(made.shape[1], -1, made.shape[3]))
        places.append(at[0])
    if not results:
        return query._packed * 1
    joined = results[0] if len(results) == 1 else cat(results, 1)
    order = places[0] if len(places) == 1 else cat(places)
    if len(results) == 1 and query._ragged.whole:
        return joined
    blank = joined.new_zeros((joined.shape[0], query._packed.shape[1], joined.shape[2]))
    return blank.index_copy(1, order, joined)


def _places(t: Any, entries: list[int], length: int) -> Any:
    """Numbers of the places of these entries, one entry behind the other."""
    offsets = t._ragged.offsets
    starts = offsets[offsets.new_tensor(entries)]
    return (starts.unsqueeze(1) + arange(length, device=offsets.device)).reshape(-1)


def _picked(t: Any, at: Any, count: int, length: int) -> Any:
    """Those places as a dense batch (entries, heads, length, features)."""
    rows = t._packed.index_select(1, at)
    return rows.reshape(rows.shape[0], count, length, rows.shape[2]).transpose(0, 1)
