"""The argument struct of the matrix product driver: what plans fill and kernels read.

One struct of 8-byte words lives on the stack of a call (of a task, for batches). Its first part is
copied from the kernel's `extra` words; the rest is written by the driver as it goes. Strides count
elements unless a name says bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import repeat

from lucerne._src.backends.cpu.emit.builder import LLVMFunction, LLVMValue
from lucerne._src.backends.cpu.emit.types import F64, I64, PTR, Type

MAX_BATCH_DIMS = 6

_STEPS = ("SIZE", "STEP_A", "STEP_B", "STEP_C", "STEP_E")
_BATCH = [f"{what}{d}" for d in range(MAX_BATCH_DIMS) for what in _STEPS]

# K_ROOM: bytes along k, rounded up to whole tiles (AMX). A_ROW to C_ROW: element strides.
# The first TALLER row panels are one row higher than HEIGHT. BLOCK_*: panels of a task.
# COLUMN_BLOCKS to ROWS_OUTSIDE: of the small forms, tasks across, width of a tile, loop order.
# KERNEL*: micro-kernels of HEIGHT and HEIGHT + 1 rows (AMX: the task, and the packing of A's rows).
# PACK_COLUMNS, OWN_B (AMX): packing of B, and whether each task packs the columns it uses.
# B_READY: B was packed by an earlier call. BLOCK, TAIL: the call's block, and the words that belong
# to a fused graph (tail.py). BATCH: the number of the matrix at hand. UPDATE: see update.py.
# *_HOW: the way of packing (pack.py). E_ROW: of the epilogue's tensor. *_OFFSET, *_SPACE: bytes,
# places in the workspace and their size for each thread; SUMS_OFFSET -1: sums are the results.
# WHOLE_* (AMX): all of A, packed before the tasks begin.
_FIXED = """
    M N K K_ROOM A_ROW A_K B_K B_COL C_ROW
    PANELS HEIGHT TALLER COLUMN_PANELS
    BLOCK_ROWS ROW_BLOCKS BLOCK_COLUMNS COLUMN_BLOCKS TILE_COLUMNS ROWS_OUTSIDE
    K_BLOCK COLUMN_BLOCK PACK_GROUP
    KERNEL KERNEL_TALLER PACK_COLUMNS OWN_B
    A_IN_PLACE B_IN_PLACE B_READY A_HOW B_HOW E_ROW
    A_OFFSET A_SPACE B_OFFSET B_SPACE SUMS_OFFSET SUMS_SPACE WHOLE_OFFSET WHOLE_SPACE WHOLE_GROUP
    PARALLEL BATCHES BATCH_GROUP BATCH_DIMS
"""
PLANNED = [*_FIXED.split(), *_BATCH]
"""Words that plans compute, in the order of `extra`."""


def in_order(words: Mapping[str, int]) -> tuple[int, ...]:
    """What a plan computed, as `extra` has it; words that it leaves out are 0."""
    return tuple(map(words.get, PLANNED, repeat(0)))


_CHANGING = """
    A B C E PACKED_A PACKED_B SUMS SUMS_ROW
    K_START K_COUNT K_LAST PANEL_START PANEL_STOP
    THREAD BASE_A BASE_B BASE_C BASE_E WORKSPACE BETA ALPHA BLOCK TAIL BATCH UPDATE
"""
WRITTEN = _CHANGING.split()
"""Words that the driver writes: pointers of the matrix at hand, the block at hand."""

_POINTERS = {
    "A", "B", "C", "E", "PACKED_A", "PACKED_B", "SUMS", "KERNEL", "KERNEL_TALLER", "PACK_COLUMNS",
    "BASE_A", "BASE_B", "BASE_C", "BASE_E", "WORKSPACE", "BLOCK", "TAIL", "UPDATE",
}  # fmt: skip
_DOUBLES = {"BETA", "ALPHA"}
INDEX = {name: i for i, name in enumerate([*PLANNED, *WRITTEN])}
SIZE = len(INDEX) * 8


def _type(name: str) -> Type:
    return PTR if name in _POINTERS else F64 if name in _DOUBLES else I64


class Args:
    """Reads and writes of the struct at a pointer: `args.N`, `args.set("N", value)`."""

    def __init__(self, f: LLVMFunction, place: LLVMValue) -> None:
        self.f, self.place = f, place

    def __getattr__(self, name: str) -> LLVMValue:
        return self.f.word(self.place, INDEX[name], _type(name))

    def get(self, names: str) -> list[LLVMValue]:
        return [getattr(self, n) for n in names.split()]

    def is_set(self, name: str) -> LLVMValue:
        return self.f.compare("ne", getattr(self, name), 0)

    def is_unset(self, name: str) -> LLVMValue:
        return self.f.compare("eq", getattr(self, name), 0)

    def at(self, name: str) -> LLVMValue:
        """Where a word stands."""
        return self.f.at(self.place, INDEX[name] * 8)

    def set(self, name: str, value: LLVMValue | int) -> None:
        v = self.f.constant(value, _type(name))
        self.f.store(v, self.f.at(self.place, INDEX[name] * 8), align=8)
