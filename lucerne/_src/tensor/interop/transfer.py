"""`to`: another dtype, another device, another memory format."""

from __future__ import annotations

from typing import Any

import numpy as np

from lucerne._src import backends
from lucerne._src.base import layout as lo
from lucerne._src.base import shape as sh
from lucerne._src.base.device import device as Device
from lucerne._src.base.device import settled
from lucerne._src.base.dtype import dtype as DType
from lucerne._src.ir.convert import as_device, as_dtype
from lucerne._src.ir.define import composite, front
from lucerne._src.ir.op import Tensor
from lucerne._src.ops.copy.cast import cast, clone_as
from lucerne._src.tensor.base import TensorBase, make_tensor, new_tensor
from lucerne._src.tensor.storage import Storage


@composite(
    internal=True,
    vjp={"input": lambda g, input_meta: g.to(input_meta.device)},
    out=False,
    linear=True,
    torch="_to_copy",
)
def to_device(input: Tensor, device: Device) -> Tensor:
    """The same values in the memory of another device."""
    meta = input._meta.like(device=device)
    if backends.META in (device.type, input._meta.device.type):
        if device.type != backends.META:
            raise NotImplementedError("Cannot copy out of meta tensor; no data!")
        return new_tensor(meta)
    as_it_is = input._meta.is_dense and not input._meta.flipped
    dense = input if as_it_is else clone_as(input, lo.contiguous_format)
    meta = dense._meta.like(device=device)
    nbytes = meta.numel * meta.dtype.itemsize
    start = dense._offset * meta.dtype.itemsize
    data = np.asarray(dense._storage.host()[start : start + nbytes])
    storage = Storage(backends.get(device.type).from_host(data), nbytes, device)
    return make_tensor(storage, 0, meta)


@front(method=True)
def to(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """The tensor with another dtype or on another device; itself when nothing changes.

    >>> import lucerne
    >>> lucerne.tensor([1.5, 2.5]).to(lucerne.int64)
    tensor([1, 2])
    """
    dtype, device, copy, memory_format = read_target(args, kwargs)
    result = input
    if dtype is not None and dtype is not input.dtype:
        result = cast(result, dtype)
    if device is not None and device != input.device and settled(device) != input.device:
        result = to_device(result, settled(device))
    ordered = memory_format is not None and memory_format is not lo.preserve_format
    if ordered and not _is_in(result, memory_format, fresh=result is not input):
        return clone_as(result, memory_format)
    if copy and result is input:
        return clone_as(result, lo.preserve_format)
    return result


def _is_in(t: Any, memory_format: Any, *, fresh: bool) -> bool:
    """Whether `t` needs no copy: a tensor that was there only has to look like the format."""
    if fresh:
        return bool(t.is_contiguous(memory_format=memory_format))
    return sh.suggested_format(t.shape, t.stride()) is memory_format


def read_target(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any, bool, Any]:
    dtype, device = kwargs.pop("dtype", None), kwargs.pop("device", None)
    other = kwargs.pop("other", None)
    memory_format = kwargs.pop("memory_format", None)
    flags = [kwargs.pop("non_blocking", False), kwargs.pop("copy", False)]
    if kwargs:
        raise TypeError(
            f"to() received an invalid combination of arguments - got {', '.join(kwargs)}"
        )
    at = 0
    for a in args:
        if isinstance(a, TensorBase):
            other = a
        elif isinstance(a, DType) or (isinstance(a, type) and a in (float, int, bool, complex)):
            dtype = a
        elif isinstance(a, (Device, str)) or (isinstance(a, int) and not isinstance(a, bool)):
            device = a
        elif isinstance(a, bool):
            flags[at] = a
            at += 1
        elif a is not None:
            raise TypeError(
                f"to() received an invalid combination of arguments - got ({type(a).__name__})"
            )
    if other is not None:
        dtype, device = dtype or other.dtype, device or other.device
    return (
        None if dtype is None else as_dtype(dtype),
        None if device is None else as_device(device),
        flags[1],
        memory_format,
    )
