"""How tensors go to another process: their memory is shared, not copied."""

from __future__ import annotations

import multiprocessing
from multiprocessing import reduction
from typing import Any

from lucerne._src.base.device import device as Device
from lucerne._src.base.process.shared_memory import SharedBlock
from lucerne._src.tensor import api as lu
from lucerne._src.tensor.interop.outside import reduce_tensor
from lucerne._src.tensor.interop.shared_memory import share_storage
from lucerne._src.tensor.storage import Storage


def refuse_history(t: Any) -> None:
    """A tensor that autograd knows more about than its values can't leave the process."""
    if t.requires_grad and not t.is_leaf:
        raise RuntimeError(
            "Cowardly refusing to serialize non-leaf tensor which requires_grad, since autograd "
            "does not support crossing process boundaries.  If you just want to transfer the data, "
            "call detach() on the tensor before serializing (e.g., putting it on the queue)."
        )


def _reduce_tensor(t: Any) -> Any:
    refuse_history(t)
    return reduce_tensor(t)


def _reduce_storage(storage: Storage) -> Any:
    """Share the memory by its file; what can't be shared is copied."""
    if storage.buffer is None or not share_storage(storage):
        return storage.__reduce__()
    block: SharedBlock = storage.owner
    fd = reduction.DupFd(block.fd)
    return _rebuild_storage, (fd, block.nbytes, storage.nbytes, str(storage.device))


def _rebuild_storage(fd: Any, block_bytes: int, nbytes: int, device: str) -> Storage:
    block = SharedBlock(fd.detach(), block_bytes)
    return Storage(block.array[:nbytes], nbytes, Device(device), owner=block)


def init_reductions() -> None:
    """Teach multiprocessing about tensors."""
    multiprocessing.reduction.ForkingPickler.register(lu.Tensor, _reduce_tensor)
    multiprocessing.reduction.ForkingPickler.register(Storage, _reduce_storage)
