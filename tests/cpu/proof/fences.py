"""Memory between inaccessible pages, filled with a pattern.

    [ no access ][ pattern ... block ... pattern ][ no access ]

A block stands at the right end of its pages or at the left end: one byte too far in that direction
ends the process at the instruction that asked for it. The other side is watched by its pattern.
Pages are used again for the next block of the same size.

A pattern is a byte, or NOISE: bytes that look random, others for each block. Numbers of every size
are among them, where a byte gives one number only.
"""

from __future__ import annotations

import ctypes
import itertools
import mmap
from typing import Any

import numpy as np

RIGHT, LEFT = "right", "left"
NOISE = -1
_PAGE = mmap.PAGESIZE
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


class _Pages:
    """Accessible pages between two that are not."""

    def __init__(self, count: int) -> None:
        size = count * _PAGE
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        start = _libc.mmap(None, size + 2 * _PAGE, 0, flags, -1, 0)
        if start == ctypes.c_void_p(-1).value:
            raise MemoryError(f"no {count} pages: errno {ctypes.get_errno()}")
        self.mapping = (start, size + 2 * _PAGE)
        self.address, self.size = start + _PAGE, size
        if size and _libc.mprotect(self.address, size, mmap.PROT_READ | mmap.PROT_WRITE):
            raise MemoryError(f"no access to {count} pages: errno {ctypes.get_errno()}")
        self.bytes: np.ndarray[Any, Any] = np.frombuffer(
            (ctypes.c_uint8 * size).from_address(self.address), np.uint8
        )


_noise: np.ndarray[Any, Any] = np.random.default_rng(0).integers(0, 256, 1 << 20, np.uint8)
_noise_at = itertools.count(0, 7919)


def _filled(pages: _Pages, pattern: int) -> Any:
    """What to fill pages with: a byte, or an array of their size."""
    if pattern != NOISE:
        return np.uint8(pattern)
    start = next(_noise_at) % (_noise.size // 2)
    half = _noise[start : start + _noise.size // 2]
    return half[: pages.size] if pages.size <= half.size else np.resize(half, pages.size)


_LARGE_PAGES = 1024
_free: dict[int, list[_Pages]] = {}


def _take(nbytes: int) -> _Pages:
    count = -(-nbytes // _PAGE)
    waiting = _free.get(count)
    return waiting.pop() if waiting else _Pages(count)


def _give(pages: _Pages) -> None:
    count = pages.size // _PAGE
    if count < _LARGE_PAGES:
        _free.setdefault(count, []).append(pages)
    else:
        _libc.munmap(*pages.mapping)


class Fence:
    """A block of `nbytes`, everything around and in it filled with `pattern`."""

    def __init__(self, nbytes: int, side: str, pattern: int, alignment: int = 1) -> None:
        self.pages, self.nbytes = _take(nbytes), nbytes
        room = self.pages.size - nbytes
        self.start = 0 if side == LEFT else room - room % alignment
        self.address = self.pages.address + self.start
        self.filling = _filled(self.pages, pattern)
        self.pages.bytes[:] = self.filling

    @property
    def bytes(self) -> np.ndarray[Any, Any]:
        return self.pages.bytes[self.start : self.start + self.nbytes]

    def touched_around(self) -> int:
        """How many bytes before and behind the block have changed."""
        changed = self.pages.bytes != self.filling
        changed[self.start : self.start + self.nbytes] = False
        return int(changed.sum())

    def close(self) -> None:
        """Give the pages back; the block must not be used any more."""
        _give(self.pages)
