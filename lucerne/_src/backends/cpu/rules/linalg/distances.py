"""Distances of all pairs of rows (see `ops/linalg/distances.py`): lanes are second rows.

A task takes some first rows. For one of them and a few vectors of second rows, the sum of squares
runs down the columns in registers; what lies beyond the last row is neither read nor written.
"""

from __future__ import annotations

from typing import Any

from lucerne._src.backends.cpu.emit.builder import (
    F32,
    F64,
    I64,
    PTR,
    VOID,
    LLVMFunction,
    LLVMValue,
    Module,
)
from lucerne._src.backends.cpu.emit.target import VECTOR_BYTES
from lucerne._src.backends.cpu.rules.table import rule
from lucerne._src.backends.cpu.runtime.code import compiled
from lucerne._src.backends.cpu.runtime.kernel import NativeKernel
from lucerne._src.base import dtype as dt
from lucerne._src.ir.graph import Node

_TYPES = {dt.float32: F32, dt.float64: F64}
_POINTERS = 3
_TOGETHER = 4
"""Vectors of sums that are made at once."""


@rule("upper_norms")
def upper_norms(node: Node) -> Any:
    """None: other types than float32 and float64, or operands with gaps."""
    rows, columns = (a.meta for a in node.args)
    out = node.outputs[0].meta
    plain = rows.contiguous and columns.contiguous and rows.dtype is columns.dtype
    if rows.dtype not in _TYPES or not plain or not out.numel or not rows.shape[1]:
        return None
    count, length = rows.shape
    kind = rows.dtype.name
    code = compiled(("upper_norms", kind), lambda m: _write(m, _TYPES[dt.by_name(kind)]))
    per_task = max(1, -(-count // 128))
    extra = [count, length, per_task]
    return NativeKernel(code["entry"], 1, 2, extra=extra, work=0.1 * out.numel * length)


def _words(f: LLVMFunction) -> list[LLVMValue]:
    """Rows, columns of the block behind the pointers and the workspace; rows of a task."""
    return [f.word(f.args[0], _POINTERS + 1 + i) for i in range(3)]


def _write(m: Module, type: Any) -> None:
    """`i64 entry(ptr block)`."""
    params = [("block", PTR), ("task", I64), ("tid", I64)]
    with m.function("task", params, internal=True) as f:
        count, _, per_task = _words(f)
        first = f.args[1] * per_task
        with f.loop(first, f.minimum(first + per_task, count)) as row:
            _row(f, row.index, type)
    with m.function("entry", [("block", PTR)], I64) as f:
        count, _, per_task = _words(f)
        f.call("lucerne_pfor", VOID, [f.symbol("task"), f.args[0], f.ceil_div(count, per_task)])
        f.ret(0)


def _row(f: LLVMFunction, i: LLVMValue, type: Any) -> None:
    """Distances of row `i` to all that follow it."""
    lanes = VECTOR_BYTES // type.size
    vector = type.vector(lanes)
    out, rows, columns = (f.word(f.args[0], k, PTR) for k in range(_POINTERS))
    count, length, _ = _words(f)
    here = f.at(rows, i * length, type)
    # Before row i come i * count - i * (i + 1) / 2 pairs; place j of this row is for j > i.
    target = f.at(out, i * count - f.bits("lshr", i * (i + 1), 1) - i - 1, type)
    with f.loop(i + 1, count, _TOGETHER * lanes) as block:
        starts = [block.index + k * lanes for k in range(_TOGETHER)]
        masks = [f.low_mask(count - j, lanes) for j in starts]
        with f.loop(0, length, 1, [f.zero(vector)] * _TOGETHER) as k:
            mine = f.splat(f.load(type, f.at(here, k.index, type)), lanes)
            sums = []
            for j, mask, total in zip(starts, masks, k.carried, strict=True):
                place = f.at(columns, k.index * count + j, type)
                away = mine - f.masked_load(vector, place, mask)
                sums.append(f.mul_add(away, away, total))
            k.next(*sums)
        for j, mask, total in zip(starts, masks, k.results, strict=True):
            root = f.call(f"llvm.sqrt.{vector.suffix}", vector, [total])
            f.masked_store(root, f.at(target, j, type), mask)
