"""Tensors over a given storage, as pickles of torch describe them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lucerne._src.base.device import device as Device
from lucerne._src.tensor import api as lu


def rebuild_tensor(storage: Any, storage_offset: int, size: Sequence[int], stride: Any) -> Any:
    """A tensor over a typed storage."""
    made = lu.empty(0, dtype=storage.dtype, device=storage.device)
    return made.set_(storage.untyped(), storage_offset, tuple(size), tuple(stride))


def rebuild_tensor_v2(
    storage: Any,
    storage_offset: int,
    size: Sequence[int],
    stride: Any,
    requires_grad: bool,
    backward_hooks: Any,
    metadata: Any = None,
) -> Any:
    """The same, with what autograd knows. Hooks are code, and a pickle of torch has none."""
    if backward_hooks:
        raise NotImplementedError(
            "_rebuild_tensor_v2: a tensor with backward hooks; register them after loading"
        )
    if metadata:
        raise NotImplementedError(
            f"_rebuild_tensor_v2: metadata {metadata!r} is not known; read the file with torch.load"
        )
    return rebuild_tensor(storage, storage_offset, size, stride).requires_grad_(requires_grad)


def element_size(dtype: Any) -> int:
    """How many bytes an element takes."""
    return int(dtype.itemsize)


def device_index(device: Any, optional: bool = False, allow_cpu: bool = False) -> int:
    """The number of a device: of `cuda:1`, 1."""
    if isinstance(device, int):
        return device
    found = Device(device) if isinstance(device, str) else device
    if found is None or (isinstance(found, Device) and found.index is None):
        kind = "" if found is None else found.type
        if optional or (allow_cpu and kind == "cpu"):
            return -1
        raise ValueError(f"Expected a torch.device with a specified index or an integer: {device}")
    return int(found.index or 0)
