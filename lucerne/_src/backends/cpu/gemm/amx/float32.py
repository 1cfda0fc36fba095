"""float32 products on tiles: each number as three bfloat16, and what to do when that fails.

A float32 is exactly the sum of three bfloat16 (8 + 8 + 8 bits). Of the nine products of parts the
three smallest, together about 2^-27 of the whole, are left out; the other six run on the tile
unit, at more than twice the speed of float32 multiplication. Parts of numbers that are not finite,
or so large that the leading part overflows, give sums that are not finite: such tiles are found
when they are done, and computed again from the whole numbers. Decision record 13 has the figures.
"""

from __future__ import annotations

from typing import Any

from lucerne._src.backends.cpu.emit.builder import LLVMFunction, LLVMValue, Module
from lucerne._src.backends.cpu.emit.types import F32, I32, I64, PTR
from lucerne._src.backends.cpu.gemm.amx.pack import PANEL, STEP, STEP_BYTES, TILE
from lucerne._src.backends.cpu.gemm.args import Args

WHOLE_SUMS = "whole_sums"
_LANES = 16
_WIDE = F32.vector(_LANES)


def write_whole_sums(m: Module) -> None:
    """`whole_sums(args, scratch, row, column)`: look at a finished tile, mend it if need be."""
    params: list[Any] = [("args", PTR), ("scratch", PTR), ("row", I64), ("column", I64)]
    with m.function(WHOLE_SUMS, params, internal=True) as f:
        place, scratch, row, column = f.args
        with f.if_(_is_odd(f, scratch)):
            args = Args(f, place)
            rows = f.minimum(args.M - row, PANEL)
            with f.loop(0, rows) as down, f.loop(0, 2) as half:
                sums = _dot(f, args, row + down.index, column + half.index * _LANES)
                at = f.bits("lshr", down.index, 4) * (2 * TILE) + half.index * TILE
                f.store(sums, f.at(scratch, at + (down.index & 15) * STEP))


def _is_odd(f: LLVMFunction, scratch: LLVMValue) -> LLVMValue:
    """Whether some sum of a tile is infinite or nan: times zero these give nan, all others zero."""
    zero = f.zero(_WIDE)
    with f.loop(0, 4 * TILE, 4 * STEP, [zero] * 4, at_least_once=True) as loop:
        loop.next(
            *[
                f.fma(f.load(_WIDE, f.at(scratch, loop.index + n * STEP), align=64), zero, sums)
                for n, sums in enumerate(loop.carried)
            ]
        )
    a, b, c, d = loop.results
    return f.fold("or", f.compare("uno", a + b, c + d))


def _dot(f: LLVMFunction, args: Args, row: LLVMValue, column: LLVMValue) -> LLVMValue:
    """Sixteen sums of a row, k after k."""
    a = f.at(args.A, row * args.A_ROW * 4)
    a_step = args.A_K * 4
    ready = args.is_set("B_READY")
    with f.loop(0, args.K, 1, [f.zero(_WIDE)]) as loop:
        left = f.splat(f.load(F32, f.at(a, loop.index * a_step)), _LANES)
        with f.if_(ready) as packed:
            packed.give(_put_together(f, args, loop.index, column))
        with packed.else_():
            packed.give(_as_it_lies(f, args, loop.index, column))
        loop.next(f.fma(left, packed.results[0], loop.carried[0]))
    return loop.results[0]


def _as_it_lies(f: LLVMFunction, args: Args, k: LLVMValue, column: LLVMValue) -> LLVMValue:
    """Sixteen numbers of a row of B."""
    step = args.B_COL * 4
    start = f.at(args.B, (k * args.B_K + column * args.B_COL) * 4)
    steps = f.lanes(I64.vector(_LANES)) * f.splat(step, _LANES)
    places = f.value(
        PTR.vector(_LANES), f"getelementptr i8, ptr {start.text}, {steps.type.text} {steps.text}"
    )
    mask = f.low_mask(args.N - column, _LANES)
    given = [places, f.constant(4, I32), mask, f.zero(_WIDE)]
    return f.call(f"llvm.masked.gather.{_WIDE.suffix}.v{_LANES}p0", _WIDE, given)


def _put_together(f: LLVMFunction, args: Args, k: LLVMValue, column: LLVMValue) -> LLVMValue:
    """The same from a packed B: the sum of the parts. Of infinity the first two are finite and
    infinite, what the last one holds is left out."""
    at = k * 2
    block = at // args.K_BLOCK * args.K_BLOCK
    room = f.minimum(args.K_BLOCK, args.K_ROOM - block)
    panel = column // PANEL
    panels = args.PANEL_STOP - args.PANEL_START
    offset = (block * panels + (panel - args.PANEL_START) * room) * (3 * PANEL)
    offset = offset + (at - block) // STEP * (3 * STEP_BYTES)
    offset = offset + ((column // _LANES) & 1) * TILE + (f.bits("lshr", k, 1) & 15) * STEP
    words = [
        f.load(I32.vector(_LANES), f.at(args.PACKED_B, offset + n * STEP_BYTES)) for n in range(3)
    ]
    odd = f.splat(f.compare("ne", k & 1, 0), _LANES)
    parts = [f.bitcast(f.select(odd, w & -65536, w << 16), _WIDE) for w in words]
    infinite = f.compare("eq", f.bitcast(parts[1], I32.vector(_LANES)) & 0x7FFFFFFF, 0x7F800000)
    return parts[0] + f.select(infinite, parts[1], parts[1] + parts[2])
