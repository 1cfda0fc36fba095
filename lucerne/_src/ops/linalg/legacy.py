"""Linear algebra outside `lucerne.linalg`: older names, and functions on packed factors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lucerne._src.base import dtype as dt
from lucerne._src.base import shape as sh
from lucerne._src.ir.define import composite, front
from lucerne._src.ir.dispatch import raise_if
from lucerne._src.ir.op import Tensor
from lucerne._src.ir.results import named
from lucerne._src.ops.linalg import decompositions as dc
from lucerne._src.ops.linalg import systems as la
from lucerne._src.ops.linalg.checks import (
    check_float,
    check_matrix,
    check_same_dtype,
    check_square,
    raise_if_failed,
)
from lucerne._src.ops.linalg.decompositions import adjoint, tri_solve
from lucerne._src.ops.linalg.matrix_functions import pinv
from lucerne._src.ops.pointwise import select
from lucerne._src.ops.random import draws

_SLOGDET = named("slogdet", "sign logabsdet")
_SVD = named("svd", "U S V")
_QR = named("qr", "Q R")
_GEQRF = named("geqrf", "a tau")
_LU_INFO = named("_lu_with_info", "LU pivots info")
_LU_UNPACK = named("lu_unpack", "P L U")
_BAD_PIVOTS = (
    "pivots passed to lu_unpack must be between 1 and LU.size(-2) inclusive. Did you properly pass "
    "the result of lu_factor?"
)
_TRIANGULAR = named("triangular_solve", "solution cloned_coefficient")

# ---- determinants -----------------------------------------------------------------------------


@composite(name="det", method=True, out=False, oracle=np.linalg.det)
def det(input: Tensor) -> Tensor:
    """`lucerne.linalg.det`."""
    return la.det(input)


@composite(name="slogdet", method=True, oracle=np.linalg.slogdet)
def slogdet(input: Tensor) -> Any:
    """`lucerne.linalg.slogdet`."""
    return _SLOGDET(*la.slogdet(input))


@composite(method=True, out=False)
def logdet(input: Tensor) -> Tensor:
    """Logarithm of the determinant; nan where it is negative."""
    check_square(input, "logdet")
    check_float(input, "logdet")
    sign, size = la.slogdet(input)
    if input.dtype.category == dt.COMPLEX:
        return sign.log() + size
    return select.where(sign == -1, math.nan, size)


# ---- Cholesky ---------------------------------------------------------------------------------


@composite(name="cholesky", method=True, out="plain", autocast="full")
def cholesky(input: Tensor, upper: bool = False) -> Tensor:
    """`lucerne.linalg.cholesky`."""
    check_square(input, "cholesky")
    check_float(input, "cholesky")
    factor, info = dc.cholesky_factor(input, upper)
    raise_if_failed(info, "cholesky", "cholesky")
    return factor


def _check_factor_system(B: Tensor, A: Tensor) -> None:
    for name, x in (("b", B), ("u", A)):
        if x.ndim < 2:
            raise RuntimeError(
                f"{name} should have at least 2 dimensions, but has {x.ndim} dimensions instead"
            )
    if A.shape[-1] != A.shape[-2]:
        raise RuntimeError(
            "A must be batches of square matrices, but they are "
            f"{A.shape[-2]} by {A.shape[-1]} matrices"
        )
    if A.shape[-2] != B.shape[-2]:
        raise RuntimeError(
            "Incompatible matrix sizes for cholesky_solve: each A matrix is "
            f"{A.shape[-1]} by {A.shape[-1]} but each b matrix is {B.shape[-2]} by {B.shape[-1]}"
        )
    if A.dtype is not B.dtype:
        raise RuntimeError(
            f"Expected b and A to have the same dtype, but found b of type {dt.cxx_name(B.dtype)} "
            f"and A of type {dt.cxx_name(A.dtype)} instead"
        )


def _cholesky_solved_back(
    g: Tensor, y: Tensor, L: Tensor, upper: bool, needs: frozenset[str]
) -> tuple[Tensor, Tensor | None]:
    """As if A had been made by `L @ L.mH`: the factor's gradient has both triangles, as PyTorch's,
    so that it is that of a program which makes A and solves with it."""
    back = cholesky_solved(g, L, upper)
    if "L" not in needs:
        return back, None
    both = back @ adjoint(y)
    both = both + adjoint(both)
    return back, -(L @ both if upper else both @ L)


@composite(
    internal=True, out=False, vjp={("B", "L"): _cholesky_solved_back}, torch="cholesky_solve"
)
def cholesky_solved(B: Tensor, L: Tensor, upper: bool) -> Tensor:
    """X with `A X = B`, from the Cholesky factor of A; the factor's other triangle is not read."""
    first, second = (adjoint(L), L) if upper else (L, adjoint(L))
    return tri_solve(second, tri_solve(first, B, False, True, False), True, True, False)


@composite(method=True, out="plain", autocast="full")
def cholesky_solve(B: Tensor, L: Tensor, upper: bool = False) -> Tensor:
    """X with `A X = B`, from the Cholesky factor of A."""
    _check_factor_system(B, L)
    return cholesky_solved(B, L, upper)


@composite(method=True, out="lapack", autocast="full")
def cholesky_inverse(L: Tensor, upper: bool = False) -> Tensor:
    """Inverse of a matrix from its Cholesky factor."""
    check_square(L, "cholesky_inverse")
    n = L.shape[-1]
    return cholesky_solved(la.identity(n, n, L).expand(L.shape), L, upper)


# ---- QR ---------------------------------------------------------------------------------------


@composite(name="qr", method=True, out="exact", autocast="full")
def qr(input: Tensor, some: bool = True) -> Any:
    """`lucerne.linalg.qr`, with `some=False` for a square Q."""
    return _QR(*la.qr(input, "reduced" if some else "complete"))


@composite(method=True, out="lapack", autocast="full")
def geqrf(input: Tensor) -> Any:
    """QR as LAPACK keeps it: R above the diagonal, reflections below, and their factors."""
    check_matrix(input, "torch.geqrf")
    check_float(input, "torch.geqrf")
    return _GEQRF(*dc.qr_reflectors(input))


def _check_reflectors(name: str, input: Tensor, tau: Tensor) -> None:
    if input.ndim < 2:
        raise RuntimeError(f"{name}: input must have at least 2 dimensions.")
    m, n = input.shape[-2:]
    if m < n:
        raise RuntimeError(
            f"{name}: input.shape[-2] must be greater than or equal to input.shape[-1]"
        )
    if n < tau.shape[-1]:
        raise RuntimeError(
            f"{name}: input.shape[-1] must be greater than or equal to tau.shape[-1]"
        )
    _check_tau(name, input, tau)


def _check_tau(name: str, input: Tensor, tau: Tensor) -> None:
    if input.ndim - tau.ndim != 1:
        raise RuntimeError(
            f"{name}: Expected tau to have one dimension less than input, but got tau.ndim equal "
            f"to {tau.ndim} and input.ndim is equal to {input.ndim}"
        )
    if input.ndim > 2 and tuple(input.shape[:-2]) != tuple(tau.shape[:-1]):
        raise RuntimeError(
            f"{name}: Expected batch dimensions of tau to be equal to input.shape[:-2], but got "
            f"{list(tau.shape[:-1])}"
        )
    if tau.dtype is not input.dtype:
        raise RuntimeError(
            f"{name}: tau dtype {dt.cxx_name(tau.dtype)} does not match input dtype "
            f"{dt.cxx_name(input.dtype)}"
        )


def reflect(input: Tensor, tau: Tensor, x: Tensor, backwards: bool) -> Tensor:
    """Apply reflections `1 - tau v v^H` to the rows of `x`, one after the other."""
    k = tau.shape[-1]
    m = input.shape[-2]
    vectors = input[..., :k].tril(-1) + la.identity(m, k, input)
    for i in range(k - 1, -1, -1) if backwards else range(k):
        v = vectors[..., i : i + 1]
        x = x - (tau[..., i, None, None] * v) @ (adjoint(v) @ x)
    return x


@composite(namespace="linalg", out="lapack", autocast="full")
def householder_product(input: Tensor, tau: Tensor) -> Tensor:
    """Q as a matrix, from the reflections `geqrf` returned."""
    _check_reflectors("torch.linalg.householder_product", input, tau)
    m, n = input.shape[-2:]
    # The empty sum is zero: it ties a product of no reflections to the graph.
    start = la.identity(m, n, input).expand(input.shape) + input.narrow(-1, 0, 0).sum()
    return by_columns(reflect(input, tau, start, True))


@composite(name="orgqr", method=True, out="lapack", autocast="full")
def orgqr(input: Tensor, input2: Tensor) -> Tensor:
    """`lucerne.linalg.householder_product`."""
    return householder_product(input, input2)


def by_columns(x: Tensor) -> Tensor:
    return x.transpose(-2, -1).contiguous().transpose(-2, -1)


@composite(method=True, out="exact lapack", autocast="full")
def ormqr(
    input: Tensor, tau: Tensor, other: Tensor, left: bool = True, transpose: bool = False
) -> Tensor:
    """Product of Q (or its adjoint), given by reflections, with another matrix."""
    name = "torch.ormqr"
    if input.ndim < 2:
        raise RuntimeError(f"{name}: input must have at least 2 dimensions.")
    if other.ndim < 2:
        raise RuntimeError(f"{name}: other must have at least 2 dimensions.")
    side = -2 if left else -1
    if other.shape[side] < tau.shape[-1]:
        raise RuntimeError(
            f"{name}: other.shape[{side}] must be greater than or equal to tau.shape[-1]"
        )
    if tau.shape[-1] != min(other.shape[side], input.shape[-1]):
        raise RuntimeError(
            f"{name}: tau.shape[-1] must be equal to min(other.shape[{side}], input.shape[-1])"
        )
    if other.shape[side] != input.shape[-2]:
        raise RuntimeError(f"{name}: other.shape[{side}] must be equal to input.shape[-2]")
    _check_tau(name, input, tau)
    check_same_dtype(name, input=input, other=other)
    if not left:
        return by_columns(adjoint(_apply_q(input, tau, adjoint(other), not transpose)))
    return by_columns(_apply_q(input, tau, other, transpose))


def _apply_q(input: Tensor, tau: Tensor, x: Tensor, turned: bool) -> Tensor:
    if not turned:
        return reflect(input, tau, x, True)
    factors = tau.conj_physical() if tau.dtype.category == dt.COMPLEX else tau
    return reflect(input, factors, x, False)


# ---- LU ---------------------------------------------------------------------------------------


@front(method=True)
def lu(
    A: Tensor, pivot: bool = True, get_infos: bool = False, out: Any = None
) -> tuple[Tensor, ...]:
    """`lucerne.linalg.lu_factor_ex` as a plain tuple."""
    found = la.lu_factor_ex(A, pivot=pivot)
    made = _LU_INFO(*found) if get_infos else tuple(found)[:2]
    if out is None:
        return made
    for target, source in zip(out, made, strict=True):
        target.resize_(source.shape).copy_(source)
    return out


@composite(name="lu_solve", method=True, out="exact", autocast="full")
def lu_solve(b: Tensor, LU_data: Tensor, LU_pivots: Tensor) -> Tensor:
    """Solution of a system from the factors of `lu`."""
    return la.lu_solve(LU_data, LU_pivots, b)


@composite(out="exact")
def lu_unpack(
    LU_data: Tensor, LU_pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True
) -> Any:
    """Permutation, lower and upper triangle from the packed factors of `lu`."""
    if unpack_pivots and LU_pivots.dtype is not dt.int32:
        raise RuntimeError(
            "torch.lu_unpack: LU_pivots is expected to be a contiguous tensor of torch.int32 "
            "dtype.\n"
            "Note: this function is intended to be used with the output produced by "
            "torch.linalg.lu_factor"
        )
    check_matrix(LU_data, "torch.lu_unpack", "LU_data")
    if unpack_pivots and not LU_pivots.is_meta and LU_pivots.numel():
        outside = (LU_pivots < 1) | (LU_pivots > LU_data.shape[-2])
        raise_if(outside.any(), lambda: RuntimeError(_BAD_PIVOTS))
    empty = LU_data.new_empty(0)
    lower, upper = la.unpack_factors(LU_data) if unpack_data else (empty, empty)
    order = la.permutation_matrix(LU_data, LU_pivots) if unpack_pivots else empty
    return _LU_UNPACK(order, lower, upper)


# ---- other older names ------------------------------------------------------------------------


@composite(name="svd", method=True, out="exact", autocast="full")
def svd(input: Tensor, some: bool = True, compute_uv: bool = True) -> Any:
    """`lucerne.linalg.svd` with V instead of its adjoint."""
    check_matrix(input, "linalg.svd")
    if not compute_uv:
        m, n = input.shape[-2:]
        batch = tuple(input.shape[:-2])
        right = input.new_zeros((*batch, n, n))
        return _SVD(input.new_zeros((*batch, m, m)), la.svdvals(input), right)
    left, values, right_h = la.svd(input, not some)
    return _SVD(left, values, adjoint(right_h))


@front(method=True)
def pinverse(input: Tensor, rcond: float = 1e-15) -> Tensor:
    """`lucerne.linalg.pinv`."""
    return pinv(input, rcond)


@composite(method=True, out="exact", autocast="full")
def triangular_solve(
    b: Tensor, A: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> Any:
    """Solution of a triangular system, and a copy of its matrix."""
    for name, x in (("b", b), ("A", A)):
        if x.ndim < 2:
            raise RuntimeError(
                f"torch.triangular_solve: Expected {name} to have at least 2 dimensions, but it "
                f"has {x.ndim} dimensions instead"
            )
    check_square(A, "triangular_solve")
    if A.shape[-2] != b.shape[-2]:
        raise RuntimeError(
            "Incompatible matrix sizes for triangular_solve: each A matrix is "
            f"{A.shape[-1]} by {A.shape[-1]} but each b matrix is {b.shape[-2]} by {b.shape[-1]}"
        )
    matrix = adjoint(A) if transpose and A.dtype.category == dt.COMPLEX else A
    if transpose and matrix is A:
        matrix = A.transpose(-2, -1)
    found = tri_solve(matrix, b, upper != transpose, True, unitriangular)
    batch = sh.broadcast_shapes(A.shape[:-2], b.shape[:-2])
    copy = by_columns(A.expand(*batch, *A.shape[-2:])).clone()
    return _TRIANGULAR(found, copy)


# ---- low rank, by chance ----------------------------------------------------------------------


def _approximate_basis(A: Tensor, q: int, niter: int, M: Any) -> Tensor:
    """Orthonormal columns that nearly span the range of `A - M` (Halko et al., 2009)."""
    start = draws.randn(A.shape[-1], q, dtype=A.dtype, device=A.device)
    shifted = A if M is None else A - M
    basis = la.qr(shifted @ start)[0]
    for _ in range(niter):
        basis = la.qr(adjoint(shifted) @ basis)[0]
        basis = la.qr(shifted @ basis)[0]
    return basis


@front(torch=None)
def svd_lowrank(
    A: Tensor, q: int | None = 6, niter: int | None = 2, M: Any = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Approximate singular value decomposition of rank `q`, of `A - M`."""
    q = 6 if q is None else q
    niter = 2 if niter is None else niter
    wide = A.shape[-2] < A.shape[-1]
    if M is not None:
        M = M.expand(A.shape)
    if wide:
        A, M = adjoint(A), None if M is None else adjoint(M)
    basis = _approximate_basis(A, q, niter, M)
    small = adjoint(basis) @ (A if M is None else A - M)
    left, values, right_h = la.svd(small, False)
    left, right = basis @ left, adjoint(right_h)
    return (right, values, left) if wide else (left, values, right)


@front(torch=None)
def pca_lowrank(
    A: Tensor, q: int | None = None, center: bool = True, niter: int = 2
) -> tuple[Tensor, Tensor, Tensor]:
    """Principal components of the rows of A, by `svd_lowrank`."""
    least = min(A.shape[-2:])
    if q is None:
        q = min(6, least)
    elif not 0 <= q <= least:
        raise ValueError(
            f"q(={q}) must be non-negative integer and not greater than min(m, n)={least}"
        )
    if niter < 0:
        raise ValueError(f"niter(={niter}) must be non-negative integer")
    return svd_lowrank(A - A.mean(-2, keepdim=True) if center else A, q, niter)
