"""Copies, casts and fills."""

from __future__ import annotations

from typing import Any

import numpy as np

from lucerne.backends.reference import codec
from lucerne.backends.reference.table import rule

Array = np.ndarray[Any, Any]


@rule("copy")
def copy(input: Array, src: Any) -> Array:
    return np.broadcast_to(src, input.shape)


@rule("cast")
def cast(input: Array, dtype: Any) -> Array:
    return input


@rule("clone_as", raw=True)
def clone_as(input: Array, memory_format: Any) -> Array:
    return input


@rule("filled")
def filled(size: Any, value: Any, dtype: Any, device: Any, strides: Any) -> Array:
    return np.broadcast_to(codec.cast(np.asarray(value), dtype.compute.storage), size)


@rule("uninitialized")
def uninitialized(size: Any, dtype: Any, device: Any, strides: Any) -> Array:
    return np.zeros(1, dtype.compute.storage)
