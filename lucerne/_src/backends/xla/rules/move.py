"""Copies, casts and fills."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from lucerne._src.backends.xla.rules.table import out, rule
from lucerne._src.backends.xla.types import cast as converted
from lucerne._src.backends.xla.types import is_array, jtype, stored
from lucerne._src.ir.graph import Node


@rule("cast")
def cast(node: Node, x: Any, dtype: Any) -> Any:
    return converted(x, jtype(dtype))


@rule("clone_as")
def clone_as(node: Node, x: Any, memory_format: Any) -> Any:
    return x


@rule("copy")
def copy(node: Node, x: Any, src: Any) -> Any:
    return jnp.broadcast_to(stored(src, out(node).dtype), tuple(out(node).shape))


@rule("filled")
def filled(node: Node, size: Any, value: Any, dtype: Any, device: Any, strides: Any) -> Any:
    return jnp.broadcast_to(stored(value, dtype), tuple(size))


@rule("uninitialized")
def uninitialized(node: Node, size: Any, dtype: Any, device: Any, strides: Any) -> Any:
    return jnp.zeros(tuple(size), jtype(dtype))


def _is_whole(x: Any) -> bool:
    return np.dtype(x.dtype).kind in "iu" if is_array(x) else isinstance(x, int)


@rule("counted")
def counted(node: Node, start: Any, step: Any, length: int, dtype: Any, device: Any) -> Any:
    whole = _is_whole(start) and _is_whole(step)
    steps = lax.iota(np.int64 if whole else np.float64, length)
    return converted(jnp.asarray(start + step * steps), jtype(dtype))


@rule("cat")
def cat(node: Node, tensors: Any, dim: int) -> Any:
    return jnp.concatenate(tensors, axis=dim)


@rule("flip")
def flip(node: Node, x: Any, dims: Any) -> Any:
    return jnp.flip(x, dims) if dims else x


@rule("padded")
def padded(node: Node, x: Any, value: Any, low: Any, high: Any, interior: Any) -> Any:
    edges = zip(low, high, interior, strict=True)
    return lax.pad(x, stored(value, out(node).dtype), list(edges))
