"""Reductions over consecutive segments of a dimension."""

from __future__ import annotations

import itertools
from typing import Any

from lucerne._src.base import dtype as dt
from lucerne._src.ir.define import composite, front
from lucerne._src.ir.op import Tensor
from lucerne._src.ops.copy import join
from lucerne._src.ops.pointwise.select import choose

_EMPTY = {"sum": 0.0, "mean": float("nan"), "prod": 1.0, "max": float("-inf"), "min": float("inf")}


def _extreme_grad(g: Tensor, y: Tensor, data: Tensor, index: Tensor, axis: int) -> Tensor:
    """Equal extremes of a segment share its gradient; not numbers are extremes too."""
    mask = data.eq(y.index_select(axis, index)).logical_or(data.isnan())
    share = mask.to(g.dtype)
    count = y.new_zeros(y.shape).index_add(axis, index, share)
    return share * (g / count.clamp(min=1)).index_select(axis, index)


@composite(internal=True, name="segment_extreme", vjp={"data": _extreme_grad})
def _segment_extreme(
    data: Tensor, index: Tensor, axis: int, count: int, largest: bool, initial: float
) -> Tensor:
    """The largest (or smallest) of the elements with the same index, and `initial`."""
    start = _filled(data, axis, count, initial)
    return start.index_reduce(axis, index, data, "amax" if largest else "amin")


def _product_grad(
    g: Tensor, y: Tensor, data: Tensor, index: Tensor, axis: int, initial: float
) -> Tensor:
    """The product of all others: the quotient, or what is left where there is none."""
    zero, nan = data.eq(0), data.isnan()
    no_quotient = zero.logical_or(nan)
    others = _segment_product(choose(no_quotient, 1, data), index, axis, y.shape[axis], initial)
    zeros, nans = (
        y.new_zeros(y.shape).index_add(axis, index, x.to(y.dtype)).index_select(axis, index)
        - x.to(y.dtype)
        for x in (zero, nan)
    )
    left = others.index_select(axis, index) * zeros.eq(0)
    left = choose(nans.gt(0), float("nan"), left)
    whole = (g * y).index_select(axis, index) / data
    return choose(no_quotient, g.index_select(axis, index) * left, whole)


@composite(internal=True, name="segment_product", vjp={"data": _product_grad})
def _segment_product(data: Tensor, index: Tensor, axis: int, count: int, initial: float) -> Tensor:
    """The product of the elements with the same index, and `initial`."""
    return _filled(data, axis, count, initial).index_reduce(axis, index, data, "prod")


def _filled(data: Tensor, axis: int, count: int, value: Any) -> Tensor:
    shape = [count if d == axis else n for d, n in enumerate(data.shape)]
    return data.new_full(shape, value)


def _rows(data: Tensor, lengths: list[int], reduce: str, axis: int, initial: Any) -> Tensor:
    """All segments at once: each element is folded into the place that its segment has."""
    count, total = len(lengths), sum(lengths)
    sizes = data.new_tensor(lengths, dtype=dt.int64)
    index = sizes.repeat_interleave(output_size=total)
    data = data.narrow(axis, 0, total)
    first = _EMPTY[reduce] if initial is None else initial
    if reduce in ("max", "min"):
        return _segment_extreme(data, index, axis, count, reduce == "max", first)
    if reduce == "prod":
        return _segment_product(data, index, axis, count, first)
    start = 0.0 if reduce == "mean" and initial is None else first
    found = _filled(data, axis, count, start).index_add(axis, index, data)
    if reduce == "sum":
        return found
    sizes = sizes.reshape([-1 if d == axis else 1 for d in range(data.ndim)])
    return choose(sizes.eq(0), first, found / sizes.clamp(min=1))


def _batched(data: Tensor, lengths: Any, reduce: str, axis: int, initial: Any) -> Tensor:
    """Segments may differ from row to row of the dimensions before `axis`."""
    if axis == 0 or not lengths or not isinstance(lengths[0], list):
        return _rows(data, lengths, reduce, axis, initial)
    parts = [
        _batched(data.select(0, i), row, reduce, axis - 1, initial) for i, row in enumerate(lengths)
    ]
    return join.stack(parts, 0)


def _differences(offsets: Any) -> Any:
    if offsets and isinstance(offsets[0], list):
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
    if 0 in given.shape[:-1]:  # no rows: nobody says how many segments one has, but its size
        count = given.shape[-1] - (lengths is None)
        return data.sum(at, True).expand(*data.shape[:at], count, *data.shape[at + 1 :])
    return _batched(data, sizes, reduce, at, initial)
