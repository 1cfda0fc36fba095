"""Sorting and searching."""

from __future__ import annotations

from typing import Any

import numpy as np

from lucerne._src.backends.reference.table import rule

Array = np.ndarray[Any, Any]


@rule("sort_along")
def sort_along(input: Array, dim: int, descending: bool, stable: bool) -> tuple[Array, Array]:
    x = np.atleast_1d(input)
    if descending:
        # Reversed before and after: equal values keep their order, and nan comes first.
        back = np.argsort(np.flip(x, dim), axis=dim, kind="stable")
        order = np.flip(x.shape[dim] - 1 - back, dim)
    else:
        order = np.argsort(x, axis=dim, kind="stable")
    return np.take_along_axis(x, order, dim).reshape(input.shape), order.reshape(input.shape)


@rule("binary_search")
def binary_search(sorted_sequence: Array, input: Array, right: bool) -> Array:
    side: Any = "right" if right else "left"
    if sorted_sequence.ndim == 1:
        return np.asarray(np.searchsorted(sorted_sequence, input, side))
    if not input.size:
        return np.zeros(input.shape, np.int64)
    count = input.size // input.shape[-1]
    rows = sorted_sequence.reshape(count, sorted_sequence.shape[-1])
    wanted = input.reshape(count, input.shape[-1])
    found = np.empty(wanted.shape, np.int64)
    for i, row in enumerate(rows):
        found[i] = np.searchsorted(row, wanted[i], side)
    return found.reshape(input.shape)
