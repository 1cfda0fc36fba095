"""Cells: what the device `xla` has for memory.

A cell is a handle to one immutable array, which every write replaces. Tensors that share memory
share a cell, and a view is another reading of its array: so XLA never sees a stride, and the layers
above never see that an array can't be written to.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from lucerne._src.backends.xla.layout import memory_order
from lucerne._src.backends.xla.meshes import whole
from lucerne._src.backends.xla.planning import XlaPlanning, struct
from lucerne._src.backends.xla.several import on_host
from lucerne._src.backends.xla.types import jtype
from lucerne._src.ir.meta import TensorMeta, make_meta

Bytes = np.ndarray[Any, Any]


class ArrayCell:
    """Bytes of the device. Nobody has written them yet (`array` and `host` are None), they came
    from the host as bytes (`host`), or they are elements (`array`, which lies as `meta` says)."""

    __slots__ = ("__weakref__", "array", "host", "meta", "nbytes")

    def __init__(self, nbytes: int, host: Bytes | None = None) -> None:
        self.nbytes, self.host = nbytes, host
        self.array: Any = None
        self.meta: TensorMeta | None = None

    def settle(self, meta: TensorMeta, offset: int) -> None:
        """Bytes become elements when it is known of which dtype: as a tensor first reads them."""
        size = meta.dtype.itemsize
        count = -(-self.nbytes // size)
        exact = not offset and meta.numel == count and meta.is_dense
        self.meta = meta if exact else make_meta(meta.dtype, (count,), None, meta.device)
        kind = jtype(meta.dtype)
        if XlaPlanning.now is not None:
            self.array, self.host = struct(self.meta.shape, kind), None
            return
        if self.host is None:
            self.array = jnp.zeros(tuple(self.meta.shape), kind)
            return
        row = np.zeros(count * size, np.uint8)
        row[: self.nbytes] = self.host
        self.array = jnp.asarray(_shaped(row.view(kind), self.meta))
        self.host = None

    def hold(self, array: Any, meta: TensorMeta) -> None:
        """From now on it is these elements."""
        self.array, self.meta, self.host = array, meta, None

    def fill(self, data: Bytes) -> None:
        """From now on it is these bytes, which are the cell's own."""
        self.array, self.meta, self.host = None, None, data

    @property
    def used(self) -> int:
        """How many bytes must be written to replace all that it is."""
        if self.meta is None:
            return self.nbytes
        return self.meta.numel * self.meta.dtype.itemsize

    def bytes(self) -> Bytes:
        """A copy in memory of the host. (Of an array that is looked at, XLA would keep a second
        one when it is donated: a view of it must not stay.)"""
        if self.meta is None:
            return np.zeros(self.nbytes, np.uint8) if self.host is None else self.host.copy()
        found = np.zeros(max(self.nbytes, self.used), np.uint8)
        seen = on_host(whole(self.array)).transpose(memory_order(self.meta))
        row = found[: self.used].view(seen.dtype)
        row[...] = seen.reshape(-1)
        return found[: self.nbytes]


def _shaped(row: Bytes, meta: TensorMeta) -> Bytes:
    """A row of elements as the dense tensor that lies so."""
    order = memory_order(meta)
    shaped = row.reshape([meta.shape[d] for d in order])
    return shaped.transpose(np.argsort(order)) if order else shaped
