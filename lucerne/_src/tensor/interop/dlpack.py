"""DLPack for types that NumPy has not: its exporter and importer do the work on plain bits, and the
type is written into the capsule, or read from it.

The layout is that of the DLPack standard: a `DLTensor` begins with the address, the device (two
32-bit numbers) and the number of dimensions; then come the type's code, bits and lanes.
"""

from __future__ import annotations

import ctypes
from typing import Any

from lucerne._src.base import dtype as dt

_DTYPE = 8 + 8 + 4
"""Bytes of a DLTensor before its type."""
_NAMES = {b"dltensor": 0, b"dltensor_versioned": 8 + 8 + 8 + 8}
"""Names of capsules, and the bytes before their DLTensor: version, context, deleter, flags."""
_UNSIGNED = 1
CODES = {
    dt.complex32: 5,
    dt.bfloat16: 4,
    dt.float8_e4m3fn: 10,
    dt.float8_e4m3fnuz: 11,
    dt.float8_e5m2: 12,
    dt.float8_e5m2fnuz: 13,
    dt.float8_e8m0fnu: 14,
}
_TYPES = {(code, 8 * dtype.itemsize): dtype for dtype, code in CODES.items()}

_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.restype, _is_valid.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_char_p]


def _code_of(capsule: Any) -> ctypes.c_uint8:
    """The byte of a capsule that says the kind of its type."""
    for name, before in _NAMES.items():
        if _is_valid(capsule, name):
            return ctypes.c_uint8.from_address(_pointer(capsule, name) + before + _DTYPE)
    raise BufferError("a DLPack capsule was expected that nobody has used yet")


def name_type(capsule: Any, dtype: dt.dtype) -> Any:
    """The capsule of the bits, as one of `dtype`."""
    _code_of(capsule).value = CODES[dtype]
    return capsule


def take_type(capsule: Any) -> dt.dtype | None:
    """The type of a capsule if NumPy has none like it, which then becomes one of bits."""
    code = _code_of(capsule)
    bits = ctypes.c_uint8.from_address(ctypes.addressof(code) + 1)
    found = _TYPES.get((code.value, bits.value))
    if found is not None:
        code.value = _UNSIGNED
    return found
