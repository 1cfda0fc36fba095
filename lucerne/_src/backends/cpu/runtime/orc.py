"""Loading of object files by LLVM's own linker, where ours does not understand the format.

The payload is the object file after the list of its exports. Loading it needs LLVM, so a process
pays for the library even if nothing has to be compiled.
"""

from __future__ import annotations

import ctypes
import itertools
import struct
from collections.abc import Sequence
from ctypes import byref, c_char_p, c_size_t, c_uint8, c_uint64
from functools import cache

from lucerne._src.backends.cpu.runtime import symbols
from lucerne._src.backends.cpu.runtime.image import ImageError
from lucerne._src.backends.cpu.runtime.llvm import CompileError, llvm

_MAGIC = b"LUCO\x01\x00\x00\x00"
_COUNTS = struct.Struct("<8sQQ")
_OBJECT, _LIBRARY = 2, 3
_numbers = itertools.count()


class _Element(ctypes.Structure):
    _fields_ = (("kind", c_uint8), ("value", c_char_p), ("length", c_size_t))


class _Address(ctypes.Structure):
    _fields_ = (("name", c_char_p), ("address", c_uint64))


def prepare(raw: bytes, exports: Sequence[str], imports: Sequence[str]) -> bytes:
    """The payload of an object file."""
    first, second = (" ".join(names).encode() for names in (exports, imports))
    return _COUNTS.pack(_MAGIC, len(first), len(second)) + first + second + raw


def load(payload: bytes) -> dict[str, int]:
    """Addresses of the exports of a payload, now in memory, for ever."""
    if len(payload) < _COUNTS.size or payload[:8] != _MAGIC:
        raise ImageError("not an object of this version")
    _, first, second = _COUNTS.unpack_from(payload)
    if _COUNTS.size + first + second > len(payload):
        raise ImageError("an object ends too early")
    at = _COUNTS.size
    exports = payload[at : at + first].decode().split()
    imports = payload[at + first : at + first + second].decode().split()
    return _link(payload[at + first + second :], exports, imports)


def _link(raw: bytes, exports: list[str], imports: list[str]) -> dict[str, int]:
    # The process is searched for functions that the code generator itself calls (memcpy).
    elements = (_Element * 2)(_Element(_OBJECT, raw, len(raw)), _Element(_LIBRARY, b"", 0))
    wanted = (_Address * len(exports))(*[_Address(name.encode(), 0) for name in exports])
    given = (_Address * len(imports))(
        *[_Address(name.encode(), symbols.resolve(name)) for name in imports]
    )
    name = f"lucerne{next(_numbers)}".encode()
    out = c_char_p()
    tracker = llvm().LLJIT_Link(
        _engine(),
        name,
        elements,
        len(elements),
        given,
        len(imports),
        wanted,
        len(exports),
        byref(out),
    )
    if not tracker:
        raise CompileError((out.value or b"unknown error").decode(errors="replace"))
    return {name: wanted[i].address for i, name in enumerate(exports)}


@cache
def _engine() -> int:
    library, out = llvm(), c_char_p()
    made: int | None = library.CreateLLJITCompiler(library.machine(), False, True, byref(out))
    if not made:
        raise CompileError((out.value or b"unknown error").decode(errors="replace"))
    return made
