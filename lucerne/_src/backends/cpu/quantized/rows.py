"""What is asked of the rows of the input before the products: sums of groups, and 8 bits.

A row in 8 bits is `round(x * (127 / m))` with m = max |x|, and its step is m / 127; a row in which
a number is not finite has a step that is nan, and so is its result.
"""

from __future__ import annotations

from lucerne._src.backends.cpu.emit.builder import F32, I32, LLVMFunction, LLVMValue
from lucerne._src.backends.cpu.quantized.dots import IntegerDot, dot_of
from lucerne._src.backends.cpu.quantized.frame import (
    FLOATS,
    LANES,
    WORDS,
    QuantizedFrame,
    QuantizedKind,
)
from lucerne._src.ops.linalg.quantized import LEAST, MOST_CODE

_FOUR = 4
_MAGIC, _MAGIC_BITS = 1.5 * 2**23, 0x4B400000
"""Added to a small number it leaves the nearest integer in the low bits, ties to even; of a number
that is not finite it makes any integer, and no trap."""


def write_rows(
    f: LLVMFunction, frame: QuantizedFrame, kind: QuantizedKind, chunk: LLVMValue
) -> None:
    """The rows of one chunk."""
    first = chunk * frame.row_chunk
    with f.loop(first, f.minimum(first + frame.row_chunk, frame.rows)) as rows:
        source = f.at(frame.input, rows.index * frame.columns, F32)
        dot = dot_of(kind.stored, kind.dynamic)
        if isinstance(dot, IntegerDot):
            _quantize(f, frame, dot, rows.index, source)
        else:
            _add_up(f, frame, rows.index, source)


def _add_up(f: LLVMFunction, frame: QuantizedFrame, row: LLVMValue, source: LLVMValue) -> None:
    """Sums of the groups of a row, as floats."""
    four = F32.vector(_FOUR)
    with f.loop(0, frame.groups) as groups:
        place = f.at(source, groups.index * frame.group, F32)
        with f.loop(0, frame.group, _FOUR, [f.zero(four)]) as loop:
            loop.next(loop.carried[0] + f.load(four, f.at(place, loop.index, F32)))
        f.store(f.fold("add", loop.results[0]), frame.sum_of(row, groups.index))


def _quantize(
    f: LLVMFunction, frame: QuantizedFrame, dot: IntegerDot, row: LLVMValue, source: LLVMValue
) -> None:
    most, wrong = _most(f, frame, source)
    f.store(most / f.constant(float(MOST_CODE), F32) + wrong, frame.step_of(row))
    inverse = f.constant(float(MOST_CODE), F32) / most
    target = f.at(frame.space, row * frame.columns * dot.row_bytes)

    def piece(at: LLVMValue, lanes: int) -> LLVMValue:
        x = f.load(F32.vector(lanes), f.at(source, at, F32)) * f.splat(inverse, lanes)
        whole = f.bitcast(x + _MAGIC, I32.vector(lanes)) - _MAGIC_BITS
        dot.keep(f, whole, f.at(target, at * dot.row_bytes))
        return whole

    with f.loop(0, frame.groups) as groups:
        begin = groups.index * frame.group
        whole, end = begin + (frame.group & -LANES), begin + frame.group
        with f.loop(begin, whole, LANES, [f.zero(WORDS)]) as loop:
            loop.next(loop.carried[0] + piece(loop.index, LANES))
        with f.loop(whole, end, _FOUR, [f.zero(I32.vector(_FOUR))]) as rest:
            rest.next(rest.carried[0] + piece(rest.index, _FOUR))
        total = f.fold("add", loop.results[0]) + f.fold("add", rest.results[0])
        f.store(total, frame.sum_of(row, groups.index))


def _most(f: LLVMFunction, frame: QuantizedFrame, source: LLVMValue) -> tuple[LLVMValue, LLVMValue]:
    """The largest absolute value of a row, and zero, or nan if a number is not finite."""
    whole = frame.columns & -LANES
    start = [f.zero(FLOATS), f.zero(FLOATS)]
    with f.loop(0, whole, LANES, start) as loop:
        x = f.load(FLOATS, f.at(source, loop.index, F32))
        loop.next(*_seen(f, x, loop.carried))
    with f.if_(f.compare("lt", whole, frame.columns)) as rest:
        mask = f.low_mask(frame.columns - whole, LANES)
        x = f.masked_load(FLOATS, f.at(source, whole, F32), mask)
        rest.give(*_seen(f, x, loop.results))
    with rest.else_():
        rest.give(*loop.results)
    most, wrong = rest.results
    return f.maximum(f.fold("fmax", most), f.constant(LEAST, F32)), f.fold("add", wrong)


def _seen(f: LLVMFunction, x: LLVMValue, before: list[LLVMValue]) -> tuple[LLVMValue, LLVMValue]:
    """The largest number, and nan once a number was not finite (else zero)."""
    size = f.intrinsic("llvm.fabs", x.type, [x])
    return f.maximum(size, before[0]), f.mul_add(x, f.constant(0.0, x.type), before[1])
