"""Operands in the order of AMX tiles.

A tile of A is 16 rows of 64 bytes along k. A tile of B is 16 rows too, each for as many k as make
up 4 bytes (a *word*: two bfloat16 or four int8), holding that word of 16 columns. A panel is 32
rows of A or 32 columns of B: for each 64 bytes of k, two tiles one after the other (2048 bytes).
What lies beyond the matrix is zero.

Everything here counts bytes along k, so one code serves both element sizes where k is dense; where
it is not, words are made by interleaving rows of the matrix.
"""

from __future__ import annotations

from typing import Any

from lucerne.backends.cpu.emit.builder import Function, Module, Value
from lucerne.backends.cpu.emit.types import F32 as WORD
from lucerne.backends.cpu.emit.types import I8, I16, I64, PTR, VOID, Type
from lucerne.backends.cpu.gemm.kinds import Kind
from lucerne.backends.cpu.gemm.pack import transposed

PANEL, TILE, STEP = 32, 1024, 64
STEP_BYTES = 2 * TILE
_BYTES = I8.vector(64)
_PARAMS: list[Any] = [
    ("source", PTR, "noalias"), ("step", I64), ("target", PTR, "noalias"), ("valid", I64),
    ("k_bytes", I64), ("k_room", I64),
]  # fmt: skip
# void pack(source, step, target, valid, k_bytes, k_room): `step` bytes to the next row of the
# matrix as it lies, `valid` rows or columns of the panel, k_bytes of k, rounded up in k_room.
A_DENSE, A_TURNED = "pack_a_dense", "pack_a_turned"
B_DENSE, B_TURNED = "pack_b_dense", "pack_b_turned"


def write_amx_packing(m: Module, kind: Kind) -> None:
    _write_a_dense(m)
    _write_b_dense(m)
    _write_interleaved(m, kind, A_TURNED, turn=True)
    _write_interleaved(m, kind, B_TURNED, turn=False)


def pack_panel(f: Function, how: str, *arguments: Value | int) -> None:
    f.call(how, VOID, list(arguments))


def _row_bytes(f: Function, place: Value, valid: Value, wide: Type = _BYTES) -> Value:
    """Up to 64 bytes, zeros beyond `valid`."""
    return f.masked_load(wide, place, f.low_mask(valid, wide.lanes))


def _write_a_dense(m: Module) -> None:
    """Rows along k: copied, 64 bytes at a time."""
    with m.function(A_DENSE, _PARAMS, internal=True) as f:
        source, step, target, valid, k_bytes, k_room = f.args
        whole = k_bytes & -STEP
        with f.loop(0, valid) as rows:
            read, write = f.at(source, rows.index * step), f.at(target, rows.index * STEP)
            with f.loop(0, whole, STEP) as loop:
                v = f.load(_BYTES, f.at(read, loop.index))
                f.store(v, f.at(write, loop.index * PANEL), align=64)
            with f.loop(whole, k_room, STEP) as loop:
                v = _row_bytes(f, f.at(read, loop.index), k_bytes - loop.index)
                f.store(v, f.at(write, loop.index * PANEL), align=64)
        with f.loop(valid, PANEL) as rows, f.loop(0, k_room, STEP) as loop:
            place = f.at(target, loop.index * PANEL + rows.index * STEP)
            f.store(f.zero(_BYTES), place, align=64)


def _write_b_dense(m: Module) -> None:
    """Columns along k: squares of 16 x 16 words are transposed."""
    words = WORD.vector(16)
    with m.function(B_DENSE, _PARAMS, internal=True) as f:
        source, step, target, valid, k_bytes, k_room = f.args
        whole = f.select(f.compare("eq", valid, PANEL), k_bytes & -STEP, 0)
        with f.loop(0, whole, STEP) as loop, f.loop(0, 2, at_least_once=True) as half:
            read = f.at(f.at(source, loop.index), half.index * 16 * step)
            square = [f.load(words, f.at(read, step * r)) for r in range(16)]
            _store_tile(f, square, f.at(target, loop.index * PANEL + half.index * TILE))
        with f.loop(whole, k_room, STEP) as loop, f.loop(0, 2, at_least_once=True) as half:
            read = f.at(f.at(source, loop.index), half.index * 16 * step)
            square = []
            for r in range(16):
                there = f.compare("lt", half.index * 16 + r, valid)
                left = f.select(there, k_bytes - loop.index, 0)
                square.append(f.bitcast(_row_bytes(f, f.at(read, step * r), left), words))
            _store_tile(f, square, f.at(target, loop.index * PANEL + half.index * TILE))


def _store_tile(f: Function, square: list[Value], place: Value) -> None:
    for i, v in enumerate(transposed(f, square)):
        f.store(v, f.at(place, i * STEP), align=64)


def _write_interleaved(m: Module, kind: Kind, name: str, turn: bool) -> None:
    """Rows of the matrix are one k each: words by interleaving, for A transposed into its tiles."""
    per_word = 4 // kind.source.size
    with m.function(name, _PARAMS, internal=True) as f:
        source, step, target, valid, k_bytes, k_room = f.args
        count = k_bytes // kind.source.size
        most = f.minimum(k_bytes, k_room) & -STEP  # k_bytes may be more than this piece has
        whole = f.select(f.compare("eq", valid, PANEL), most, 0)
        for first, stop, masked in ((f.constant(0), whole, False), (whole, k_room, True)):
            mask = f.low_mask(valid, PANEL) if masked else None
            with f.loop(first, stop, STEP) as loop:
                tiles = f.at(target, loop.index * PANEL)
                k = loop.index // kind.source.size
                reader = _Rows(f, kind, source, step, count, mask)
                if turn:
                    _turned_tiles(f, reader, k, per_word, tiles)
                else:
                    _word_rows(f, reader, k, per_word, tiles)


class _Rows:
    """Rows of 32 elements of a matrix, zero beyond its edges."""

    def __init__(
        self, f: Function, kind: Kind, source: Value, step: Value, count: Value, mask: Value | None
    ) -> None:
        self.f, self.source, self.step, self.count, self.mask = f, source, step, count, mask
        self.wide = {1: I8, 2: I16}[kind.source.size].vector(PANEL)

    def __call__(self, k: Value) -> Value:
        f = self.f
        place = f.at(self.source, k * self.step)
        if self.mask is None:
            return f.load(self.wide, place)
        there = f.splat(f.compare("lt", k, self.count), PANEL)
        return f.masked_load(self.wide, place, f.bits("and", self.mask, there))

    def words(self, k: Value, per_word: int) -> tuple[Value, Value]:
        """The words of 16 and 16 columns at k."""
        f, rows = self.f, [self(k + i) for i in range(per_word)]
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


def _word_rows(f: Function, rows: _Rows, k: Value, per_word: int, tiles: Value) -> None:
    with f.loop(0, 16, at_least_once=True) as loop:
        low, high = rows.words(k + loop.index * per_word, per_word)
        place = f.at(tiles, loop.index * STEP)
        f.store(low, place, align=64)
        f.store(high, f.at(place, TILE), align=64)


def _turned_tiles(f: Function, rows: _Rows, k: Value, per_word: int, tiles: Value) -> None:
    lows, highs = zip(*(rows.words(k + i * per_word, per_word) for i in range(16)), strict=True)
    _store_tile(f, list(lows), tiles)
    _store_tile(f, list(highs), f.at(tiles, TILE))
