"""TensorBase: the few fixed fields a tensor is made of.

Everything above uses these fields and nothing else, so an engine can replace this type with one
whose slots are machine code, and the Python path beside it stays complete.
"""

from __future__ import annotations

from typing import Any

from lucerne.ir.meta import TensorMeta
from lucerne.tensor.storage import Storage


class TensorBase:
    """Storage, offset, meta; autograd state and view state when there are any."""

    __slots__ = ("__weakref__", "_array", "_auto", "_meta", "_offset", "_storage", "_view")

    _storage: Storage
    _offset: int
    """In elements."""
    _meta: TensorMeta
    _auto: Any
    """An AutogradState, or None: takes no part in autograd."""
    _view: Any
    """A ViewState, or None: not a view of another tensor."""
    _array: Any
    """The backend's handle of this tensor, kept between calls."""


plain_types: set[type] = set()
"""Tensor types without an override of op calls: eager takes these without asking."""


_new = object.__new__


class Maker:
    """How the layers below `Tensor` make one: `Tensor` is installed here once it exists."""

    cls: type[TensorBase] = TensorBase

    @staticmethod
    def make(storage: Storage, offset: int, meta: TensorMeta) -> Any:
        t = _new(Maker.cls)
        t._storage = storage
        t._offset = offset
        t._meta = meta
        t._auto = t._view = t._array = None
        return t


make_tensor = Maker.make


def new_tensor(meta: TensorMeta) -> Any:
    """A tensor on fresh bytes, contents undefined."""
    storage = Storage.allocate(meta.span * meta.dtype.itemsize, meta.device)
    return make_tensor(storage, 0, meta)
