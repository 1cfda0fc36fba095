"""Rules for order: sorting, the largest few, searching sorted sequences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple
from typing import Any

from lucerne._src.backends.cpu.emit.builder import I64, PTR, VOID, Module
from lucerne._src.backends.cpu.index.rows import RowCode
from lucerne._src.backends.cpu.index.search import Search, SearchCode
from lucerne._src.backends.cpu.index.walk import IndexDim, plan_rows, plan_walk
from lucerne._src.backends.cpu.math.storage import STORED
from lucerne._src.backends.cpu.rules.table import rule
from lucerne._src.backends.cpu.runtime.code import compiled
from lucerne._src.backends.cpu.runtime.kernel import NativeKernel
from lucerne._src.backends.cpu.runtime.pool import MAX_THREADS
from lucerne._src.backends.cpu.sort.long import LONG, LongSort, SortLongCode, chunks_of
from lucerne._src.backends.cpu.sort.records import Records, sortable
from lucerne._src.backends.cpu.sort.rows import Rows, SortRowsCode
from lucerne._src.backends.cpu.sort.top import FEW, Top, TopCode
from lucerne._src.base import dtype as dt
from lucerne._src.ir.graph import Node
from lucerne._src.ir.meta import TensorMeta

_SEARCH_NUMBERS = 4
"""First extra word: after one output, two tensors and the workspace."""


@rule("binary_search")
def binary_search(node: Node) -> Any:
    sequence, values, out = node.args[0].meta, node.args[1].meta, node.outputs[0].meta
    dtype: dt.dtype = values.dtype
    if dtype not in STORED or dtype.category == dt.COMPLEX or sequence.dtype is not dtype:
        return None
    dims = [
        IndexDim(n, (out.byte_strides[d], values.byte_strides[d], _row_step(sequence, d)))
        for d, n in enumerate(values.shape)
    ]
    walk = plan_walk(dims or [IndexDim(1, (0, 0, 0))], 8)
    form = Search(len(walk.dims), dtype.name, node.args[2])

    def write(m: Module) -> None:
        SearchCode(m, "search", form, _SEARCH_NUMBERS + 2, _SEARCH_NUMBERS).write()
        with m.function("entry", [("block", PTR)], I64) as f:
            f.call("search_all", VOID, [f.args[0]])
            f.ret(0)

    extra = [sequence.shape[-1], sequence.byte_strides[-1], *walk.words()]
    code = compiled(("binary_search", *astuple(form)), write)
    return NativeKernel(code["entry"], 1, 2, extra=extra, work=walk.numel * 20.0)


def _row_step(sequence: TensorMeta, d: int) -> int:
    """Byte stride of a sequence with rows along a leading dimension of the values."""
    return sequence.byte_strides[d] if sequence.ndim > 1 and d < sequence.ndim - 1 else 0


# ---- sorting -------------------------------------------------------------------------------------

_SORT_EXTRA = 4
"""First extra word of a sort: after two outputs, the input and the workspace."""
_SORT_GRAIN = 1 << 12
_LONGEST = 1 << 31


def _lines(metas: Sequence[TensorMeta], dim: int) -> tuple[list[IndexDim], IndexDim]:
    """Loops over tensors of one shape: all dimensions but `dim`, and that one."""
    shape = tuple(metas[-1].shape)
    if not shape:
        return [], IndexDim(1, tuple(m.dtype.itemsize for m in metas))
    dims = [IndexDim(n, tuple(m.byte_strides[d] for m in metas)) for d, n in enumerate(shape)]
    row = dims.pop(dim % len(shape))
    return dims, row


@rule("sort_along")
def sort_along(node: Node) -> Any:
    source: TensorMeta = node.args[0].meta
    _, dim, descending, _ = node.args
    if not sortable(source.dtype):
        return None
    metas = [v.meta for v in node.outputs] + [source]
    outer, row = _lines(metas, dim)
    if row.size >= _LONGEST:
        return None
    records = Records(source.dtype.name, descending)
    unit = row.strides[2] == source.dtype.itemsize
    if row.size >= LONG:
        return _sort_long(LongSort(records, unit), outer, row)
    walk = plan_rows(outer, row, _SORT_GRAIN)
    form = Rows(len(walk.dims), records, unit)
    scratch = form.scratch(row.size) + 63 & -64

    def write(m: Module) -> None:
        SortRowsCode(m, "sort", form, _SORT_EXTRA + 1, _SORT_EXTRA).write()
        with m.function("entry", [("block", PTR)], I64) as f:
            f.call("sort_all", VOID, [f.args[0]])
            f.ret(0)

    code = compiled(("sort rows", *astuple(form)), write)
    return NativeKernel(
        code["entry"], 2, 1, extra=[scratch, *walk.words()], workspace=scratch * MAX_THREADS,
        work=walk.numel * 10.0,
    )  # fmt: skip


def _sort_long(form: LongSort, outer: list[IndexDim], row: IndexDim) -> NativeKernel:
    """Rows one after another, each by all threads."""
    walk = plan_rows(outer, row)
    n, chunks = row.size, chunks_of(row.size)
    numbers = [n, chunks, -(-n // chunks), row.strides[2], row.strides[0], row.strides[1]]
    rank = len(walk.dims)

    def write(m: Module) -> None:
        SortLongCode(m, form, _SORT_EXTRA).write()
        rows = RowCode(m, "", rank, 3, _SORT_EXTRA + len(numbers))
        with m.function("entry", [("block", PTR)], I64) as f:
            (block,) = f.args
            dims = rows.loops(f, block)
            bases = [f.word(block, w, PTR) for w in range(3)]
            with f.loop(0, rows.number(f, block, 0)) as loop:
                offsets = rows.offsets(f, loop.index, dims[:-1], 3)
                values, positions, source = map(f.at, bases, offsets)
                f.call("sort_long", VOID, [block, source, values, positions])
            f.ret(0)

    code = compiled(("sort long", rank, *astuple(form)), write)
    return NativeKernel(
        code["entry"], 2, 1, extra=[*numbers, *walk.words()], workspace=form.scratch(n, chunks),
        work=walk.numel * 10.0,
    )  # fmt: skip


# ---- the first few -------------------------------------------------------------------------------

_TOP_EXTRA = 3
"""First extra word: after one output, the input and the workspace."""


@rule("top_positions")
def top_positions(node: Node) -> Any:
    source, k, dim, largest = node.args
    meta: TensorMeta = source.meta
    out: TensorMeta = node.outputs[0].meta
    if not sortable(meta.dtype) or not k:
        return None
    outer, row = _lines([out, meta], dim)
    if row.size >= _LONGEST:
        return None
    walk = plan_rows(outer, row, _SORT_GRAIN)
    records = Records(meta.dtype.name, largest)
    unit = row.strides[1] == meta.dtype.itemsize
    form = Top(len(walk.dims), records, unit, k <= FEW)
    scratch = form.scratch(row.size, k) + 63 & -64

    def write(m: Module) -> None:
        TopCode(m, "top", form, _TOP_EXTRA + 3, _TOP_EXTRA).write()
        with m.function("entry", [("block", PTR)], I64) as f:
            f.call("top_all", VOID, [f.args[0]])
            f.ret(0)

    code = compiled(("top", *astuple(form)), write)
    return NativeKernel(
        code["entry"], 1, 1, extra=[scratch, k, row.strides[0], *walk.words()],
        workspace=scratch * MAX_THREADS, work=walk.numel * 1.0,
    )  # fmt: skip
