"""A built library, called as C calls it, its memory next to pages that can't be touched."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lucerne as torch

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_LIBC.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_PRIVATE, _READ, _NONE = 0x22, 1, 0


class Guarded:
    """Bytes that end at a page nobody may touch, or begin behind one."""

    def __init__(self, nbytes: int, content: bytes | None = None, *, at_end: bool = True) -> None:
        page = mmap.PAGESIZE
        room = -(-max(nbytes, 1) // page) * page
        self._size = room + 2 * page
        self._start = _LIBC.mmap(None, self._size, 3, _PRIVATE, -1, 0)
        self.address = self._start + page + (room - nbytes if at_end else 0)
        self.nbytes = nbytes
        if content is not None:
            ctypes.memmove(self.address, content, nbytes)
        for at in (self._start, self._start + page + room):
            assert _LIBC.mprotect(at, page, _NONE) == 0

    def read_only(self) -> Guarded:
        """From now on writing to it ends the process."""
        page = mmap.PAGESIZE
        assert _LIBC.mprotect(self._start + page, self._size - 2 * page, _READ) == 0
        return self

    def bytes(self) -> bytes:
        return ctypes.string_at(self.address, self.nbytes)

    def __del__(self) -> None:
        _LIBC.munmap(self._start, self._size)


class Loaded:
    """A library with a model; `context()` gives what calls need."""

    def __init__(self, library: Path, name: str, weights: bytes | None = None) -> None:
        self._library, self._name = ctypes.CDLL(str(library.resolve())), name
        self._functions: dict[str, Any] = {}
        for function in ("model_bytes", "context_bytes", "model_init", "context_init", "run"):
            self.function(function).restype = ctypes.c_int64
        self.function("error").restype = ctypes.c_char_p
        self.model = Guarded(self.function("model_bytes")())
        self.weights = None if weights is None else Guarded(len(weights), weights, at_end=False)
        self.status = self.init(self.model.address)
        self.model.read_only()

    def function(self, name: str) -> Any:
        return getattr(self._library, f"{self._name}_{name}")

    def init(self, address: int) -> int:
        given = (None, 0) if self.weights is None else (self.weights.address, self.weights.nbytes)
        pointers = ctypes.c_void_p(address), ctypes.c_void_p(given[0])
        status: int = self.function("model_init")(*pointers, ctypes.c_int64(given[1]))
        return status

    def error(self, status: int) -> str:
        text: bytes = self.function("error")(ctypes.c_int64(status))
        return text.decode()

    def context(self) -> Guarded:
        made = Guarded(self.function("context_bytes")())
        pointers = ctypes.c_void_p(made.address), ctypes.c_void_p(self.model.address)
        assert self.function("context_init")(*pointers) == 0
        return made

    def run(
        self, context: Guarded, sizes: Sequence[int], inputs: Sequence[Any], results: Sequence[Any],
        *, at_end: bool = True,
    ) -> int:  # fmt: skip
        """One call on tensors; the results are written to the tensors given."""
        given = [_guarded(x, at_end=at_end).read_only() for x in inputs]
        made = [Guarded(y.numel() * y.itemsize, at_end=at_end) for y in results]
        words = (ctypes.c_int64 * max(len(sizes), 1))(*sizes)
        status: int = self.function("run")(
            ctypes.c_void_p(context.address), words, _pointers(given), _pointers(made)
        )
        for y, room in zip(results, made, strict=True):
            y.copy_(torch.frombuffer(bytearray(room.bytes()), dtype=y.dtype).reshape(y.shape))
        return status


def _guarded(x: Any, *, at_end: bool) -> Guarded:
    raw = x.contiguous().numpy().tobytes()
    return Guarded(len(raw), raw, at_end=at_end)


def _pointers(rooms: Sequence[Guarded]) -> Any:
    return (ctypes.c_void_p * max(len(rooms), 1))(*(r.address for r in rooms))
