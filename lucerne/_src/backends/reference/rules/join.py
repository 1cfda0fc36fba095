"""Tensors put together, or turned around."""

from __future__ import annotations

from typing import Any

import numpy as np

from lucerne._src.backends.reference.table import rule

Array = np.ndarray[Any, Any]


@rule("cat", raw=True)
def cat(tensors: tuple[Array, ...], dim: int) -> Array:
    return np.concatenate(tensors, axis=dim)


@rule("flip", raw=True)
def flip(input: Array, dims: Any) -> Array:
    return np.flip(input, dims)
