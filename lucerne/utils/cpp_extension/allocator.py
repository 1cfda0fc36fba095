"""Room for tensors that C++ asks for, where no machine code of ours can give it.

Where the engine has a fast path, `Tensor.__dlpack_c_exchange_api__` says who allocates. Elsewhere
this is TVM-FFI's allocator: a C function that calls Python.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from lucerne._src.base.process import forks
from lucerne._src.tensor.base import TensorBase
from lucerne._src.tensor.interop import exchange
from lucerne.utils.cpp_extension.ffi import ffi

_REFUSE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p)
_DELETE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_ALLOCATE = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p, _REFUSE
)
_VERSION = 1 | 3 << 32
_WORDS = 10
"""Of a DLManagedTensorVersioned."""
_lent: dict[int, Any] = {}
"""By address: the words of what was handed out, its memory and its geometry."""
_lending = forks.lock()


def _delete(address: int) -> None:
    with _lending:
        _lent.pop(address, None)


_DELETER = _DELETE(_delete)


def _allocate(prototype: int, out: Any, context: int, refuse: Any) -> int:
    made = exchange.room(prototype)
    if not isinstance(made, TensorBase):
        refuse(context, b"RuntimeError", made)
        return -1
    meta, storage = made._meta, made._storage
    geometry = ctypes.create_string_buffer(meta.exchanged, len(meta.exchanged))
    start = ctypes.addressof(geometry)
    device, kind, _ = (ctypes.c_uint64 * 3).from_address(start)
    sizes = start + 24
    words = (ctypes.c_uint64 * _WORDS)(
        _VERSION, 0, ctypes.cast(_DELETER, ctypes.c_void_p).value or 0, 0,
        storage.address, device, kind, sizes, sizes + 8 * meta.ndim, 0,
    )  # fmt: skip
    with _lending:
        _lent[ctypes.addressof(words)] = words, storage.buffer, geometry
    out[0] = ctypes.addressof(words)
    return 0


_ALLOCATOR = _ALLOCATE(_allocate)


@functools.cache
def install() -> None:
    """Let C++ ask for memory, in this process."""
    setting = ffi().LIB.TVMFFIEnvSetDLPackManagedTensorAllocator
    setting.argtypes = [_ALLOCATE, ctypes.c_int, ctypes.c_void_p]
    if setting(_ALLOCATOR, 1, None):
        raise RuntimeError("TVM-FFI takes no allocator")
