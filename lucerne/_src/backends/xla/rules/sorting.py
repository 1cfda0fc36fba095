"""Sorting and searching."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lucerne._src.backends.xla.rules.index import one_d
from lucerne._src.backends.xla.rules.table import out_type, rule
from lucerne._src.ir.graph import Node


@rule("sort_along")
def sort_along(node: Node, x: Any, dim: int, descending: bool, stable: bool) -> Any:
    shape, y = x.shape, one_d(x)
    dim %= y.ndim
    if descending:  # reversed before and after: equal values keep their order, and nan comes first
        back = jnp.argsort(jnp.flip(y, dim), axis=dim, stable=True)
        order = jnp.flip(y.shape[dim] - 1 - back, dim)
    else:
        order = jnp.argsort(y, axis=dim, stable=True)
    found = jnp.take_along_axis(y, order, dim)
    return found.reshape(shape), order.reshape(shape).astype(np.int64)


@rule("binary_search")
def binary_search(node: Node, rows: Any, x: Any, right: bool) -> Any:
    side, kind = "right" if right else "left", out_type(node)
    if rows.ndim == 1:
        return jnp.searchsorted(rows, x, side).astype(kind)
    if not x.size:
        return jnp.zeros(x.shape, kind)
    count = x.size // x.shape[-1]
    found = jax.vmap(lambda row, wanted: jnp.searchsorted(row, wanted, side))(
        rows.reshape(count, rows.shape[-1]), x.reshape(count, x.shape[-1])
    )
    return found.reshape(x.shape).astype(kind)
