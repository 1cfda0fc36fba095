"""Operands in the order of AMX tiles.

A tile of A is 16 rows of 64 bytes along k. A tile of B is 16 rows too, each for as many k as make
up 4 bytes (a *word*: two bfloat16 or four int8), holding that word of 16 columns. A panel is 32
rows of A or 32 columns of B: for each 64 bytes of k, two tiles one after the other (2048 bytes).
What lies beyond the matrix is zero.

A bfloat16 operand may lie in memory as float32 (*wide*): its elements are rounded on the way, as a
cast would have done. Or each float32 becomes three bfloat16 whose sum it is (`parts`, packed by
`amx_cut.py`): for each 64 bytes of k the panel then has the two tiles of the leading parts, of the
middle ones, of the last.

Everything here counts bytes along k (of the elements that are multiplied), so one code serves both
element sizes where k is dense; where it is not, words are made by interleaving rows of the matrix.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lucerne._src.backends.cpu.emit.builder import LLVMFunction, LLVMValue, Module
from lucerne._src.backends.cpu.emit.target import HOST
from lucerne._src.backends.cpu.emit.types import BF16, F32, I8, I16, I64, PTR, VOID, Type
from lucerne._src.backends.cpu.gemm.amx.cut import (
    A_DENSE,
    A_TURNED,
    B_DENSE,
    B_TURNED,
    write_cut_packing,
)
from lucerne._src.backends.cpu.gemm.kinds import GemmKind
from lucerne._src.backends.cpu.gemm.pack import transposed
from lucerne._src.backends.cpu.math import storage
from lucerne._src.base import dtype as dt

WORD = F32
"""4 bytes that move together."""

PANEL, TILE, STEP = 32, 1024, 64
STEP_BYTES = 2 * TILE
_BYTES = I8.vector(64)
_FLOATS = F32.vector(PANEL)
_PARAMS: list[Any] = [
    ("source", PTR, "noalias"), ("step", I64), ("target", PTR, "noalias"), ("valid", I64),
    ("k_bytes", I64), ("k_room", I64),
]  # fmt: skip
# void pack(source, step, target, valid, k_bytes, k_room): `step` bytes to the next row of the
# matrix as it lies, `valid` rows or columns of the panel, k_bytes of k, rounded up in k_room.


@dataclass(frozen=True)
class Wide:
    """Which operands lie in memory as float32, to be rounded to bfloat16."""

    a: bool = False
    b: bool = False
    parts: int = 1
    """3: elements are cut in three, none is rounded away."""
    turned: bool = False
    """Whether B.T @ A.T is multiplied, and its tiles of sums are transposed."""


NARROW = Wide()
IN_PARTS = Wide(a=True, b=True, parts=3)
"""float32 operands, each number as three bfloat16 (see `amx_whole.py`)."""
IN_PARTS_TURNED = Wide(a=True, b=True, parts=3, turned=True)
"""The same for a B that is larger than A and lies along k, as weights do: as the left operand it is
cut beside the tiles, row by row, and never transposed. The sums are the same, bit by bit."""


def write_amx_packing(m: Module, kind: GemmKind, wide: Wide) -> None:
    if wide.parts > 1:
        write_cut_packing(m, _PARAMS)
        return
    _write_a_dense(m, wide.a)
    _write_b_dense(m, wide.b)
    _write_interleaved(m, kind, A_TURNED, wide.a, turn=True)
    _write_interleaved(m, kind, B_TURNED, wide.b, turn=False)


def pack_panel(f: LLVMFunction, how: str, *arguments: LLVMValue | int) -> None:
    f.call(how, VOID, list(arguments))


class _Along:
    """64 bytes along k at a time, rounded from float32 if the operand is wide."""

    def __init__(self, f: LLVMFunction, wide: bool) -> None:
        self.f, self.wide = f, wide

    def load(self, start: LLVMValue, k: LLVMValue, type: Type) -> LLVMValue:
        """The bytes of k from `k` on, as `type`."""
        f = self.f
        if not self.wide:
            return f.load(type, f.at(start, k))
        return f.bitcast(_rounded(f, f.load(_FLOATS, f.at(start, k * 2))), type)

    def load_up_to(self, start: LLVMValue, k: LLVMValue, valid: LLVMValue, type: Type) -> LLVMValue:
        """The same, zeros beyond `valid` bytes."""
        f = self.f
        if not self.wide:
            return f.bitcast(f.masked_load(_BYTES, f.at(start, k), f.low_mask(valid, 64)), type)
        there = f.low_mask(valid // 2, PANEL)
        return f.bitcast(_rounded(f, f.masked_load(_FLOATS, f.at(start, k * 2), there)), type)


def _rounded(f: LLVMFunction, v: LLVMValue) -> LLVMValue:
    """32 floats as bfloat16. The instruction takes denormals for zero, as tiles do."""
    if not HOST.has("avx512_bf16"):
        return storage.pack(f, dt.bfloat16, v)
    low, high = f.shuffle(v, None, range(16)), f.shuffle(v, None, range(16, 32))
    name = "llvm.x86.avx512bf16.cvtne2ps2bf16.512"
    return f.bitcast(f.call(name, BF16.vector(PANEL), [high, low]), I16.vector(PANEL))


def _write_a_dense(m: Module, wide: bool) -> None:
    """Rows along k: copied, 64 bytes at a time."""
    with m.function(A_DENSE, _PARAMS, internal=True) as f:
        source, step, target, valid, k_bytes, k_room = f.args
        whole = k_bytes & -STEP
        along = _Along(f, wide)
        with f.loop(0, valid) as rows:
            read, write = f.at(source, rows.index * step), f.at(target, rows.index * STEP)
            with f.loop(0, whole, STEP) as loop:
                v = along.load(read, loop.index, _BYTES)
                f.store(v, f.at(write, loop.index * PANEL), align=64)
            with f.loop(whole, k_room, STEP) as loop:
                v = along.load_up_to(read, loop.index, k_bytes - loop.index, _BYTES)
                f.store(v, f.at(write, loop.index * PANEL), align=64)
        with f.loop(valid, PANEL) as rows, f.loop(0, k_room, STEP) as loop:
            place = f.at(target, loop.index * PANEL + rows.index * STEP)
            f.store(f.zero(_BYTES), place, align=64)


def _write_b_dense(m: Module, wide: bool) -> None:
    """Columns along k: squares of 16 x 16 words are transposed."""
    words = WORD.vector(16)
    with m.function(B_DENSE, _PARAMS, internal=True) as f:
        source, step, target, valid, k_bytes, k_room = f.args
        along = _Along(f, wide)
        whole = f.select(f.compare("eq", valid, PANEL), k_bytes & -STEP, 0)
        with f.loop(0, whole, STEP) as loop, f.loop(0, 2, at_least_once=True) as half:
            read = f.at(source, half.index * 16 * step)
            square = [along.load(f.at(read, step * r), loop.index, words) for r in range(16)]
            _store_tile(f, square, f.at(target, loop.index * PANEL + half.index * TILE))
        with f.loop(whole, k_room, STEP) as loop, f.loop(0, 2, at_least_once=True) as half:
            read = f.at(source, half.index * 16 * step)
            square = []
            for r in range(16):
                there = f.compare("lt", half.index * 16 + r, valid)
                left = f.select(there, k_bytes - loop.index, 0)
                square.append(along.load_up_to(f.at(read, step * r), loop.index, left, words))
            _store_tile(f, square, f.at(target, loop.index * PANEL + half.index * TILE))


def _store_tile(f: LLVMFunction, square: list[LLVMValue], place: LLVMValue) -> None:
    for i, v in enumerate(transposed(f, square)):
        f.store(v, f.at(place, i * STEP), align=64)


def _write_interleaved(m: Module, kind: GemmKind, name: str, wide: bool, turn: bool) -> None:
    """Rows of the matrix are one k each: words by interleaving, for A transposed into its tiles."""
    unit = kind.source.size
    per_word = 4 // unit
    with m.function(name, _PARAMS, internal=True) as f:
        source, step, target, valid, k_bytes, k_room = f.args
        count = k_bytes // unit
        most = f.minimum(k_bytes, k_room) & -STEP  # k_bytes may be more than this piece has
        whole = f.select(f.compare("eq", valid, PANEL), most, 0)
        for first, stop, masked in ((f.constant(0), whole, False), (whole, k_room, True)):
            mask = f.low_mask(valid, PANEL) if masked else None
            with f.loop(first, stop, STEP) as loop:
                tiles = f.at(target, loop.index * PANEL)
                k = loop.index // unit
                reader = _Rows(f, unit, wide, source, step, count, mask)
                if turn:
                    _turned_tiles(f, reader, k, per_word, tiles)
                else:
                    _word_rows(f, reader, k, per_word, tiles)


class _Rows:
    """Rows of 32 elements of a matrix, zero beyond its edges."""

    def __init__(
        self,
        f: LLVMFunction,
        unit: int,
        wide: bool,
        source: LLVMValue,
        step: LLVMValue,
        count: LLVMValue,
        mask: LLVMValue | None,
    ) -> None:
        self.f, self.source, self.step, self.count, self.mask = f, source, step, count, mask
        self.wide = wide
        self.type = _FLOATS if wide else {1: I8, 2: I16}[unit].vector(PANEL)

    def __call__(self, k: LLVMValue) -> LLVMValue:
        f = self.f
        place = f.at(self.source, k * self.step)
        if self.mask is None:
            found = f.load(self.type, place)
        else:
            there = f.splat(f.compare("lt", k, self.count), PANEL)
            found = f.masked_load(self.type, place, f.bits("and", self.mask, there))
        return _rounded(f, found) if self.wide else found

    def words(self, k: LLVMValue, per_word: int) -> tuple[LLVMValue, LLVMValue]:
        """The words of 16 and 16 columns at k."""
        f = self.f
        rows = [self(k + i) for i in range(per_word)]
        if per_word == 4:
            joined = [f.shuffle(rows[i], rows[i + 1], range(2 * PANEL)) for i in (0, 2)]
            picks = [(c, PANEL + c, 2 * PANEL + c, 3 * PANEL + c) for c in range(PANEL)]
        else:
            joined = rows
            picks = [(c, PANEL + c) for c in range(PANEL)]  # type: ignore[misc]
        made = []
        for part in (picks[:16], picks[16:]):
            lanes = [lane for pick in part for lane in pick]
            v = f.shuffle(joined[0], joined[1], lanes)
            made.append(f.bitcast(v, WORD.vector(16)))
        return made[0], made[1]


def _word_rows(f: LLVMFunction, rows: _Rows, k: LLVMValue, per_word: int, tiles: LLVMValue) -> None:
    with f.loop(0, 16, at_least_once=True) as loop:
        low, high = rows.words(k + loop.index * per_word, per_word)
        f.store(low, f.at(tiles, loop.index * STEP), align=64)
        f.store(high, f.at(tiles, loop.index * STEP + TILE), align=64)


def _turned_tiles(
    f: LLVMFunction, rows: _Rows, k: LLVMValue, per_word: int, tiles: LLVMValue
) -> None:
    words = [rows.words(k + i * per_word, per_word) for i in range(16)]
    _store_tile(f, [low for low, _ in words], tiles)
    _store_tile(f, [high for _, high in words], f.at(tiles, TILE))
