"""Sparse matrices by compressed rows: the product with a dense one, and products at its entries.

A task takes some rows. Of a row of the product, four vectors of columns are kept in registers while
its entries pass by; a sampled product keeps one vector and adds its lanes at the end.
"""

from __future__ import annotations

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
from lucerne._src.ir.meta import TensorMeta

_TYPES = {dt.float32: F32, dt.float64: F64}
_PANEL = 4
"""Vectors of columns in registers."""
_MOST_CHUNKS = 128
_POINTERS = 6
_WORDS = (
    "rows", "width", "columns", "chunk_rows", "chunks", "left_step", "right_step", "entries",
)  # fmt: skip
_WRONG_COLUMN, _WRONG_START = 1, 2


@rule("csr_times_dense")
def times(node: Node) -> NativeKernel | None:
    starts, columns, values, dense = (a.meta for a in node.args)
    if not values.contiguous:
        return None
    return _kernel("times", node, starts, columns, dense, 0)


@rule("sampled_products")
def sampled(node: Node) -> NativeKernel | None:
    starts, columns, left, right = (a.meta for a in node.args)
    if not _is_rows(left):
        return None
    return _kernel("sampled", node, starts, columns, right, left.byte_strides[0])


def _is_rows(meta: TensorMeta) -> bool:
    return meta.ndim == 2 and (meta.strides[1] == 1 or meta.shape[1] == 1)


def _kernel(
    name: str, node: Node, starts: TensorMeta, columns: TensorMeta, right: TensorMeta, step: int
) -> NativeKernel | None:
    """None: other types than float32 and float64, or rows that don't lie in memory as rows."""
    kinds = (starts.dtype, columns.dtype, node.outputs[0].meta.dtype)
    plain = starts.contiguous and columns.contiguous and node.outputs[0].meta.contiguous
    if kinds[:2] != (dt.int64, dt.int64) or kinds[2] not in _TYPES or right.dtype is not kinds[2]:
        return None
    if not plain or not _is_rows(right) or not columns.numel:
        return None
    rows = starts.shape[0] - 1
    chunk = max(1, -(-rows // _MOST_CHUNKS))
    dtype = kinds[2].name
    code = compiled(
        ("sparse", "checked", name, dtype), lambda m: _Writer(m, dt.by_name(dtype)).write(name)
    )
    extra = [
        rows, right.shape[1], right.shape[0], chunk, -(-rows // chunk), step, right.byte_strides[0],
        columns.numel,
    ]  # fmt: skip
    work = columns.numel * (2.0 + right.shape[1] * 0.1)
    return NativeKernel(
        code["entry"], 1, 4, extra=extra, workspace=64, work=work,
        fail=lambda status, found: _refuse(status, found, right.shape[0], columns.numel),
    )  # fmt: skip


def _refuse(status: int, found: int, width: int, entries: int) -> None:
    if status == _WRONG_START:
        raise IndexError(
            f"a row of a sparse matrix begins or ends at entry {found}, there are {entries}"
        )
    raise IndexError(
        f"a sparse matrix has an entry in column {found}, the other factor has {width} rows"
    )


class _Writer:
    """Both kernels, for one type."""

    def __init__(self, m: Module, dtype: dt.dtype) -> None:
        self.m, self.type = m, _TYPES[dtype]
        self.lanes = VECTOR_BYTES // dtype.itemsize
        self.vector = self.type.vector(self.lanes)

    def write(self, name: str) -> None:
        """`i64 entry(ptr block)`: out, starts, columns, values or left, dense or right, space."""
        params = [("block", PTR), ("chunk", I64), ("tid", I64)]
        with self.m.function("task", params, internal=True) as f:
            block, chunk, _ = f.args
            self._enter(f, block)
            first = chunk * self.chunk_rows
            with f.loop(first, f.minimum(first + self.chunk_rows, self.rows)) as row:
                begin = f.load(I64, f.at(self.starts, row.index, I64))
                end = f.load(I64, f.at(self.starts, row.index + 1, I64))
                begin, end = self._within(f, begin, end)
                if name == "times":
                    self._row(f, row.index, begin, end)
                else:
                    self._entries(f, row.index, begin, end)
        with self.m.function("entry", [("block", PTR)], I64) as f:
            block = f.args[0]
            self._enter(f, block)
            f.store(f.constant(0), self.space)
            f.call("lucerne_pfor", VOID, [f.symbol("task"), block, self.chunks])
            failed = f.load(I64, self.space)
            with f.if_(f.compare("ne", failed, 0)):
                f.store(f.load(I64, f.at(self.space, 8)), block)
            f.ret(failed)

    def _enter(self, f: LLVMFunction, block: LLVMValue) -> None:
        self.out, self.starts, self.columns, self.left, self.right, self.space = (
            f.word(block, i, PTR) for i in range(_POINTERS)
        )
        numbers = [f.word(block, _POINTERS + i) for i in range(len(_WORDS))]
        self.rows, self.width, self.most, self.chunk_rows, self.chunks = numbers[:5]
        self.left_step, self.right_step, self.entries = numbers[5:]

    def _note(self, f: LLVMFunction, found: LLVMValue, status: int) -> None:
        f.atomic_store(found, f.at(self.space, 8), "monotonic")
        f.atomic_store(f.constant(status), self.space, "monotonic")

    def _within(
        self, f: LLVMFunction, begin: LLVMValue, end: LLVMValue
    ) -> tuple[LLVMValue, LLVMValue]:
        """Where a row begins and ends; one that lies outside of the entries is noted, and empty."""
        for place in (begin, end):
            with f.if_(f.compare("ugt", place, self.entries)):
                self._note(f, place, _WRONG_START)
        wrong = f.compare("ugt", begin, self.entries) | f.compare("ugt", end, self.entries)
        return f.select(wrong, 0, begin), f.select(wrong, 0, end)

    def _line(self, f: LLVMFunction, entry: LLVMValue) -> LLVMValue:
        """The row of the dense factor that an entry reads; a wrong one is noted."""
        column = f.load(I64, f.at(self.columns, entry, I64))
        wrong = f.compare("uge", column, self.most)
        with f.if_(wrong):
            self._note(f, column, _WRONG_COLUMN)
        return f.at(self.right, f.select(wrong, 0, column) * self.right_step)

    def _row(self, f: LLVMFunction, row: LLVMValue, begin: LLVMValue, end: LLVMValue) -> None:
        target = f.at(self.out, row * self.width, self.type)
        panel = self.lanes * _PANEL
        whole = self.width // panel * panel
        with f.loop(0, whole, panel) as columns:
            self._panel(f, f.at(target, columns.index, self.type), columns.index, begin, end)
        with f.loop(whole, self.width, self.lanes) as columns:
            mask = f.low_mask(self.width - columns.index, self.lanes)
            place = f.at(target, columns.index, self.type)
            with f.loop(begin, end, 1, [f.zero(self.vector)]) as entries:
                source = f.at(self._line(f, entries.index), columns.index, self.type)
                part = f.masked_load(self.vector, source, mask)
                entries.next(f.mul_add(self._value(f, entries.index), part, entries.carried[0]))
            f.masked_store(entries.results[0], place, mask)

    def _panel(
        self, f: LLVMFunction, place: LLVMValue, column: LLVMValue, begin: LLVMValue, end: LLVMValue
    ) -> None:
        with f.loop(begin, end, 1, [f.zero(self.vector)] * _PANEL) as entries:
            source = f.at(self._line(f, entries.index), column, self.type)
            value = self._value(f, entries.index)
            sums = []
            for i, held in enumerate(entries.carried):
                part = f.load(self.vector, f.at(source, i * self.lanes, self.type), self.type.size)
                sums.append(f.mul_add(value, part, held))
            entries.next(*sums)
        for i, total in enumerate(entries.results):
            f.store(total, f.at(place, i * self.lanes, self.type), self.type.size)

    def _value(self, f: LLVMFunction, entry: LLVMValue) -> LLVMValue:
        return f.splat(f.load(self.type, f.at(self.left, entry, self.type)), self.lanes)

    def _entries(self, f: LLVMFunction, row: LLVMValue, begin: LLVMValue, end: LLVMValue) -> None:
        line = f.at(self.left, row * self.left_step)
        with f.loop(begin, end) as entries:
            source = self._line(f, entries.index)
            with f.loop(0, self.width, self.lanes, [f.zero(self.vector)]) as columns:
                mask = f.low_mask(self.width - columns.index, self.lanes)
                ours, theirs = (
                    f.masked_load(self.vector, f.at(p, columns.index, self.type), mask)
                    for p in (line, source)
                )
                columns.next(f.mul_add(ours, theirs, columns.carried[0]))
            total = f.fold("add", columns.results[0])
            f.store(total, f.at(self.out, entries.index, self.type))
