"""Kernel: compiled code with everything a call needs, the executable of the CPU backend.

The code is `i64 entry(ptr block)`. The block is an array of 8-byte words:

    [pointers of outputs] [pointers of tensor inputs] [workspace] [numbers, 2 words each] [extra]

Pointers point at the first element (offset applied). `workspace` points at `workspace` bytes of
scratch, 64-aligned, for this call alone. A number is a double ("f"), an i64 ("i") or two doubles
("c"). `extra` are fixed words: sizes, strides, counts. A nonzero result means failure: `fail` is
called with it and with word 0 of the block, where the kernel left a detail, and raises.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from typing import Any

from lucerne._src.backends.cpu.runtime import memory
from lucerne._src.base.unspecialized import Symbolic
from lucerne._src.ir.symbolic.numbers import double_bits

_CALL = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)


def signed(word: int) -> int:
    """A word of 64 bits as the number that ctypes and NumPy take."""
    return word - (1 << 64) if word >= 1 << 63 else word


class NativeKernel:
    """How to run one compiled function on tensors."""

    __slots__ = (
        "_block",
        "call",
        "entry",
        "extra",
        "fail",
        "kept",
        "numbers",
        "outputs",
        "tensors",
        "words",
        "work",
        "workspace",
    )

    def __init__(
        self,
        entry: int,
        outputs: int,
        tensors: int,
        numbers: str = "",
        extra: Sequence[int] = (),
        workspace: int = 0,
        work: float = 0.0,
        fail: Callable[[int, int], None] | None = None,
    ) -> None:
        """`numbers`: one letter each. `work`: about how many nanoseconds it runs (0: unknown)."""
        self.entry, self.outputs, self.tensors = entry, outputs, tensors
        self.numbers, self.extra, self.workspace = numbers, tuple(extra), workspace
        self.work, self.fail = work, fail
        self.kept: tuple[Any, ...] = ()
        """Memory that `extra` points at (tables), alive as long as the kernel is."""
        self.call: Any = None if isinstance(entry, Symbolic) else _CALL(entry)
        """None: what runs it follows from sizes, and so it runs at none."""
        self.words = outputs + tensors + 1 + 2 * len(numbers) + len(self.extra)
        self._block = ctypes.c_int64 * self.words

    def block(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> tuple[Any, Any]:
        """The filled block of a call, and what must be kept alive while it runs."""
        found: list[Any] = [address_of(t) for t in outputs]
        values = []
        for x in inputs:
            if hasattr(x, "_meta"):
                found.append(address_of(x))
            else:
                values.append(x)
        space = memory.HostBlock(self.workspace) if self.workspace else None
        found.append(0 if space is None else space.address)
        for letter, v in zip(self.numbers, values, strict=True):
            found += encode_number(letter, v)
        found += self.extra
        if len(found) != self.words:
            raise ValueError(f"a kernel of {self.words} words was given {len(found)}")
        words = self._block()
        words[:] = found
        return words, space

    def __call__(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        words, space = self.block(inputs, outputs)
        status = self.call(ctypes.addressof(words))
        if status:
            assert self.fail is not None, f"kernel failed with {status} and no one to tell"
            self.fail(status, words[0])
        del space

    def bind(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> Callable[[], int]:
        """The call with its block filled once: for measuring the kernel alone."""
        words, space = self.block(inputs, outputs)
        call, address, kept = self.call, ctypes.addressof(words), (words, space, inputs, outputs)

        def run(kept: Any = kept) -> int:
            return call(address)

        return run


def address_of(t: Any) -> int:
    """Where the first element of a tensor is. Kernels get no tensor that has no bytes: one of a
    capture or of a transform is seen here when another thread uses it."""
    start: int = t._storage.data_ptr()
    if not start and t._meta.numel:
        start = _of_resized(t)
    return start + t._offset * t._meta.dtype.itemsize


def _of_resized(t: Any) -> int:
    """Where a storage begins that may have become too short for a tensor, if it is not."""
    start: int = t._storage.begin()
    need = (t._offset + t._meta.span) * t._meta.dtype.itemsize
    if t._storage.buffer is not None and need > t._storage.nbytes:
        raise RuntimeError(
            f"a tensor of shape {list(t._meta.shape)} needs {need} bytes of its storage, which "
            f"was resized to {t._storage.nbytes}"
        )
    if not start:
        raise RuntimeError(
            f"a tensor of shape {list(t._meta.shape)} has no bytes: it was made inside a function "
            "that is captured or transformed (compile, vmap, ...). Use it in the thread that runs "
            "the function, and outside only what the function returns."
        )
    return start


def number_word(value: Any) -> int:
    """A Python number as the word that code reads: the bits of a float, an integer as it is."""
    if isinstance(value, float):
        return float_word(value)
    if isinstance(value, Symbolic):
        return value  # type: ignore[return-value]
    return (int(value) + (1 << 63)) % (1 << 64) - (1 << 63)


def float_word(value: float) -> int:
    """The bits of a float."""
    found: int = double_bits(value)
    return found


def encode_number(letter: str, value: Any) -> tuple[int, int]:
    """A Python number as two words."""
    if type(value) is int and not -(1 << 63) <= value < 1 << 64:  # as torch takes numbers
        sign = "can't convert negative int to unsigned"
        raise OverflowError(sign if value < 0 else "int too big to convert")
    if letter == "i":
        word = int(value) & (1 << 64) - 1
        return (word - (1 << 64) if word >> 63 else word), 0
    if letter == "f":
        return float_word(value), 0
    both = struct.unpack("<qq", struct.pack("<dd", complex(value).real, complex(value).imag))
    return both[0], both[1]
