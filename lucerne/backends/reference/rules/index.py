"""Rules of the index family: reading and writing at positions that are data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lucerne.backends.reference.table import rule
from lucerne.base import dtype as dt
from lucerne.ops.index import Layout

Array = np.ndarray[Any, Any]


def wrapped(index: Array, size: int, dim: int) -> Array:
    """Positions counted from the front; those out of bounds are refused."""
    if index.size:
        low, high = int(index.min()), int(index.max())
        if low < -size or high >= size:
            bad = low if low < -size else high
            raise IndexError(f"index {bad} is out of bounds for dimension {dim} with size {size}")
        if low < 0:
            return np.where(index < 0, index + size, index)
    return index


def _key(shape: Sequence[int], indices: Sequence[Array | None]) -> tuple[list[Array], Layout]:
    at = Layout(tuple(shape), indices)
    return [wrapped(i, shape[d], d) for d, i in enumerate(indices) if i is not None], at


def _target(data: Array, at: Layout) -> Array:
    """View with the indexed dimensions in front."""
    return data.transpose(at.order)


@rule("index", raw=True)
def index(input: Array, indices: Sequence[Array | None]) -> Array:
    positions, at = _key(input.shape, indices)
    if not positions:
        return input
    if len(positions) == 1:
        return input.take(positions[0], axis=at.dims[0])
    spread = len(at.broadcast)
    found = _target(input, at)[tuple(positions)]
    return np.moveaxis(found, range(spread), range(at.at, at.at + spread))


@rule("index_put")
def index_put(
    input: Array, indices: Sequence[Array | None], values: Array, accumulate: bool
) -> Array:
    positions, at = _key(input.shape, indices)
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
    front[...] = rows.reshape(front.shape)
    return made


def plus(a: Array, b: Array) -> Array:
    return a | b if a.dtype == np.bool_ else a + b


# ---- folds at repeated positions ------------------------------------------------------------------

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
