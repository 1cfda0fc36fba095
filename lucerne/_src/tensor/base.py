"""TensorBase: the few fixed fields a tensor is made of.

Everything above uses these fields and nothing else. Where the host's engine has a fast path, it
brings a type with the same fields whose slots are machine code (`backends.fast_path`); the Python
path beside it stays complete, and is what runs where no machine code may.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lucerne._src import backends
from lucerne._src.base.unspecialized import Guarding
from lucerne._src.ir.meta import TensorMeta, starting_at, with_flip
from lucerne._src.ir.symbolic.numbers import plain
from lucerne._src.tensor.storage import FAST, Storage


class PlainTensorBase:
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

    _record: Any = None
    """What machine code wrote down in place of `_auto`, until somebody looks: never here."""

    @property
    def _needs_grad(self) -> bool:
        auto = self._auto
        return auto is not None and auto.requires_grad


if TYPE_CHECKING:
    TensorBase = PlainTensorBase
else:
    TensorBase = PlainTensorBase if FAST is None else FAST.TensorBase

plain_types: set[type] = set()
"""Tensor types without an override of op calls: eager takes these without asking."""


_new = object.__new__


class Maker:
    """How the layers below `Tensor` make one: `Tensor` is installed here once it exists."""

    cls: type[Any] = TensorBase

    @staticmethod
    def make(storage: Storage, offset: int, meta: TensorMeta) -> Any:
        t = _new(Maker.cls)
        t._storage = storage
        t._offset = offset
        t._meta = meta
        t._auto = t._view = t._array = None
        return t


class Plans:
    """Late-bound `plan_for` and kin: plans are made above the modules that ask for them."""

    get: Any = None
    fused: Any = None
    """The plan of a composite that its device takes whole, or None."""


make_tensor: Any = Maker.make if FAST is None else FAST.make_tensor


def _room(meta: TensorMeta) -> tuple[TensorMeta, int]:
    """A meta as a tensor on bytes of its own has it, and how many those are."""
    if meta.flipped:
        meta = with_flip(meta, False)
    nbytes = meta.span * meta.dtype.itemsize
    if type(nbytes) is not int:
        nbytes, meta = plain(nbytes), starting_at(meta, 0)
    return meta, nbytes


def new_tensor(meta: TensorMeta) -> Any:
    """A tensor on fresh bytes, contents undefined."""
    meta, nbytes = _room(meta)
    if FAST is not None and meta.device.type == backends.HOST:
        return FAST.fresh_tensor(meta, nbytes)
    return make_tensor(Storage.allocate(nbytes, meta.device), 0, meta)


def tensor_maker(meta: TensorMeta) -> Callable[[], Any]:
    """`new_tensor` for who makes many of one kind: who serves the device is asked once."""
    meta, nbytes = _room(meta)
    device = meta.device
    if device.type == backends.META or (FAST is not None and device.type == backends.HOST):
        return lambda: new_tensor(meta)
    backend = backends.get(device.type)
    allocate, address, new = backend.allocate, backend.address, Storage.__new__

    def made() -> Any:
        storage = new(Storage)
        storage.buffer = buffer = allocate(nbytes)
        storage.nbytes = nbytes
        storage.device = device
        storage.address = address(buffer)
        return make_tensor(storage, 0, meta)

    return made


def offset_of(t: Any) -> Any:
    """Where a tensor begins in its memory, in elements; an expression where that follows from
    symbolic sizes. (`_offset` is then its value in the trace at hand.)"""
    start = t._meta.start
    return t._offset if start is None else start


def same_place(a: Any, b: Any) -> bool:
    """Whether two tensors are the same elements of one memory, in the same order."""
    one, other = a._meta, b._meta
    if a._storage.buffer is not b._storage.buffer or a._offset != b._offset:
        return False
    if one is other or not Guarding.count:
        return one is other
    if one.dtype is not other.dtype or one.ndim != other.ndim:
        return False
    starts = bool(offset_of(a) == offset_of(b))  # expressions that differ may have one value
    return starts and one.shape == other.shape and one.strides == other.strides
