"""Reductions over consecutive segments of a dimension."""

from __future__ import annotations

import itertools
from typing import Any

from lucerne.base import dtype as dt
from lucerne.ir.define import front
from lucerne.ir.op import Tensor
from lucerne.ops import join

_EMPTY = {"sum": 0.0, "mean": float("nan"), "prod": 1.0, "max": float("-inf"), "min": float("inf")}


def _segment(part: Tensor, reduce: str, axis: int, initial: Any) -> Tensor:
    """One segment folded, `initial` taken in as one more element."""
    if not part.shape[axis]:
        empty = _EMPTY[reduce] if initial is None else initial
        return part.sum(axis) * 0 + empty
    if reduce == "mean":
        start = 0 if initial is None else initial
        return (part.sum(axis) + start) / part.shape[axis]
    if reduce in ("max", "min"):
        found = part.amax(axis) if reduce == "max" else part.amin(axis)
        if initial is None:
            return found
        bound = found.new_full((), initial)
        return found.maximum(bound) if reduce == "max" else found.minimum(bound)
    if reduce == "prod":
        return part.prod(axis) * (1 if initial is None else initial)
    return part.sum(axis) + (0 if initial is None else initial)


def _rows(data: Tensor, lengths: list[int], reduce: str, axis: int, initial: Any) -> Tensor:
    start, found = 0, []
    for n in lengths:
        found.append(_segment(data.narrow(axis, start, n), reduce, axis, initial))
        start += n
    return join.stack(found, axis)


def _batched(data: Tensor, lengths: Any, reduce: str, axis: int, initial: Any) -> Tensor:
    """Segments may differ from row to row of the dimensions before `axis`."""
    if axis == 0 or not isinstance(lengths[0], list):
        return _rows(data, lengths, reduce, axis, initial)
    parts = [
        _batched(data.select(0, i), row, reduce, axis - 1, initial) for i, row in enumerate(lengths)
    ]
    return join.stack(parts, 0)


def _differences(offsets: Any) -> Any:
    if isinstance(offsets[0], list):
        return [_differences(row) for row in offsets]
    return [b - a for a, b in itertools.pairwise(offsets)]


@front(aliases=("segment_reduce",))
def _segment_reduce(
    data: Tensor,
    reduce: str,
    *,
    lengths: Any = None,
    indices: Any = None,
    offsets: Any = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: Any = None,
) -> Tensor:
    """Fold consecutive segments along `axis`: "sum", "mean", "max", "min" or "prod"."""
    if reduce not in _EMPTY:
        raise RuntimeError(f"segment_reduce(): unsupported reduction {reduce}")
    if indices is not None:
        raise RuntimeError(
            "segment_reduce(): indices based reduction is not supported yet. Give lengths or "
            "offsets, or use scatter_reduce"
        )
    if lengths is None and offsets is None:
        raise RuntimeError("segment_reduce(): Either lengths or offsets must be defined.")
    given = offsets if lengths is None else lengths
    if given.dtype not in (dt.int64, dt.int32):
        raise RuntimeError("segment_reduce(): lengths and offsets must be int32 or int64")
    sizes = _differences(offsets.tolist()) if lengths is None else lengths.tolist()
    at = axis % data.ndim
    if lengths is not None and not unsafe and bool((lengths.sum(-1) != data.shape[at]).any()):
        raise RuntimeError(
            "segment_reduce(): Expected all rows of lengths along axis to sum to "
            "data.size(lengths.dim()-1) when !unsafe."
        )
    return _batched(data, sizes, reduce, at, initial)
