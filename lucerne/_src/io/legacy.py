"""The format of torch before 1.6: five pickles in a row, then the bytes of each storage.

| pickle | content |
|---|---|
| 1, 2 | a magic number, and the protocol (1001) |
| 3 | byte order and sizes of the machine that wrote it |
| 4 | the object, naming its storages by key |
| 5 | the keys, in the order in which storages follow: the number of elements (8 bytes), the bytes |

It has no checksum: damage to numbers can't be noticed.
"""

from __future__ import annotations

import struct
from typing import Any

from lucerne._src.io import rebuild
from lucerne._src.io.errors import CorruptFileError, UnsafeFileError, UnsupportedFileError
from lucerne._src.io.machine import PickleBudget, PickleBuilder, PickleMachine
from lucerne._src.io.rebuild import LoadContext
from lucerne._src.io.source import ByteSource
from lucerne._src.io.storages import StorageKind, StorageTable, host_storage
from lucerne._src.tensor.storage import Storage

MAGIC_NUMBER = 0x1950A86A20F9469CFC6C
MAGIC = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
PROTOCOL = 1001
WINDOW = 1 << 24


class Placeholder:
    """Stands for a tensor in the first of two runs, whose only aim is to learn storage sizes."""


_TENSORS = (
    rebuild.tensor_v1, rebuild.tensor_v2, rebuild.tensor_v3, rebuild.parameter, rebuild.generator,
    rebuild.parameter_with_state, rebuild.tensor_with_state, rebuild.meta_tensor,
)  # fmt: skip


class DryRun(LoadContext):
    """Names as in a real run, except that tensors are placeholders."""

    def __init__(self) -> None:
        super().__init__(StorageTable(_no_storage, None), 0)
        self.sizes: dict[str, tuple[int, int]] = {}
        """Elements and their width, by key."""

    def find(self, module: str, name: str) -> Any:
        found = super().find(module, name)
        known = rebuild.TABLE.get((module, name)) is found
        if type(found) is PickleBuilder and (not known or found.build in _TENSORS):
            return PickleBuilder(found.name, _placeholder, _placeholder)
        return found

    def persistent(self, given: Any) -> Any:
        if type(given) is not tuple or len(given) not in (5, 6) or given[0] != "storage":
            raise UnsafeFileError("the pickle has a persistent id that names no storage")
        kind, key, _, size = given[1:5]
        if not isinstance(kind, StorageKind) or type(key) is not str or type(size) is not int:
            raise CorruptFileError("a storage is described by values of the wrong types")
        said = (size, 1 if kind.dtype is None else kind.dtype.itemsize)
        if self.sizes.setdefault(key, said) != said:
            raise CorruptFileError(f"storage {key!r} is said to have different sizes")
        return Placeholder()

    def set_state(self, m: PickleMachine, target: Any, state: Any) -> Any:
        return target if type(target) is Placeholder else rebuild.set_state(m, target, state)


def _placeholder(m: PickleMachine, args: tuple[Any, ...]) -> Placeholder:
    return Placeholder()


def _no_storage(key: str, size: int, width: int) -> Storage:
    raise UnsafeFileError("a header of the checkpoint names a storage")


class LegacyReader:
    """Reads one object; `end` is then where the file goes on."""

    def __init__(
        self,
        source: ByteSource,
        map_location: Any,
        budget: PickleBudget,
        view_limit: int,
        encoding: str,
    ) -> None:
        self._source, self._budget, self._encoding = source, budget, encoding
        self._map_location, self._view_limit = map_location, view_limit
        self._places: dict[str, tuple[int, int, int]] = {}
        self.end = 0

    def read(self) -> Any:
        """The object."""
        if self._dry()[0] != MAGIC_NUMBER:
            raise CorruptFileError("Invalid magic number; corrupt file?")
        protocol = self._dry()[0]
        if protocol != PROTOCOL:
            raise UnsupportedFileError("the checkpoint has a protocol version that torch never had")
        system = self._dry()[0]
        if type(system) is not dict or type(system.get("little_endian", True)) is not bool:
            raise CorruptFileError("the checkpoint's description of its machine is damaged")
        start = self.end
        sizes = self._dry()[1]
        stop = self.end
        self._locate(self._dry()[0], sizes)
        little = system.get("little_endian", True)
        storages = StorageTable(self._fetch, self._map_location, swap=not little)
        context = LoadContext(storages, self._view_limit)
        data = self._source.read(start, stop - start)
        self._budget.take(len(data))
        machine = PickleMachine(
            data, context.find, storages.persistent, rebuild.set_state, self._budget, self._encoding
        )
        return machine.run()

    def _dry(self) -> tuple[Any, dict[str, tuple[int, int]]]:
        """Run the next pickle without making tensors; its length is known only afterwards."""
        left = self._source.size - self.end
        for window in sorted({min(left, WINDOW), left}):
            data = self._source.read(self.end, window)
            context = DryRun()
            room = PickleBudget(self._budget.limit)
            room.take(window)
            find, keep, state = context.find, context.persistent, context.set_state
            machine = PickleMachine(data, find, keep, state, room, self._encoding)
            try:
                found = machine.run()
            except CorruptFileError:
                if window < left and machine.at >= window:
                    continue
                raise
            self.end += machine.at
            return found, context.sizes
        raise CorruptFileError("the file ends before its last pickle")

    def _locate(self, keys: Any, sizes: dict[str, tuple[int, int]]) -> None:
        """Where the bytes of each storage are; every count must be the one the object names."""
        if type(keys) is not list or not all(type(key) is str for key in keys):
            raise CorruptFileError("the list of storages is damaged")
        if len(keys) != len(sizes) or set(keys) != set(sizes):
            raise CorruptFileError("the list of storages is not that of the object")
        for key in keys:
            size, width = sizes[key]
            (said,) = struct.unpack("<q", self._source.read(self.end, 8))
            if said != size or size < 0:
                raise CorruptFileError(f"storage {key!r} has {said} elements instead of {size}")
            start = self.end + 8
            self.end = start + size * width
            if self.end > self._source.size:
                raise CorruptFileError(f"the file ends inside storage {key!r}")
            self._places[key] = (start, size, width)

    def _fetch(self, key: str, size: int, width: int) -> Storage:
        start, said, known = self._places[key]
        if (said, known) != (size, width):
            raise CorruptFileError(f"storage {key!r} is said to have different sizes")
        self._budget.take(size * width + 300)
        made, view = host_storage(size * width)
        self._source.readinto(start, view)
        made.note_write()
        return made
