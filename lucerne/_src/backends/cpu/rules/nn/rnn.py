"""Recurrent cells after their matrix products: one kernel forward, one backward.

All tensors are rows; a gate tensor holds several parts of `width` columns side by side. A cell is a
function from vectors of the parts to vectors of the results.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucerne._src.backends.cpu.emit.builder import (
    F32,
    I64,
    PTR,
    VOID,
    LLVMFunction,
    LLVMValue,
    Module,
)
from lucerne._src.backends.cpu.emit.target import VECTOR_BYTES
from lucerne._src.backends.cpu.math.table import real_function
from lucerne._src.backends.cpu.rules.table import rule
from lucerne._src.backends.cpu.runtime.code import compiled
from lucerne._src.backends.cpu.runtime.kernel import NativeKernel
from lucerne._src.base import dtype as dt
from lucerne._src.ir.graph import Node
from lucerne._src.ir.meta import TensorMeta

LANES = VECTOR_BYTES // 4
CHUNK = 4096
"""Elements of one task, about."""
_WORDS = ("rows", "width", "chunk_rows", "chunks")

Cell = Callable[[LLVMFunction, list[list[LLVMValue]]], list[list[LLVMValue]]]
"""From the parts of each input to the parts of each output."""
CELLS: dict[str, tuple[Cell, tuple[int, ...], tuple[int, ...]]] = {}
"""The cell, and how many parts each input and each output has."""


def _cell(op: str, in_parts: tuple[int, ...], out_parts: tuple[int, ...]) -> Callable[[Cell], Cell]:
    def enter(cell: Cell) -> Cell:
        CELLS[op] = cell, in_parts, out_parts
        return cell

    return enter


def sigmoid(f: LLVMFunction, x: LLVMValue) -> LLVMValue:
    return real_function(f, "sigmoid", x)


def tanh(f: LLVMFunction, x: LLVMValue) -> LLVMValue:
    return real_function(f, "tanh", x)


@_cell("lstm_gates", (4, 4, 1), (1, 1))
def lstm(f: LLVMFunction, inputs: list[list[LLVMValue]]) -> list[list[LLVMValue]]:
    ours, hidden, [cell] = inputs
    i, forget, new, out = (a + b for a, b in zip(ours, hidden, strict=True))
    after = f.mul_add(sigmoid(f, forget), cell, sigmoid(f, i) * tanh(f, new))
    return [[sigmoid(f, out) * tanh(f, after)], [after]]


@_cell("lstm_gates_backward", (4, 4, 1, 1, 1, 1), (4, 1))
def lstm_backward(f: LLVMFunction, inputs: list[list[LLVMValue]]) -> list[list[LLVMValue]]:
    ours, hidden, [cell], [after], [by_hidden], [by_after] = inputs
    i, forget, new, out = (a + b for a, b in zip(ours, hidden, strict=True))
    i, forget, out = (sigmoid(f, x) for x in (i, forget, out))
    new, shown = tanh(f, new), tanh(f, after)
    by_cell = f.mul_add(by_hidden * out, 1.0 - shown * shown, by_after)
    gates = [
        by_cell * new * (i * (1.0 - i)),
        by_cell * cell * (forget * (1.0 - forget)),
        by_cell * i * (1.0 - new * new),
        by_hidden * shown * (out * (1.0 - out)),
    ]
    return [gates, [by_cell * forget]]


@_cell("gru_gates", (3, 3, 1), (1,))
def gru(f: LLVMFunction, inputs: list[list[LLVMValue]]) -> list[list[LLVMValue]]:
    (i_reset, i_update, i_new), (h_reset, h_update, h_new), [hidden] = inputs
    new = tanh(f, f.mul_add(sigmoid(f, i_reset + h_reset), h_new, i_new))
    return [[f.mul_add(hidden - new, sigmoid(f, i_update + h_update), new)]]


@_cell("gru_gates_backward", (3, 3, 1, 1), (3, 3, 1))
def gru_backward(f: LLVMFunction, inputs: list[list[LLVMValue]]) -> list[list[LLVMValue]]:
    (i_reset, i_update, i_new), (h_reset, h_update, h_new), [hidden], [grad] = inputs
    reset, update = sigmoid(f, i_reset + h_reset), sigmoid(f, i_update + h_update)
    new = tanh(f, f.mul_add(reset, h_new, i_new))
    by_new = grad * (1.0 - update) * (1.0 - new * new)
    by_update = grad * (hidden - new) * (update * (1.0 - update))
    by_reset = by_new * h_new * (reset * (1.0 - reset))
    return [
        [by_reset, by_update, by_new],
        [by_reset, by_update, by_new * reset],
        [grad * update],
    ]


@rule(*CELLS)
def recurrent(node: Node) -> NativeKernel | None:
    name = node.op.qualified
    cell, in_parts, out_parts = CELLS[name]
    inputs, outputs = [a.meta for a in node.args], [v.meta for v in node.outputs]
    width = outputs[-1].shape[-1] if outputs[-1].ndim else 0
    parts = (*out_parts, *in_parts)
    places = [_row_step(m, p * width) for m, p in zip((*outputs, *inputs), parts, strict=True)]
    rows = outputs[-1].numel // width if width else 0
    if not rows or None in places or any(m.numel // m.shape[-1] != rows for m in inputs):
        return None

    def write(m: Module) -> None:
        _write(m, cell, out_parts, in_parts)

    code = compiled(("recurrent", name, LANES), write)
    chunk_rows = max(1, CHUNK // width)
    extra = [rows, width, chunk_rows, -(-rows // chunk_rows), *places]
    return NativeKernel(
        code["cell"], len(outputs), len(inputs), extra=extra, work=rows * width * 2.0
    )


def _row_step(meta: TensorMeta, width: int) -> Any:
    """Bytes from row to row of a float32 tensor of `width` columns; None if it isn't one."""
    if meta.dtype is not dt.float32 or meta.ndim not in (1, 2) or meta.shape[-1] != width:
        return None
    if meta.strides[-1] != 1 and width > 1:
        return None
    return meta.byte_strides[0] if meta.ndim == 2 else 0


def _write(m: Module, cell: Cell, out_parts: tuple[int, ...], in_parts: tuple[int, ...]) -> None:
    """`i64 cell(ptr block)`: words are pointers, workspace, _WORDS, then bytes between rows."""
    tensors = len(out_parts) + len(in_parts)
    numbers = tensors + 1
    steps_at = numbers + len(_WORDS)
    with m.function("task", [("block", PTR), ("chunk", I64), ("tid", I64)], internal=True) as f:
        block, chunk, _ = f.args
        pointers = [f.word(block, i, PTR) for i in range(tensors)]
        steps = [f.word(block, steps_at + i) for i in range(tensors)]
        rows, width, chunk_rows, _ = (f.word(block, numbers + i) for i in range(len(_WORDS)))
        start = chunk * chunk_rows
        with f.loop(start, f.minimum(start + chunk_rows, rows)) as row:
            lines = [f.at(p, row.index * s) for p, s in zip(pointers, steps, strict=True)]
            with f.loop(0, width, LANES) as loop:
                _columns(f, cell, lines, out_parts, in_parts, loop.index, width)
    with m.function("cell", [("block", PTR)], I64) as f:
        chunks = f.word(f.args[0], numbers + _WORDS.index("chunks"))
        f.call("lucerne_pfor", VOID, [f.symbol("task"), f.args[0], chunks])
        f.ret(0)


def _columns(
    f: LLVMFunction,
    cell: Cell,
    lines: list[LLVMValue],
    out_parts: tuple[int, ...],
    in_parts: tuple[int, ...],
    column: LLVMValue,
    width: LLVMValue,
) -> None:
    """One vector of columns of one row."""
    mask = f.low_mask(width - column, LANES)

    def place(line: LLVMValue, part: int) -> LLVMValue:
        return f.at(line, width * part + column, F32)

    targets, sources = lines[: len(out_parts)], lines[len(out_parts) :]
    loaded = [
        [f.masked_load(F32.vector(LANES), place(line, p), mask) for p in range(n)]
        for line, n in zip(sources, in_parts, strict=True)
    ]
    for line, values in zip(targets, cell(f, loaded), strict=True):
        for p, v in enumerate(values):
            f.masked_store(v, place(line, p), mask)
