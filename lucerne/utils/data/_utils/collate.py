"""From a list of samples to one batch, by the type of the samples."""

from __future__ import annotations

import collections.abc
import contextlib
import copy
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from lucerne._src import backends
from lucerne._src.base import dtype as dt
from lucerne._src.base.device import device as Device
from lucerne._src.ir.meta import TensorMeta, make_meta
from lucerne._src.tensor import api as lu
from lucerne._src.tensor.base import new_tensor
from lucerne._src.tensor.interop.outside import bits

_STRANGE_ARRAYS = re.compile(r"[SaUO]")
_HOST = Device(backends.HOST)
_MESSAGE = (
    "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found {}"
)

allocate_here: Callable[[TensorMeta], Any] | None = None
"""In a worker process: makes a tensor in memory that the parent shares, or gives None."""


def default_convert(data: Any) -> Any:
    """NumPy arrays and numbers as tensors, inside lists, tuples, dicts; all else as it is.

    >>> default_convert([1, "s"])
    [1, 's']
    """
    kind = type(data)
    if isinstance(data, lu.Tensor):
        return data
    if kind.__module__ == "numpy" and kind.__name__ not in ("str_", "string_", "bytes_"):
        if kind.__name__ == "ndarray" and _STRANGE_ARRAYS.search(data.dtype.str):
            return data
        return lu.as_tensor(data)
    if isinstance(data, collections.abc.Mapping):
        return _like_mapping(data, {key: default_convert(data[key]) for key in data})
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return kind(*(default_convert(item) for item in data))
    if isinstance(data, tuple):
        return [default_convert(item) for item in data]
    if isinstance(data, collections.abc.Sequence) and not isinstance(data, str | bytes):
        return _like_sequence(data, [default_convert(item) for item in data])
    return data


def _like_mapping(one: Any, items: dict[Any, Any]) -> Any:
    """The items in a mapping like `one` (extra attributes kept), or in a dict if it can't be."""
    try:
        if isinstance(one, collections.abc.MutableMapping):
            made = copy.copy(one)
            made.update(items)
            return made
        return type(one)(items)
    except TypeError:
        return items


def _like_sequence(one: Any, items: list[Any]) -> Any:
    """The items in a sequence like `one`, or in a list if it can't be."""
    try:
        if isinstance(one, collections.abc.MutableSequence):
            made = copy.copy(one)
            for i, item in enumerate(items):
                made[i] = item
            return made
        return items if isinstance(one, range) else type(one)(items)
    except TypeError:
        return items


def collate(batch: Any, *, collate_fn_map: dict[Any, Any] | None = None) -> Any:
    """A batch of samples by a table of types: `collate_fn_map[type](batch, collate_fn_map=...)`.

    Containers are taken apart, whatever the table says of their items.
    """
    one = batch[0]
    kind = type(one)
    if collate_fn_map is not None:
        if kind in collate_fn_map:
            return collate_fn_map[kind](batch, collate_fn_map=collate_fn_map)
        for known, function in collate_fn_map.items():
            if isinstance(one, known):
                return function(batch, collate_fn_map=collate_fn_map)
    if isinstance(one, collections.abc.Mapping):
        columns = {
            key: collate([sample[key] for sample in batch], collate_fn_map=collate_fn_map)
            for key in one
        }
        return _like_mapping(one, columns)
    if isinstance(one, tuple) and hasattr(one, "_fields"):
        parts = zip(*batch, strict=True)
        return kind(*(collate(part, collate_fn_map=collate_fn_map) for part in parts))
    if isinstance(one, collections.abc.Sequence):
        if any(len(sample) != len(one) for sample in batch):
            raise RuntimeError("each element in list of batch should be of equal size")
        parts = zip(*batch, strict=True)
        made = [collate(part, collate_fn_map=collate_fn_map) for part in parts]
        return made if isinstance(one, tuple) else _like_sequence(one, made)
    raise TypeError(_MESSAGE.format(kind))


def collate_tensor_fn(batch: Any, *, collate_fn_map: dict[Any, Any] | None = None) -> Any:
    if batch[0].is_nested:
        raise RuntimeError(
            "Batches of nested tensors are not currently supported by the default collate_fn; "
            "please provide a custom collate_fn to handle them appropriately. Hint: "
            "collate_fn=lambda found: torch.cat(found) joins them; to make a nested batch of "
            "dense samples, collate_fn=lambda found: torch.nested.nested_tensor(found, "
            "layout=torch.jagged)"
        )
    meta = batch[0]._meta
    if all(_is_plain(t, meta) for t in batch):
        return _stack([bits(t) for t in batch], meta.dtype)
    return lu.stack(list(batch), 0)


def _is_plain(t: Any, meta: TensorMeta) -> bool:
    """Whether stacking is copying bytes: like the first one, on the host, without history."""
    if not isinstance(t, lu.Tensor):
        return False
    mine = t._meta
    alike = mine is meta or (mine.shape == meta.shape and mine.dtype is meta.dtype)
    if not alike or mine.flipped or type(t) is not lu.Tensor or meta.device.type != backends.HOST:
        return False
    return t.layout is lu.strided and not t.requires_grad


def _stack(arrays: list[np.ndarray[Any, Any]], dtype: Any) -> Any:
    """A tensor of the arrays' elements, with a new first dimension."""
    shape = (len(arrays), *arrays[0].shape)
    meta = make_meta(dtype, shape, None, _HOST)
    made = None if allocate_here is None else allocate_here(meta)
    if made is None:
        made = new_tensor(meta)
    if meta.numel:
        rows = bits(made)
        if len(shape) == 1:
            rows[:] = arrays
        else:
            np.concatenate(arrays, out=rows.reshape(shape[0] * shape[1], *shape[2:]))
    return made


def collate_numpy_array_fn(batch: Any, *, collate_fn_map: dict[Any, Any] | None = None) -> Any:
    one = batch[0]
    if _STRANGE_ARRAYS.search(one.dtype.str):
        raise TypeError(_MESSAGE.format(one.dtype))
    alike = all(type(b) is np.ndarray and b.dtype == one.dtype for b in batch)
    if alike and all(b.shape == one.shape for b in batch) and one.dtype.isnative:
        return _stack(list(batch), lu.as_tensor(one).dtype)
    return collate([lu.as_tensor(b) for b in batch], collate_fn_map=collate_fn_map)


def collate_numpy_scalar_fn(batch: Any, *, collate_fn_map: dict[Any, Any] | None = None) -> Any:
    return lu.as_tensor(np.asarray(batch))


def collate_float_fn(batch: Any, *, collate_fn_map: dict[Any, Any] | None = None) -> Any:
    if all(type(b) is float for b in batch):
        return _numbers(batch, dt.float64)
    return lu.tensor(batch, dtype=lu.float64)


def collate_int_fn(batch: Any, *, collate_fn_map: dict[Any, Any] | None = None) -> Any:
    kind = type(batch[0])
    kinds = {int: dt.int64, bool: dt.bool_}
    if kind in kinds and all(type(b) is kind for b in batch) and _fits(batch):
        return _numbers(batch, kinds[kind])
    return lu.tensor(batch)


def _fits(batch: Any) -> bool:
    return min(batch) >= -(1 << 63) and max(batch) < 1 << 63


def _numbers(batch: Any, dtype: Any) -> Any:
    """A tensor of Python numbers."""
    made = new_tensor(make_meta(dtype, (len(batch),), None, _HOST))
    bits(made)[:] = batch
    return made


def collate_str_fn(batch: Any, *, collate_fn_map: dict[Any, Any] | None = None) -> Any:
    return batch


default_collate_fn_map: dict[Any, Any] = {
    lu.Tensor: collate_tensor_fn,
    np.ndarray: collate_numpy_array_fn,
    (np.bool_, np.number, np.object_): collate_numpy_scalar_fn,
    float: collate_float_fn,
    int: collate_int_fn,
    str: collate_str_fn,
    bytes: collate_str_fn,
}
"""How `default_collate` treats each type; add to it to teach it others."""


def default_collate(batch: Any) -> Any:
    """Samples as one batch with a new first dimension: tensors and arrays are stacked, numbers
    become a tensor, strings a list; dicts, tuples and lists are taken apart.

    >>> default_collate([{"x": 1, "y": "a"}, {"x": 2, "y": "b"}])
    {'x': tensor([1, 2]), 'y': ['a', 'b']}
    """
    return collate(batch, collate_fn_map=default_collate_fn_map)


@contextlib.contextmanager
def stacking_into(allocate: Callable[[TensorMeta], Any]) -> Any:
    """Inside, batches are stacked into tensors that `allocate` makes, where it can."""
    global allocate_here
    allocate_here = allocate
    try:
        yield
    finally:
        allocate_here = None
