"""Functions of one number as polynomials in sixteen pieces.

On AVX-512 a row of a table is one register and looking up is one instruction.
"""

from __future__ import annotations

from collections.abc import Sequence

from lucerne.backends.cpu.emit.builder import F32, I32, I64, Function, Value
from lucerne.backends.cpu.emit.target import HOST
from lucerne.backends.cpu.emit.values import float_literal
from lucerne.backends.cpu.math.tables import Table


def piecewise(
    f: Function, u: Value, v: Value, table: Table, name: str, *, pieces: int = 4, lead: float = 0.0
) -> Value:
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


def _permuted(f: Function, row: Sequence[float], index: Value, name: str) -> Value:
    type = F32.vector(16)
    values = ", ".join(f"float {float_literal(c, F32)}" for c in row)
    held = Value(f, type, f"<{values}>")
    return f.call("llvm.x86.avx512.permvar.sf.512", type, [held, index])


def _gathered(f: Function, row: Sequence[float], index: Value, name: str) -> Value:
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
