"""Tail: the element-wise graph after a product, computed on sums before they are stored.

The values are those of the product's kernel followed by the kernels of each op: sums are rounded to
the product's dtype, every result of an op to its own. Operands are read, and results written, where
the tile lies; expressions that are the same for all rows are computed once for a tile.

Words of the tail, after those of A, B, C and E (driver.FUSED): sizes of the batch; for each result
and operand its place among the call's tensors, the byte offset of its first element, its step from
row to row and one step for each dimension of the batch; then the numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lucerne._src.backends.cpu.elementwise.apply import apply_point, rounded_to
from lucerne._src.backends.cpu.emit.builder import LLVMFunction, LLVMValue
from lucerne._src.backends.cpu.emit.types import F64, I64, PTR
from lucerne._src.backends.cpu.fused.layout import is_heavy
from lucerne._src.backends.cpu.fused.passes import describe
from lucerne._src.backends.cpu.fused.program import (
    Convert,
    FusedExpr,
    FusedNumber,
    FusedOp,
    FusedProgram,
    Load,
)
from lucerne._src.backends.cpu.gemm.epilogue import Ahead, Epilogue, Tile
from lucerne._src.backends.cpu.gemm.kinds import GemmKind
from lucerne._src.backends.cpu.machine import LlvmScalar
from lucerne._src.backends.cpu.math.number import NotTaken, Num
from lucerne._src.backends.cpu.math.storage import STORED
from lucerne._src.backends.cpu.runtime.kernel import number_word
from lucerne._src.base import dtype as dt

STILL, UNIT = "0", "1"
_SHORT = 4
"""Ops and results of a tail that is written out where it is used."""


@dataclass(frozen=True)
class TailOperand:
    """How a tensor lies over the result: byte steps, and whether it moves along a row."""

    dtype: dt.dtype
    slot: int
    offset: int
    row: int
    batch: tuple[int, ...]
    along: str

    @property
    def down(self) -> bool:
        """Whether rows differ."""
        return bool(self.row or any(self.batch))

    def words(self) -> list[int]:
        return [self.slot, self.offset, self.row, *self.batch]

    @property
    def key(self) -> tuple[Any, ...]:
        return (self.dtype.name, self.along, self.row != 0, any(self.batch), self.offset != 0)


class Tail(Epilogue):
    """All that follows a product in a graph. `first` is the product's own epilogue (a bias)."""

    stores = True

    def __init__(
        self,
        program: FusedProgram,
        first: Epilogue,
        dtype: dt.dtype,
        results: Sequence[TailOperand],
        loads: dict[FusedExpr, TailOperand | None],
        batch_sizes: Sequence[int],
        main: int,
    ) -> None:
        """`loads`: the operand of each load, None where it is the product itself. `main`: the
        result that the product's kernel takes for its own.
        """
        self.program, self.first, self.dtype = program, first, dtype
        self.results, self.loads, self.main = results, loads, main
        self.dims = len(batch_sizes)
        self.numbers = [e for e in program.exprs if isinstance(e, FusedNumber) and not e.baked]
        self.operands = [*results, *(x for x in loads.values() if x is not None)]
        places = tuple(x.key for x in self.operands)
        own = tuple(x is None for x in loads.values())
        self.key = ("tail", first.key, dtype.name, self.dims, describe(program), places, own, main)
        points = [e for e in program.exprs if isinstance(e, FusedOp)]
        heavy = sum(map(is_heavy, points))
        self.inline = len(points) + len(results) <= _SHORT and heavy <= 1
        self.words = [*batch_sizes, *(w for x in self.operands for w in x.words())]
        self.words += [number_word(e.value) for e in self.numbers]

    # ---- code ----------------------------------------------------------------------------------

    def ahead(self, tile: Tile) -> list[Ahead]:
        places = _Places(self, tile)
        return [
            Ahead(tile.f.at(pointer, tile.row * step), step, x.dtype.itemsize)
            for k, (x, pointer, step) in enumerate(
                zip(self.operands, places.pointers, places.rows, strict=True)
            )
            if x.row and x.along == UNIT and k != self.main
        ]

    def prepare(self, tile: Tile) -> _Ready:
        return _Ready(self, tile)

    def apply(self, tile: Tile, ready: _Ready, v: LLVMValue, row: LLVMValue, j: int) -> LLVMValue:
        return self.apply_all(tile, ready, [(v, row, j)])[0]

    def apply_all(
        self, tile: Tile, ready: _Ready, vectors: Sequence[tuple[LLVMValue, LLVMValue, int]]
    ) -> list[LLVMValue]:
        """Op after op, each for all vectors: their long chains then run beside each other."""
        sums = [self.first.apply(tile, ready.first, v, row, j) for v, row, j in vectors]
        spots = [
            _Spot(ready, tile, row, j, self._product(tile.kind, tile.f, v))
            for v, (_, row, j) in zip(sums, vectors, strict=True)
        ]
        for e in self.program.exprs:
            for spot in spots:
                spot.value(e)
        for spot, v in zip(spots, sums, strict=True):
            self._store(tile, ready, spot, v)
        return sums

    def _store(self, tile: Tile, ready: _Ready, spot: _Spot, v: LLVMValue) -> None:
        j = spot.j
        for operand, pointer, result in zip(
            self.results, ready.pointers, self.program.results, strict=False
        ):
            place = spot.place(operand, pointer)
            if self.loads.get(result.expr, operand) is None:
                tile.kind.store(tile.f, v, place, tile.masks[j])
            else:
                ready.machine.store(spot.raw(result.expr), operand.dtype, place, tile.masks[j])

    def _product(self, kind: GemmKind, f: LLVMFunction, v: LLVMValue) -> Num:
        """Sums as the product's kernel would have stored them."""
        if not kind.narrows:
            return Num(self.dtype, v)
        stored = f.bitcast(kind.narrow(f, v), STORED[self.dtype].vector(v.type.lanes))
        return LlvmScalar(f, v.type.lanes).from_storage(self.dtype, stored)

    def is_still(self, e: FusedExpr) -> bool:
        """Whether an expression is the same for all rows of a tile."""
        if isinstance(e, Load):
            operand = self.loads[e]
            return operand is not None and not operand.row
        return all(self.is_still(p) for p in e.parts())


class _Places:
    """Where a tail's tensors are: the columns of a tile, in row 0 of the matrix at hand."""

    def __init__(self, tail: Tail, tile: Tile) -> None:
        self.tail, self.f = tail, tile.f
        self._at = 0
        self._words = tile.args.TAIL
        block, batch = tile.args.BLOCK, self._batch_indices(tile)
        self.pointers: list[LLVMValue] = []
        self.rows: list[LLVMValue] = []
        for x in tail.operands:
            self._place(x, block, batch, tile.column)

    def _word(self, type: Any = I64) -> LLVMValue:
        found = self.f.word(self._words, self._at, type)
        self._at += 1
        return found

    def _batch_indices(self, tile: Tile) -> list[LLVMValue]:
        """The index along each dimension of the batch."""
        dims = self.tail.dims
        sizes = [self._word() for _ in range(dims)]
        if dims <= 1:
            return [tile.args.BATCH] * dims
        f, rest = self.f, tile.args.BATCH
        found: list[LLVMValue] = []
        for d in reversed(range(dims)):
            size = sizes[d]
            found.insert(0, f.unsigned("rem", rest, size))
            rest = f.unsigned("div", rest, size)
        return found

    def _place(
        self, x: TailOperand, block: LLVMValue, batch: list[LLVMValue], column: LLVMValue
    ) -> None:
        """Where an operand's first element of the tile's columns is, in row 0 of the matrix."""
        f = self.f
        pointer = f.word(f.at(block, self._word() * 8), 0, PTR)
        offset, row = self._word(), self._word()
        if x.offset:
            pointer = f.at(pointer, offset)
        for index in batch:
            step = self._word()
            if any(x.batch):
                pointer = f.at(pointer, index * step)
        if x.along == UNIT:
            pointer = f.at(pointer, column * x.dtype.itemsize)
        self.pointers.append(pointer)
        self.rows.append(row)


class _Ready(_Places):
    """What a tail needs for a tile: places, numbers, and values that all rows share."""

    def __init__(self, tail: Tail, tile: Tile) -> None:
        super().__init__(tail, tile)
        self.machine, self.one = LlvmScalar(tile.f, tile.lanes), LlvmScalar(tile.f, 1)
        self.first = tail.first.prepare(tile)
        self.place_of = {
            e: self.pointers[len(tail.results) + n]
            for n, e in enumerate(e for e, x in tail.loads.items() if x is not None)
        }
        self.row_of = {
            e: self.rows[len(tail.results) + n]
            for n, e in enumerate(e for e, x in tail.loads.items() if x is not None)
        }
        self.numbers = {e: self._number(e) for e in tail.numbers}
        self.still: list[dict[FusedExpr, Num]] = []
        for j in range(len(tile.masks)):
            self.still.append({})
            spot = _Spot(self, tile, None, j, None)
            for e in tail.program.exprs:
                if tail.is_still(e) and not isinstance(e, FusedNumber):
                    self.still[j][e] = spot.raw(e)

    def _number(self, e: FusedNumber) -> Num:
        is_float = isinstance(e.value, float)
        word = self._word(F64 if is_float else I64)
        kind = dt.float64 if is_float else dt.int64
        return self.machine.splat(self.one.to(Num(kind, word), e.dtype.compute))


class _Spot:
    """One vector of a row: values of expressions, each computed once."""

    def __init__(
        self, ready: _Ready, tile: Tile, row: LLVMValue | None, j: int, product: Num | None
    ) -> None:
        self.ready, self.tile, self.row, self.j, self.product = ready, tile, row, j, product
        self.known: dict[FusedExpr, Num] = {}

    def place(self, operand: TailOperand, pointer: LLVMValue) -> LLVMValue:
        """Where this vector of a result stands."""
        return self._moved(operand, pointer, self.ready.rows[self.ready.pointers.index(pointer)])

    def _moved(self, x: TailOperand, pointer: LLVMValue, step: LLVMValue) -> LLVMValue:
        f, tile = self.ready.f, self.tile
        if x.row and self.row is not None:
            pointer = f.at(pointer, self.row * step)
        if x.along == UNIT and self.j:
            pointer = f.at(pointer, self.j * tile.lanes * x.dtype.itemsize)
        return pointer

    def value(self, e: FusedExpr) -> Num:
        """As the dtype of the expression holds it."""
        return rounded_to(self.ready.machine, self.raw(e), e.dtype)

    def raw(self, e: FusedExpr) -> Num:
        found = self.known.get(e) or self.ready.still[self.j].get(e)
        if found is None:
            found = self.known[e] = self._computed(e)
        return found

    def _computed(self, e: FusedExpr) -> Num:
        ready, machine = self.ready, self.ready.machine
        if isinstance(e, Load):
            return self._loaded(e)
        if isinstance(e, FusedNumber):
            return machine.to(e.value, e.dtype.compute) if e.baked else ready.numbers[e]
        if isinstance(e, Convert):
            return machine.to(self.value(e.source), e.dtype.compute)
        assert isinstance(e, FusedOp), e
        found = apply_point(e, machine, self.value)
        if machine.failed is not None:
            raise NotTaken("an op that may fail")
        return found

    def _loaded(self, e: Load) -> Num:
        ready = self.ready
        x = ready.tail.loads[e]
        if x is None:
            assert self.product is not None
            return self.product
        place = self._moved(x, ready.place_of[e], ready.row_of[e])
        if x.along == STILL:
            return ready.machine.load_splat(x.dtype, place)
        return ready.machine.load(x.dtype, place, self.tile.masks[self.j])
