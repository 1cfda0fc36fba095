"""Arrays for kernels under test: any strides, with inaccessible memory right before or after."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import numpy as np

from lucerne._src.base import dtype as dt
from lucerne._src.base.device import device
from lucerne._src.ir.meta import TensorMeta, make_meta

_PAGE = mmap.PAGESIZE
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_JUNK = 0xC7


class Guarded:
    """Bytes that end (or start) at a page nobody may touch, filled with junk."""

    def __init__(self, nbytes: int, at_end: bool) -> None:
        pages = -(-nbytes // _PAGE)
        self._map = mmap.mmap(-1, (pages + 2) * _PAGE)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        stop = start + (pages + 1) * _PAGE
        for guard in (start, stop):
            assert _libc.mprotect(guard, _PAGE, 0) == 0
        self.address = stop - nbytes if at_end else start + _PAGE
        self.bytes = np.frombuffer((ctypes.c_char * nbytes).from_address(self.address), np.uint8)
        self.bytes[:] = _JUNK

    def data_ptr(self) -> int:
        return self.address


class Guest:
    """What a kernel sees of a tensor; `values` reads and writes it as numbers."""

    def __init__(self, meta: TensorMeta, at_end: bool = True) -> None:
        self._meta, self._offset, self._array = meta, 0, None
        self._storage = Guarded(meta.span * meta.dtype.itemsize, at_end)
        flat = self._storage.bytes.view(meta.dtype.storage)
        self._view = np.lib.stride_tricks.as_strided(flat, meta.shape, meta.byte_strides)
        if not meta.numel:
            self._view = np.empty(meta.shape, meta.dtype.storage)

    @property
    def values(self) -> np.ndarray[Any, Any]:
        return decode(self._view, self._meta.dtype)

    def fill(self, values: np.ndarray[Any, Any]) -> None:
        self._view[...] = encode(values, self._meta.dtype)


def encode(values: np.ndarray[Any, Any], dtype: dt.dtype) -> np.ndarray[Any, Any]:
    if dtype is not dt.bfloat16:
        return values.astype(dtype.storage)
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def decode(stored: np.ndarray[Any, Any], dtype: dt.dtype) -> np.ndarray[Any, Any]:
    if dtype is not dt.bfloat16:
        return stored
    return (stored.astype(np.uint32) << 16).view(np.float32)


def strides_of(shape: tuple[int, ...], layout: str) -> tuple[int, ...]:
    """Strides in elements: "planes", "channels" (last), "gaps" everywhere, "wide" rows."""
    n = len(shape)
    order = [1, *range(n - 1, 1, -1), 0] if layout == "channels" and n > 1 else range(n - 1, -1, -1)
    strides, step = [0] * n, 1
    for d in order:
        strides[d] = step
        step *= max(shape[d], 1) + (3 if layout == "wide" and d == n - 1 else 0)
    return tuple(2 * s for s in strides) if layout == "gaps" else tuple(strides)


def guest(rng: np.random.Generator, shape: tuple[int, ...], dtype: dt.dtype, layout: str) -> Guest:
    """Random numbers: small integers for the integer types."""
    if dtype.is_floating_point or dtype.is_complex:
        values = rng.standard_normal(shape)
        if dtype.is_complex:
            values = values + 1j * rng.standard_normal(shape)
    else:
        values = rng.integers(-4 if dtype.is_signed else 0, 5, shape)
    meta = make_meta(dtype, shape, strides_of(shape, layout), device("cpu"))
    made = Guest(meta, at_end=bool(rng.integers(2)))
    made.fill(np.asarray(values))
    return made
