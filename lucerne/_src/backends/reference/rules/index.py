"""Rules of the index family: reading and writing at positions that are data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lucerne._src.backends.reference.table import rule
from lucerne._src.base import dtype as dt
from lucerne._src.base.errors import IndexBoundsError
from lucerne._src.ops.index.advanced import IndexLayout

Array = np.ndarray[Any, Any]


def wrapped(index: Array, size: int, dim: int, wrap: bool) -> Array:
    """Positions counted from the front; those out of bounds are refused."""
    if index.size:
        low, high = int(index.min()), int(index.max())
        if not wrap and (low < 0 or high >= size):
            raise IndexError("index out of range in self")
        if low < -size or high >= size:
            bad = low if low < -size else high
            raise IndexError(f"index {bad} is out of bounds for dimension {dim} with size {size}")
        if low < 0:
            return np.where(index < 0, index + size, index)
    return index


def _key(
    shape: Sequence[int], indices: Sequence[Array | None], wrap: bool
) -> tuple[list[Array], IndexLayout]:
    at = IndexLayout(tuple(shape), indices)
    return [wrapped(i, shape[d], d, wrap) for d, i in enumerate(indices) if i is not None], at


def _target(data: Array, at: IndexLayout) -> Array:
    """View with the indexed dimensions in front."""
    return data.transpose(at.order)


@rule("index", raw=True)
def index(input: Array, indices: Sequence[Array | None], wrap: bool) -> Array:
    positions, at = _key(input.shape, indices, wrap)
    if not positions:
        return input
    if len(positions) == 1:
        return input.take(positions[0], axis=at.dims[0])
    spread = len(at.broadcast)
    found = _target(input, at)[tuple(positions)]
    return np.moveaxis(found, range(spread), range(at.at, at.at + spread))


@rule("index_put")
def index_put(
    input: Array, indices: Sequence[Array | None], values: Array, accumulate: bool, wrap: bool
) -> Array:
    positions, at = _key(input.shape, indices, wrap)
    if not positions:
        return plus(input, values) if accumulate else np.broadcast_to(values, input.shape)
    spread = len(at.broadcast)
    values = np.broadcast_to(values, at.shape)
    values = np.moveaxis(values, range(at.at, at.at + spread), range(spread))
    made = input.copy()
    if not accumulate:
        _target(made, at)[tuple(positions)] = values
        return made
    if not values.size:
        return made
    sizes = [input.shape[d] for d in at.dims]
    where = np.ravel_multi_index(np.broadcast_arrays(*positions), sizes).reshape(-1)
    front = _target(made, at)
    rows = np.ascontiguousarray(front).reshape(int(np.prod(sizes)), -1)
    fold_rows(rows, where, values.reshape(where.size, -1), "add")
    if not np.may_share_memory(rows, made):
        front[...] = rows.reshape(front.shape)
    return made


def plus(a: Array, b: Array) -> Array:
    return a | b if a.dtype == np.bool_ else a + b


# ---- folds at repeated positions ----------------------------------------------------------------

_FOLDS: dict[str, Any] = {
    "add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum,
}  # fmt: skip
_BOOL_FOLDS: dict[str, Any] = {
    "add": np.logical_or, "mul": np.logical_and, "max": np.logical_or, "min": np.logical_and,
}  # fmt: skip


def fold_rows(rows: Array, where: Array, values: Array, mode: str) -> None:
    """`rows[where[i]] op= values[i]` for every i, repeated positions included."""
    if not where.size or not rows.shape[1]:
        return
    fold = (_BOOL_FOLDS if rows.dtype == np.bool_ else _FOLDS)[mode]
    if rows.shape[1] == 1:
        fold.at(rows[:, 0], where, values[:, 0].astype(rows.dtype, copy=False))
        return
    order = np.argsort(where, kind="stable")
    sorted_where = where[order]
    starts = np.flatnonzero(np.r_[True, sorted_where[1:] != sorted_where[:-1]])
    sums = fold.reduceat(values[order], starts, axis=0, dtype=rows.dtype)
    places = sorted_where[starts]
    rows[places] = fold(rows[places], sums)


@rule("nonzero")
def nonzero(input: Array) -> tuple[Array, Any]:
    return np.argwhere(input).astype(np.int64), dt.int64


# ---- along one dimension -------------------------------------------------------------------------


def _checked(index: Array, size: int, dim: int) -> Array:
    if index.size:
        low, high = int(index.min()), int(index.max())
        if low < 0 or high >= size:
            bad = low if low < 0 else high
            raise IndexBoundsError(
                f"index {bad} is out of bounds for dimension {dim} with size {size}"
            )
    return index


def _at_least_1d(x: Array) -> Array:
    return x.reshape(1) if x.ndim == 0 else x


def _line(index: Array, dim: int) -> Array | None:
    """The index as a vector along `dim` when it repeats itself over all other dimensions."""
    if index.ndim < 2 or not index.size:
        return None
    if any(n > 1 and index.strides[d] for d, n in enumerate(index.shape) if d != dim):
        return None
    return index[tuple(slice(None) if d == dim else 0 for d in range(index.ndim))]


def _crop(x: Array, index: Array, dim: int) -> Array:
    """The part of `x` that an index of this shape can reach."""
    return x[tuple(slice(None) if d == dim else slice(n) for d, n in enumerate(index.shape))]


@rule("gather", raw=True)
def gather(input: Array, dim: int, index: Array, sparse_grad: bool) -> Array:
    shape = index.shape
    input, index = _at_least_1d(input), _at_least_1d(index)
    if not index.size:
        return np.empty(shape, input.dtype)
    dim %= input.ndim
    index = _checked(index, input.shape[dim], dim)
    part = _crop(input, index, dim)
    line = _line(index, dim)
    if line is not None:
        return part.take(line, axis=dim)
    return np.take_along_axis(part, index.astype(np.int64, copy=False), dim).reshape(shape)


@rule("scatter")
def scatter(input: Array, dim: int, index: Array, src: Array, mode: str) -> Array:
    shape = input.shape
    made = _at_least_1d(np.array(input, order="C"))
    index, src = _at_least_1d(index), _at_least_1d(src)
    if not index.size:
        return made.reshape(shape)
    dim %= made.ndim
    index = _checked(index, made.shape[dim], dim).astype(np.int64, copy=False)
    if mode == "set":
        np.put_along_axis(_crop(made, index, dim), index, src, dim)
        return made.reshape(shape)
    line = _line(index, dim)
    if (
        line is not None
        and index.shape[:dim] + index.shape[dim + 1 :] == shape[:dim] + shape[dim + 1 :]
    ):
        front = np.moveaxis(made, dim, 0)
        rows = np.ascontiguousarray(front).reshape(front.shape[0], -1)
        fold_rows(rows, line, np.moveaxis(src, dim, 0).reshape(line.size, -1), mode)
        if not np.may_share_memory(rows, made):
            front[...] = rows.reshape(front.shape)
        return made.reshape(shape)
    coordinates = list(np.ogrid[tuple(slice(n) for n in index.shape)])
    coordinates[dim] = index
    flat = np.ravel_multi_index(np.broadcast_arrays(*coordinates), made.shape).reshape(-1)
    fold_rows(made.reshape(-1, 1), flat, src.reshape(-1, 1), mode)
    return made.reshape(shape)
