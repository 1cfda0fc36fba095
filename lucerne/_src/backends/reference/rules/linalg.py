"""Matrix factorisations: NumPy's LAPACK, SciPy's where NumPy has none, loops where that is easy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lucerne._src.backends.reference import lapack
from lucerne._src.backends.reference.optional import scipy
from lucerne._src.backends.reference.table import rule
from lucerne._src.base.errors import LinAlgError

Array = np.ndarray[Any, Any]


def stacked(x: Array, tail: int = 2) -> Array:
    """All leading dimensions as one."""
    return x.reshape((int(np.prod(x.shape[: x.ndim - tail])), *x.shape[x.ndim - tail :]))


def _has_lapack() -> bool:
    return scipy("lapack") is not None


def _lapack(name: str, a: Array) -> Any:
    """LAPACK's routine of this name for the dtype of `a`."""
    return scipy("lapack").get_lapack_funcs(name, (a,))


def flipped(x: Array) -> Array:
    return np.swapaxes(x, -1, -2)


# ---- triangular systems -----------------------------------------------------------------------


@rule("tri_solve")
def tri_solve(A: Array, B: Array, upper: bool, left: bool, unitriangular: bool) -> Array:
    if not left:
        return flipped(tri_solve(flipped(A), flipped(B), not upper, True, unitriangular))
    batch = np.broadcast_shapes(A.shape[:-2], B.shape[:-2])
    a = stacked(np.broadcast_to(A, (*batch, *A.shape[-2:])))
    b = stacked(np.broadcast_to(B, (*batch, *B.shape[-2:])))
    if not b.size:
        return np.zeros((*batch, *B.shape[-2:]), B.dtype)
    with np.errstate(all="ignore"):
        blas = scipy("blas")
        if blas is not None and len(a) <= a.shape[-1]:
            trsm = blas.get_blas_funcs("trsm", (a,))
            found = [_solved(trsm, x, y, upper, unitriangular) for x, y in zip(a, b, strict=True)]
            made = found[0][None] if len(found) == 1 else np.stack(found)
        else:
            made = _substitute(a, b, upper, unitriangular)
    return made.reshape(*batch, *B.shape[-2:])


def _solved(trsm: Any, a: Array, b: Array, upper: bool, unitriangular: bool) -> Array:
    """By BLAS, which wants matrices by columns: one by rows is the transpose of another."""
    turned = a.flags.c_contiguous
    return np.asarray(
        trsm(
            1,
            a.T if turned else a,
            np.array(b, order="F"),
            lower=upper if turned else not upper,
            trans_a=int(turned),
            diag=unitriangular,
            overwrite_b=1,
        )
    )


def _substitute(a: Array, b: Array, upper: bool, unitriangular: bool) -> Array:
    """Row after row, for all matrices of the batch at once."""
    x = b.copy()
    n = a.shape[-1]
    for i in range(n - 1, -1, -1) if upper else range(n):
        known = slice(i + 1, n) if upper else slice(0, i)
        x[:, i] -= (a[:, i : i + 1, known] @ x[:, known])[:, 0]
        if not unitriangular:
            x[:, i] /= a[:, i, i, None]
    return x


# ---- Cholesky ---------------------------------------------------------------------------------


@rule("cholesky_factor")
def cholesky_factor(input: Array, upper: bool) -> tuple[Array, Array]:
    a = flipped(input).conj() if upper else input
    info = np.zeros(input.shape[:-2], np.int32)
    try:
        factor = lapack.run("cholesky_lo", np.linalg.cholesky, a)
    except np.linalg.LinAlgError:
        found = [_cholesky_one(x) for x in stacked(a)]
        factor = np.stack([f for f, _ in found]).reshape(a.shape)
        info = np.array([i for _, i in found], np.int32).reshape(info.shape)
    return (flipped(factor).conj() if upper else factor), info


def _cholesky_one(a: Array) -> tuple[Array, int]:
    """One factor, as far as it goes, and the order of the first minor that isn't positive."""
    n = len(a)
    factor = np.tril(a)
    for j in range(n):
        pivot = (a[j, j] - np.vdot(factor[j, :j], factor[j, :j])).real
        if not pivot > 0:
            return factor, j + 1
        factor[j, j] = np.sqrt(pivot)
        rest = a[j + 1 :, j] - factor[j + 1 :, :j] @ factor[j, :j].conj()
        factor[j + 1 :, j] = rest / factor[j, j]
    return factor, 0


# ---- LU ---------------------------------------------------------------------------------------


@rule("lu_packed")
def lu_packed(input: Array) -> tuple[Array, Array, Array]:
    *batch, m, n = input.shape
    k = min(m, n)
    a = stacked(input)
    if _has_lapack() and 0 < len(a) <= k:
        getrf = _lapack("getrf", a)
        found = [getrf(x) for x in a]
        packed = found[0][0][None] if len(found) == 1 else np.stack([f[0] for f in found])
        pivots = np.stack([f[1] for f in found]) + 1
        info = np.array([f[2] for f in found])
    else:
        packed, pivots, info = _eliminate(a.copy())
    return packed.reshape(input.shape), pivots.reshape(*batch, k), info.reshape(batch)


def _eliminate(a: Array) -> tuple[Array, Array, Array]:
    """Gaussian elimination with row exchanges, for all matrices of the batch at once."""
    count, m, n = a.shape
    k = min(m, n)
    every = np.arange(count)
    pivots = np.zeros((count, k), np.int32)
    info = np.zeros(count, np.int32)
    for j in range(k):
        row = j + np.argmax(np.abs(a[:, j:, j].real) + np.abs(a[:, j:, j].imag), axis=1)
        pivots[:, j] = row + 1
        a[every, j], a[every, row] = a[every, row], a[every, j].copy()
        pivot = a[:, j, j]
        info = np.where((info == 0) & (pivot == 0), j + 1, info)
        a[:, j + 1 :, j] /= np.where(pivot == 0, 1, pivot)[:, None]
        a[:, j + 1 :, j + 1 :] -= a[:, j + 1 :, j, None] * a[:, j, None, j + 1 :]
    return a, pivots, info


@rule("pivots_to_permutation")
def pivots_to_permutation(pivots: Array, n: int) -> Array:
    rows = stacked(pivots, 1).astype(np.int64) - 1
    if len(rows) <= n:  # one after the other: lists exchange faster than arrays
        found = [_exchanged(list(range(n)), each) for each in rows.tolist()]
        return np.array(found, np.int64).reshape(*pivots.shape[:-1], n)
    every = np.arange(len(rows))
    order = np.tile(np.arange(n), (len(rows), 1))
    for j in range(rows.shape[1]):
        order[every, j], order[every, rows[:, j]] = order[every, rows[:, j]], order[every, j].copy()
    return order.reshape(*pivots.shape[:-1], n)


def _exchanged(order: list[int], rows: list[int]) -> list[int]:
    for j, row in enumerate(rows):
        order[j], order[row] = order[row], order[j]
    return order


# ---- QR ---------------------------------------------------------------------------------------


def _qr_single(a: Array, complete: bool) -> tuple[Array, Array]:
    """Of one matrix, by the routines that know single precision."""
    m, n = a.shape
    k = m if complete else min(m, n)
    room = 64 * max(m, n)  # for blocks of columns
    packed, factors, _, _ = _lapack("geqrf", a)(a, lwork=room)
    make = _lapack("ungqr" if a.dtype.kind == "c" else "orgqr", a)
    columns = np.zeros((m, k), a.dtype, order="F")
    columns[:, : min(n, k)] = packed[:, : min(n, k)]
    return make(columns, factors, lwork=room, overwrite_a=1)[0], np.triu(packed[:k])


@rule("qr_factors")
def qr_factors(input: Array, complete: bool) -> tuple[Array, Array]:
    if _has_lapack() and input.ndim == 2 and input.size and lapack.single(input):
        return _qr_single(input, complete)
    q, r = np.linalg.qr(input, "complete" if complete else "reduced")
    if complete and not input.shape[-1]:
        q = np.broadcast_to(np.eye(input.shape[-2], dtype=input.dtype), q.shape)
    return q, r


@rule("qr_reflectors")
def qr_reflectors(input: Array) -> tuple[Array, Array]:
    packed, factors = np.linalg.qr(input, "raw")
    return flipped(packed), factors


# ---- eigenvalues and singular values ----------------------------------------------------------


def _first_bad(input: Array, solve: Callable[[Array], Any]) -> str:
    """Which matrix of a batch an iteration failed on, in torch's words."""
    if input.ndim == 2:
        return ""
    for i, a in enumerate(stacked(input)):
        try:
            solve(a)
        except np.linalg.LinAlgError:
            return f"(Batch element {i}): "
    return "(Batch element 0): "


@rule("eigh_factors")
def eigh_factors(input: Array, upper: bool, vectors: bool) -> tuple[Array, Array]:
    half: Any = "U" if upper else "L"
    end = "up" if upper else "lo"
    try:
        if vectors:
            pair = lapack.run(f"eigh_{end}", lambda a: np.linalg.eigh(a, half), input)
            return pair[0], pair[1]
        values = lapack.run(f"eigvalsh_{end}", lambda a: np.linalg.eigvalsh(a, half), input)
        return values, np.zeros((*input.shape[:-2], 0, 0), input.dtype)
    except np.linalg.LinAlgError as error:
        raise LinAlgError(
            f"linalg.eigh: {_first_bad(input, np.linalg.eigh)}The algorithm failed to converge "
            "because the input matrix is ill-conditioned or has too many repeated eigenvalues "
            "(error code: 1)."
        ) from error


@rule("eig_factors")
def eig_factors(input: Array, vectors: bool) -> tuple[Array, Array]:
    if not np.isfinite(input).all():
        raise RuntimeError("torch.linalg.eig: input tensor should not contain infs or NaNs.")
    if not vectors:
        alone = lapack.run("eigvals", np.linalg.eigvals, input)
        return alone, np.zeros((*input.shape[:-2], 0, 0), alone.dtype)
    values, columns = lapack.run("eig", np.linalg.eig, input)
    return values, columns


def _svd(a: Array, full: bool = True) -> Any:
    """With vectors LAPACK may never come back from an infinite element."""
    if not np.isfinite(a).all():
        raise np.linalg.LinAlgError
    return lapack.run("svd_f" if full else "svd_s", lambda x: np.linalg.svd(x, full), a)


@rule("svd_factors")
def svd_factors(input: Array, full: bool, vectors: bool) -> tuple[Array, Array, Array]:
    try:
        if vectors:
            u, s, vh = _svd(input, full)
            return u, s, vh
        s = lapack.run("svd", lambda a: np.linalg.svd(a, compute_uv=False), input)
        none = np.zeros((*input.shape[:-2], 0, 0), input.dtype)
        return none, s, none
    except np.linalg.LinAlgError as error:
        where = _first_bad(input, _svd)
        why = (
            "the input matrix is ill-conditioned or has too many repeated singular values (error "
            "code: 1)"
            if np.isfinite(input).all()
            else "the input matrix contained non-finite values"
        )
        raise LinAlgError(
            f"linalg.svd: {where}The algorithm failed to converge because {why}."
        ) from error


# ---- LDL --------------------------------------------------------------------------------------


def _symmetric(name: str, a: Array, hermitian: bool) -> Any:
    """LAPACK's routine for symmetric (sy) or complex Hermitian (he) matrices."""
    if not _has_lapack():
        raise RuntimeError("LDL factorisations need SciPy: pip install scipy")
    return _lapack(f"{'he' if hermitian and a.dtype.kind == 'c' else 'sy'}{name}", a)


@rule("ldl_packed")
def ldl_packed(input: Array, hermitian: bool) -> tuple[Array, Array, Array]:
    a = stacked(input)
    packed = np.array(a)
    pivots = np.zeros(a.shape[:-1], np.int32)
    info = np.zeros(len(a), np.int32)
    if a.shape[-1]:
        factorise = _symmetric("trf", a, hermitian)
        for i, x in enumerate(a):
            found, pivots[i], info[i] = factorise(x, lower=1)
            packed[i] = np.tril(found)
    return (
        packed.reshape(input.shape),
        pivots.reshape(input.shape[:-1]),
        info.reshape(input.shape[:-2]),
    )


@rule("ldl_apply_inverse")
def ldl_apply_inverse(LD: Array, pivots: Array, B: Array, hermitian: bool) -> Array:
    batch = np.broadcast_shapes(LD.shape[:-2], B.shape[:-2])
    a = stacked(np.broadcast_to(LD, (*batch, *LD.shape[-2:])))
    p = stacked(np.broadcast_to(pivots, (*batch, pivots.shape[-1])), 1)
    b = stacked(np.broadcast_to(B, (*batch, *B.shape[-2:])))
    made = np.array(b)
    if made.size:
        solve = _symmetric("trs", a, hermitian)
        for i, (x, q, y) in enumerate(zip(a, p, b, strict=True)):
            made[i] = solve(x, q, y, lower=1)[0]
    return made.reshape(*batch, *B.shape[-2:])
