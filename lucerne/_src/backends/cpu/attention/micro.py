"""Building blocks of the attention kernels: products of small tiles, exponentials, transposes.

Everything is arranged so that the lanes of a vector are queries: scores lie as [key][query]. The
largest score and the sum of a query are then lanes of a vector, and nothing is ever folded across
lanes. A tile has `WIDTH` queries (two vectors) and `ROWS` keys, as many as the registers hold.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from lucerne._src.backends.cpu.emit.builder import (
    F32,
    I32,
    I64,
    PTR,
    VOID,
    LLVMFunction,
    LLVMValue,
    Module,
)
from lucerne._src.backends.cpu.emit.target import HOST, VECTOR_BYTES

LANES = VECTOR_BYTES // 4
VECTORS = 2
WIDTH = VECTORS * LANES
ROWS = 6 if HOST.is_x86 and VECTOR_BYTES < 64 else 14
"""Keys of one tile: 28 of 32 sum registers, or 12 of 16."""
VECTOR = F32.vector(LANES)
LINE = WIDTH * 4
"""Bytes of the scores of one key."""

_EXP2 = (
    0.0001534581242594868, 0.0013399930903688073, 0.009618489071726799, 0.05550328642129898,
    0.24022646248340607, 0.6931471824645996, 1.0,
)  # fmt: skip
"""2**x on [-1/2, 1/2], relative error 2e-9 before rounding."""
_ROUNDER = 1.5 * 2.0**23
_SMALLEST = -126.0
LOG2_E = math.log2(math.e)

Tile = list[list[LLVMValue]]
"""Sums of a tile: [row][vector]."""


class AttentionStep:
    """How a product walks its operands, in bytes: the left one from row to row and along the sum,
    the right one along the sum."""

    __slots__ = ("inner", "right", "row")

    def __init__(self, row: int, inner: int, right: int) -> None:
        self.row, self.inner, self.right = row, inner, right


def zeros(f: LLVMFunction, rows: int) -> Tile:
    return [[f.zero(VECTOR) for _ in range(VECTORS)] for _ in range(rows)]


def load_tile(f: LLVMFunction, place: LLVMValue, step: int, rows: int) -> Tile:
    return [
        [f.load(VECTOR, f.at(place, r * step + v * VECTOR.nbytes)) for v in range(VECTORS)]
        for r in range(rows)
    ]


def store_tile(f: LLVMFunction, tile: Tile, place: LLVMValue, step: int) -> None:
    for r, row in enumerate(tile):
        for v, value in enumerate(row):
            f.store(value, f.at(place, r * step + v * VECTOR.nbytes))


def product(
    f: LLVMFunction,
    left: LLVMValue,
    right: LLVMValue,
    count: LLVMValue,
    step: AttentionStep,
    start: Tile,
) -> Tile:
    """`start[r][:] + sum over i < count of left[r, i] * right[i, :]`."""
    flat = [x for row in start for x in row]
    with f.loop(0, count, 1, [left, right, *flat]) as loop:
        a, b, *sums = loop.carried
        line = [f.load(VECTOR, f.at(b, v * VECTOR.nbytes)) for v in range(VECTORS)]
        made = []
        for r in range(len(start)):
            factor = f.splat(f.load(F32, f.at(a, r * step.row)), LANES)
            made += [f.mul_add(factor, line[v], sums[r * VECTORS + v]) for v in range(VECTORS)]
        loop.next(f.at(a, step.inner), f.at(b, step.right), *made)
    found = loop.results[2:]
    return [found[i : i + VECTORS] for i in range(0, len(found), VECTORS)]


def exp2(f: LLVMFunction, x: LLVMValue) -> LLVMValue:
    """`2**x` for x <= 0; exactly zero below the normal numbers, so also for minus infinity."""
    shifted = x + _ROUNDER
    rest = x - (shifted - _ROUNDER)
    power = f.constant(_EXP2[0], x.type)
    for c in _EXP2[1:]:
        power = f.mul_add(power, rest, c)
    whole = I32.vector(x.type.lanes)
    exponent = f.bitcast(shifted, whole) << 23
    made = f.bitcast(f.bitcast(power, whole) + exponent, x.type)
    return f.select(f.compare("uge", x, _SMALLEST), made, 0.0)


def larger(f: LLVMFunction, a: LLVMValue, b: LLVMValue) -> LLVMValue:
    return f.select(f.compare("ogt", a, b), a, b)


def tree(f: LLVMFunction, values: Sequence[LLVMValue]) -> LLVMValue:
    """The largest of several vectors."""
    now = list(values)
    while len(now) > 1:
        pairs = [larger(f, a, b) for a, b in zip(now[::2], now[1::2], strict=False)]
        now = pairs + now[len(now) & ~1 :]
    return now[0]


def write_turn(m: Module) -> None:
    """`turn(target, target_step, source, source_step, rows, columns)`: a transposed copy.

    Steps are bytes between lines; rows and columns of the source are taken as multiples of LANES.
    Four columns at a time: vectors are put together from quarters of lines, so that what is left
    are transposes of 4 x 4 within quarters, which are cheap to run and quick to compile.
    """
    params = [
        ("target", PTR), ("target_step", I64), ("source", PTR), ("source_step", I64),
        ("rows", I64), ("columns", I64),
    ]  # fmt: skip
    with m.function("turn", params, internal=True) as f:
        target, target_step, source, source_step, rows, columns = f.args
        whole = f.ceil_div(columns, LANES) * LANES
        with f.loop(0, rows, LANES) as down:
            lines = [f.at(source, down.index * source_step)]
            for _ in range(LANES - 1):
                lines.append(f.at(lines[-1], source_step))
            with f.loop(0, whole, 4, [f.at(target, down.index, F32)]) as along:
                column = along.index
                quarters = [f.load(F32.vector(4), f.at(line, column, F32)) for line in lines]
                joined = [_joined(f, quarters[i::4]) for i in range(4)]
                place = along.carried[0]
                for line in _turned_quarters(f, joined):
                    f.store(line, place)
                    place = f.at(place, target_step)
                along.next(place)


def _joined(f: LLVMFunction, parts: list[LLVMValue]) -> LLVMValue:
    """Vectors one after the other in one."""
    while len(parts) > 1:
        lanes = 2 * parts[0].type.lanes
        parts = [
            f.shuffle(a, b, range(lanes)) for a, b in zip(parts[::2], parts[1::2], strict=True)
        ]
    return parts[0]


def _turned_quarters(f: LLVMFunction, lines: list[LLVMValue]) -> list[LLVMValue]:
    """Four vectors, each quarter of which is a line of a 4 x 4 matrix, transposed."""
    n = lines[0].type.lanes

    def pick(a: LLVMValue, b: LLVMValue, pattern: tuple[int, ...]) -> LLVMValue:
        mask = [g + (p if p < 4 else n + p - 4) for g in range(0, n, 4) for p in pattern]
        return f.shuffle(a, b, mask)

    a, b, c, d = lines
    pairs = [[pick(a, b, mixed), pick(c, d, mixed)] for mixed in ((0, 4, 1, 5), (2, 6, 3, 7))]
    return [pick(x, y, half) for x, y in pairs for half in ((0, 1, 4, 5), (2, 3, 6, 7))]


def turn(f: LLVMFunction, *args: LLVMValue | int) -> None:
    f.call("turn", VOID, list(args))
