"""Functions of one number as polynomials in sixteen or thirty-two pieces.

On AVX-512 a row of a table is one register or two, and looking up is one instruction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lucerne._src.backends.cpu.emit.builder import F32, I32, I64, LLVMFunction, LLVMValue
from lucerne._src.backends.cpu.emit.target import HOST
from lucerne._src.backends.cpu.emit.values import float_literal
from lucerne._src.backends.cpu.math.integer import any_lane
from lucerne._src.backends.cpu.math.tables import GATE_LOWEST, GATE_PIECES, GATE_TOP, Table
from lucerne._src.backends.cpu.math.vector import at_most


def piecewise(
    f: LLVMFunction,
    u: LLVMValue,
    v: LLVMValue,
    table: Table,
    name: str,
    *,
    pieces: int = 4,
    lead: float = 0.0,
) -> LLVMValue:
    """The function of `table` at u >= 0: v, a rising function of u from 1 to 16 at most, tells the
    piece, of which there are so many for each doubling of v. nan stays; outside it is anything.

    `name` names the table in the module. `lead` is added to the slopes of the table: a function
    that begins with 0 + 1.1 u loses nothing there if the 1 is led and the table holds the rest.
    """
    shift = 24 - pieces.bit_length()
    first = (0x3F800000 >> shift) & 15  # the piece of v = 1 in the low four bits: turn the table
    index = f.bits("lshr", f.bitcast(v, I32.vector(u.type.lanes)), shift)
    look = _permuted if HOST.has_avx512 and u.type.lanes == 16 else _gathered
    turned = [[*row[16 - first :], *row[: 16 - first]] for row in table]
    rows = [look(f, row, index, f"{name}_{k}") for k, row in enumerate(turned)]
    centres, total, *rows, slope, start = rows
    distance = u - centres
    for row in rows:
        total = f.fma(total, distance, row)
    change = f.fma(total * distance, distance, slope * distance)
    return (f.fma(distance, lead, change) if lead else change) + start


def gated(
    f: LLVMFunction, x: LLVMValue, table: Table, far: Callable[[LLVMFunction, LLVMValue], LLVMValue]
) -> LLVMValue:
    """x times the gate of `table`, a function that rises from 0 to 1; by `far` where there is no
    lookup, and below the table, which should be rare.

    Added to 2 ** 23, pieces * x leaves the number of its piece in the lowest bits: whole numbers
    above zero and halves below, for the unit of the last place doubles there.
    """
    if not HOST.has_avx512:
        return far(f, x)
    return by_sixteen(f, x, lambda wide: _gated(f, wide, table, far))


def by_sixteen(
    f: LLVMFunction, x: LLVMValue, compute: Callable[[LLVMValue], LLVMValue]
) -> LLVMValue:
    """A function of sixteen lanes for as many as there are. Kernels of other types have fewer, and
    values of a whole row one: an element must not come out otherwise there."""
    lanes = x.type.lanes
    if lanes == 16:
        return compute(x)
    if not lanes:
        return f.extract(compute(f.splat(x, 16)), 0)
    wide = compute(f.shuffle(x, None, [k % lanes for k in range(16)]))
    return f.shuffle(wide, None, range(lanes))


def _gated(
    f: LLVMFunction, x: LLVMValue, table: Table, far: Callable[[LLVMFunction, LLVMValue], LLVMValue]
) -> LLVMValue:
    bounded = at_most(f, x, GATE_TOP)
    index = f.bitcast(f.fma(bounded, GATE_PIECES, 2.0**23), I32.vector(16))
    centres, total, *rows = [permuted_two(f, row, index) for row in table]
    distance = bounded - centres
    for row in rows:
        total = f.fma(total, distance, row)
    near = x * total
    below = f.compare("lt", x, GATE_LOWEST)
    with f.if_(any_lane(f, below)) as branch:
        branch.give(f.select(below, far(f, x), near))
    with branch.else_():
        branch.give(near)
    return branch.results[0]


def permuted_two(f: LLVMFunction, row: Sequence[float], index: LLVMValue) -> LLVMValue:
    """One of 32 floats for each of sixteen lanes, by the low five bits of the index."""
    type = F32.vector(16)
    low, high = _vector(f, row[:16]), _vector(f, row[16:])
    return f.call("llvm.x86.avx512.vpermi2var.ps.512", type, [low, index, high])


def _vector(f: LLVMFunction, row: Sequence[float]) -> LLVMValue:
    values = ", ".join(f"float {float_literal(c, F32)}" for c in row)
    return LLVMValue(f, F32.vector(len(row)), f"<{values}>")


def _permuted(f: LLVMFunction, row: Sequence[float], index: LLVMValue, name: str) -> LLVMValue:
    return f.call("llvm.x86.avx512.permvar.sf.512", F32.vector(16), [_vector(f, row), index])


def _gathered(f: LLVMFunction, row: Sequence[float], index: LLVMValue, name: str) -> LLVMValue:
    values = ", ".join(f"float {float_literal(c, F32)}" for c in row)
    f.module.constant(name, "[16 x float]", f"[{values}]")
    start = f.symbol(name)
    place = f.convert("zext", index & 15, I64)
    if not index.type.lanes:
        return f.load(F32, f.at(start, place, F32))
    found = f.undefined(F32.vector(index.type.lanes))
    for k in range(index.type.lanes):
        found = f.insert(found, f.load(F32, f.at(start, f.extract(place, k), F32)), k)
    return found
