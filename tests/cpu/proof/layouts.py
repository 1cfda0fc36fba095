"""The same tensor in other layouts: transposed, stepped, padded, shifted, expanded."""

from __future__ import annotations

from typing import Any

import numpy as np

from lucerne._src.base import shape as sh
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.tensor.base import TensorBase, make_tensor
from lucerne._src.tensor.storage import Storage

PLAIN = "plain"
LAYOUTS = ("turned", "stepped", "padded", "shifted", "expanded", "channels_last", "mixed")
_MIX = ("stepped", PLAIN, "turned", "shifted", "padded")


def laid(t: Any, layout: str, number: int = 0) -> Any:
    """`t` in a layout (`number`: which tensor of its call); `t` itself where the layout says
    nothing. "expanded" repeats the first row, every other layout keeps the values."""
    if layout == "mixed":
        layout = _MIX[number % len(_MIX)]
    if layout == PLAIN or not isinstance(t, TensorBase) or t._meta.device.type != "cpu":
        return t
    meta = t._meta
    geometry = _geometry(tuple(meta.shape), layout)
    if geometry is None or (geometry[0] == meta.strides and geometry[1] == t._offset):
        return t
    strides, offset = geometry
    return _placed(t, meta.like(strides=strides), offset)


def _geometry(shape: tuple[int, ...], layout: str) -> tuple[tuple[int, ...], int] | None:
    """Strides and offset; None where a tensor of this shape has no such layout."""
    n = len(shape)
    if layout == "shifted":
        return sh.contiguous_strides(shape), 1
    if n == 0:
        return None
    if layout == "stepped":
        wide = sh.contiguous_strides([*shape[:-1], 2 * shape[-1] + 1])
        return (*wide[:-1], 2), 3
    if layout == "turned":
        return (sh.ordered_strides(shape, range(n)), 0) if n > 1 else None
    if layout == "padded":
        wide = sh.contiguous_strides([*shape[:-1], shape[-1] + 3])
        return (wide, 0) if n > 1 else None
    if layout == "expanded":
        return ((0, *sh.contiguous_strides(shape[1:])), 0) if shape[0] > 1 else None
    assert layout == "channels_last", layout
    return (sh.ordered_strides(shape, [1, *range(n - 1, 1, -1), 0]), 0) if n > 2 else None


def _placed(t: Any, meta: TensorMeta, offset: int) -> Any:
    """The values of `t` where `meta` and `offset` say."""
    nbytes = (meta.span + offset) * meta.dtype.itemsize
    storage = Storage.allocate(nbytes, meta.device)
    if meta.numel:
        _elements(storage, meta, offset)[...] = _elements(t._storage, t._meta, t._offset)
    return make_tensor(storage, offset, meta)


def _elements(storage: Any, meta: TensorMeta, offset: int) -> np.ndarray[Any, Any]:
    start = offset * meta.dtype.itemsize
    return np.ndarray(
        tuple(meta.shape), meta.dtype.storage, storage.host(), start, meta.byte_strides
    )
