"""UntypedStorage: a user's handle of the bytes under a tensor."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from lucerne._src import backends
from lucerne._src.base.device import device as Device
from lucerne._src.tensor.interop.shared_memory import is_shared_storage, share_storage
from lucerne._src.tensor.storage import Storage, bytes_of

_OBJECT_BYTES = 48


class UntypedStorage:
    """Bytes, shared with every tensor over them.

    >>> import lucerne
    >>> lucerne.tensor([1, 2], dtype=lucerne.uint8).untyped_storage().tolist()
    [1, 2]
    """

    __slots__ = ("_storage",)
    is_cuda = False

    def __init__(self, storage: Any = None, *, device: Any = None) -> None:
        if isinstance(storage, Storage):
            self._storage = storage
            return
        where = Device(backends.HOST if device is None else device)
        if isinstance(storage, Sequence):
            self._storage = Storage.allocate(len(storage), where)
            self._storage.write(0, np.array(storage, np.int64).astype(np.uint8))
        else:
            self._storage = Storage.allocate(operator.index(storage or 0), where)

    @property
    def device(self) -> Device:
        return self._storage.device

    def data_ptr(self) -> int:
        return self._storage.begin()

    def nbytes(self) -> int:
        return bytes_of(self._storage)

    size = nbytes

    @classmethod
    def from_file(
        cls, filename: Any, shared: bool = False, nbytes: int = 0, size: int = 0
    ) -> UntypedStorage:
        """The bytes of a file, mapped; with `shared`, writes go to it (and make it grow)."""
        need = nbytes or size
        there = os.path.getsize(filename) if os.path.exists(filename) else 0
        if shared and there < need:
            with open(filename, "ab") as file:
                file.truncate(need)
        elif there < need:
            raise RuntimeError(f"file {filename!r} holds {there} bytes, needs {need}")
        need = need or there
        if not need:
            return cls(0)
        mapped = np.memmap(filename, np.uint8, "r+" if shared else "c", 0, (need,))
        flat = mapped.view(np.ndarray)
        return cls(Storage(flat, need, Device(backends.HOST), owner=mapped))

    def element_size(self) -> int:
        return 1

    def resizable(self) -> bool:
        return self._storage.resizable

    def is_shared(self) -> bool:
        return is_shared_storage(self._storage)

    def share_memory_(self) -> UntypedStorage:
        """Move the bytes where other processes can see them."""
        share_storage(self._storage)
        return self

    def __len__(self) -> int:
        return bytes_of(self._storage)

    def __sizeof__(self) -> int:
        """The object's own bytes, as many as torch's has, and those it holds."""
        return _OBJECT_BYTES + self.nbytes()

    def __iter__(self) -> Iterator[int]:
        return iter(self.tolist())

    def __getitem__(self, at: Any) -> Any:
        """One byte; or a slice as a storage over the same memory."""
        found = self._storage.host()[at]
        if isinstance(at, slice):
            part = Storage(found, found.nbytes, self._storage.device, owner=self._storage)
            return UntypedStorage(part)
        return int(found)

    def __setitem__(self, at: Any, value: int) -> None:
        bytes_ = np.array(self._storage.host())
        bytes_[at] = value
        self._storage.write(0, bytes_)
        self._storage.version += 1

    def tolist(self) -> list[int]:
        found: list[int] = self._storage.host().tolist()
        return found

    def fill_(self, value: int) -> UntypedStorage:
        self[:] = value
        return self

    def copy_(self, source: UntypedStorage, non_blocking: bool = False) -> UntypedStorage:
        """Take over the bytes of another storage of the same size."""
        if len(source) != len(self):
            raise RuntimeError(
                f"size does not match, self was {len(self)} bytes but src was {len(source)} bytes"
            )
        self._storage.write(0, source._storage.host())
        self._storage.version += 1
        return self

    def resize_(self, nbytes: int) -> UntypedStorage:
        self._storage.resize(nbytes)
        return self

    def clone(self) -> UntypedStorage:
        return UntypedStorage(Storage.allocate(len(self), self.device)).copy_(self)

    def cpu(self) -> UntypedStorage:
        """Itself: the bytes are on the host."""
        return self

    def byte(self) -> UntypedStorage:
        return self

    def untyped(self) -> UntypedStorage:
        return self

    def __copy__(self) -> UntypedStorage:
        return self.clone()

    def __deepcopy__(self, memo: dict[int, Any]) -> UntypedStorage:
        return UntypedStorage(copy_storage(self._storage, memo))

    def __reduce__(self) -> tuple[Any, ...]:
        return UntypedStorage, (self._storage,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UntypedStorage) and self.data_ptr() == other.data_ptr()

    def __hash__(self) -> int:
        return hash(self.data_ptr())

    def __repr__(self) -> str:
        lines = "\n ".join(map(str, self.tolist()))
        return f" {lines}\n[torch.storage.UntypedStorage(device={self.device}) of size {len(self)}]"


def copy_storage(storage: Storage, memo: dict[int, Any]) -> Storage:
    """One copy per storage and `memo`, so that tensors which shared before share after."""
    key = id(storage)
    if key not in memo:
        made = Storage.allocate(storage.nbytes, storage.device)
        if storage.buffer is not None:
            made.write(0, storage.host()[: storage.nbytes])
        memo[key] = made
        memo.setdefault(id(memo), []).append(storage)  # keeps the id taken while copying
    found: Storage = memo[key]
    return found
