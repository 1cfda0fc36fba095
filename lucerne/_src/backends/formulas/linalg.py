"""Factors of matrices and what is solved with them: one run for each matrix (or column)."""

from __future__ import annotations

from typing import Any

import numpy as np

from lucerne._src.backends.formulas.frame import FormulaTensor, Frame
from lucerne._src.backends.formulas.svd import Matrix, orthogonalize, square, summed
from lucerne._src.backends.formulas.table import formula
from lucerne._src.base import dtype as dt
from lucerne._src.ir.scalar.protocol import ScalarValue, s


@formula("tri_solve")
def tri_solve(
    f: Frame, A: FormulaTensor, B: FormulaTensor, upper: bool, left: bool, unitriangular: bool
) -> None:
    """By substitution, a column of the result at a time (a row, if A stands on the right)."""
    *batch, rows, columns = f.out.shape
    n, others = (rows, columns) if left else (columns, rows)
    a, b = A.spread([*batch, n, n]), B.spread([*batch, rows, columns])
    upwards = upper if left else not upper
    with f.kernel([*batch, others]) as (*at, c):

        def place(i: Any) -> list[Any]:
            return [*at, i, c] if left else [*at, c, i]

        def factor(i: Any, j: Any) -> ScalarValue:
            return a(*at, i, j) if left else a(*at, j, i)

        with f.loop(n) as turn:
            i = f.size(n - 1) - turn if upwards else turn
            total = f.variable(b(*place(i)), f.out.dtype)
            with f.loop(turn) as k:
                j = f.size(n - 1) - k if upwards else k
                total.set(total.now - factor(i, j) * f.out(*place(j)))
            f.out.put(place(i), total.now if unitriangular else total.now / factor(i, i))


@formula("cholesky_factor")
def cholesky_factor(f: Frame, input: FormulaTensor, upper: bool) -> None:
    factor, info = f.outs
    *batch, n, _ = input.shape
    with f.kernel(batch) as at:
        a, low = Matrix(input, at, turned=upper), Matrix(factor, at, turned=upper)
        with f.loops((n, n)) as (i, j):
            low.put(i, j, s.where(i < j, 0, a(i, j)))
        failed = f.variable(0, dt.int64)
        with f.loop(n) as j, f.when(failed.now == 0):
            known = f.variable(s.real(low(j, j)), input.dtype.to_real())
            with f.loop(j) as k:
                known.set(known.now - square(low(j, k)))
            good = f.value(0, known.dtype) < known.now
            with f.when(~good):
                failed.set(j + 1)
            with f.when(good):
                root = f.variable(s.sqrt(known.now), known.dtype)
                low.put(j, j, root.now)
                with f.loop(n) as i, f.when(j < i):
                    rest = f.variable(low(i, j), input.dtype)
                    with f.loop(j) as k:
                        rest.set(rest.now - low(i, k) * s.conj(low(j, k)))
                    low.put(i, j, rest.now / root.now)
        info.put(at, failed.now)


@formula("lu_packed")
def lu_packed(f: Frame, input: FormulaTensor) -> None:
    """Gaussian elimination with row exchanges."""
    packed, pivots, info = f.outs
    *batch, m, n = input.shape
    real = input.dtype.to_real()
    with f.kernel(batch) as at:
        a = Matrix(packed, at, turned=False)
        with f.loops((m, n)) as (i, j):
            a.put(i, j, input(*at, i, j))
        failed = f.variable(0, dt.int64)
        with f.loop(min(m, n)) as j:
            best, row = f.variable(-1, real), f.variable(j, dt.int64)
            with f.loop(m) as i, f.when(j <= i):
                size = s.abs(s.real(a(i, j))) + s.abs(s.imag(a(i, j)))
                better = best.now < size
                row.set(s.where(better, i, row.now))
                best.set(s.where(better, size, best.now))
            pivots.put((*at, j), row.now + 1)
            with f.loop(n) as c:
                here = f.variable(a(j, c), input.dtype)
                a.put(j, c, a(row.now, c))
                a.put(row.now, c, here.now)
            failed.set(s.where((failed.now == 0) & (a(j, j) == 0), j + 1, failed.now))
            pivot = f.variable(s.where(a(j, j) == 0, 1, a(j, j)), input.dtype)
            with f.loop(m) as i, f.when(j < i):
                a.put(i, j, a(i, j) / pivot.now)
                with f.loop(n) as c, f.when(j < c):
                    a.put(i, c, a(i, c) - a(i, j) * a(j, c))
        info.put(at, failed.now)


# ---- QR ------------------------------------------------------------------------------------------


def _reflect(f: Frame, w: Matrix, shape: tuple[int, int], factors: FormulaTensor, at: Any) -> None:
    """Householder's reflections: R above, their vectors below, as LAPACK keeps them."""
    m, n = shape
    dtype, real = factors.dtype, factors.dtype.to_real()
    with f.loop(min(m, n)) as j:
        below = f.variable(0, real)
        with f.loop(m) as i, f.when(j < i):
            below.set(below.now + square(w(i, j)))
        alpha = f.variable(w(j, j), dtype)
        flat = (below.now == 0) & (s.imag(alpha.now) == 0)
        length = s.sqrt(square(alpha.now) + below.now)
        beta = f.variable(s.where(s.real(alpha.now) < 0, length, -length), real)
        beta.set(s.where(flat, s.real(alpha.now), beta.now))
        safe = s.where(flat, 1, beta.now)
        factor = f.variable(s.where(flat, 0, (beta.now - alpha.now) / safe), dtype)
        factors.put((*at, j), factor.now)
        scale = f.variable(s.where(flat, 1, alpha.now - beta.now), dtype)
        with f.loop(m) as i, f.when(j < i):
            w.put(i, j, w(i, j) / scale.now)
        w.put(j, j, beta.now)
        with f.loop(n) as c, f.when(j < c):
            _apply(f, w, w, (j, c), m, s.conj(factor.now))


def _apply(f: Frame, w: Matrix, to: Matrix, place: Any, rows: int, factor: ScalarValue) -> None:
    """Reflection j (its vector stands in `w`) of column c of a matrix."""
    j, c = place
    inner = f.variable(to(j, c), to.t.dtype)
    with f.loop(rows) as i, f.when(j < i):
        inner.set(inner.now + s.conj(w(i, j)) * to(i, c))
    inner.set(inner.now * factor)
    to.put(j, c, to(j, c) - inner.now)
    with f.loop(rows) as i, f.when(j < i):
        to.put(i, c, to(i, c) - inner.now * w(i, j))


@formula("qr_reflectors")
def qr_reflectors(f: Frame, input: FormulaTensor) -> None:
    packed, factors = f.outs
    *batch, m, n = input.shape
    with f.kernel(batch) as at:
        w = Matrix(packed, at, turned=False)
        with f.loops((m, n)) as (i, j):
            w.put(i, j, input(*at, i, j))
        _reflect(f, w, (m, n), factors, at)


@formula("qr_factors")
def qr_factors(f: Frame, input: FormulaTensor, complete: bool) -> None:
    q_out, r_out = f.outs
    *batch, m, n = input.shape
    held = f.scratch((*batch, m, n), input.dtype)
    factors = f.scratch((*batch, max(min(m, n), 1)), input.dtype)
    columns = q_out.shape[-1]
    with f.kernel(batch) as at:
        w, q = Matrix(held, at, turned=False), Matrix(q_out, at, turned=False)
        with f.loops((m, n)) as (i, j):
            w.put(i, j, input(*at, i, j))
        _reflect(f, w, (m, n), factors, at)
        with f.loops((r_out.shape[-2], n)) as (i, j):
            r_out.put((*at, i, j), s.where(j < i, 0, w(i, j)))
        with f.loops((m, columns)) as (i, j):
            q.put(i, j, f.value(s.where(i == j, 1, 0), input.dtype))
        with f.loop(min(m, n)) as turn:
            j = f.size(min(m, n) - 1) - turn
            with f.loop(columns) as c:
                _apply(f, w, q, (j, c), m, factors(*at, j))


# ---- eigenvalues ---------------------------------------------------------------------------------


@formula("eigh_factors")
def eigh_factors(f: Frame, input: FormulaTensor, upper: bool, vectors: bool = True) -> None:
    """Moved up by a number that makes all eigenvalues positive; rotations make the columns
    orthogonal: their lengths are then the eigenvalues and their directions the vectors."""
    values, found = f.outs
    *batch, n, _ = input.shape
    dtype, real = input.dtype, input.dtype.to_real()
    held = found if vectors else f.scratch((*batch, n, n), dtype)
    small = float(np.finfo(real.storage).eps)
    with f.kernel(batch) as at:
        w = Matrix(held, at, turned=False)
        with f.loops((n, n)) as (i, j):
            given = (i <= j) if upper else (j <= i)
            x = s.where(given, input(*at, i, j), s.conj(input(*at, j, i)))
            w.put(i, j, s.where(i == j, f.value(s.real(x), dtype), x))
        total = f.variable(0, real)
        with f.loops((n, n)) as (i, j):
            total.set(total.now + square(w(i, j)))
        up = f.variable(s.sqrt(total.now) * (1 + 8 * small) + small, real)
        with f.loop(n) as i:
            w.put(i, i, w(i, i) + up.now)
        orthogonalize(f, w, n, n, dtype, [(w, n)])
        _ascending(f, w, values, at, n, up.now)


def _ascending(
    f: Frame, w: Matrix, values: FormulaTensor, at: Any, n: int, up: ScalarValue
) -> None:
    dtype, real = w.t.dtype, values.dtype
    with f.loop(n) as j:
        length = f.variable(s.sqrt(summed(f, n, real, lambda i: square(w(i, j)))), real)
        values.put((*at, j), length.now - up)
        with f.loop(n) as i:
            w.put(i, j, w(i, j) / length.now)
    with f.loop(n) as j:
        best = f.variable(j, dt.int64)
        with f.loop(n) as k:
            better = (j < k) & (values(*at, k) < values(*at, best.now))
            best.set(s.where(better, k, best.now))
        here = f.variable(values(*at, j), real)
        values.put((*at, j), values(*at, best.now))
        values.put((*at, best.now), here.now)
        with f.loop(n) as i:
            kept = f.variable(w(i, j), dtype)
            w.put(i, j, w(i, best.now))
            w.put(i, best.now, kept.now)
