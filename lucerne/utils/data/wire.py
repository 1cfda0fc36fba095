"""Batches as bytes: a small pickle of their structure, and the memory of tensors beside it.

Pickles go between a loader and the workers it started itself, and never touch a file.
"""

from __future__ import annotations

import io
import mmap
import pickle
from collections.abc import Iterable
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np

from lucerne._src.base.device import device as Device
from lucerne._src.base.process.shared_memory import SharedBlock
from lucerne._src.tensor import api as lu
from lucerne._src.tensor.interop.outside import reduce_tensor
from lucerne._src.tensor.storage import Storage
from lucerne.multiprocessing.reductions import refuse_history

ALIGNMENT = 64

Layout = list[tuple[int, int]]
"""Where each buffer of a batch lies: (offset, bytes)."""


class _Pickler(pickle.Pickler):
    """Keeps the memory of arrays and tensors out of the pickle, in `buffers`."""

    def __init__(self, file: io.BytesIO, for_start: bool) -> None:
        self.for_start = for_start
        self.shared: list[SharedBlock] = []
        self.buffers: list[pickle.PickleBuffer] = []
        # Not a method of ours: that cycle would keep the batch until the next garbage collection.
        super().__init__(file, protocol=5, buffer_callback=self.buffers.append)
        if for_start:  # multiprocessing's own reducers: connections, sockets
            self.dispatch_table = ForkingPickler(io.BytesIO()).dispatch_table

    def reducer_override(self, thing: Any) -> Any:
        if isinstance(thing, lu.Tensor):
            return _reduce(thing)
        if isinstance(thing, np.memmap):
            return _reduce_memmap(thing)
        if type(thing) is Storage and thing.buffer is not None:
            if self.for_start and isinstance(thing.owner, SharedBlock):
                self.shared.append(thing.owner)
                place = (len(self.shared) - 1, thing.owner.nbytes, thing.nbytes)
                return _shared_storage, (*place, str(thing.device))
            bytes_: Any = thing.host()
            return _storage_over, (pickle.PickleBuffer(bytes_), str(thing.device))
        return NotImplemented


def _reduce(t: Any) -> Any:
    """How a tensor travels: a part of a larger memory leaves the rest of it behind."""
    refuse_history(t)
    if t.is_nested:  # by its dense parts, which come here in their turn
        return t.__reduce_ex__(5)
    meta, is_plain = t._meta, type(t) is lu.Tensor
    if is_plain and meta.numel:
        stored = t._storage
        if stored.buffer is not None and meta.numel * meta.dtype.itemsize < stored.nbytes:
            t = t.detach().clone().requires_grad_(t.requires_grad)
    return reduce_tensor(t)


def _reduce_memmap(array: Any) -> Any:
    """A mapped file is mapped again, not read: datasets may be larger than memory."""
    root = array
    while isinstance(root.base, np.memmap):
        root = root.base
    known = isinstance(root.base, mmap.mmap) and root.filename is not None
    if not known or not root.flags.c_contiguous or root.dtype.hasobject:
        return NotImplemented
    begin = array.__array_interface__["data"][0] - root.__array_interface__["data"][0]
    mode = {"w+": "r+"}.get(root.mode, root.mode)
    file = (str(root.filename), mode, root.offset, root.nbytes)
    return _mapped_again, (*file, begin, array.dtype, array.shape, array.strides)


def _mapped_again(
    name: str, mode: Any, offset: int, nbytes: int, begin: int, dtype: Any, shape: Any, strides: Any
) -> Any:
    bytes_ = np.memmap(name, np.uint8, mode, offset, (nbytes,))
    return np.ndarray.__new__(np.memmap, shape, dtype, bytes_, begin, strides)


def _storage_over(buffer: Any, device: str) -> Storage:
    """A storage on the memory of a buffer that came with the pickle."""
    array = np.frombuffer(buffer, np.uint8) if len(buffer) else np.empty(0, np.uint8)
    return Storage(array, array.nbytes, Device(device), owner=array)


def _shared_storage(index: int, block_bytes: int, nbytes: int, device: str) -> Storage:
    """A storage in memory that was shared before: writes are seen by all."""
    block = SharedBlock(_files[index], block_bytes)
    return Storage(block.array[:nbytes], nbytes, Device(device), owner=block)


def pack(thing: Any) -> tuple[bytes, list[memoryview]]:
    """The pickle of a thing, and the memory that belongs beside it."""
    file = io.BytesIO()
    pickler = _Pickler(file, for_start=False)
    pickler.dump(thing)
    return file.getvalue(), [buffer.raw() for buffer in pickler.buffers]


class Packed:
    """A pickle for new processes: with the memory beside it, and blocks that stay shared."""

    def __init__(self, thing: Any) -> None:
        file = io.BytesIO()
        pickler = _Pickler(file, for_start=True)
        pickler.dump(thing)
        self.data = file.getvalue()
        self.buffers = [buffer.raw() for buffer in pickler.buffers]
        self.shared = pickler.shared


def message(thing: Any) -> bytes:
    """A small message, all of it in the pickle."""
    return pickle.dumps(thing, protocol=5)


_files: list[int] = []


def unpack(data: bytes, buffers: Iterable[Any] = (), files: list[int] | None = None) -> Any:
    """The thing again, over the given memory and the files of shared blocks."""
    _files[:] = files or []
    return ForkingPickler.loads(data, buffers=buffers)


def lay_out(buffers: list[memoryview], start: int = 0) -> tuple[Layout, int]:
    """Places for buffers one after the other, aligned; and where the last one ends."""
    layout, end = [], start
    for buffer in buffers:
        begin = -(-end // ALIGNMENT) * ALIGNMENT
        end = begin + buffer.nbytes
        layout.append((begin, buffer.nbytes))
    return layout, end


def place(buffers: list[memoryview], layout: Layout, memory: np.ndarray[Any, Any]) -> None:
    """Copy buffers to their places."""
    for buffer, (begin, nbytes) in zip(buffers, layout, strict=True):
        if nbytes:
            memory[begin : begin + nbytes] = np.frombuffer(buffer, np.uint8)


def cut(memory: np.ndarray[Any, Any], layout: Layout) -> list[np.ndarray[Any, Any]]:
    """The parts of a memory where the buffers lie."""
    return [memory[begin : begin + nbytes] for begin, nbytes in layout]


def aligned(nbytes: int) -> np.ndarray[Any, Any]:
    """Private memory that starts at a multiple of ALIGNMENT."""
    raw = np.empty(nbytes + ALIGNMENT, np.uint8)
    skip = -int(raw.__array_interface__["data"][0]) % ALIGNMENT
    return raw[skip : skip + nbytes]
