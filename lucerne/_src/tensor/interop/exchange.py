"""DLPack's C functions: how machine code of other libraries takes and makes our tensors.

`Tensor.__dlpack_c_exchange_api__` is a table of C functions (DLPack 1.2). Those of the engine's
fast path do the work; what is here is asked by them for all that is not plain: what a meta says in
DLPack's words, tensors that only Python can judge, and tensors over memory that others made.
"""

from __future__ import annotations

import ctypes
import functools
import struct
import weakref
from typing import Any

import numpy as np

from lucerne._src import backends
from lucerne._src.base import dtype as dt
from lucerne._src.base.device import device as Device
from lucerne._src.base.memory import array_over
from lucerne._src.ir import dispatch
from lucerne._src.ir.meta import TensorMeta, make_meta
from lucerne._src.tensor.autograd.state import requires_grad
from lucerne._src.tensor.base import make_tensor, new_tensor, plain_types
from lucerne._src.tensor.interop import dlpack
from lucerne._src.tensor.storage import FAST, Storage

_HOST_KIND = 1
"""kDLCPU."""
_VERSION = 1
"""The major version whose layout we know."""
_KINDS = {dt.BOOL: 6, dt.FLOAT: 2, dt.COMPLEX: 5}
_NAME = b"dlpack_exchange_api"


def code_of(dtype: dt.dtype) -> tuple[int, int] | None:
    """DLPack's code and bits of a type; None: it has no name there."""
    bits = 8 * dtype.itemsize
    if dtype in dlpack.CODES:
        return dlpack.CODES[dtype], bits
    if dtype.category == dt.INTEGER:
        return (0 if dtype.is_signed else 1), bits
    return (_KINDS[dtype.category], bits) if dtype.native and dtype.category in _KINDS else None


def type_of(code: int, bits: int, lanes: int = 1) -> dt.dtype:
    """The type of DLPack's numbers."""
    found = _TYPES.get((code, bits)) if lanes == 1 else None
    if found is None:
        raise BufferError(
            f"no tensor type is like DLPack's (code {code}, {bits} bits, {lanes} lanes)"
        )
    return found


_TYPES = {code: t for t in reversed(dt.all_dtypes()) if (code := code_of(t)) is not None}


def describe(meta: TensorMeta) -> bytes:
    """What the engine's functions read of a meta (`backends.cpu.native.exchange`)."""
    code = code_of(meta.dtype)
    if meta.device.type != backends.HOST:
        raise BufferError(f"a tensor on {meta.device} can't be lent: only memory of the host can")
    if code is None:
        raise BufferError(f"DLPack has no name for {meta.dtype}")
    head = (_HOST_KIND, 0, meta.ndim, *code, 1, meta.dtype.itemsize)
    return struct.pack(f"<iiiBBHq{2 * meta.ndim}q", *head, *meta.shape, *meta.strides)


# ---- what the engine asks -----------------------------------------------------------------------


def lend(t: Any) -> Any:
    """A plain tensor over the same memory, for a tensor that is not plain, is watched, or is of a
    kind that nobody has lent before. Raises where bytes are not what the tensor is."""
    if dispatch.state.kernel_level:
        seen = dispatch.state.kernel_level[-1].reads(t)
        t = t if seen is None else seen
    if dispatch.state.grad_enabled and requires_grad(t):
        raise BufferError(
            "a tensor that requires gradients was given to compiled code, where its gradient would "
            "be lost: use tensor.detach(), no_grad(), or an op with register_autograd"
        )
    meta: TensorMeta = t._meta
    if meta.flipped:
        raise BufferError("a tensor with its conj or neg bit set can't be lent: use resolve_conj()")
    if type(t) not in plain_types and hasattr(type(t), "__torch_dispatch__"):
        raise BufferError(f"a {type(t).__name__} can't be lent: it handles ops itself")
    if not hasattr(meta, "exchanged"):
        meta.exchanged = describe(meta)
    storage = t._storage
    if meta.numel and (not storage.address or storage.buffer is None):
        raise BufferError("the tensor has no memory")
    if storage.address:
        return make_tensor(storage, t._offset, meta)
    return new_tensor(meta)  # nothing to see, but an address


_made: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
"""Memory that was made for others, by address: what comes back is a tensor of ours again."""


_TENSOR = struct.Struct("<QQQQQQ")
"""A DLTensor: address, device, dimensions and type, where sizes and strides are, first byte."""
_MANAGED = struct.Struct("<IIQQQ" + "QQQQQQ")
"""A DLManagedTensorVersioned: version, context, deleter, flags, the tensor."""
_KIND = struct.Struct("<iiiBBH")
"""The second and third word of a DLTensor: device, dimensions, type."""


def _words(address: int, count: int) -> bytes:
    return ctypes.string_at(address, 8 * count) if count else b""


@functools.lru_cache(maxsize=1024)
def _meta(device: int, kind: int, sizes: bytes, strides: bytes) -> TensorMeta:
    """The meta that words of a DLTensor stand for; no strides: it is contiguous."""
    where, _, ndim, code, bits, lanes = _KIND.unpack(struct.pack("<QQ", device, kind))
    if where != _HOST_KIND:
        raise BufferError(f"memory of DLPack's device {where} can't be used here")
    dtype = type_of(code, bits, lanes)
    shape = struct.unpack(f"<{ndim}q", sizes)
    if any(n < 0 for n in shape):
        raise ValueError(f"a tensor of shape {list(shape)} was asked for")
    steps = struct.unpack(f"<{ndim}q", strides) if strides else None
    if steps is not None and any(n < 0 for n in steps):
        raise BufferError("a DLPack tensor with negative strides can't be a tensor here")
    return make_meta(dtype, shape, steps, Device(backends.HOST))


_DIMENSIONS = (1 << 32) - 1


def room(address: int) -> Any:
    """A new tensor like a prototype; what is wrong with it, as bytes, where there is none."""
    try:
        _, device, kind, sizes, _, _ = _TENSOR.unpack(ctypes.string_at(address, _TENSOR.size))
        meta = _meta(device, kind, _words(sizes, kind & _DIMENSIONS), b"")
        if not hasattr(meta, "exchanged"):
            meta.exchanged = describe(meta)
        t = new_tensor(meta)
        storage = t._storage
        _made[storage.address] = storage.buffer
        return t
    except Exception as error:
        return f"{type(error).__name__}: {error}".encode()


class _Loan:
    """Memory of others: given back when nobody has it any more."""

    __slots__ = ("address", "deleter")

    def __init__(self, address: int, deleter: int) -> None:
        self.address, self.deleter = address, deleter

    def __del__(self) -> None:
        if self.deleter:
            _deleter(self.deleter)(self.address)


@functools.lru_cache(maxsize=64)
def _deleter(address: int) -> Any:
    return ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(address)


def take(address: int) -> Any:
    """A tensor over the memory of a managed DLPack tensor, which is ours from now on.

    On an error it still is the caller's.
    """
    major, minor, _, deleter, _, data, device, kind, sizes, strides, first = _MANAGED.unpack(
        ctypes.string_at(address, _MANAGED.size)
    )
    if major != _VERSION:
        raise BufferError(f"DLPack {major}.{minor} is not known, {_VERSION} is")
    ndim = kind & _DIMENSIONS
    meta = _meta(device, kind, _words(sizes, ndim), _words(strides, ndim if strides else 0))
    start, nbytes = data + first, meta.span * meta.dtype.itemsize
    loan = _Loan(address, deleter)
    own = _made.get(start)
    if own is not None and own.nbytes >= nbytes:
        return make_tensor(Storage(own, nbytes, meta.device), 0, meta)
    if nbytes == 0:
        return new_tensor(meta)
    buffer = array_over(start, (nbytes,), np.dtype(np.uint8), None, loan)
    return make_tensor(Storage(buffer, nbytes, meta.device, owner=loan), 0, meta)


# ---- what others ask ----------------------------------------------------------------------------


class _Table(ctypes.Structure):
    """A DLPackExchangeAPI."""

    _fields_ = [
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("previous", ctypes.c_void_p),
        ("functions", ctypes.c_void_p * 5),
    ]  # fmt: skip


def _capsule() -> Any:
    """The table as a capsule, which lives as long as the process."""
    table = _Table(1, 3, None, (ctypes.c_void_p * 5)(*FAST.exchange_functions()))
    _kept.append(table)
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = (
        ctypes.py_object,
        [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p],
    )
    return new(ctypes.addressof(table), _NAME, None)


_kept: list[_Table] = []


def install(tensor: Any) -> None:
    """Give the tensor class its table: to be called where there is machine code."""
    tensor.__dlpack_c_exchange_api__ = _capsule()
