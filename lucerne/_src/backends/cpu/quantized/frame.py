"""What kernels of `quantized_linear` are given: kinds, words of the block, places in scratch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lucerne._src.backends.cpu.emit.builder import F32, I32, PTR, LLVMFunction, LLVMValue
from lucerne._src.backends.cpu.emit.target import VECTOR_BYTES

LANES = VECTOR_BYTES // F32.size
FLOATS, WORDS = F32.vector(LANES), I32.vector(LANES)
PARTS = 64 // VECTOR_BYTES
"""Vectors in one step of a panel: 16 words."""
SHAPES = {64: ((8, 4, 2, 1), 3), 32: ((4, 2, 1), 1), 16: ((2, 1), 1)}
HEIGHTS, WIDTH = SHAPES[VECTOR_BYTES]
"""Rows of the input and panels of the weight whose sums are held in registers."""

_EXTRA = (
    "rows", "outputs", "columns", "groups", "group", "group_steps", "panel_bytes", "strips",
    "units", "unit_chunk", "unit_chunks", "row_chunk", "row_chunks", "steps_at", "sums_at",
)  # fmt: skip


@dataclass(frozen=True)
class QuantizedKind:
    """Which kernel: how codes are stored, whether rows become 8 bits, what else is given."""

    stored: str
    dynamic: bool
    has_base: bool
    has_bias: bool

    @property
    def key(self) -> tuple[Any, ...]:
        return (self.stored, self.dynamic, self.has_base, self.has_bias)

    @property
    def prepares(self) -> bool:
        """Whether something is asked of the rows before the products."""
        return self.dynamic or self.has_base


class QuantizedFrame:
    """The words of one call, read in the function that uses them."""

    rows: LLVMValue
    outputs: LLVMValue
    columns: LLVMValue
    groups: LLVMValue
    group: LLVMValue
    group_steps: LLVMValue
    panel_bytes: LLVMValue
    strips: LLVMValue
    units: LLVMValue
    unit_chunk: LLVMValue
    unit_chunks: LLVMValue
    row_chunk: LLVMValue
    row_chunks: LLVMValue
    steps_at: LLVMValue
    sums_at: LLVMValue

    def __init__(self, f: LLVMFunction, block: LLVMValue, kind: QuantizedKind) -> None:
        self.f = f
        optional = [name for name in ("base", "bias") if getattr(kind, f"has_{name}")]
        names = ["out", "input", "codes", "scale", *optional, "space"]
        pointers = {name: f.word(block, i, PTR) for i, name in enumerate(names)}
        self.out, self.input, self.codes = (pointers[n] for n in ("out", "input", "codes"))
        self.scale, self.space = pointers["scale"], pointers["space"]
        self.base, self.bias = pointers.get("base"), pointers.get("bias")
        for i, name in enumerate(_EXTRA):
            setattr(self, name, f.word(block, len(names) + i))

    def step_of(self, row: LLVMValue) -> LLVMValue:
        """Where the step of a row in 8 bits is kept."""
        return self.f.at(self.space, self.steps_at + row * F32.size)

    def sum_of(self, row: LLVMValue, group: LLVMValue) -> LLVMValue:
        """Where the sum of a group of a row is kept."""
        return self.f.at(self.space, self.sums_at + (row * self.groups + group) * F32.size)


def extra(**words: Any) -> list[Any]:
    """The words in their order."""
    assert set(words) == set(_EXTRA), set(words) ^ set(_EXTRA)
    return [words[name] for name in _EXTRA]
