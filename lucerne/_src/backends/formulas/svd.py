"""Singular values by rotations of columns until all are orthogonal (Hestenes, Jacobi)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lucerne._src.backends.formulas.frame import FormulaTensor, FormulaVariable, Frame
from lucerne._src.backends.formulas.table import formula
from lucerne._src.base import dtype as dt
from lucerne._src.ir.scalar.protocol import ScalarValue, s

SWEEPS = 40
"""More than any matrix has been seen to need (about ten)."""


class Matrix:
    """Part of a result as a matrix; `turned`: the conjugate of its transpose."""

    def __init__(self, t: FormulaTensor, at: Any, *, turned: bool) -> None:
        self.t, self.at, self.turned = t, tuple(at), turned

    def __call__(self, i: Any, j: Any) -> ScalarValue:
        found: ScalarValue = (
            s.conj(self.t(*self.at, j, i)) if self.turned else self.t(*self.at, i, j)
        )
        return found

    def put(self, i: Any, j: Any, value: Any) -> None:
        if self.turned:
            self.t.put((*self.at, j, i), s.conj(value))
        else:
            self.t.put((*self.at, i, j), value)


def square(x: ScalarValue) -> ScalarValue:
    re, im = s.real(x), s.imag(x)
    return re * re + im * im


def summed(
    f: Frame, count: int, dtype: dt.dtype, term: Callable[[ScalarValue], Any]
) -> ScalarValue:
    total = f.variable(0, dtype)
    with f.loop(count) as i:
        total.set(total.now + term(i))
    return total.now


@formula("svd_factors")
def svd_factors(f: Frame, input: FormulaTensor, full: bool, vectors: bool = True) -> None:
    """The longer side is rotated: for a wide matrix, that of the adjoint."""
    u, sizes, vh = f.outs
    *batch, m, n = input.shape
    tall, long, short = m >= n, max(m, n), min(m, n)
    if not vectors:
        u, vh = (f.scratch((*batch, m, n), input.dtype) for _ in range(2))
    with f.kernel(batch) as at:
        left, right = Matrix(u, at, turned=False), Matrix(vh, at, turned=True)
        if not tall:
            left, right = right, left
        source = Matrix(input, at, turned=not tall)
        with f.loops((long, short)) as (i, j):
            left.put(i, j, source(i, j))
        turned = [(left, long), (right, short)] if vectors else [(left, long)]
        if vectors:
            with f.loops((short, short)) as (i, j):
                right.put(i, j, f.value(s.where(i == j, 1, 0), input.dtype))
        orthogonalize(f, left, long, short, input.dtype, turned)
        _sort(f, sizes, at, turned, (long, short), input.dtype)
        if vectors:
            _normalize(f, left, sizes, at, (long, short, long if full else short), input.dtype)


def _normalize(
    f: Frame,
    left: Matrix,
    sizes: FormulaTensor,
    at: Any,
    shape: tuple[int, int, int],
    dtype: dt.dtype,
) -> None:
    """Columns of length 1; those of length 0, and those beyond, become orthogonal to the rest."""
    long, short, count = shape
    with f.loop(count) as j:
        known = f.variable(0, dtype.to_real())
        with f.when(j < f.size(short)):
            known.set(sizes(*at, j))
        with f.when(~(known.now == 0)), f.loop(long) as i:
            left.put(i, j, left(i, j) / known.now)
        with f.when(known.now == 0):
            complete(f, left, long, j, dtype)


def orthogonalize(
    f: Frame, w: Matrix, rows: int, columns: int, dtype: dt.dtype, turned: list[tuple[Matrix, int]]
) -> None:
    """Rotate pairs of columns of `w` (and of the matrices `turned`) until all are orthogonal."""
    real = dtype.to_real()
    small = float(np.finfo(real.storage).eps)
    goes_on = f.variable(True, dt.bool_)
    with f.loop(SWEEPS), f.when(goes_on.now):
        goes_on.set(False)
        with f.loops((columns, columns)) as (a, b), f.when(a < b):
            first = summed(f, rows, real, lambda i: square(w(i, a)))
            second = summed(f, rows, real, lambda i: square(w(i, b)))
            inner = summed(f, rows, dtype, lambda i: s.conj(w(i, a)) * w(i, b))
            size = f.variable(s.abs(inner), real)
            with f.when(s.sqrt(first) * s.sqrt(second) * small < size.now):
                goes_on.set(True)
                _rotate(f, (first, second, inner, size), (a, b), turned)


def _rotate(f: Frame, products: Any, pair: Any, turned: list[tuple[Matrix, int]]) -> None:
    """Column b is turned so that its product with a is real; a rotation then makes it 0."""
    first, second, inner, size = products
    zeta = (second - first) / (size.now * 2)
    tangent = 1 / (s.abs(zeta) + s.sqrt(zeta * zeta + 1))
    tangent = s.where(zeta < 0, -tangent, tangent)
    cosine = 1 / s.sqrt(tangent * tangent + 1)
    sine = cosine * tangent
    back = s.conj(inner) / size.now
    a, b = pair
    for matrix, rows in turned:
        with f.loop(rows) as i:
            x, y = matrix(i, a), matrix(i, b) * back
            matrix.put(i, a, x * cosine - y * sine)
            matrix.put(i, b, x * sine + y * cosine)


def _sort(
    f: Frame, sizes: FormulaTensor, at: Any, matrices: Any, shape: tuple[int, int], dtype: dt.dtype
) -> None:
    """The lengths of the columns, descending, and the columns in their order."""
    rows, columns = shape
    real, w = dtype.to_real(), matrices[0][0]
    with f.loop(columns) as j:
        sizes.put((*at, j), s.sqrt(summed(f, rows, real, lambda i: square(w(i, j)))))
    with f.loop(columns) as j:
        best = f.variable(j, dt.int64)
        with f.loop(columns) as k:
            better = (j < k) & (sizes(*at, best.now) < sizes(*at, k))
            best.set(s.where(better, k, best.now))
        here = f.variable(sizes(*at, j), real)
        sizes.put((*at, j), sizes(*at, best.now))
        sizes.put((*at, best.now), here.now)
        for matrix, count in matrices:
            _exchange(f, matrix, count, j, best, dtype)


def _exchange(
    f: Frame, matrix: Matrix, rows: int, j: ScalarValue, k: FormulaVariable, dtype: dt.dtype
) -> None:
    with f.loop(rows) as i:
        here = f.variable(matrix(i, j), dtype)
        matrix.put(i, j, matrix(i, k.now))
        matrix.put(i, k.now, here.now)


def complete(f: Frame, w: Matrix, rows: int, j: ScalarValue, dtype: dt.dtype) -> None:
    """Column j becomes a unit vector that is orthogonal to all columns before it."""
    real = dtype.to_real()
    found = f.variable(False, dt.bool_)
    with f.loop(rows) as r, f.when(~found.now):
        with f.loop(rows) as i:
            w.put(i, j, f.value(s.where(i == r, 1, 0), dtype))
        with f.loop(2), f.loop(j) as c:
            inner = summed(f, rows, dtype, lambda i: s.conj(w(i, c)) * w(i, j))
            with f.loop(rows) as i:
                w.put(i, j, w(i, j) - inner * w(i, c))
        length = f.variable(s.sqrt(summed(f, rows, real, lambda i: square(w(i, j)))), real)
        with f.when(f.value(0.5 / rows, real) < length.now * length.now):
            found.set(True)
            with f.loop(rows) as i:
                w.put(i, j, w(i, j) / length.now)
