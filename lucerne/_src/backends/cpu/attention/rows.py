"""Rows in and out: between tensors of any strides and type, and dense float32 scratch.

The kernels proper only see scratch: rows of `row_bytes` each, filled up with zeros. All edges,
strides and conversions are dealt with here.
"""

from __future__ import annotations

from lucerne._src.backends.cpu.attention.micro import LANES, LOG2_E, VECTOR, write_turn
from lucerne._src.backends.cpu.attention.plan import AttentionStructure
from lucerne._src.backends.cpu.emit.builder import (
    F32,
    I8,
    I64,
    PTR,
    VOID,
    LLVMFunction,
    LLVMValue,
    Module,
    Type,
)
from lucerne._src.backends.cpu.emit.types import int_of
from lucerne._src.backends.cpu.math import storage

FLOAT_MAX = 3.4028234663852886e38
_MINUS_INF = float("-inf")


def load_part(f: LLVMFunction, type: Type, place: LLVMValue, mask: LLVMValue) -> LLVMValue:
    """The lanes of a vector that are on (loaded as integers, which every type can be)."""
    bits = int_of(type).vector(LANES)
    return f.bitcast(f.masked_load(bits, place, mask), type.vector(LANES))


def widened(f: LLVMFunction, v: LLVMValue) -> LLVMValue:
    return v if v.type.element is F32 else f.convert("fpext", v, F32)


def narrowed(f: LLVMFunction, v: LLVMValue, type: Type) -> LLVMValue:
    return v if type is F32 else storage.narrowed(f, v, type)


def write_fetch(m: Module, type: Type, row_bytes: int) -> None:
    """`fetch(target, source, rows, all_rows, width, row_step, item_step, factor)`.

    Copies rows of a tensor times a factor, filled up with zeros to whole rows of the scratch, and
    to `all_rows`. Steps in bytes.
    """
    params = [
        ("target", PTR), ("source", PTR), ("rows", I64), ("all_rows", I64), ("width", I64),
        ("row_step", I64), ("item_step", I64), ("factor", F32),
    ]  # fmt: skip
    with m.function("fetch", params, internal=True) as f:
        target, source, rows, all_rows, width, row_step, item_step, factor = f.args
        many = f.splat(factor, LANES)
        together = f.compare("eq", item_step, type.size)
        with f.loop(0, rows) as row:
            read, write = f.at(source, row.index * row_step), f.at(target, row.index * row_bytes)
            with f.if_(together) as branch, f.loop(0, row_bytes // 4, LANES) as loop:
                mask = f.low_mask(width - loop.index, LANES)
                v = load_part(f, type, f.at(read, loop.index, type), mask)
                f.store(widened(f, v) * many, f.at(write, loop.index, F32))
            with branch.else_():
                f.fill_bytes(write, 0, row_bytes)
                with f.loop(0, width) as loop:
                    v = f.load(type, f.at(read, loop.index * item_step))
                    f.store(widened(f, v) * factor, f.at(write, loop.index, F32))
        with f.loop(rows, all_rows) as row:
            f.fill_bytes(f.at(target, row.index * row_bytes), 0, row_bytes)


def write_deliver(m: Module, type: Type, row_bytes: int) -> None:
    """`deliver(target, source, rows, width, row_step, factor)`: scratch rows times a factor into a
    tensor whose last dimension is contiguous."""
    params = [
        ("target", PTR), ("source", PTR), ("rows", I64), ("width", I64), ("row_step", I64),
        ("factor", F32),
    ]  # fmt: skip
    with m.function("deliver", params, internal=True) as f:
        target, source, rows, width, row_step, factor = f.args
        many = f.splat(factor, LANES)
        with f.loop(0, rows) as row:
            read, write = f.at(source, row.index * row_bytes), f.at(target, row.index * row_step)
            with f.loop(0, width, LANES) as loop:
                v = narrowed(f, f.load(VECTOR, f.at(read, loop.index, F32)) * many, type)
                mask = f.low_mask(width - loop.index, LANES)
                bits = f.bitcast(v, int_of(type).vector(LANES))
                f.masked_store(bits, f.at(write, loop.index, type), mask)


def additive(f: LLVMFunction, v: LLVMValue) -> LLVMValue:
    """What an element of a mask adds to a score that counts in powers of two.

    A truth value hides or does not; a number is scaled, and stays finite if it was.
    """
    lanes = v.type.lanes
    minus_inf = f.constant(_MINUS_INF, F32.vector(lanes))
    if v.type.element is I8:
        hidden = f.compare("eq", v, 0)
        return f.select(hidden, minus_inf, 0.0)
    wide = widened(f, v)
    scaled = wide * LOG2_E
    kept = f.select(f.compare("olt", scaled, -FLOAT_MAX), f.constant(-FLOAT_MAX, wide.type), scaled)
    return f.select(f.compare("oeq", wide, _MINUS_INF), minus_inf, kept)


def write_mask_rows(m: Module, type: Type, row_bytes: int) -> None:
    """`mask_rows(target, source, rows, count, row_step, item_step)`: what a mask adds.

    Rows are filled up to a whole vector (with zeros: those keys are hidden by their number).
    """
    params = [
        ("target", PTR), ("source", PTR), ("rows", I64), ("count", I64), ("row_step", I64),
        ("item_step", I64),
    ]  # fmt: skip
    with m.function("mask_rows", params, internal=True) as f:
        target, source, rows, count, row_step, item_step = f.args
        with f.loop(0, rows) as row:
            read, write = f.at(source, row.index * row_step), f.at(target, row.index * row_bytes)
            close = f.compare("eq", item_step, type.size)
            with f.if_(close) as together, f.loop(0, count, LANES) as loop:
                mask = f.low_mask(count - loop.index, LANES)
                v = load_part(f, type, f.at(read, loop.index, type), mask)
                f.store(additive(f, v), f.at(write, loop.index, F32))
            with together.else_(), f.loop(0, count) as loop:
                v = f.load(type, f.at(read, loop.index * item_step))
                f.store(additive(f, v), f.at(write, loop.index, F32))


def fetch(f: LLVMFunction, *args: LLVMValue | int) -> None:
    f.call("fetch", VOID, list(args))


def deliver(f: LLVMFunction, *args: LLVMValue | int) -> None:
    f.call("deliver", VOID, list(args))


def mask_rows(f: LLVMFunction, *args: LLVMValue | int) -> None:
    f.call("mask_rows", VOID, list(args))


def write_row_code(m: Module, s: AttentionStructure, mask_step: int) -> None:
    """All that moves rows: turned, fetched, delivered, and masks if there are any."""
    write_turn(m)
    write_fetch(m, s.type, s.row_bytes)
    write_deliver(m, s.type, s.row_bytes)
    if s.mask is not None:
        write_mask_rows(m, s.mask, mask_step)
