"""GGUF files: llama.cpp's header, and tensors as blocks (`gguf_blocks.py`).

The header is plain: counts, texts, numbers. Whatever it says is compared with the size of the file
before memory is asked for, as in our other readers: a file can be refused, and nothing else.
"""

from __future__ import annotations

import math
import os
import struct
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lucerne._src.io.errors import CorruptFileError, UnsafeFileError, UnsupportedFileError
from lucerne._src.io.source import ByteSource, open_source
from lucerne._src.quantization.codes import QuantizedWeight
from lucerne._src.quantization.gguf_blocks import BLOCKS, PLAIN, opened
from lucerne._src.tensor import api as lu
from lucerne._src.tensor.tensor import Tensor

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MOST_HEADER = 1 << 28
MOST_NAME = 1 << 16
MOST_DIMS = 4
MOST_DEPTH = 4
_ALIGNMENT = "general.alignment"
_NUMBERS = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 10: "<Q", 11: "<q", 12: "<d",
}  # fmt: skip
_BOOL, _TEXT, _LIST = 7, 8, 9


@dataclass
class GGUFFile:
    """What a file holds: facts by name, and tensors by name, in codes where they are in blocks."""

    metadata: dict[str, Any] = field(default_factory=dict)
    tensors: dict[str, Tensor | QuantizedWeight] = field(default_factory=dict)


def load_gguf(file: str | os.PathLike[str] | Any) -> GGUFFile:
    """Read a GGUF file: F32, F16, BF16 and integer tensors, and Q8_0, Q4_0, Q4_K, Q6_K as codes.

    A matrix in blocks becomes a `QuantizedWeight`; `QuantizedLinear.from_weight` makes a layer of
    it. `file` is a path or an open binary file.
    """
    with open_source(file) as source:
        return _Reader(source).read()


class _Reader:
    """One file, from its first byte on."""

    def __init__(self, source: ByteSource) -> None:
        self.source, self.at = source, 0

    def read(self) -> GGUFFile:
        if self.source.size < 24 or self._bytes(4) != MAGIC:
            raise UnsupportedFileError("this is no GGUF file: it does not begin with 'GGUF'")
        version = self._number("<I")
        if version not in VERSIONS:
            raise UnsupportedFileError(
                f"a GGUF file of version {version}: versions {list(VERSIONS)} are read, with the "
                "low byte first"
            )
        tensors, facts = self._number("<Q"), self._number("<Q")
        for what, count, least in (("tensors", tensors, 24), ("facts", facts, 13)):
            if count * least > self.source.size:
                raise CorruptFileError(f"{count} {what} do not fit into {self.source.size} bytes")
        found = GGUFFile()
        for _ in range(facts):
            self._once(name := self._text(MOST_NAME), found.metadata)
            found.metadata[name] = self._value(self._number("<I"), 0)
        entries = [self._entry() for _ in range(tensors)]
        start = self._aligned(found.metadata.get(_ALIGNMENT, 32))
        self._check_places(entries, start)
        for name, shape, kind, offset, nbytes in entries:
            self._once(name, found.tensors)
            found.tensors[name] = self._tensor(name, shape, kind, start + offset, nbytes)
        return found

    # ---- the header --------------------------------------------------------------------------

    def _bytes(self, count: int) -> bytes:
        if self.at + count > MOST_HEADER:
            raise UnsafeFileError(f"a GGUF header of more than {MOST_HEADER} bytes")
        made = self.source.read(self.at, count)
        self.at += count
        return made

    def _number(self, how: str) -> Any:
        return struct.unpack(how, self._bytes(struct.calcsize(how)))[0]

    def _text(self, most: int = MOST_HEADER) -> str:
        length = self._number("<Q")
        if length > min(most, self.source.size):
            raise CorruptFileError(f"a text of {length} bytes in the header")
        try:
            return self._bytes(length).decode()
        except UnicodeDecodeError:
            raise CorruptFileError("a text of the header is not UTF-8") from None

    def _once(self, name: str, known: dict[str, Any]) -> None:
        if name in known:
            raise CorruptFileError(f"{name[:80]!r} stands in the file twice")

    def _value(self, kind: int, depth: int) -> Any:
        if kind in _NUMBERS:
            return self._number(_NUMBERS[kind])
        if kind == _BOOL:
            return self._flag(self._bytes(1))
        if kind == _TEXT:
            return self._text()
        if kind != _LIST or depth == MOST_DEPTH:
            raise CorruptFileError(f"a fact of kind {kind} at depth {depth}")
        return self._list(self._number("<I"), self._number("<Q"), depth)

    def _list(self, kind: int, count: int, depth: int) -> list[Any]:
        size = struct.calcsize(_NUMBERS[kind]) if kind in _NUMBERS else 1 if kind == _BOOL else 8
        if count * size > self.source.size - self.at:
            raise CorruptFileError(f"a list of {count} items goes beyond the end of the file")
        if kind in _NUMBERS:
            made: list[Any] = np.frombuffer(self._bytes(count * size), _NUMBERS[kind]).tolist()
            return made
        return [self._value(kind, depth + 1) for _ in range(count)]

    def _flag(self, byte: bytes) -> bool:
        if byte not in (b"\0", b"\1"):
            raise CorruptFileError("a fact is neither true nor false")
        return byte == b"\1"

    def _entry(self) -> tuple[str, tuple[int, ...], int, int, int]:
        """Name, shape (the longest stride first), kind, offset, bytes."""
        name, ndim = self._text(MOST_NAME), self._number("<I")
        if ndim > MOST_DIMS:
            raise CorruptFileError(f"{name[:80]!r} has {ndim} dimensions")
        sizes = [self._number("<Q") for _ in range(ndim)]
        kind, offset = self._number("<I"), self._number("<Q")
        if kind not in BLOCKS and kind not in PLAIN:
            raise UnsupportedFileError(
                f"{name[:80]!r} is of GGUF's kind {kind}; read are "
                f"{', '.join(b.name for b in BLOCKS.values())} and plain numbers"
            )
        count = math.prod(sizes)
        if count > 8 * self.source.size or offset > self.source.size:
            raise CorruptFileError(f"{name[:80]!r} has more numbers than the file has bits")
        if kind in PLAIN:
            return name, tuple(sizes[::-1]), kind, offset, count * PLAIN[kind].itemsize
        block = BLOCKS[kind]
        if not sizes or sizes[0] % block.numbers or not count:
            raise CorruptFileError(f"rows of {name[:80]!r} are no blocks of {block.numbers}")
        return name, tuple(sizes[::-1]), kind, offset, count // block.numbers * block.nbytes

    def _aligned(self, alignment: Any) -> int:
        if type(alignment) is not int or not 0 < alignment <= 1 << 20:
            raise CorruptFileError(f"data aligned to {alignment!r} bytes")
        self.alignment = alignment
        return -(-self.at // alignment) * alignment

    def _check_places(self, entries: list[Any], start: int) -> None:
        at = 0
        for name, _, _, offset, nbytes in sorted(entries, key=lambda e: e[3]):
            if offset < at or offset % self.alignment:
                raise CorruptFileError(f"{name[:80]!r} lies over another tensor, or between words")
            at = offset + nbytes
        if start + at > self.source.size:
            raise CorruptFileError(
                f"the file has {self.source.size} bytes, its tensors end at {start + at}"
            )

    # ---- tensors -----------------------------------------------------------------------------

    def _tensor(
        self, name: str, shape: tuple[int, ...], kind: int, offset: int, nbytes: int
    ) -> Tensor | QuantizedWeight:
        raw = np.empty(nbytes, np.uint8)
        self.source.readinto(offset, raw.data)
        if kind in PLAIN:
            flat = lu.from_numpy(raw.view(PLAIN[kind].storage))
            return flat.view(PLAIN[kind]).reshape(shape)
        if len(shape) != 2:
            raise UnsupportedFileError(
                f"{name[:80]!r} has blocks and {len(shape)} dimensions: matrices are read"
            )
        return opened(raw, kind, shape)
