"""Walks over the elements of a block: rows one by one, columns a vector at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lucerne._src.backends.cpu.emit.builder import LLVMValue
from lucerne._src.backends.cpu.emit.target import VECTOR_BYTES
from lucerne._src.backends.cpu.fused.monoids import Monoid, monoid
from lucerne._src.backends.cpu.machine import LlvmScalar
from lucerne._src.backends.cpu.math.number import Num
from lucerne._src.backends.cpu.tile.group import domain_of, reads
from lucerne._src.base import dtype as dt
from lucerne._src.ir import tile as ir
from lucerne._src.ir.tile import Let, Set, Store, TileDim, TileExpr

_UNROLL = 4
_STORE_UNROLL = 2
_DOT_ROWS, _DOT_VECTORS = 8 if VECTOR_BYTES == 64 else 4, 2
"""Sums that are in registers at a time: half of those there are."""


class TilePosition:
    """Where a walk is: the row, the first column of the vector, and the lanes that count."""

    def __init__(
        self, machine: LlvmScalar, row: LLVMValue | None, column: LLVMValue, mask: LLVMValue | None
    ) -> None:
        self.machine, self.row, self.column, self.mask = machine, row, column, mask
        self.values: dict[int, Num] = {}
        """What was computed here already."""


class TileMemory:
    """A block in memory: of a tensor, or of the program's own."""

    def __init__(
        self, start: LLVMValue, dtype: dt.dtype, row_bytes: Any, column_bytes: Any
    ) -> None:
        self.start, self.dtype = start, dtype
        self.row_bytes, self.column_bytes = row_bytes, column_bytes


class Walker:
    """Writes one walk. `w` is the writer of the program."""

    def __init__(self, w: Any) -> None:
        self.w, self.f = w, w.f
        self.memories: dict[int, TileMemory] = {}
        self.rows_done: dict[int, Num] = {}

    # ---- one group of statements -------------------------------------------------------------

    def walk(self, group: Sequence[Any]) -> None:
        dims = domain_of(list(group))
        if dims is None:
            self._alone(group[0].expr)
        elif not dims:
            for s in group:
                self._single(s)
        else:
            self._prepare([e for s in group for e in reads(s)], len(dims))
            if len(dims) == 1:
                self._row(group, dims[0], None)
            else:
                with self.f.loop(0, self.w.extent(dims[0])) as loop:
                    self.rows_done = {}
                    self._row_values(group, dims, loop.index)
                    self._row(group, dims[1], loop.index)

    def _single(self, s: Any) -> None:
        """A statement about one number."""
        value = self.w.scalar(s.expr)
        if isinstance(s, Set):
            self.w.one.store(value, s.variable.dtype, self.w.variable_place(s.variable))
            return
        assert isinstance(s, Store)
        dtype = self.w.program.tensors[s.view.tensor].dtype
        self.w.one.store(value, dtype, self.w.view_start(s.view, s.dynamic, s.place))

    def _alone(self, e: TileExpr) -> None:
        if e.kind == "scan":
            self._scan(e)
        elif e.kind == "dot":
            self._dot(e)
        else:
            assert e.kind == "fold", e.text()
            (self._fold_rows if e.data[1] == 0 else self._fold_columns)(e)

    # ---- before the loops --------------------------------------------------------------------

    def _prepare(self, roots: Sequence[TileExpr], rank: int) -> None:
        """Compute what is the same for all elements, and find all memory: outside of the loops."""
        self.lanes = VECTOR_BYTES // (8 if _has_doubles(roots) else 4)
        seen: set[int] = set()
        for root in roots:
            for e in ir.operands(root, seen):
                if not e.dims:
                    if e.kind != "load" or not e.dims:
                        self.w.scalar(e)
                elif e.kind == "load" or ir.is_made(e):
                    self.memory(e)

    def memory(self, e: TileExpr) -> TileMemory:
        """Where a block lies."""
        if e.number not in self.memories:
            self.memories[e.number] = self._memory(e)
        return self.memories[e.number]

    def _memory(self, e: TileExpr) -> TileMemory:
        w = self.w
        if e.kind == "swap":
            of = self.memory(e.args[0])
            return TileMemory(of.start, of.dtype, of.column_bytes, of.row_bytes)
        if e.kind == "load":
            return self._view(e.data, e.args, e.place)
        key = e.data[0] if e.kind == "read" else e.number
        offset, row = w.scratch_map.at[key]
        start = self.f.at(w.scratch, offset)
        return TileMemory(start, e.dtype, row, e.dtype.itemsize)

    def _view(self, view: ir.View, dynamic: Sequence[TileExpr], place: str) -> TileMemory:
        meta = self.w.program.tensors[view.tensor]
        strides: list[Any] = []
        axis = 0
        for p in view.parts:
            if isinstance(p, ir.New):
                strides.append(0)
                continue
            if isinstance(p, ir.Span):
                strides.append(self.w.stride(view.tensor, axis))
            axis += 1
        start = self.w.view_start(view, dynamic, place)
        row, column = (0, *strides) if len(strides) == 1 else (strides or [0, 0])
        return TileMemory(start, meta.dtype, row, column)

    # ---- elements ----------------------------------------------------------------------------

    def element(self, e: TileExpr, at: TilePosition) -> Num:
        """An expression at a position of the walk, in all lanes."""
        found = at.values.get(e.number)
        if found is None:
            found = at.values[e.number] = self._element(e, at)
        return found

    def _element(self, e: TileExpr, at: TilePosition) -> Num:
        m = at.machine
        if not e.dims:
            one = self.w.scalar(e)
            return one if m.lanes == 1 else m.splat(one)
        if e.number in self.rows_done:
            one = self.rows_done[e.number]
            return one if m.lanes == 1 else m.splat(one)
        if e.kind == "point":
            made: Num = getattr(m, e.data)(*[self.element(a, at) for a in e.args])
            return m.to(made, e.dtype)
        if e.kind == "cast":
            return m.to(self.element(e.args[0], at), e.dtype)
        if e.kind == "iota":
            return self._iota(m, at)
        return self._load(e, at)

    def _iota(self, m: LlvmScalar, at: TilePosition) -> Num:
        f = self.f
        if m.lanes == 1:
            return Num(dt.int64, at.column)
        first = f.splat(at.column, m.lanes)
        return Num(dt.int64, first + f.lanes(first.type))

    def _load(self, e: TileExpr, at: TilePosition) -> Num:
        """Elements of a block in memory; a dim of length 1 is the same everywhere."""
        memory, m = self.memory(e), at.machine
        start = memory.start
        if len(e.dims) == 2 and e.dims[0].length > 1 and at.row is not None:
            start = self.f.at(start, at.row * memory.row_bytes)
        still = e.dims[-1].length == 1 or memory.column_bytes == 0
        if not still:
            start = self.f.at(start, at.column * memory.column_bytes)
        if still and m.lanes > 1:
            return m.load_splat(memory.dtype, start)
        if m.lanes == 1 or memory.column_bytes == memory.dtype.itemsize:
            own = e.kind not in ("load", "swap")
            return m.load(memory.dtype, start, None if own or m.lanes == 1 else at.mask)
        return m.load_strided(memory.dtype, start, memory.column_bytes, at.mask)

    def _write(self, memory: TileMemory, value: Num, at: TilePosition, whole: bool) -> None:
        """`whole`: the memory is our own, and has room for a vector behind its end."""
        m = at.machine
        start = memory.start
        if at.row is not None:
            start = self.f.at(start, at.row * memory.row_bytes)
        start = self.f.at(start, at.column * memory.column_bytes)
        if m.lanes == 1:
            m.store(value, memory.dtype, start)
        elif memory.column_bytes == memory.dtype.itemsize:
            m.store(value, memory.dtype, start, None if whole else at.mask)
        else:
            m.store_strided(value, memory.dtype, start, memory.column_bytes, at.mask)

    def _row_values(self, group: Sequence[Any], dims: tuple[TileDim, ...], row: LLVMValue) -> None:
        """In a matrix: what is the same in all columns is computed once for each row."""
        at = TilePosition(self.w.one, row, self.f.constant(0), None)
        if dims[1].length == 1:
            return
        seen: set[int] = set()
        for s in group:
            for root in reads(s):
                for e in ir.operands(root, seen):
                    if len(e.dims) == 2 and e.dims[1].length == 1:
                        self.rows_done[e.number] = self.element(e, at)

    # ---- a row -------------------------------------------------------------------------------

    def _row(self, group: Sequence[Any], dim: TileDim, row: LLVMValue | None) -> None:
        """All statements of a group at the elements of one row."""
        f, w = self.f, self.w
        folds = [s.expr for s in group if isinstance(s, Let) and s.expr.kind == "fold"]
        count = w.extent(dim)
        targets = self._targets(group)
        if dim.length == 1 and not folds:
            self._visit(group, targets, TilePosition(w.one, row, f.constant(0), None), [], [])
            return
        monoids = [monoid(e.data[0], e.dtype, dim.length) for e in folds]
        unroll = _UNROLL if folds else _STORE_UNROLL
        wide = LlvmScalar(f, self.lanes)
        step = self.lanes * unroll
        whole = count & -step
        first = [v for _ in range(unroll) for m in monoids for v in m.start(f, self.lanes)]
        states = first
        if dim.length >= step:
            with f.loop(0, whole, step, first) as loop:
                left = list(loop.carried)
                found: list[LLVMValue] = []
                for u in range(unroll):
                    at = TilePosition(wide, row, loop.index + u * self.lanes, None)
                    found += self._visit(group, targets, at, monoids, left)
                loop.next(*found)
            states = loop.results
        else:
            whole = f.constant(0)
        per = sum(len(m.types) for m in monoids)
        with f.loop(whole, count, self.lanes, states[:per]) as tail:
            mask = f.low_mask(count - tail.index, self.lanes)
            at = TilePosition(wide, row, tail.index, mask)
            tail.next(*self._visit(group, targets, at, monoids, list(tail.carried)))
        self._finish(folds, monoids, [*tail.results, *states[per:]], per)

    def _finish(
        self, folds: list[TileExpr], monoids: list[Monoid], states: list[LLVMValue], per: int
    ) -> None:
        """The parts of each fold put together, in a fixed order."""
        f, at = self.f, 0
        for e, m in zip(folds, monoids, strict=True):
            n = len(m.types)
            total = states[at : at + n]
            for u in range(1, len(states) // per):
                total = m.merge(f, total, states[u * per + at : u * per + at + n])
            at += n
            found = m.value(f, m.across(f, total))
            found = self.w.one.to(found, e.dtype)
            if e.dims:
                self.w.one.store(found, e.dtype, self.memory(e).start)
            else:
                self.w.scalars[e.number] = found

    def _targets(self, group: Sequence[Any]) -> dict[int, TileMemory]:
        """Where each statement of a group writes, by its number."""
        found: dict[int, TileMemory] = {}
        for n, s in enumerate(group):
            if isinstance(s, Store):
                found[n] = self._view(s.view, s.dynamic, s.place)
            elif isinstance(s, Set):
                offset, row = self.w.scratch_map.at[s.variable]
                size = s.variable.dtype.itemsize
                found[n] = TileMemory(
                    self.f.at(self.w.scratch, offset), s.variable.dtype, row, size
                )
            elif s.expr.kind == "keep":
                found[n] = self.memory(s.expr)
        return found

    def _visit(
        self, group: Sequence[Any], targets: dict[int, TileMemory], at: TilePosition,
        monoids: list[Monoid], left: list[LLVMValue],
    ) -> list[LLVMValue]:  # fmt: skip
        """One vector: folds go on, results are written. `left`: states of folds, taken in order."""
        f = self.f
        next_states: list[LLVMValue] = []
        kinds = iter(monoids)
        for n, s in enumerate(group):
            if isinstance(s, Let) and s.expr.kind == "fold":
                m = next(kinds)
                state = [left.pop(0) for _ in m.types]
                new = m.merge(f, state, m.lift(f, self.element(s.expr.args[0], at), None))
                if at.mask is not None:
                    new = [f.select(at.mask, x, y) for x, y in zip(new, state, strict=True)]
                next_states += new
            elif isinstance(s, Store):
                self._write(targets[n], self.element(s.expr, at), at, whole=False)
            else:
                root = s.expr.args[0] if isinstance(s, Let) else s.expr
                value = at.machine.to(self.element(root, at), targets[n].dtype)
                # A vector that ends behind the elements of a variable would write over others.
                self._write(targets[n], value, at, whole=isinstance(s, Let))
                if isinstance(s, Let):
                    at.values[s.expr.number] = value
        return next_states

    # ---- matrices and scans ------------------------------------------------------------------

    def _fold_columns(self, e: TileExpr) -> None:
        """A matrix folded along its rows' elements: one number for each row."""
        (x,) = e.args
        self._prepare([x], 2)
        target = self.memory(e)
        inner = TileExpr("fold", e.dtype, (), (x,), (e.data[0], 0, False), -1, e.place)
        with self.f.loop(0, self.w.extent(x.dims[0])) as loop:
            self.rows_done = {}
            self._row_values([Let(inner)], x.dims, loop.index)
            self._row([Let(inner)], x.dims[1], loop.index)
            step = target.row_bytes if e.data[2] else target.column_bytes
            place = self.f.at(target.start, loop.index * step)
            self.w.one.store(self.w.scalars.pop(-1), e.dtype, place)

    def _fold_rows(self, e: TileExpr) -> None:
        """A matrix folded over its rows: a row of numbers, a vector of columns at a time."""
        f, (x,) = self.f, e.args
        self._prepare([x], 2)
        target, m = self.memory(e), monoid(e.data[0], e.dtype, x.dims[0].length)
        wide = LlvmScalar(f, self.lanes)
        count = self.w.extent(x.dims[1])
        with f.loop(0, count, self.lanes) as columns:
            mask = f.low_mask(count - columns.index, self.lanes)
            start = m.start(f, self.lanes)
            with f.loop(0, self.w.extent(x.dims[0]), 1, start) as rows:
                at = TilePosition(wide, rows.index, columns.index, mask)
                rows.next(*m.merge(f, list(rows.carried), m.lift(f, self.element(x, at), None)))
            place = f.at(target.start, columns.index * e.dtype.itemsize)
            wide.store(wide.to(m.value(f, rows.results), e.dtype), e.dtype, place)

    def _scan(self, e: TileExpr) -> None:
        """A running fold, one element after the other."""
        f, (x,) = self.f, e.args
        self._prepare([x], len(x.dims))
        target, m = self.memory(e), monoid(e.data[0], e.dtype, x.dims[-1].length)

        def along(row: LLVMValue | None) -> None:
            with f.loop(0, self.w.extent(x.dims[-1]), 1, m.start(f, 1)) as loop:
                at = TilePosition(self.w.one, row, loop.index, None)
                state = m.merge(f, list(loop.carried), m.lift(f, self.element(x, at), None))
                self._write(target, self.w.one.to(m.value(f, state), e.dtype), at, whole=True)
                loop.next(*state)

        if len(x.dims) == 1:
            along(None)
            return
        with f.loop(0, self.w.extent(x.dims[0])) as rows:
            self.rows_done = {}
            along(rows.index)

    def _dot(self, e: TileExpr) -> None:
        """A product of matrices in memory: a few rows times a few vectors of columns at a time."""
        f, (a, b) = self.f, e.args
        self._prepare([a, b], 2)
        if e.dtype.itemsize == 8:
            self.lanes = VECTOR_BYTES // 8
        left, right, target = self.memory(a), self.memory(b), self.memory(e)
        rows = self.w.extent(a.dims[0]) if len(a.dims) == 2 else f.constant(1)
        inner = self.w.extent(a.dims[-1].meet(b.dims[0]))
        columns = self.w.extent(b.dims[1])
        wide = LlvmScalar(f, self.lanes)
        step = self.lanes * _DOT_VECTORS
        whole = columns & -step

        def piece(
            row: LLVMValue, height: int, column: LLVMValue, width: int, mask: LLVMValue | None
        ) -> None:
            zero = f.constant(0, wide.to(0, e.dtype).re.type)
            with f.loop(0, inner, 1, [zero] * (height * width)) as loop:
                right_row = f.at(right.start, loop.index * right.row_bytes)
                vectors = [
                    self._columns(wide, right, right_row, column + k * self.lanes, mask, e.dtype)
                    for k in range(width)
                ]
                sums = list(loop.carried)
                for i in range(height):
                    place = f.at(left.start, (row + i) * left.row_bytes)
                    place = f.at(place, loop.index * left.column_bytes)
                    one = wide.to(wide.load_splat(left.dtype, place), e.dtype).re
                    for k in range(width):
                        n = i * width + k
                        sums[n] = _multiply_add(f, e.dtype, one, vectors[k], sums[n])
                loop.next(*sums)
            for i in range(height):
                for k in range(width):
                    place = f.at(target.start, (row + i) * target.row_bytes)
                    place = f.at(place, (column + k * self.lanes) * e.dtype.itemsize)
                    wide.store(Num(e.dtype, loop.results[i * width + k]), e.dtype, place)

        def band(row: LLVMValue, height: int) -> None:
            with f.loop(0, whole, step) as loop:
                piece(row, height, loop.index, _DOT_VECTORS, None)
            with f.loop(whole, columns, self.lanes) as loop:
                mask = f.low_mask(columns - loop.index, self.lanes)
                piece(row, height, loop.index, 1, mask)

        high = rows & -_DOT_ROWS
        with f.loop(0, high, _DOT_ROWS) as loop:
            band(loop.index, _DOT_ROWS)
        with f.loop(high, rows) as loop:
            band(loop.index, 1)

    def _columns(
        self,
        wide: LlvmScalar,
        right: TileMemory,
        row: LLVMValue,
        column: LLVMValue,
        mask: LLVMValue | None,
        dtype: dt.dtype,
    ) -> LLVMValue:
        place = self.f.at(row, column * right.column_bytes)
        return wide.to(wide.load(right.dtype, place, mask), dtype).re


def _multiply_add(f: Any, dtype: dt.dtype, a: LLVMValue, b: LLVMValue, c: LLVMValue) -> LLVMValue:
    return f.mul_add(a, b, c) if dtype.category == dt.FLOAT else a * b + c


def _has_doubles(roots: Sequence[TileExpr]) -> bool:
    seen: set[int] = set()
    return any(e.dtype is dt.float64 and e.dims for root in roots for e in ir.operands(root, seen))
