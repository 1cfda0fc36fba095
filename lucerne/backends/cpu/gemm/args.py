"""The argument struct of the matrix product driver: what plans fill and kernels read.

One struct of 8-byte words lives on the stack of a call (of a task, for batches). Its first part is
copied from the kernel's `extra` words; the rest is written by the driver as it goes. Strides count
elements unless a name says bytes.
"""

from __future__ import annotations

from lucerne.backends.cpu.emit.builder import Function, Value
from lucerne.backends.cpu.emit.types import F64, I64, PTR, Type

MAX_BATCH_DIMS = 6

_BATCH = [
    f"{what}{d}" for d in range(MAX_BATCH_DIMS) for what in ("SIZE", "STEP_A", "STEP_B", "STEP_C", "STEP_E")
]  # fmt: skip

PLANNED = (
    "M N K K_ROOM "  # K_ROOM: bytes along k, rounded up to whole tiles (AMX)
    "A_ROW A_K B_K B_COL C_ROW "  # element strides of the operands and the result
    "PANELS HEIGHT TALLER "  # row panels; the first TALLER of them are one row higher
    "COLUMN_PANELS "
    "BLOCK_ROWS ROW_BLOCKS BLOCK_COLUMNS "  # panels of a task, tasks down, panels across
    "COLUMN_BLOCKS TILE_COLUMNS ROWS_OUTSIDE "  # of small forms: tasks across, width, loop order
    "K_BLOCK COLUMN_BLOCK PACK_GROUP "
    "KERNEL KERNEL_TALLER "  # micro-kernels of HEIGHT and HEIGHT + 1 rows
    "A_IN_PLACE B_IN_PLACE B_READY "  # operands that need no packing; B packed by an earlier call
    "A_HOW B_HOW "  # how each is packed: see pack.py
    "E_ROW "  # the epilogue's operand
    "A_OFFSET A_SPACE B_OFFSET B_SPACE "  # bytes: places in the workspace, and of each thread
    "SUMS_OFFSET SUMS_SPACE "  # offset -1: sums are kept in the result
    "PARALLEL BATCHES BATCH_GROUP BATCH_DIMS"
).split() + _BATCH
"""Words that plans compute, in the order of `extra`."""

WRITTEN = (
    "A B C E "  # pointers of this matrix
    "PACKED_A PACKED_B SUMS SUMS_ROW "
    "K_START K_COUNT K_LAST PANEL_START PANEL_STOP "
    "THREAD BASE_A BASE_B BASE_C BASE_E WORKSPACE BETA ALPHA"
).split()

_POINTERS = {
    "A", "B", "C", "E", "PACKED_A", "PACKED_B", "SUMS", "KERNEL", "KERNEL_TALLER",
    "BASE_A", "BASE_B", "BASE_C", "BASE_E", "WORKSPACE",
}  # fmt: skip
_DOUBLES = {"BETA", "ALPHA"}
INDEX = {name: i for i, name in enumerate([*PLANNED, *WRITTEN])}
SIZE = len(INDEX) * 8


def _type(name: str) -> Type:
    return PTR if name in _POINTERS else F64 if name in _DOUBLES else I64


class Args:
    """Reads and writes of the struct at a pointer: `args.N`, `args.set("N", value)`."""

    def __init__(self, f: Function, place: Value) -> None:
        self.f, self.place = f, place

    def __getattr__(self, name: str) -> Value:
        return self.f.word(self.place, INDEX[name], _type(name))

    def get(self, names: str) -> list[Value]:
        return [getattr(self, n) for n in names.split()]

    def is_set(self, name: str) -> Value:
        return self.f.compare("ne", getattr(self, name), 0)

    def is_unset(self, name: str) -> Value:
        return self.f.compare("eq", getattr(self, name), 0)

    def at(self, name: str) -> Value:
        """Where a word stands."""
        return self.f.at(self.place, INDEX[name] * 8)

    def set(self, name: str, value: Value | int) -> None:
        v = self.f.constant(value, _type(name))
        self.f.store(v, self.f.at(self.place, INDEX[name] * 8), align=8)
