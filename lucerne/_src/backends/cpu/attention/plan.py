"""What an attention kernel is written for, and the words it reads its sizes from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lucerne._src.backends.cpu.attention.micro import LANES, ROWS, WIDTH
from lucerne._src.backends.cpu.emit.builder import F32, F64, I64, PTR, LLVMFunction, LLVMValue, Type

_ROW_FLOATS = (48, 80, 144, 272, 528)
"""Floats of a row in scratch. Odd multiples of a cache line: rows spread over the cache's sets."""
MOST_WIDTH = _ROW_FLOATS[-1]
KEYS_AT_ONCE = 9 * ROWS
"""Keys of one block of scores."""
MASK_STEP = (KEYS_AT_ONCE + 2 * LANES) // LANES * LANES * 4
"""Bytes of a row of the mask in scratch."""


@dataclass(frozen=True)
class AttentionStructure:
    """Everything that changes the code."""

    type: Type
    mask: Type | None
    causal: bool
    row_floats: int
    group: int
    """Columns of the values (keys, in the backward pass) that one product makes."""

    @property
    def row_bytes(self) -> int:
        return self.row_floats * 4

    @property
    def key(self) -> tuple[object, ...]:
        mask = None if self.mask is None else self.mask.name
        return (self.type.name, mask, self.causal, self.row_floats, self.group, LANES, ROWS)


def row_floats(*widths: int) -> int:
    """Room for a row of any of these widths, filled up to tiles and to groups."""
    need = max(max(tiles(w) * WIDTH, groups_of(w) * group_of(w)) for w in widths)
    return next(n for n in _ROW_FLOATS if n >= need)


def groups_of(width: int) -> int:
    return max(1, -(-width // ROWS))


def group_of(width: int) -> int:
    """Equal groups of at most ROWS columns."""
    return max(1, -(-width // groups_of(width)))


def tiles(length: int) -> int:
    return -(-length // WIDTH)


class AttentionWords:
    """Where a kernel finds its arguments in the block: pointers, workspace, then named words."""

    def __init__(self, pointers: Sequence[str], numbers: Sequence[str]) -> None:
        names = [*pointers, "workspace", *numbers]
        self.place = {name: i for i, name in enumerate(names)}
        self.pointers = {*pointers, "workspace"}

    def read(self, f: LLVMFunction, block: LLVMValue, name: str) -> LLVMValue:
        type = PTR if name in self.pointers else F64 if name == "scale" else I64
        return f.word(block, self.place[name], type)


class AttentionArguments:
    """The words of a block as attributes, each loaded where it is first asked for.

    Ask first in the entry block of a function: a value must be made before it is used everywhere.
    """

    def __init__(self, f: LLVMFunction, block: LLVMValue, words: AttentionWords) -> None:
        self._values = {name: words.read(f, block, name) for name in words.place}

    def __getattr__(self, name: str) -> LLVMValue:
        return self._values[name]

    def has(self, name: str) -> bool:
        return name in self._values


class AttentionScratch:
    """Parts of one thread's scratch, placed one after the other, each on its own cache lines."""

    def __init__(self) -> None:
        self.offsets: dict[str, int] = {}
        self.size = 0

    def add(self, name: str, nbytes: int) -> None:
        self.offsets[name] = self.size
        self.size += -(-nbytes // 64) * 64

    def place(self, f: LLVMFunction, base: LLVMValue, name: str) -> LLVMValue:
        return f.at(base, self.offsets[name])


def steps(prefix: str, dims: str) -> list[str]:
    """Names of the words that hold a tensor's strides in bytes."""
    return [f"{prefix}_{d}" for d in dims]


def single(f: LLVMFunction, x: LLVMValue) -> LLVMValue:
    """A double as a float."""
    return f.convert("fptrunc", x, F32)
