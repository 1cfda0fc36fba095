"""Counting equal values: unique, bincount, histograms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lucerne._src.base import dtype as dt
from lucerne._src.base import shape as sh
from lucerne._src.ir.define import composite, front, pointwise
from lucerne._src.ir.op import Scalar, Tensor
from lucerne._src.ir.results import named
from lucerne._src.ir.scalar.protocol import s
from lucerne._src.ops.copy import join
from lucerne._src.ops.creation import fills
from lucerne._src.ops.creation.ranges import arange, linspace
from lucerne._src.ops.index.searching import binary_search
from lucerne._src.ops.index.sorting import sort_along
from lucerne._src.ops.pointwise import select

# ---- unique ------------------------------------------------------------------------------------


class EqualRuns:
    """Runs of equal neighbours along the first dimension of `rows`."""

    __slots__ = ("changes", "rows", "starts")

    def __init__(self, rows: Tensor) -> None:
        self.rows = rows
        size = rows.shape[0]
        self.changes = rows.new_ones([min(size, 1)], dtype=dt.bool_)
        if size > 1:
            later = rows.narrow(0, 1, size - 1).ne(rows.narrow(0, 0, size - 1))
            later = later.reshape(size - 1, -1).any(1) if rows.ndim > 1 else later
            self.changes = join.cat([self.changes, later])
        self.starts = self.changes.nonzero().reshape(-1)

    def values(self) -> Tensor:
        return self.rows.index_select(0, self.starts)

    def numbers(self) -> Tensor:
        """For each row, the number of the group it is in."""
        return self.changes.cumsum(0) - 1

    def counts(self) -> Tensor:
        end = self.starts.new_full([1], self.rows.shape[0])
        bounds = join.cat([self.starts, end])
        return bounds.diff() if self.starts.shape[0] else self.starts


def _results(values: Tensor, inverse: Tensor | None, counts: Tensor | None) -> Any:
    """What was asked for: values alone, or a tuple with them first."""
    beside = [t for t in (inverse, counts) if t is not None]
    return (values, *beside) if beside else values


def _unpermuted(numbers: Tensor, order: Tensor) -> Tensor:
    return fills.zeros_like(numbers).scatter(0, order, numbers)


def _lexical_order(rows: Tensor) -> Tensor:
    """Order of rows by first column, then second, ...: stable sorts from the last column on."""
    order = arange(rows.shape[0], device=rows.device)
    columns = rows.reshape(rows.shape[0], -1).unbind(1) if rows.numel() else ()
    for column in reversed(columns):
        step = sort_along(column.index_select(0, order), 0, False, True)[1]
        order = order.index_select(0, step)
    return order


def _rows_along(input: Tensor, dim: int) -> Tensor:
    d = sh.wrap_dim(dim, input.ndim)
    if 0 in input.shape and input.shape[d] != 0:
        raise RuntimeError(
            "There are 0 sized dimensions, and they aren't selected, so unique cannot be applied"
        )
    return input.movedim(d, 0).contiguous()


def _refuse_complex(input: Tensor) -> None:
    if input.is_complex():
        raise NotImplementedError(f"\"unique\" not implemented for '{dt.cxx_name(input.dtype)}'")


@front(method=True, torch="_unique2")
def unique(
    input: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Tensor:
    """The different values, in order; with `dim`, the different slices.

    >>> import lucerne
    >>> lucerne.tensor([3, 1, 3]).unique(return_counts=True)
    (tensor([1, 3]), tensor([1, 2]))
    """
    _refuse_complex(input)
    input = input.detach()
    if dim is None:
        ordered, order = sort_along(input.reshape(-1), 0, False, True)
        groups = EqualRuns(ordered)
        values, shape = groups.values(), tuple(input.shape)
    else:
        rows = _rows_along(input, dim)
        order = _lexical_order(rows)
        groups = EqualRuns(rows.index_select(0, order))
        values, shape = groups.values().movedim(0, dim).clone(), tuple(order.shape)
    inverse = _unpermuted(groups.numbers(), order).reshape(shape) if return_inverse else None
    return _results(values, inverse, groups.counts() if return_counts else None)


@front(method=True)
def unique_consecutive(
    input: Tensor,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Tensor:
    """Runs of equal values reduced to one of them.

    >>> import lucerne
    >>> lucerne.tensor([1, 1, 2, 1]).unique_consecutive()
    tensor([1, 2, 1])
    """
    _refuse_complex(input)
    input = input.detach()
    if dim is None:
        groups = EqualRuns(input.reshape(-1))
        values, shape = groups.values(), tuple(input.shape)
    else:
        groups = EqualRuns(_rows_along(input, dim))
        values, shape = groups.values().movedim(0, dim).clone(), (groups.rows.shape[0],)
    inverse = groups.numbers().reshape(shape) if return_inverse else None
    return _results(values, inverse, groups.counts() if return_counts else None)


# ---- counts ------------------------------------------------------------------------------------


@front(method=True)
def bincount(input: Tensor, weights: Any = None, minlength: int = 0) -> Tensor:
    """How often each integer from zero up occurs (or the sum of its weights).

    >>> import lucerne
    >>> lucerne.tensor([0, 2, 2]).bincount()
    tensor([1, 0, 2])
    """
    if minlength < 0:
        raise RuntimeError("minlength should be >= 0")
    integral = input.dtype.category == dt.INTEGER
    if input.ndim != 1 or not integral or (input.numel() and input.min().item() < 0):
        raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
    if weights is not None and tuple(weights.shape) != tuple(input.shape):
        raise RuntimeError("weights should be 1-d and have the same length as input")
    if not input.numel():
        return fills.zeros((minlength,), dtype=dt.int64, device=input.device)
    size = max(minlength, input.max().item() + 1)
    if weights is None:
        weights = fills.ones_like(input, dtype=dt.int64)
    elif weights.dtype is not dt.float32:
        weights = weights.to(dt.float64)
    return weights.new_zeros([size]).index_add(0, input.to(dt.int64), weights)


def _finite_range(name: str, input: Tensor, low: float, high: float) -> tuple[float, float]:
    """The given range; that of the data when it is empty, widened if all are equal."""
    if low == high and input.numel():
        low, high = input.min().item(), input.max().item()
    if low == high:
        low, high = low - 1, high + 1
    if not (math.isfinite(low) and math.isfinite(high)):
        raise RuntimeError(f"{name}: range of [{low}, {high}] is not finite")
    if low > high:
        raise RuntimeError(f"{name}: max must be larger than min")
    return low, high


def _check_histogram(name: str, input: Tensor, bins: Any = (), weight: Any = None) -> None:
    if not input.is_floating_point():
        raise NotImplementedError(f"\"{name}\" not implemented for '{dt.cxx_name(input.dtype)}'")
    for d, edges in enumerate(bins):
        if hasattr(edges, "_meta") and edges.dtype is not input.dtype:
            raise RuntimeError(
                "torch.histogramdd: input tensor and bins tensors should have the same dtype, but "
                f"got input with dtype {input.dtype} and bins for dimension {d} with dtype "
                f"{edges.dtype}"
            )
    if weight is not None and weight.dtype is not input.dtype:
        raise RuntimeError(
            "torch.histogramdd: if weight tensor is provided, input tensor and weight tensor "
            f"should have the same dtype, but got input({input.dtype}), and "
            f"weight({weight.dtype})"
        )


@composite(method=True, vjp={}, out="exact", oracle=lambda input, bins, min, max: np.histogram(
    input, bins, (min, max) if min != max else None
)[0])  # fmt: skip
def histc(input: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """Counts of the elements in equal bins; those outside are left out.

    >>> import lucerne
    >>> lucerne.tensor([1.0, 2.0, 1.0]).histc(bins=2, min=0, max=3)
    tensor([2., 1.])
    """
    _check_histogram("histogram_cpu", input)
    if bins <= 0:
        raise RuntimeError("bins must be > 0")
    low, high = _finite_range("histc", input, min, max)
    if not input.numel():
        return input.new_zeros([bins])
    place = bin_of(input.reshape(-1), low, high, bins)
    counts = place.new_zeros([bins + 1]).index_add(0, place, place.new_ones([1]).expand_as(place))
    return counts.narrow(0, 0, bins).to(input.dtype)


@pointwise(internal=True, promote="int32", vjp={}, out=False)
def bin_of(input: Tensor, low: Scalar, high: Scalar, bins: Scalar) -> Tensor:
    """The number of the equal bin a value falls in; `bins` of those outside, nan too."""
    inside = (input >= low) & (input <= high)
    at = (input - low) * bins / (high - low)
    last = s.where(at < bins - 1, at, bins - 1.0)
    return s.where(inside, last, bins)


# ---- histograms --------------------------------------------------------------------------------


def _edges(column: Tensor, bins: Any, low: float, high: float) -> Tensor:
    if hasattr(bins, "_meta"):
        return bins
    return linspace(low, high, bins + 1, dtype=column.dtype, device=column.device)


def _bins_of(column: Tensor, edges: Tensor) -> Tensor:
    """The bin of each value (its upper edge belongs to the last one); -1 outside of all."""
    last = edges.shape[0] - 1
    at = binary_search(edges, column, True) - 1
    at = select.where(column.eq(edges.narrow(0, last, 1)), last - 1, at)
    inside = column.ge(edges.narrow(0, 0, 1)).logical_and(column.le(edges.narrow(0, last, 1)))
    return select.where(inside, at, -1)


def _weighted_bins(input: Tensor, edges: list[Tensor], weight: Any, density: bool) -> Tensor:
    """Sums of weights over the boxes that edges cut space into. `input` is (points, dimensions)."""
    sizes = [e.shape[0] - 1 for e in edges]
    columns = input.unbind(1)
    places = [_bins_of(c.contiguous(), e.contiguous()) for c, e in zip(columns, edges, strict=True)]
    total = math.prod(sizes)
    flat = places[0].new_zeros(places[0].shape)
    outside = flat.ne(flat)
    for place, size in zip(places, sizes, strict=True):
        flat = flat * size + place.clamp_min(0)
        outside = outside.logical_or(place.lt(0))
    flat = flat.masked_fill(outside, total)
    weight = fills.ones_like(columns[0]) if weight is None else weight.reshape(-1)
    hist = weight.new_zeros([total + 1]).index_add(0, flat, weight).narrow(0, 0, total)
    hist = hist.reshape(sizes)
    if density:
        hist = hist / hist.sum()
        for d, e in enumerate(edges):
            hist = hist / e.diff().reshape([-1 if i == d else 1 for i in range(len(sizes))])
    return hist.clone()


def _column_ranges(name: str, input: Tensor, range: Any) -> list[tuple[float, float]]:
    count = input.shape[1]
    if range is not None:
        if len(range) != 2 * count:
            raise RuntimeError(
                f"torch.{name}: for a {count}-dimensional histogram range should have {2 * count} "
                f"elements, but got {len(range)}"
            )
        pairs = [(float(a), float(b)) for a, b in zip(range[::2], range[1::2], strict=True)]
    elif input.shape[0]:
        lows, highs = input.amin(0).tolist(), input.amax(0).tolist()
        pairs = list(zip(lows, highs, strict=True))
    else:
        pairs = [(0.0, 1.0)] * count
    for low, high in pairs:
        if not (math.isfinite(low) and math.isfinite(high)):
            raise RuntimeError(f"torch.{name}: dimension 0's range [{low}, {high}] is not finite")
        if low > high:
            raise RuntimeError(
                f"torch.{name}: min should not exceed max, but got min {low} max {high} for "
                "dimension 0"
            )
    return [(a - 0.5, b + 0.5) if a == b else (a, b) for a, b in pairs]


@front(method=True)
def histogram(
    input: Tensor,
    bins: Any,
    *,
    range: Any = None,
    weight: Any = None,
    density: bool = False,
    out: Any = None,
) -> Any:
    """Sums of weights per bin, and the edges of the bins.

    >>> import lucerne
    >>> lucerne.histogram(lucerne.tensor([1.0, 2.0, 1.0]), bins=2, range=(0.0, 3.0)).hist
    tensor([2., 1.])
    """
    _check_histogram("histogramdd", input, [bins], weight)
    points = input.detach().reshape(-1, 1)
    ranges = _column_ranges("histogram", points, range) if not hasattr(bins, "_meta") else [(0, 0)]
    return histogram_over(points, _edges(points, bins, *ranges[0]), weight, density, out=out)


@composite(internal=True, name="histogram_over", vjp={}, out="exact", torch="histogram")
def histogram_over(input: Tensor, edges: Tensor, weight: Tensor | None, density: bool) -> Any:
    """Sums of weights between edges, and the edges. `input` is a column."""
    hist = _weighted_bins(input, [edges], weight, density)
    return named("histogram", "hist bin_edges")(hist, edges.clone())


@front()
def histogramdd(
    input: Tensor,
    bins: Any,
    range: Any = None,
    weight: Any = None,
    density: bool = False,
) -> Any:
    """Histogram over several dimensions: the last dimension of `input` holds coordinates."""
    _check_histogram("histogramdd", input, [] if isinstance(bins, int) else bins, weight)
    if input.ndim < 2:
        raise RuntimeError("torch.histogramdd: input tensor should have at least 2 dimensions")
    count = input.shape[-1]
    bins = [bins] * count if isinstance(bins, int) else list(bins)
    if len(bins) != count:
        raise RuntimeError(
            "histogramdd: The size of bins must be equal to the innermost dimension of the input."
        )
    points = input.detach().reshape(-1, count)
    given = hasattr(bins[0], "_meta")
    ranges = [(0.0, 0.0)] * count if given else _column_ranges("histogramdd", points, range)
    edges = [_edges(points, b, *r) for b, r in zip(bins, ranges, strict=True)]
    hist = _weighted_bins(points, edges, weight, density)
    return named("histogramdd", "hist bin_edges")(hist, tuple(edges))
