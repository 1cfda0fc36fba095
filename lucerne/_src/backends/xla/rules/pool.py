"""Maxima over sliding windows: one step for each tap of the kernel."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from lucerne._src.backends.xla.rules.table import rule
from lucerne._src.backends.xla.types import is_floating
from lucerne._src.ir.graph import Node

Ints = Sequence[int]


@rule("max_pool")
def max_pool(
    node: Node, x: Any, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, size: Ints
) -> Any:
    spatial = x.shape[2:]
    each = list(zip(size, stride, dilation, kernel, strict=True))
    need = [(m - 1) * s + d * (k - 1) + 1 for m, s, d, k in each]
    edges = [(p, w - p - n, 0) for w, p, n in zip(need, padding, spatial, strict=True)]
    low = -jnp.inf if is_floating(x) else jnp.iinfo(x.dtype).min
    padded = lax.pad(x, jnp.asarray(low, x.dtype), [(0, 0, 0), (0, 0, 0), *edges])
    places = jnp.arange(math.prod(spatial), dtype=np.int64).reshape(spatial)
    at = lax.pad(places, jnp.int64(-1), edges)
    shape = (*x.shape[:2], *size)
    best, where = jnp.full(shape, low, x.dtype), jnp.full(shape, -1, np.int64)
    for tap in itertools.product(*map(range, kernel)):
        cut = tuple(
            slice(i * d, i * d + (m - 1) * s + 1, s)
            for i, (m, s, d, _) in zip(tap, each, strict=True)
        )
        value, index = padded[(..., *cut)], jnp.broadcast_to(at[cut], shape)
        better = (index >= 0) & ((value > best) | (value != value) | (where < 0))
        best, where = jnp.where(better, value, best), jnp.where(better, index, where)
    return best, where
