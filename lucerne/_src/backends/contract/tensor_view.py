"""Memory as executables see a tensor (`api.TensorState`): the one stand-in for tensors.

Programs, graphs run node by node, fallbacks and control flow all hand these to executables.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lucerne._src.backends.contract.registry import on_host
from lucerne._src.ir.meta import TensorMeta


class Bytes:
    """A storage, as executables see it."""

    __slots__ = ("address", "backend", "buffer", "nbytes", "version")

    def __init__(self, buffer: Any, nbytes: int, address: int, backend: Any = None) -> None:
        """`backend`: whose memory it is, for those who look into it from the host."""
        self.buffer, self.nbytes, self.address = buffer, nbytes, address
        self.backend, self.version = backend, 0

    def data_ptr(self) -> int:
        return self.address if self.nbytes else 0

    def host(self) -> np.ndarray[Any, Any]:
        if self.backend is None:
            return np.asarray(self.buffer)
        return on_host(self.backend, self.buffer)


class Spot:
    """A place in memory, from an element of it on."""

    __slots__ = ("_array", "_meta", "_offset", "_storage")

    def __init__(self, meta: TensorMeta, storage: Any, offset: int) -> None:
        self._meta, self._storage, self._offset = meta, storage, offset
        self._array: Any = None

    @property
    def array(self) -> np.ndarray[Any, Any]:
        """The elements, as the storage type of the dtype (bfloat16 as uint16, ...)."""
        return elements(self)


class Room(Spot):
    """Memory of its own: new, or a buffer that begins with the elements.

    What an op whose results have a size that depends on the data may return.
    """

    __slots__ = ()

    def __init__(self, meta: TensorMeta, backend: Any, buffer: Any = None) -> None:
        nbytes = meta.span * meta.dtype.itemsize
        if buffer is None:
            buffer = backend.allocate(max(nbytes, 1))
        super().__init__(meta, Bytes(buffer, nbytes, backend.address(buffer)), 0)


def row(t: Any, k: int) -> Spot:
    """One row of a tensor."""
    meta: TensorMeta = t._meta
    inside = meta.like(shape=tuple(meta.shape[1:]), strides=tuple(meta.strides[1:]))
    return Spot(inside, t._storage, t._offset + k * meta.strides[0])


def elements(t: Any) -> np.ndarray[Any, Any]:
    """The elements of a tensor in memory that the host can read."""
    meta: TensorMeta = t._meta
    storage = meta.dtype.storage
    if not meta.numel:
        return np.empty(tuple(meta.shape), storage)
    start = t._offset * storage.itemsize
    raw = np.asarray(t._storage.host())
    return np.ndarray(tuple(meta.shape), storage, raw, start, meta.byte_strides)
