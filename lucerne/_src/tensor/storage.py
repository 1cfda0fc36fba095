"""Storage: the bytes that tensors and their views share, with a counter of in-place writes."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import numpy as np

from lucerne._src import backends
from lucerne._src.base.device import device as Device
from lucerne._src.base.process.source_location import Place
from lucerne._src.ir import dispatch
from lucerne._src.tensor.eager.specialize import spoil

FAST: Any = backends.fast_path()
"""The host engine's fast path, or None."""


class PlainStorageBase:
    """The fields of a storage, in Python."""

    # Defaults live on the class: a storage is made for every result, and most never change them.
    version = 0
    writer: Place | None = None
    saved = False
    inference = False
    views: list[Any] | None = None
    owner: Any = None
    buffer: Any
    nbytes: int
    address: int
    device: Device


if TYPE_CHECKING:
    StorageBase = PlainStorageBase
else:
    StorageBase = PlainStorageBase if FAST is None else FAST.StorageBase


def bytes_of(storage: Any) -> Any:
    """How large a storage is; an expression where that follows from symbolic sizes."""
    size = getattr(storage.buffer, "symbolic_size", None)
    return storage.nbytes if size is None else size


class Storage(StorageBase):
    """Bytes on a device.

    `version` counts writes; `writer` is the user's line of the last one; `saved` tells whether some
    backward pass keeps it, `inference` whether it was made in inference mode; `views` are weak
    references to views made while nothing here required grad (see `note_view`); `owner` keeps the
    bytes alive when they are not ours; `address` is where they are, 0 when they are nowhere.
    """

    __slots__ = ()

    def __init__(self, buffer: Any, nbytes: int, device: Device, owner: Any = None) -> None:
        self.buffer = buffer
        self.nbytes = nbytes
        self.device = device
        self.address = 0 if buffer is None else backends.get(device.type).address(buffer)
        if owner is not None:
            self.owner = owner

    @property
    def resizable(self) -> bool:
        return self.owner is None

    @classmethod
    def allocate(cls, nbytes: int, device: Device) -> Storage:
        if device.type == backends.META:
            return cls(None, nbytes, device)
        return cls(backends.get(device.type).allocate(nbytes), nbytes, device)

    def __reduce__(self) -> tuple[Any, ...]:
        stored = None if self.buffer is None else self.host().tobytes()
        return rebuild_storage, (stored, self.nbytes, str(self.device))

    def note_view(self, view: Any) -> None:
        """Remember a view, so that it can learn when its base comes to require grad later."""
        known = self.views
        if known is None:
            known = self.views = []
        elif len(known) >= 16 and len(known) & (len(known) - 1) == 0:
            known[:] = [r for r in known if r() is not None]  # at each power of two: amortised
        known.append(weakref.ref(view))

    def note_write(self) -> None:
        """Count a write, for this storage and for the memory it may share with others."""
        self.version += 1
        if FAST is not None and type(self.buffer) is FAST.Memory:
            self.buffer.writes += 1

    def alias(self) -> Storage:
        """The same bytes under a version counter of its own (what `.data` gives)."""
        made = Storage(None, self.nbytes, self.device, self.owner)
        made.buffer, made.address = self.buffer, self.address
        return made

    def host(self) -> np.ndarray[Any, Any]:
        """The bytes as a uint8 array on the host."""
        spoil()
        if dispatch.state.kernel_level:
            dispatch.state.kernel_level[-1].touches(self)
        found = backends.on_host(backends.get(self.device.type), self.buffer)
        return found if found.flags.writeable else found[: self.nbytes]  # room to spare is no one's

    def write(self, start: int, data: np.ndarray[Any, Any]) -> None:
        """Replace bytes from `start` on. What `host` gives may be a copy: this always arrives."""
        spoil()
        if dispatch.state.kernel_level:
            dispatch.state.kernel_level[-1].touches(self)
        flat = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        backends.get(self.device.type).write(self.buffer, start, flat)

    def data_ptr(self) -> int:
        """Where the bytes are; 0: there are none, or too few for some tensor (see `begin`)."""
        return self.address if self.nbytes else 0

    def begin(self) -> int:
        """Where the bytes are, of a storage that became too short for some tensor too."""
        if self.address or not self.nbytes or self.buffer is None or self not in _SHORT:
            return self.data_ptr()
        return backends.get(self.device.type).address(self.buffer)

    def resize(self, nbytes: int) -> None:
        """Grow or shrink; bytes that fit are kept."""
        if not self.resizable:
            raise RuntimeError("Trying to resize storage that is not resizable")
        grown = Storage.allocate(nbytes, self.device)
        if self.buffer is not None:
            keep = min(nbytes, self.nbytes)
            grown.write(0, self.host()[:keep])
        most = max(self.nbytes, _SHORT.pop(self, 0))
        self.buffer, self.nbytes, self.address = grown.buffer, nbytes, grown.address
        if nbytes < most:
            # Tensors may be longer than this now. Machine code asks for the address and takes no
            # tensor that has none; `address_of` looks at its bounds.
            _SHORT[self] = most
            self.address = 0


_SHORT: weakref.WeakKeyDictionary[Storage, int] = weakref.WeakKeyDictionary()
"""Storages that were made smaller, and the bytes they once had."""


def rebuild_storage(stored: bytes | None, nbytes: int, device: str) -> Storage:
    """Make the storage that a pickle describes (meta storages have no bytes)."""
    made = Storage.allocate(nbytes, Device(device))
    if stored is not None:
        if len(stored) != nbytes:
            raise ValueError(f"storage pickle: expected {nbytes} bytes, got {len(stored)}")
        made.write(0, np.frombuffer(stored, np.uint8))
    return made
