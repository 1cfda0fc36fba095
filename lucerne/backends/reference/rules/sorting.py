"""Sorting and searching."""

from __future__ import annotations

from typing import Any

import numpy as np

from lucerne.backends.reference.table import rule

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
