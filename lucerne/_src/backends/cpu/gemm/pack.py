"""Packing: copies of operands in the order in which micro-kernels read them.

A panel holds `width` rows of A or columns of B, one k after the other: [k][width], in the type of
the sums. Both operands are packed by the same three functions, which differ in what lies together
in memory: the panel's own dimension (COPY), or k (TURN: transposed in square blocks), or nothing
(GATHER: element by element). Panels have room for k rounded up to the lanes of a vector: what lies
there is never used.
"""

from __future__ import annotations

from typing import Any

from lucerne._src.backends.cpu.emit.builder import LLVMFunction, LLVMValue, Module
from lucerne._src.backends.cpu.emit.types import I64, PTR, VOID
from lucerne._src.backends.cpu.gemm.kinds import TILE_VECTORS, GemmKind, store_masked

TURN, COPY, GATHER = 0, 1, 2
_NAMES = {TURN: "pack_turn", COPY: "pack_copy", GATHER: "pack_gather"}
_PARAMS: list[Any] = [
    ("source", PTR, "noalias"), ("step", I64), ("k_step", I64), ("target", PTR, "noalias"),
    ("width", I64), ("valid", I64), ("k", I64),
]  # fmt: skip


def how_to_pack(step: int, k_step: int, width: int, k: int) -> int:
    """The way for an operand whose panel dimension has `step` and whose k has `k_step`."""
    if step == 1 or width == 1:
        return COPY
    return TURN if k_step == 1 or k == 1 else GATHER


def write_packing(m: Module, kind: GemmKind) -> None:
    """The functions: void pack(source, step, k_step, target, width, valid, k).

    Steps are in bytes, to the next row or column and to the next k. Lanes from `valid` to `width`
    hold anything.
    """
    _write_copy(m, kind)
    _write_turn(m, kind)
    _write_gather(m, kind)


def pack(f: LLVMFunction, how: int, *arguments: LLVMValue | int) -> None:
    f.call(_NAMES[how], VOID, list(arguments))


def _write_copy(m: Module, kind: GemmKind) -> None:
    """source[w + k * k_step] -> target[k][w]."""
    with m.function(_NAMES[COPY], _PARAMS, internal=True) as f:
        source, _, step, target, width, valid, k = f.args
        whole = f.compare("eq", valid, kind.columns)
        with f.if_(whole) as branch, f.loop(0, k, 1, [source, target]) as loop:
            read, write = loop.carried
            for j in range(TILE_VECTORS):
                v = kind.load(f, f.at(read, j * kind.lanes * kind.source.size))
                f.store(v, f.at(write, j * kind.vector.nbytes))
            loop.next(f.at(read, step), f.at(write, kind.columns * kind.sums.size))
        with branch.else_(), f.loop(0, width, kind.lanes) as group:
            first = group.index
            reads = f.low_mask(valid - first, kind.lanes)
            writes = f.low_mask(width - first, kind.lanes)
            start = f.at(source, first * kind.source.size), f.at(target, first * kind.sums.size)
            with f.loop(0, k, 1, start) as loop:
                read, write = loop.carried
                store_masked(f, kind.load(f, read, reads), write, writes)
                loop.next(f.at(read, step), f.at(write, width * kind.sums.size))


def _write_turn(m: Module, kind: GemmKind) -> None:
    """source[w * step + k] -> target[k][w], in squares of lanes x lanes."""
    lanes, size = kind.lanes, kind.sums.size
    with m.function(_NAMES[TURN], _PARAMS, internal=True) as f:
        source, step, _, target, width, valid, k = f.args
        with f.loop(0, width, lanes) as group:
            first = group.index
            writes = f.low_mask(width - first, lanes)
            # Rows beyond the last read the last one again: their lanes may hold anything.
            rows = [f.at(source, f.minimum(first + i, valid - 1) * step) for i in range(lanes)]
            with f.loop(0, k, lanes) as loop:
                reads = f.low_mask(k - loop.index, lanes)
                at = loop.index * kind.source.size
                square = [kind.load(f, f.at(row, at), reads) for row in rows]
                write = f.at(target, (loop.index * width + first) * size)
                for i, v in enumerate(transposed(f, square)):
                    store_masked(f, v, f.at(write, width * (i * size)), writes)


def _write_gather(m: Module, kind: GemmKind) -> None:
    """source[w * step + k * k_step] -> target[k][w]."""
    with m.function(_NAMES[GATHER], _PARAMS, internal=True) as f:
        source, step, k_step, target, width, valid, k = f.args
        with f.loop(0, k, 1, [source, target]) as along:
            first, write = along.carried
            with f.loop(0, valid, 1, [first]) as loop:
                v = kind.widen(f, f.load(kind.source, loop.carried[0]))
                f.store(v, f.at(write, loop.index, kind.sums))
                loop.next(f.at(loop.carried[0], step))
            along.next(f.at(first, k_step), f.at(write, width, kind.sums))


def transposed(f: LLVMFunction, rows: list[LLVMValue]) -> list[LLVMValue]:
    """A square of vectors transposed: blocks of half the size change places, then within them."""
    n = len(rows)
    distance = n // 2
    while distance:
        made = list(rows)
        low = [lane if not lane & distance else n + lane - distance for lane in range(n)]
        high = [lane + distance if not lane & distance else n + lane for lane in range(n)]
        for i in range(n):
            if not i & distance:
                made[i] = f.shuffle(rows[i], rows[i + distance], low)
                made[i + distance] = f.shuffle(rows[i], rows[i + distance], high)
        rows, distance = made, distance // 2
    return rows
