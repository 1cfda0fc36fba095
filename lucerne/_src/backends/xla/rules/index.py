"""Reading and writing at positions that are data. A position out of bounds is clipped: a program
that runs on an accelerator can't raise (eager calls look before they run, see `bounds.py`)."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from lucerne._src.backends.xla.rules.table import rule, wide_type
from lucerne._src.ir.graph import Node
from lucerne._src.ops.index.advanced import IndexLayout


def _wrapped(indices: Any, shape: Any) -> tuple[Any, ...]:
    return tuple(
        jnp.where(i < 0, i + shape[d], i).astype(np.int64)
        for d, i in enumerate(indices)
        if i is not None
    )


@rule("index")
def index(node: Node, x: Any, indices: Any, wrap: bool) -> Any:
    at = IndexLayout(tuple(x.shape), indices)
    if not at.dims:
        return x
    spread = len(at.broadcast)
    found = jnp.transpose(x, at.order).at[_wrapped(indices, x.shape)].get(mode="clip")
    return jnp.moveaxis(found, range(spread), range(at.at, at.at + spread))


@rule("index_put")
def index_put(node: Node, x: Any, indices: Any, values: Any, accumulate: bool, wrap: bool) -> Any:
    at = IndexLayout(tuple(x.shape), indices)
    if not at.dims:
        summed = x | values if x.dtype == np.bool_ else x + values
        return summed if accumulate else jnp.broadcast_to(values, x.shape)
    spread = len(at.broadcast)
    values = jnp.broadcast_to(values, at.shape)
    values = jnp.moveaxis(values, range(at.at, at.at + spread), range(spread))
    wide = wide_type(node)
    front = jnp.transpose(x, at.order).astype(wide).at[_wrapped(indices, x.shape)]
    made = _folded(front, values.astype(wide), "add" if accumulate else "set", x.dtype)
    return jnp.transpose(made, tuple(np.argsort(at.order))).astype(x.dtype)


_FOLDS = {"set": "set", "add": "add", "mul": "multiply", "max": "max", "min": "min"}
_BOOL_FOLDS = {"set": "set", "add": "max", "mul": "min", "max": "max", "min": "min"}


def _folded(at: Any, values: Any, mode: str, dtype: Any) -> Any:
    """What `x.at[...]` names, with values folded into it."""
    name = (_BOOL_FOLDS if dtype == np.bool_ else _FOLDS)[mode]
    return getattr(at, name)(values)


def one_d(x: Any) -> Any:
    return x.reshape(1) if x.ndim == 0 else x


@rule("gather")
def gather(node: Node, x: Any, dim: int, index: Any, sparse_grad: bool) -> Any:
    shape, x, index = index.shape, one_d(x), one_d(index)
    if not index.size:
        return jnp.zeros(shape, x.dtype)
    dim %= x.ndim
    part = x[tuple(slice(None) if d == dim else slice(n) for d, n in enumerate(index.shape))]
    return jnp.take_along_axis(part, index, dim, mode="clip").reshape(shape)


@rule("scatter")
def scatter(node: Node, x: Any, dim: int, index: Any, src: Any, mode: str) -> Any:
    shape, made = x.shape, one_d(x)
    index, src = one_d(index), one_d(src)
    if not index.size:
        return x
    dim %= made.ndim
    where = [lax.broadcasted_iota(np.int64, index.shape, d) for d in range(index.ndim)]
    where[dim] = index
    if src.size == 1:
        src = jnp.broadcast_to(src, index.shape)
    src = src[tuple(slice(n) for n in index.shape)]
    wide = wide_type(node)
    found = _folded(made.astype(wide).at[tuple(where)], src.astype(wide), mode, x.dtype)
    return found.astype(x.dtype).reshape(shape)
