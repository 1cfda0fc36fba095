"""A row vector times a matrix that lies by rows: sums of scaled rows.

Memory is all that counts here. Eight rows of the matrix are read side by side in long runs and
added to a piece of the result that stays in the first cache; the next eight follow.
"""

from __future__ import annotations

from lucerne._src.backends.cpu.emit.builder import LLVMFunction, LLVMValue
from lucerne._src.backends.cpu.gemm.kinds import GemmKind, masked, store_masked
from lucerne._src.backends.cpu.gemm.small import Range, TaskWords, write_small
from lucerne._src.backends.cpu.runtime.code import Code, compiled

_ROWS = 8
PIECE = 128
"""Columns of a panel, the unit of tasks."""


def vector_matrix(kind: GemmKind) -> Code:
    """Entries for products with one row whose sums can be kept in the result."""
    assert not kind.narrows, kind
    return compiled(("gemm.vector", *kind.key), lambda m: write_small(m, kind, _matrix))


def _matrix(f: LLVMFunction, kind: GemmKind, pair: TaskWords, rows: Range, columns: Range) -> None:
    plan, args = pair.plan, pair.own
    size = kind.source.size
    k, a_step, b_step = plan.K, plan.A_K * size, plan.B_K * size
    start = columns[0] * PIECE
    stop = f.minimum(columns[1] * PIECE, plan.N)
    writer = _Rows(f, kind, args.B, b_step, args.C, start, stop)
    whole = k & -_ROWS
    with f.loop(0, whole, _ROWS, [args.A]) as loop:
        x = loop.carried[0]
        factors = [kind.broadcast(f, f.at(x, a_step * i)) for i in range(_ROWS)]
        writer.add(loop.index, factors)
        loop.next(f.at(x, a_step * _ROWS))
    with f.loop(whole, k) as rest:
        x = f.at(args.A, rest.index * a_step)
        writer.add(rest.index, [kind.broadcast(f, x)])


class _Rows:
    """Adds scaled rows to the columns `start` to `stop` of the result."""

    def __init__(
        self,
        f: LLVMFunction,
        kind: GemmKind,
        b: LLVMValue,
        step: LLVMValue,
        c: LLVMValue,
        start: LLVMValue,
        stop: LLVMValue,
    ) -> None:
        self.f, self.kind, self.b, self.step, self.c = f, kind, b, step, c
        self.start, self.stop = start, stop

    def add(self, k: LLVMValue, factors: list[LLVMValue]) -> None:
        f, lanes = self.f, self.kind.lanes
        first = f.compare("eq", k, 0)
        rows = [f.at(self.b, (k + i) * self.step) for i in range(len(factors))]
        whole = self.start + ((self.stop - self.start) & -lanes)
        with f.loop(self.start, whole, lanes) as loop:
            self._vector(loop.index, first, rows, factors, None)
        with f.if_(f.compare("lt", whole, self.stop)):
            mask = f.low_mask(self.stop - whole, lanes)
            self._vector(whole, first, rows, factors, mask)

    def _vector(
        self,
        j: LLVMValue,
        first: LLVMValue,
        rows: list[LLVMValue],
        factors: list[LLVMValue],
        mask: LLVMValue | None,
    ) -> None:
        f, kind = self.f, self.kind
        place = f.at(self.c, j * kind.result.size)
        before = masked(f, kind.vector, place, mask)
        total = f.select(first, f.zero(kind.vector), before)
        for row, factor in zip(rows, factors, strict=True):
            v = kind.load(f, f.at(row, j * kind.source.size), mask)
            total = kind.multiply_add(f, factor, v, total)
        store_masked(f, total, place, mask)
