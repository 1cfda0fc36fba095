"""Images: machine code laid out once, to be copied into memory and run.

An image is a block of code (with its constants) and a block of variables; the variables start at
the first page after the code. All offsets count from the start of the code. What depends on where
the image lies, or on addresses of other functions, is listed: `relative` places receive the
address of an offset, `imports` places the address of a named symbol.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from lucerne._src.backends.cpu.runtime import symbols

PAGE = mmap.PAGESIZE
_MAGIC = b"LUCI\x01\x00\x00\x00"
_HEAD = struct.Struct("<8sQQQIII4x")
_PAIR = struct.Struct("<QQ")
_NAME = struct.Struct("<QQH")
_MAX = 1 << 31


class ImageError(ValueError):
    """The bytes are no image, or a damaged one."""


def page_up(n: int) -> int:
    return -(-n // PAGE) * PAGE


@dataclass
class Image:
    code: bytes
    data: bytes = b""
    data_size: int = 0
    """Bytes of variables; those beyond `data` start as zero."""
    exports: dict[str, int] = field(default_factory=dict)
    imports: list[tuple[str, int, int]] = field(default_factory=list)
    """(name, place, number added to the address)"""
    relative: list[tuple[int, int]] = field(default_factory=list)
    """(place, offset whose address goes there)"""

    @property
    def data_start(self) -> int:
        return page_up(len(self.code))

    def pack(self) -> bytes:
        """The image as bytes."""
        parts = [
            _HEAD.pack(
                _MAGIC, len(self.code), len(self.data), self.data_size,
                len(self.exports), len(self.imports), len(self.relative),
            ),
            self.code,
            self.data,
            *(_PAIR.pack(*pair) for pair in self.relative),
        ]  # fmt: skip
        for name, offset in self.exports.items():
            parts += [_NAME.pack(offset, 0, len(name.encode())), name.encode()]
        for name, place, added in self.imports:
            word = added & (1 << 64) - 1
            parts += [_NAME.pack(place, word, len(name.encode())), name.encode()]
        return b"".join(parts)

    def check(self) -> Image:
        """Every offset must lie inside; a place needs eight bytes."""
        end = self.data_start + self.data_size
        if not (0 < len(self.code) < _MAX and len(self.data) <= self.data_size < _MAX):
            raise ImageError("the sizes of an image are out of range")
        for offset in (*self.exports.values(), *(target for _, target in self.relative)):
            if not 0 <= offset <= end:
                raise ImageError(f"offset {offset} lies outside the image")
        for place in (*(p for _, p, _ in self.imports), *(p for p, _ in self.relative)):
            in_code = 0 <= place <= len(self.code) - 8
            if not (in_code or self.data_start <= place <= self.data_start + len(self.data) - 8):
                raise ImageError(f"place {place} lies outside the image")
        return self


class _Reader:
    """Takes bytes from the front, and says so when there are too few."""

    def __init__(self, raw: bytes) -> None:
        self.raw, self.at = raw, 0

    def take(self, n: int) -> bytes:
        if n < 0 or self.at + n > len(self.raw):
            raise ImageError("an image ends too early")
        self.at += n
        return self.raw[self.at - n : self.at]

    def fields(self, form: struct.Struct) -> tuple[Any, ...]:
        return form.unpack(self.take(form.size))

    def named(self) -> tuple[str, int, int]:
        first, second, length = self.fields(_NAME)
        try:
            return self.take(length).decode(), first, second
        except UnicodeDecodeError:
            raise ImageError("a name in an image is not text") from None


def unpack(raw: bytes) -> Image:
    """The image in these bytes; ImageError if anything about them is wrong."""
    reader = _Reader(raw)
    magic, code, data, size, exports, imports, relative = reader.fields(_HEAD)
    if magic != _MAGIC:
        raise ImageError("not an image of this version")
    image = Image(reader.take(code), reader.take(data), size)
    image.relative = [_PAIR.unpack(reader.take(_PAIR.size)) for _ in range(relative)]
    for _ in range(exports):
        name, offset, _ = reader.named()
        image.exports[name] = offset
    for _ in range(imports):
        name, place, word = reader.named()
        image.imports.append((name, place, word - (1 << 64) if word >> 63 else word))
    if reader.at != len(raw):
        raise ImageError("an image has bytes too many")
    return image.check()


# ---- into memory ------------------------------------------------------------------------------

_FAILED = ctypes.c_void_p(-1).value


@cache
def _c() -> ctypes.CDLL:
    """The C library's functions for pages, declared."""
    c = ctypes.CDLL(None, use_errno=True)
    c.mmap.restype = ctypes.c_void_p
    c.mmap.argtypes = [
        ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long
    ]  # fmt: skip
    c.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return c


def load(image: Image) -> dict[str, int]:
    """Put an image into memory, for ever; addresses of its exports.

    Memory is writable first and executable afterwards, never both.
    """
    variables = image.data_start
    size = variables + page_up(image.data_size)
    addresses = [symbols.resolve(name) for name, _, _ in image.imports]
    base = _c().mmap(
        None, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0
    )
    if base is None or base == _FAILED:
        raise MemoryError(f"no memory for {size} bytes of code")
    code, data = bytearray(image.code), bytearray(image.data)

    def patch(place: int, word: int) -> None:
        part, at = (code, place) if place < variables else (data, place - variables)
        part[at : at + 8] = (word & (1 << 64) - 1).to_bytes(8, "little")

    for place, target in image.relative:
        patch(place, base + target)
    for (_, place, added), address in zip(image.imports, addresses, strict=True):
        patch(place, address + added)
    ctypes.memmove(base, bytes(code), len(code))
    ctypes.memmove(base + variables, bytes(data), len(data))
    if _c().mprotect(base, variables, mmap.PROT_READ | mmap.PROT_EXEC):
        raise OSError(ctypes.get_errno(), "the system does not allow generated code to run")
    return {name: base + offset for name, offset in image.exports.items()}
