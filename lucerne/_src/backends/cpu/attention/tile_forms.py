"""Operands of matrix tiles (AMX) for attention, and the product of 32 x 32 sums.

    A   rows along the sum: 32 bfloat16 numbers are 64 bytes
    B   [columns / 32][sum / 32][half of the columns][pair of the sum][16 columns][2]

They are made from float32 rows in scratch, rounded to the nearest bfloat16.
"""

from __future__ import annotations

from typing import Any

from lucerne._src.backends.cpu.attention.micro import LANES, VECTOR
from lucerne._src.backends.cpu.emit.builder import (
    F32,
    I8,
    I32,
    I64,
    PTR,
    VOID,
    LLVMFunction,
    LLVMValue,
    Module,
)
from lucerne._src.backends.cpu.emit.types import I16

ROWS, SIDE, STEP, TILE = 16, 32, 64, 1024
"""Rows of a tile, rows and columns of a product (also numbers of the sum in a tile), bytes of a
tile's row and of a tile."""
STEP_BYTES = 2 * TILE
"""Bytes of B for 32 numbers of the sum and 32 columns."""
_HALF = VECTOR.nbytes
_BITS, _HALVES = I32.vector(LANES), I16.vector(2 * LANES)
_TOP, _ROUND = -65536, 32768
_SUMS = range(4)


def amx(f: LLVMFunction, name: str, *args: LLVMValue) -> None:
    f.call(f"llvm.x86.{name}", VOID, list(args))


def begin_tiles(f: LLVMFunction) -> None:
    """Eight registers of 16 rows of 64 bytes."""
    size = [0] * 64
    size[0] = 1
    for t in range(8):
        size[16 + 2 * t], size[48 + t] = STEP, ROWS
    f.module.constant("tile_sizes", "[64 x i8]", f"[{', '.join(f'i8 {b}' for b in size)}]")
    amx(f, "ldtilecfg", f.symbol("tile_sizes"))


def end_tiles(f: LLVMFunction) -> None:
    amx(f, "tilerelease")


# ---- numbers rounded -------------------------------------------------------------------------


def rounded(f: LLVMFunction, v: LLVMValue) -> LLVMValue:
    """Floats as the bits of the nearest bfloat16, in the upper half of each lane."""
    return (f.bitcast(v, _BITS) + f.constant(_ROUND, _BITS)) & f.constant(_TOP, _BITS)


def store_row(f: LLVMFunction, low: LLVMValue, high: LLVMValue, place: LLVMValue) -> None:
    """32 rounded numbers along the sum into a row of A."""
    odd = range(1, 4 * LANES, 2)
    f.store(f.shuffle(f.bitcast(low, _HALVES), f.bitcast(high, _HALVES), odd), place, align=2)


def store_pair(f: LLVMFunction, first: LLVMValue, second: LLVMValue, place: LLVMValue) -> None:
    """Two rounded rows of 16 columns into a row of a tile of B."""
    f.store(f.bits("lshr", first, f.constant(16, _BITS)) | second, place, align=STEP)


def write_forms(m: Module) -> None:
    _write_rows(m)
    _write_pairs(m)
    _write_multiply(m)


def _write_rows(m: Module) -> None:
    """`to_rows(target, step, source, source_step, rows, columns)`: floats as A."""
    params = [
        ("target", PTR), ("step", I64), ("source", PTR), ("source_step", I64), ("rows", I64),
        ("columns", I64),
    ]  # fmt: skip
    with m.function("to_rows", params, internal=True) as f:
        target, step, source, source_step, rows, columns = f.args
        with f.loop(0, rows) as row:
            read, write = f.at(source, row.index * source_step), f.at(target, row.index * step)
            with f.loop(0, columns, SIDE) as loop:
                place = f.at(read, loop.index, F32)
                low, high = (rounded(f, f.load(VECTOR, f.at(place, at))) for at in (0, _HALF))
                store_row(f, low, high, f.at(write, loop.index * 2))


def _write_pairs(m: Module) -> None:
    """`to_pairs(target, block_step, source, source_step, rows, columns)`: floats as B, rows along
    the sum; 32 columns more are `block_step` bytes further."""
    params = [
        ("target", PTR), ("block_step", I64), ("source", PTR), ("source_step", I64),
        ("rows", I64), ("columns", I64),
    ]  # fmt: skip
    with m.function("to_pairs", params, internal=True) as f:
        target, block_step, source, source_step, rows, columns = f.args
        with f.loop(0, rows, 2) as pair:
            reads = [f.at(source, (pair.index + r) * source_step) for r in range(2)]
            step = (pair.index // SIDE) * STEP_BYTES
            write = f.at(target, step + (pair.index % SIDE) * (STEP // 2))
            with f.loop(0, columns, SIDE, [write]) as loop:
                for v in range(2):
                    places = [f.at(f.at(r, loop.index, F32), v * _HALF) for r in reads]
                    first, second = (rounded(f, f.load(VECTOR, place)) for place in places)
                    store_pair(f, first, second, f.at(loop.carried[0], v * TILE))
                loop.next(f.at(loop.carried[0], block_step))


def _write_multiply(m: Module) -> None:
    """`multiply(target, target_step, left, step, right, count, add)`: 32 x 32 sums over `count`
    times 32 numbers."""
    params = [
        ("target", PTR), ("target_step", I64), ("left", PTR), ("step", I64), ("right", PTR),
        ("count", I64), ("add", I64),
    ]  # fmt: skip
    with m.function("multiply", params, internal=True) as f:
        target, target_step, left, step, right, count, add = f.args
        register = [f.constant(t, I8) for t in range(8)]
        lower = f.at(target, target_step * ROWS)
        places = [f.at(row, STEP * half) for row in (target, lower) for half in range(2)]
        with f.if_(f.compare("ne", add, 0)) as more:
            for t, place in zip(_SUMS, places, strict=True):
                amx(f, "tileloadd64", register[t], place, target_step)
        with more.else_():
            for t in _SUMS:
                amx(f, "tilezero", register[t])
        with f.loop(0, count, 1, [left, right], at_least_once=True) as loop:
            a, b = loop.carried
            line = f.constant(STEP)
            amx(f, "tileloadd64", register[4], a, step)
            amx(f, "tileloadd64", register[6], b, line)
            amx(f, "tileloadd64", register[5], f.at(a, step * ROWS), step)
            amx(f, "tileloadd64", register[7], f.at(b, TILE), line)
            for t in _SUMS:
                amx(f, "tdpbf16ps", register[t], register[4 + t // 2], register[6 + t % 2])
            loop.next(f.at(a, STEP), f.at(b, STEP_BYTES))
        for t, place in zip(_SUMS, places, strict=True):
            amx(f, "tilestored64", register[t], place, target_step)


def to_rows(f: LLVMFunction, *args: Any) -> None:
    f.call("to_rows", VOID, list(args))


def to_pairs(f: LLVMFunction, *args: Any) -> None:
    f.call("to_pairs", VOID, list(args))


def multiply(f: LLVMFunction, *args: Any) -> None:
    f.call("multiply", VOID, list(args))
