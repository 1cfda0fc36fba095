"""Memory of tensors that other processes can see."""

from __future__ import annotations

from typing import Any

from lucerne._src import backends
from lucerne._src.base.process.shared_memory import AVAILABLE, SharedBlock
from lucerne._src.tensor.eager.specialize import spoil
from lucerne._src.tensor.storage import Storage


def is_shared_storage(storage: Storage) -> bool:
    return isinstance(storage.owner, SharedBlock)


def share_storage(storage: Storage) -> bool:
    """Move a storage to shared memory, under all its tensors; whether it is shared now."""
    if is_shared_storage(storage):
        return True
    if not AVAILABLE or storage.device.type != backends.HOST or not storage.nbytes:
        return False
    spoil()
    block = SharedBlock.make(storage.nbytes)
    block.array[: storage.nbytes] = storage.host()
    storage.buffer = block.array[: storage.nbytes]
    storage.address = block.address
    storage.owner = block
    storage.note_write()
    return True


def is_shared(t: Any) -> bool:
    """Whether other processes can see its memory.

    >>> import lucerne
    >>> lucerne.zeros(2).share_memory_().is_shared()
    True
    """
    return is_shared_storage(t._storage)


def share_memory_(t: Any) -> Any:
    """Move its memory where other processes can see it: a tensor sent to one is then not copied,
    and writes of either are seen by both."""
    share_storage(t._storage)
    return t
