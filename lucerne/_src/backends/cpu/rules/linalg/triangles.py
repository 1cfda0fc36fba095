"""Triangles and diagonals of matrices: copies with zeros."""

from __future__ import annotations

from typing import Any

from lucerne._src.backends.cpu.emit.builder import (
    I8,
    I32,
    I64,
    PTR,
    VOID,
    LLVMFunction,
    LLVMValue,
    Module,
)
from lucerne._src.backends.cpu.emit.types import I16, Type
from lucerne._src.backends.cpu.linalg.frame import batch_step
from lucerne._src.backends.cpu.rules.table import rule
from lucerne._src.backends.cpu.runtime.code import compiled
from lucerne._src.backends.cpu.runtime.kernel import NativeKernel
from lucerne._src.base import shape as sh
from lucerne._src.ir.graph import Node

_WORDS = ("units", "per_task", "rows", "columns", "step", "rs", "cs", "diagonal")
_TASK = 16384
"""Elements of a task, about."""
_TYPES: dict[int, Type] = {1: I8, 2: I16, 4: I32, 8: I64, 16: I64.vector(2)}


@rule("tril")
def tril(node: Node) -> Any:
    return _triangle(node, lower=True)


@rule("triu")
def triu(node: Node) -> Any:
    return _triangle(node, lower=False)


def _triangle(node: Node, lower: bool) -> NativeKernel | None:
    meta, out, diagonal = node.args[0].meta, node.outputs[0].meta, node.args[1]
    *batch, rows, columns = meta.shape
    step = batch_step(meta, batch)
    if step is None or not meta.numel or meta.dtype.itemsize not in _TYPES:
        return None
    units = sh.numel(batch) * rows
    size = meta.dtype.itemsize
    per_task = max(1, _TASK // columns, -(-units // 256))
    code = compiled(("triangle", size, lower), lambda m: _write(m, size, lower))
    limit = rows + columns
    shift = max(-limit, min(limit, diagonal))
    extra = [units, per_task, rows, columns, step, *meta.byte_strides[-2:], shift]
    return NativeKernel(code["entry"], 1, 1, extra=extra, work=0.3 * out.numel)


@rule("diag_embed")
def diag_embed(node: Node) -> Any:
    """Of the last dimension into the last two."""
    meta, out = node.args[0].meta, node.outputs[0].meta
    offset, a, b = node.args[1], *(sh.wrap_dim(d, out.ndim) for d in node.args[2:])
    *batch, n = meta.shape
    step = batch_step(meta, batch, 1)
    size = meta.dtype.itemsize
    if (a, b) != (out.ndim - 2, out.ndim - 1) or step is None or not meta.numel:
        return None
    if size not in _TYPES:
        return None
    code = compiled(("diag_embed", size), lambda m: _write_diagonal(m, size))
    count, width = sh.numel(batch), out.shape[-1]
    start = offset if offset >= 0 else -offset * width
    extra = [count, width, n, step, meta.byte_strides[-1], start]
    return NativeKernel(code["entry"], 1, 1, extra=extra, work=0.1 * out.numel)


def _write(m: Module, size: int, lower: bool) -> None:
    """`i64 entry(ptr block)`: rows of the result, some of them in a task."""
    with m.function("task", [("block", PTR), ("task", I64), ("tid", I64)], internal=True) as f:
        words = {name: f.word(f.args[0], 3 + k) for k, name in enumerate(_WORDS)}
        first = f.args[1] * words["per_task"]
        with f.loop(first, f.minimum(first + words["per_task"], words["units"])) as loop:
            _row(f, words, loop.index, size, lower)
    with m.function("entry", [("block", PTR)], I64) as f:
        units, per_task = f.word(f.args[0], 3), f.word(f.args[0], 4)
        tasks = f.ceil_div(units, per_task)
        f.call("lucerne_pfor", VOID, [f.symbol("task"), f.args[0], tasks])
        f.ret(0)


def _row(
    f: LLVMFunction, words: dict[str, LLVMValue], unit: LLVMValue, size: int, lower: bool
) -> None:
    rows, columns, cs = words["rows"], words["columns"], words["cs"]
    matrix, row = unit // rows, unit % rows
    out = f.at(f.word(f.args[0], 0, PTR), unit * columns * size)
    start = matrix * words["step"] + row * words["rs"]
    source = f.at(f.word(f.args[0], 1, PTR), start)
    # Columns up to this one belong to the lower triangle (those from it on to the upper one).
    edge = row + words["diagonal"] + (1 if lower else 0)
    cut = f.maximum(f.minimum(edge, columns), 0)
    from_, to = (f.constant(0), cut) if lower else (cut, columns)
    zero, end = (cut, columns) if lower else (f.constant(0), cut)
    f.fill_bytes(f.at(out, zero * size), 0, (end - zero) * size)
    with f.if_(f.compare("eq", cs, size)) as plain:
        f.copy_bytes(f.at(out, from_ * size), f.at(source, from_ * size), (to - from_) * size)
    with plain.else_(), f.loop(from_, to) as c:
        v = f.load(_TYPES[size], f.at(source, c.index * cs))
        f.store(v, f.at(out, c.index * size))


def _write_diagonal(m: Module, size: int) -> None:
    with m.function("entry", [("block", PTR)], I64) as f:
        block = f.args[0]
        out, source = f.word(block, 0, PTR), f.word(block, 1, PTR)
        count, width, n, step, es, start = (f.word(block, 3 + k) for k in range(6))
        area = width * width * size
        f.fill_bytes(out, 0, area * count)
        with f.loop(0, count) as matrix, f.loop(0, n) as k:
            v = f.load(_TYPES[size], f.at(source, matrix.index * step + k.index * es))
            place = matrix.index * area + (start + k.index * (width + 1)) * size
            f.store(v, f.at(out, place))
        f.ret(0)
