"""Transposition of a block of memory by register tiles.

`turn(source, source_step, target, target_step, rows, columns)`: element (r, c) of the source, whose
rows are `source_step` bytes apart, becomes element (c, r) of the target. Whole tiles go through
registers; the last tile of a row or column is moved back to end at the edge and writes some
elements twice. Blocks narrower than a tile are walked element by element.
"""

from __future__ import annotations

from lucerne._src.backends.cpu.emit.builder import I64, PTR, LLVMFunction, LLVMValue, Module
from lucerne._src.backends.cpu.emit.target import VECTOR_BYTES
from lucerne._src.backends.cpu.emit.types import I8, I16, I32, Type
from lucerne._src.backends.cpu.runtime.code import compiled

_TYPES = {1: I8, 2: I16, 4: I32, 8: I64}


def turn_address(size: int) -> int:
    """The transposing function for elements of 1, 2, 4, 8 or 16 bytes."""
    return compiled(("turn", size, VECTOR_BYTES), lambda m: _write(m, size))["turn"]


def _write(m: Module, size: int) -> None:
    params = [("source", PTR), ("sstep", I64), ("target", PTR), ("tstep", I64)]
    with m.function("turn", [*params, ("rows", I64), ("columns", I64)]) as f:
        rows, columns = f.args[4:]
        if size not in _TYPES:
            _element_by_element(f, size)
            return
        tile = min(16, VECTOR_BYTES // size)
        with f.if_(f.minimum(rows, columns) >= tile) as wide:
            _by_tiles(f, _TYPES[size], tile)
        with wide.else_():
            _element_by_element(f, size)


def _by_tiles(f: LLVMFunction, type: Type, tile: int) -> None:
    source, source_step, target, target_step, rows, columns = f.args
    with f.loop(0, rows, tile, at_least_once=True) as down:
        r = f.minimum(down.index, rows - tile)
        source_row = f.at(source, r * source_step)
        target_column = f.at(target, r, type)
        with f.loop(0, columns, tile, at_least_once=True) as across:
            c = f.minimum(across.index, columns - tile)
            start, goal = f.at(source_row, c, type), f.at(target_column, c * target_step)
            lines = [f.load(type.vector(tile), f.at(start, k * source_step)) for k in range(tile)]
            for k, line in enumerate(transposed(f, lines)):
                f.store(line, f.at(goal, k * target_step))


def transposed(f: LLVMFunction, lines: list[LLVMValue]) -> list[LLVMValue]:
    """The columns of a square of vectors: pairs of lines exchange ever smaller halves."""
    count = len(lines)
    lines = list(lines)
    half = count // 2
    while half:
        low = [k if not k & half else count + (k & ~half) for k in range(count)]
        high = [(k | half) if not k & half else count + k for k in range(count)]
        for k in range(count):
            if not k & half:
                a, b = lines[k], lines[k + half]
                lines[k], lines[k + half] = f.shuffle(a, b, low), f.shuffle(a, b, high)
        half //= 2
    return lines


def _element_by_element(f: LLVMFunction, size: int) -> None:
    """Any element size, also 16 bytes (two words)."""
    source, source_step, target, target_step, rows, columns = f.args
    type = _TYPES[min(size, 8)].vector(size // 8 if size > 8 else 0)
    with f.loop(0, columns) as across:
        goal = f.at(target, across.index * target_step)
        start = f.at(source, across.index * size)
        with f.loop(0, rows) as down:
            v = f.load(type, f.at(start, down.index * source_step))
            f.store(v, f.at(goal, down.index * size))
