"""Factorisations and triangular systems of one matrix stored by columns, for small sizes.

Each is an internal function of the module, written when it is first asked for. They work in place,
column by column; the inner loops go down a column by vectors. Sizes are arguments, so the code fits
all sizes; `rules/linalg.py` says up to which size it is faster than LAPACK.
"""

from __future__ import annotations

from lucerne._src.backends.cpu.emit.builder import I32, I64, PTR, LLVMFunction, LLVMValue, Module
from lucerne._src.backends.cpu.linalg.element import MatrixElement, Parts

_MATRIX = [("a", PTR), ("ld", I64)]


class Small:
    """Writes functions on matrices of one element type into a module."""

    def __init__(self, m: Module, element: MatrixElement) -> None:
        self.m, self.e = m, element

    def _cell(
        self, f: LLVMFunction, a: LLVMValue, ld: LLVMValue, i: LLVMValue, j: LLVMValue
    ) -> LLVMValue:
        return self.e.at(f, a, i + j * ld)

    def _minus(
        self, f: LLVMFunction, target: LLVMValue, source: LLVMValue, count: LLVMValue, factor: Parts
    ) -> None:
        """`target -= factor * source` for a stretch of `count` elements."""
        e = self.e
        spread = e.spread(f, factor)
        with f.loop(0, count, e.lanes) as loop:
            mask = e.mask(f, count - loop.index)
            to, at = e.at(f, target, loop.index), e.at(f, source, loop.index)
            left, right = e.load_part(f, to, mask), e.load_part(f, at, mask)
            e.store_part(f, e.minus_product(f, left, right, spread), to, mask)

    def _divide(self, f: LLVMFunction, target: LLVMValue, count: LLVMValue, by: Parts) -> None:
        """`target /= by` for a stretch of `count` elements."""
        e = self.e
        spread = e.spread(f, by)
        with f.loop(0, count, e.lanes) as loop:
            mask = e.mask(f, count - loop.index)
            place = e.at(f, target, loop.index)
            e.store_part(f, e.div(f, e.load_part(f, place, mask), spread), place, mask)

    def _exchange(self, f: LLVMFunction, one: LLVMValue, other: LLVMValue) -> None:
        e = self.e
        a, b = e.load(f, one), e.load(f, other)
        e.store(f, b, one)
        e.store(f, a, other)

    # ---- LU ----------------------------------------------------------------------------------

    def lu(self) -> str:
        """`i64 lu(a, ld, m, n, ptr pivots)`: pivots are i32 from 1; gives the info number."""
        name = "lu"
        if not self.m.has(name):
            params = [*_MATRIX, ("m", I64), ("n", I64), ("pivots", PTR)]
            with self.m.function(name, params, I64, internal=True) as f:
                a, ld, m, n, pivots = f.args
                with f.loop(0, f.minimum(m, n), 1, [f.constant(0)]) as steps:
                    j = steps.index
                    column = self.e.at(f, a, j * ld)
                    row = self._largest(f, column, j, m)
                    f.store(f.convert("trunc", row + 1, I32), f.at(pivots, j, I32))
                    with f.if_(f.compare("ne", row, j)), f.loop(0, n) as c:
                        here = self._cell(f, a, ld, j, c.index)
                        self._exchange(f, here, self._cell(f, a, ld, row, c.index))
                    steps.next(self._eliminate(f, j, steps.carried[0]))
                f.ret(steps.results[0])
        return name

    def _largest(
        self, f: LLVMFunction, column: LLVMValue, first: LLVMValue, stop: LLVMValue
    ) -> LLVMValue:
        """The row of the largest element of a column from `first` on."""
        e = self.e
        start = e.size_of(f, e.load(f, e.at(f, column, first)))
        with f.loop(first + 1, stop, 1, [start, first]) as rows:
            best, row = rows.carried
            size = e.size_of(f, e.load(f, e.at(f, column, rows.index)))
            better = f.compare("gt", size, best)
            rows.next(f.select(better, size, best), f.select(better, rows.index, row))
        return rows.results[1]

    def _eliminate(self, f: LLVMFunction, j: LLVMValue, info: LLVMValue) -> LLVMValue:
        """Column j below the pivot, and the columns to the right of it; the new info number."""
        a, ld, m, n, _ = f.args
        e = self.e
        column = e.at(f, a, j * ld)
        pivot = e.load(f, e.at(f, column, j))
        below = e.at(f, column, j + 1)
        count = m - j - 1
        zero = e.is_zero(f, pivot)
        with f.if_(zero) as singular:
            none = f.compare("eq", info, 0)
            singular.give(f.select(none, j + 1, info))
        with singular.else_():
            self._divide(f, below, count, pivot)
            singular.give(info)
        after = singular.results[0]
        with f.loop(j + 1, n) as c:
            factor = e.load(f, self._cell(f, a, ld, j, c.index))
            self._minus(f, self._cell(f, a, ld, j + 1, c.index), below, count, factor)
        return after

    # ---- Cholesky ----------------------------------------------------------------------------

    def cholesky(self) -> str:
        """`i64 cholesky(a, ld, n)`: the lower factor; the order of the first minor that is not
        positive, or 0. Columns from there on are left as they were."""
        name = "cholesky"
        if not self.m.has(name):
            with self.m.function(name, [*_MATRIX, ("n", I64)], I64, internal=True) as f:
                a, ld, n = f.args
                e = self.e
                with f.loop(0, n, 1, [f.constant(0)]) as steps:
                    j = steps.index
                    pivot = self._pivot(f, a, ld, j)
                    good = f.compare("gt", pivot, 0.0)
                    going = f.compare("eq", steps.carried[0], 0)
                    with f.if_(good & going) as found:
                        corner = self._cell(f, a, ld, j, j)
                        root = (f.intrinsic("llvm.sqrt", e.type, [pivot]), *(
                            f.constant(0.0, e.type) for _ in range(e.parts - 1)))  # fmt: skip
                        below, count = self._cell(f, a, ld, j + 1, j), n - j - 1
                        with f.loop(0, j) as k:
                            factor = e.conj(f, e.load(f, self._cell(f, a, ld, j, k.index)))
                            known = self._cell(f, a, ld, j + 1, k.index)
                            self._minus(f, below, known, count, factor)
                        e.store(f, root, corner)
                        self._divide(f, below, count, root)
                        found.give(f.constant(0))
                    with found.else_():
                        found.give(f.select(going, j + 1, steps.carried[0]))
                    steps.next(found.results[0])
                f.ret(steps.results[0])
        return name

    def _pivot(self, f: LLVMFunction, a: LLVMValue, ld: LLVMValue, j: LLVMValue) -> LLVMValue:
        """The diagonal element less the squares to its left."""
        e = self.e
        start = e.load(f, self._cell(f, a, ld, j, j))[0]
        with f.loop(0, j, 1, [start]) as k:
            total = k.carried[0]
            for v in e.load(f, self._cell(f, a, ld, j, k.index)):
                total = f.mul_add(f.neg(v), v, total)
            k.next(total)
        return k.results[0]

    # ---- triangular systems ------------------------------------------------------------------

    def solve(self, *, upper: bool, left: bool, unit: bool) -> str:
        """`void solve(a, ld, n, x, ldx, count)`: x (its columns: n by count, or count by n when
        A stands on the right) becomes the solution."""
        name = f"solve_{'u' if upper else 'l'}{'l' if left else 'r'}{'1' if unit else ''}"
        if not self.m.has(name):
            params = [*_MATRIX, ("n", I64), ("x", PTR), ("ldx", I64), ("count", I64)]
            with self.m.function(name, params, internal=True) as f:
                if left:
                    self._solve_left(f, upper, unit)
                else:
                    self._solve_right(f, upper, unit)
        return name

    def _solve_left(self, f: LLVMFunction, upper: bool, unit: bool) -> None:
        a, ld, n, x, ldx, count = f.args
        e = self.e
        with f.loop(0, count) as c:
            column = e.at(f, x, c.index * ldx)
            with f.loop(0, n) as step:
                j = n - 1 - step.index if upper else step.index
                place = e.at(f, column, j)
                value = e.load(f, place)
                if not unit:
                    value = e.div(f, value, e.load(f, self._cell(f, a, ld, j, j)))
                    e.store(f, value, place)
                if upper:
                    self._minus(f, column, e.at(f, a, j * ld), j, value)
                else:
                    rest = e.at(f, column, j + 1)
                    self._minus(f, rest, self._cell(f, a, ld, j + 1, j), n - j - 1, value)

    def _solve_right(self, f: LLVMFunction, upper: bool, unit: bool) -> None:
        a, ld, n, x, ldx, count = f.args
        e = self.e
        with f.loop(0, n) as step:
            j = step.index if upper else n - 1 - step.index
            column = e.at(f, x, j * ldx)
            start, stop = (f.constant(0), j) if upper else (j + 1, n)
            with f.loop(start, stop) as k:
                factor = e.load(f, self._cell(f, a, ld, k.index, j))
                self._minus(f, column, e.at(f, x, k.index * ldx), count, factor)
            if not unit:
                self._divide(f, column, count, e.load(f, self._cell(f, a, ld, j, j)))

    # ---- all elements ------------------------------------------------------------------------

    def conjugate(self) -> str:
        """`void conjugate(a, count)`: of elements that lie one after the other."""
        if not self.m.has("conjugate"):
            with self.m.function("conjugate", [("a", PTR), ("count", I64)], internal=True) as f:
                a, count = f.args
                with f.loop(0, count if self.e.parts == 2 else 0) as k:
                    place = self.e.at(f, a, k.index)
                    self.e.store(f, self.e.conj(f, self.e.load(f, place)), place)
        return "conjugate"

    # ---- pivots ------------------------------------------------------------------------------

    def swap_rows(self) -> str:
        """`void swap_rows(x, ld, columns, pivots, count)`: row exchanges, one after the other."""
        name = "swap_rows"
        if not self.m.has(name):
            params = [("x", PTR), ("ld", I64), ("columns", I64), ("pivots", PTR), ("count", I64)]
            with self.m.function(name, params, internal=True) as f:
                x, ld, columns, pivots, count = f.args
                with f.loop(0, count) as k:
                    row = f.convert("sext", f.load(I32, f.at(pivots, k.index, I32)), I64) - 1
                    with f.if_(f.compare("ne", row, k.index)), f.loop(0, columns) as c:
                        one = self._cell(f, x, ld, k.index, c.index)
                        self._exchange(f, one, self._cell(f, x, ld, row, c.index))
        return name

    def swap_columns_back(self) -> str:
        """`void swap_columns_back(x, ld, rows, pivots, count)`: the exchanges of `swap_rows`, of
        columns, in the opposite order."""
        name = "swap_columns_back"
        if not self.m.has(name):
            params = [("x", PTR), ("ld", I64), ("rows", I64), ("pivots", PTR), ("count", I64)]
            with self.m.function(name, params, internal=True) as f:
                x, ld, rows, pivots, count = f.args
                with f.loop(0, count) as step:
                    k = count - 1 - step.index
                    column = f.convert("sext", f.load(I32, f.at(pivots, k, I32)), I64) - 1
                    with f.if_(f.compare("ne", column, k)), f.loop(0, rows) as r:
                        one = self._cell(f, x, ld, r.index, k)
                        self._exchange(f, one, self._cell(f, x, ld, r.index, column))
        return name
