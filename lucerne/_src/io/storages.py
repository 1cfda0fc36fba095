"""Storages while a checkpoint is loaded: found by key, moved to their device, read as tensors."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from lucerne._src import backends
from lucerne._src.base import dtype as dt
from lucerne._src.base.device import HOST
from lucerne._src.base.device import device as Device
from lucerne._src.io.errors import (
    CorruptFileError,
    UnsafeFileError,
    UnsupportedFileError,
    UsersError,
)
from lucerne._src.io.machine import TEMPORARY, PickleBuilder
from lucerne._src.ir.meta import make_meta
from lucerne._src.tensor.base import make_tensor
from lucerne._src.tensor.interop.typed_names import NAMES, TypedStorage
from lucerne._src.tensor.interop.untyped import UntypedStorage
from lucerne._src.tensor.storage import Storage

MAX_DIMS = 64
MAX_SIZE = 1 << 62
LOCATION = re.compile(r"[a-z_]{1,20}(?::[0-9]{1,4})?")
OPAQUE_STORAGES = ("QInt8", "QUInt8", "QInt32", "QUInt4x2", "QUInt2x4")

STORAGE_DTYPES: dict[str, dt.dtype | None] = {
    **{f"{name}Storage": kind for name, kind in NAMES.items()},
    "UntypedStorage": None,
}
"""Element type by the name of a storage class; None: plain bytes."""

TEMPORARY.update({TypedStorage: 300, UntypedStorage: 64})
Place = Callable[[UntypedStorage, str], Any]


def place_for(map_location: Any) -> Place:
    """Turn what torch allows as `map_location` into a function of a storage and its location."""
    if map_location is None:
        return default_place
    if isinstance(map_location, dict):
        return lambda storage, location: default_place(
            storage, map_location.get(location, location)
        )
    if isinstance(map_location, str | Device):
        target = Device(map_location)
        return lambda storage, location: move(storage, target)
    if not callable(map_location):
        raise TypeError(
            "map_location: expected a device, a string, a dict of locations or a function of "
            f"(storage, location), got {type(map_location).__name__}"
        )

    def ask(storage: UntypedStorage, location: str) -> Any:
        try:
            found = map_location(storage, location)
        except Exception as error:
            raise UsersError(error) from error
        return default_place(storage, location) if found is None else found

    return ask


def skips_bytes(map_location: Any) -> bool:
    """Whether everything goes to the meta device, where no bytes are needed."""
    if not isinstance(map_location, str | Device):
        return False
    return Device(map_location).type == backends.META


def default_place(storage: UntypedStorage, location: Any) -> UntypedStorage:
    """To the device the tensor was on when it was saved."""
    target = location if isinstance(location, Device) else Device(check_location(location))
    if target.type == "cuda" and not backends.is_known("cuda"):
        raise UnsupportedFileError(
            "Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is "
            "False. If you are running on a CPU-only machine, please use torch.load with "
            "map_location=torch.device('cpu') to map your storages to the CPU."
        )
    try:
        return move(storage, target)
    except RuntimeError as error:
        raise UnsupportedFileError(
            f"a tensor of the checkpoint was on device {str(target)!r}: {error}. Load with "
            "map_location='cpu'"
        ) from error


def check_location(location: Any) -> str:
    if type(location) is not str or not LOCATION.fullmatch(location):
        raise CorruptFileError("a storage has a location that is no device")
    return location


def move(storage: UntypedStorage, target: Device) -> UntypedStorage:
    """The bytes on another device (the same storage if they are there already)."""
    held = storage._storage
    if target.type == held.device.type:
        return storage
    if target.type == backends.META:
        return UntypedStorage(Storage.allocate(held.nbytes, target))
    buffer = backends.get(target.type).from_host(held.host())
    return UntypedStorage(Storage(buffer, held.nbytes, target))


class StorageTable:
    """The storages of one file: `fetch(key, size)` gives the bytes, once per key.

    `swap` says that the file has the other byte order than this machine.
    """

    def __init__(
        self, fetch: Callable[[str, int, int], Storage], map_location: Any, swap: bool = False
    ) -> None:
        self._fetch = fetch
        self._place = place_for(map_location)
        self._swap = swap
        self._swapped: dict[int, int] = {}
        self._held: dict[str, Storage] = {}

    def persistent(self, given: Any) -> Any:
        """The storage that a persistent id names: ("storage", type, key, location, size)."""
        if type(given) is not tuple or len(given) not in (5, 6) or given[0] != "storage":
            raise UnsafeFileError("the pickle has a persistent id that names no storage")
        kind, key, location, size = given[1:5]
        if not isinstance(kind, StorageKind) or type(key) is not str or type(size) is not int:
            raise CorruptFileError("a storage is described by values of the wrong types")
        if not 0 <= size < MAX_SIZE:
            raise CorruptFileError(f"a storage of {size} elements")
        width = 1 if kind.dtype is None else kind.dtype.itemsize
        location = check_location(location)
        held = self._held.get(key)
        if held is None:
            held = self._load(key, size, width, location)
        elif held.nbytes // width != size:
            raise CorruptFileError(f"storage {key!r} is said to have different sizes")
        if kind.dtype is not None:
            self.order(held, kind.dtype)
        return self.wrap(held, kind.dtype, given[5] if len(given) == 6 else None)

    def _load(self, key: str, size: int, width: int, location: str) -> Storage:
        bare = self._fetch(key, size, width)
        found = self._place(UntypedStorage(bare), location)
        if isinstance(found, TypedStorage):
            found = found.untyped()
        if not isinstance(found, UntypedStorage) or found.nbytes() != bare.nbytes:
            wrong = type(found).__name__
            raise UsersError(
                TypeError(
                    f"map_location: expected a storage of {bare.nbytes} bytes or None, got {wrong}"
                )
            )
        held = self._held[key] = found._storage
        return held

    def wrap(self, held: Storage, dtype: dt.dtype | None, part: Any) -> Any:
        """What the pickle gets: a typed or untyped storage (`part`: of a part of the bytes)."""
        if part is not None:
            raise UnsupportedFileError(
                "a storage that is a view of another storage (torch before 0.4): load and save it "
                "with a newer torch"
            )
        if dtype is None:
            return UntypedStorage(held)
        return TypedStorage(wrap_storage=UntypedStorage(held), dtype=dtype)

    def order(self, held: Storage, dtype: dt.dtype) -> None:
        """Bring the bytes into this machine's order, now that their type is known."""
        if not self._swap or held.buffer is None:
            return
        width = dtype.itemsize // 2 if dtype.category == dt.COMPLEX else dtype.itemsize
        done = self._swapped.setdefault(id(held), 1)
        if done not in (1, width):
            raise UnsupportedFileError(
                "a storage of the other byte order is read as two types of different width"
            )
        if done == 1 and width > 1:
            if held.nbytes % width:
                raise CorruptFileError("a storage does not hold a whole number of elements")
            held.host().view(f"u{width}").byteswap(inplace=True)
            held.note_write()
            self._swapped[id(held)] = width


class StorageKind(PickleBuilder):
    """Stands for a storage class in a pickle."""

    __slots__ = ("dtype",)

    def __init__(self, name: str, dtype: dt.dtype | None) -> None:
        super().__init__(name)
        self.dtype = dtype


def view_of(held: Storage, dtype: dt.dtype, offset: Any, size: Any, stride: Any, limit: int) -> Any:
    """A tensor over a storage, made only if every element it reaches lies inside.

    `limit`: how many bytes a view may stand for, which with a stride of 0 can be any number.
    """
    numel, span = check_geometry(offset, size, stride)
    reach = (offset + span) * dtype.itemsize
    if reach > held.nbytes:
        raise CorruptFileError(
            f"a tensor of shape {tuple(size)} and strides {tuple(stride)} at {offset} needs "
            f"{reach} bytes, but its storage has {held.nbytes}"
        )
    if held.buffer is not None and numel * dtype.itemsize > max(limit, held.nbytes):
        raise UnsafeFileError(
            f"a tensor claims {numel} elements on a storage of {held.nbytes} bytes: copying it "
            "would take far more memory than the file should need. If you trust it, allow more "
            "with load(f, memory_limit=...)"
        )
    return make_tensor(held, offset, make_meta(dtype, tuple(size), tuple(stride), held.device))


def check_geometry(offset: Any, size: Any, stride: Any) -> tuple[int, int]:
    """Number of elements, and how many the view spans; sizes and strides must be sane."""
    if not isinstance(size, tuple) or not isinstance(stride, tuple) or type(offset) is not int:
        raise CorruptFileError("a tensor has sizes, strides or an offset of the wrong type")
    if len(size) != len(stride) or len(size) > MAX_DIMS:
        raise CorruptFileError(f"a tensor has {len(size)} sizes and {len(stride)} strides")
    if not all(type(n) is int and 0 <= n < MAX_SIZE for n in (offset, *size, *stride)):
        raise CorruptFileError("a tensor has a size, stride or offset out of range")
    if math.prod(n for n in size if n) >= MAX_SIZE:
        raise CorruptFileError("a tensor has too many elements")
    numel = math.prod(size)
    span = 1 + sum((n - 1) * s for n, s in zip(size, stride, strict=True)) if numel else 0
    return numel, span


def host_storage(nbytes: int) -> tuple[Storage, memoryview]:
    """Fresh bytes on the host, and the view to fill them through."""
    made = Storage.allocate(nbytes, Device(HOST))
    return made, made.host().data if nbytes else memoryview(bytearray())


def mapped_storage(bytes_: np.ndarray[Any, Any]) -> Storage:
    """A storage over mapped memory, which it keeps alive."""
    return Storage(bytes_, bytes_.nbytes, Device(HOST), owner=bytes_)
