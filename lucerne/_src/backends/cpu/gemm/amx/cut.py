"""Packing of float32 operands whose numbers are cut in three bfloat16: the tiles of `amx_pack.py`.

A number x becomes h + m + l: h is x rounded to the upper 16 of its 32 bits, m the rest rounded in
the same way, l what is left then, which has no more than 8 bits. Cutting is done with integer
instructions on the bits of the numbers, and 16-bit halves are put together last.

For each 32 steps of k a panel of 32 rows or columns is cut. If numbers that stand side by side in a
tile do not lie so in the matrix, the 32 x 32 numbers are transposed first, in memory that stays in
the first cache.
"""

from __future__ import annotations

from typing import Any

from lucerne._src.backends.cpu.emit.builder import LLVMFunction, LLVMValue, Module
from lucerne._src.backends.cpu.emit.types import F32, I16, I32, I64, PTR, VOID
from lucerne._src.backends.cpu.gemm.pack import transposed

A_DENSE, A_TURNED = "pack_a_dense", "pack_a_turned"
B_DENSE, B_TURNED = "pack_b_dense", "pack_b_turned"
PARTS = 3
_TURN = "turn"
_LANES = 16
_WIDE, _BITS = F32.vector(_LANES), I32.vector(_LANES)
_SIDE, _TILE, _STEP = 32, 1024, 64
_PART_BYTES = 2 * _TILE
_STEP_BYTES = PARTS * _PART_BYTES
_K_BYTES = _STEP_BYTES // _STEP
"""Bytes of a panel for each byte of k."""
_ROW_BYTES = _SIDE * 4
_LARGEST = float(2**128 - 2**120)
"""The largest bfloat16."""
_AT_ONCE = 2
"""Pieces of 32 numbers of a row that are cut in turn: their tiles do not push each other out of the
first cache."""


def write_cut_packing(m: Module, params: list[Any]) -> None:
    """The four functions of `amx_pack.py`, for operands in three parts."""
    _write_turn(m)
    _write_a_dense(m, params)
    _write_b_turned(m, params)
    _write_through(m, params, A_TURNED, A_DENSE, turned=True)
    _write_through(m, params, B_DENSE, B_TURNED, turned=False)


# ---- cutting ----------------------------------------------------------------------------------


def _cut(f: LLVMFunction, v: LLVMValue, near: LLVMValue | None = None) -> list[LLVMValue]:
    """16 numbers as the bits of three, the upper 16 of each. `near`: what is rounded first."""
    found = []
    for _ in range(PARTS - 1):
        found.append(f.bitcast(v if near is None else near, _BITS) + 0x8000)
        v, near = v - f.bitcast(found[-1] & -0x10000, _WIDE), None
    return [*found, f.bitcast(v, _BITS)]


def _cut_right(f: LLVMFunction, v: LLVMValue) -> list[LLVMValue]:
    """The same of numbers that may have to be put together again (`amx_whole.py`): the largest ones
    are not rounded to infinity."""
    return _cut(f, v, f.minimum(_LARGEST, f.maximum(-_LARGEST, v)))


def _side_by_side(f: LLVMFunction, low: LLVMValue, high: LLVMValue) -> LLVMValue:
    """The upper halves of 32 numbers, one after the other."""
    halves = I16.vector(2 * _LANES)
    low, high = f.bitcast(low, halves), f.bitcast(high, halves)
    return f.shuffle(low, high, [2 * i + 1 for i in range(2 * _LANES)])


def _in_pairs(f: LLVMFunction, even: LLVMValue, odd: LLVMValue) -> LLVMValue:
    """Words of the upper halves of two rows."""
    return f.bits("lshr", even, 16) | (odd & -0x10000)


def cut_row(
    f: LLVMFunction, source: LLVMValue, place: LLVMValue, count: LLVMValue | None = None
) -> None:
    """A row of 32 numbers of A, into the tiles of each part."""
    low, high = _row(f, source, count)
    for n, (a, b) in enumerate(zip(_cut(f, low), _cut(f, high), strict=True)):
        f.store(_side_by_side(f, a, b), f.at(place, n * _PART_BYTES), align=64)


def _store_pair(
    f: LLVMFunction, even: list[LLVMValue], odd: list[LLVMValue], place: LLVMValue
) -> None:
    """Two rows of 32 numbers of B, as words of the two tiles of each part."""
    for half, (a, b) in enumerate(zip(even, odd, strict=True)):
        for n, (x, y) in enumerate(zip(_cut_right(f, a), _cut_right(f, b), strict=True)):
            at = n * _PART_BYTES + half * _TILE
            f.store(_in_pairs(f, x, y), f.at(place, at), align=64)


def _row(f: LLVMFunction, place: LLVMValue, count: LLVMValue | None = None) -> list[LLVMValue]:
    """32 numbers; those from `count` on are zero, and not read."""
    found = []
    for half in range(2):
        at = f.at(place, half * _STEP)
        if count is None:
            found.append(f.load(_WIDE, at))
        else:
            found.append(f.masked_load(_WIDE, at, f.low_mask(count - half * _LANES, _LANES)))
    return found


# ---- numbers that lie as tiles want them --------------------------------------------------------


def _write_a_dense(m: Module, params: list[Any]) -> None:
    """Rows along k, some pieces of each row at a time: see _AT_ONCE."""
    with m.function(A_DENSE, params, internal=True) as f:
        source, step, target, valid, k_bytes, k_room = f.args
        several = _AT_ONCE * _STEP
        most = k_bytes // several * several
        with f.loop(0, most, several) as along, f.loop(0, valid) as rows:
            read = f.at(source, rows.index * step + along.index * 2)
            write = f.at(target, along.index * _K_BYTES + rows.index * _STEP)
            for n in range(_AT_ONCE):
                for line in range(2):
                    f.prefetch(f.at(read, (_AT_ONCE + n) * _ROW_BYTES + line * _STEP))
                cut_row(f, f.at(read, n * _ROW_BYTES), f.at(write, n * _STEP_BYTES))
        with f.loop(most, k_room, _STEP) as along, f.loop(0, valid) as rows:
            read = f.at(source, rows.index * step + along.index * 2)
            write = f.at(target, along.index * _K_BYTES + rows.index * _STEP)
            cut_row(f, read, write, (k_bytes - along.index) // 2)
        nothing = f.zero(I16.vector(_SIDE))
        with f.loop(0, k_room, _STEP) as along, f.loop(valid, _SIDE) as rows:
            write = f.at(target, along.index * _K_BYTES + rows.index * _STEP)
            for n in range(PARTS):
                f.store(nothing, f.at(write, n * _PART_BYTES), align=64)


def _write_b_turned(m: Module, params: list[Any]) -> None:
    """Rows of the matrix are one k each: two of them make the words of two rows of tiles."""
    with m.function(B_TURNED, params, internal=True) as f:
        source, step, target, valid, k_bytes, k_room = f.args
        count = k_bytes // 2
        most = f.minimum(k_bytes, k_room) & -_STEP  # k_bytes may be more than this piece has
        whole = f.select(f.compare("eq", valid, _SIDE), most, 0)
        with f.loop(0, whole, 4) as along:
            first = f.at(source, (along.index // 2) * step)
            even, odd = _row(f, first), _row(f, f.at(first, step))
            _store_pair(f, even, odd, _pair_place(f, target, along.index))
        with f.loop(whole, k_room, 4) as along:
            k = along.index // 2
            rows = []
            for n in range(2):
                there = f.select(f.compare("lt", k + n, count), valid, 0)
                rows.append(_row(f, f.at(source, (k + n) * step), there))
            _store_pair(f, rows[0], rows[1], _pair_place(f, target, along.index))


def _pair_place(f: LLVMFunction, target: LLVMValue, k: LLVMValue) -> LLVMValue:
    """Where the words of the k that stands at byte k go."""
    return f.at(target, (k & -_STEP) * _K_BYTES + (k & (_STEP - 4)) * 16)


# ---- numbers that are transposed first ----------------------------------------------------------


def _write_through(m: Module, params: list[Any], name: str, inner: str, turned: bool) -> None:
    """32 x 32 numbers are transposed, then packed by `inner`. `turned`: a row of the matrix is one
    k, else one row or column of the panel."""
    with m.function(name, params, internal=True) as f:
        source, step, target, valid, k_bytes, k_room = f.args
        square = f.stack(_SIDE * _ROW_BYTES)
        with f.loop(0, k_room, _STEP) as along:
            left = f.minimum((k_bytes - along.index) // 2, _SIDE)
            if turned:
                read, rows, columns = f.at(source, (along.index // 2) * step), left, valid
            else:
                read, rows, columns = f.at(source, along.index * 2), valid, left
            f.call(_TURN, VOID, [read, step, square, rows, columns])
            write = f.at(target, along.index * _K_BYTES)
            f.call(inner, VOID, [square, _ROW_BYTES, write, _SIDE, _STEP, _STEP])


def _write_turn(m: Module) -> None:
    """`turn(source, step, square, rows, columns)`: square[j][i] = source[i][j], zero beyond."""
    params: list[Any] = [
        ("source", PTR, "noalias"), ("step", I64), ("square", PTR, "noalias"), ("rows", I64),
        ("columns", I64),
    ]  # fmt: skip
    with m.function(_TURN, params, internal=True) as f:
        source, step, square, rows, columns = f.args
        full = f.compare("eq", rows + columns, 2 * _SIDE)
        for masked in (False, True):
            with (
                f.if_(f.bits("xor", full, masked)),
                f.loop(0, _SIDE, _LANES, at_least_once=True) as down,
                f.loop(0, _SIDE, _LANES, at_least_once=True) as across,
            ):
                i, j = down.index, across.index
                lines = []
                for n in range(_LANES):
                    at = f.at(source, (i + n) * step + j * 4)
                    if masked:
                        there = f.select(f.compare("lt", i + n, rows), columns - j, 0)
                        lines.append(f.masked_load(_WIDE, at, f.low_mask(there, _LANES)))
                    else:
                        lines.append(f.load(_WIDE, at))
                for n, v in enumerate(transposed(f, lines)):
                    f.store(v, f.at(square, (j + n) * _ROW_BYTES + i * 4), align=64)
