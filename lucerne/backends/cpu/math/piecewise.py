"""Polynomials in sixteen pieces: four for each doubling of u + 1, from 0 to 15.

On AVX-512 a row of a table is one register and looking up is one instruction.
"""

from __future__ import annotations

from collections.abc import Sequence

from lucerne.backends.cpu.emit.builder import F32, I32, I64, Function, Value
from lucerne.backends.cpu.emit.target import HOST
from lucerne.backends.cpu.emit.values import float_literal
from lucerne.backends.cpu.math.tables import Table

_ROTATED = 12
"""The low four bits of the index of the first piece: the tables are stored turned round by it."""


def piecewise(f: Function, u: Value, table: Table, name: str, offset: float = 1.0) -> Value:
    """The function of `table` at u in [0, 15); nan stays, beyond 15 it is anything.

    `name` names the table in the module; there are four pieces for each doubling of u + offset. The
    last steps are such that a function that is 0 at 0 with slope 1 loses nothing there.
    """
    index = f.bits("lshr", f.bitcast(u + offset, I32.vector(u.type.lanes)), 21)
    look = _permuted if HOST.has_avx512 and u.type.lanes == 16 else _gathered
    turned = [[*row[16 - _ROTATED :], *row[: 16 - _ROTATED]] for row in table]
    rows = [look(f, row, index, f"{name}_{k}") for k, row in enumerate(turned)]
    centres, total, *rows, slope, start = rows
    distance = u - centres
    for row in rows:
        total = f.fma(total, distance, row)
    return f.fma(total * distance, distance, slope * distance) + start


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
