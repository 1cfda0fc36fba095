"""Matrix factorisations as primitives, with derivatives; `lucerne.linalg` is written with these.

Derivatives follow the usual literature: M. Giles, "Collected matrix derivative results"; J.
Townsend, "Differentiating the singular value decomposition"; S. Walter et al. for QR. Results are
column-major, as LAPACK leaves them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lucerne._src.base import dtype as dt
from lucerne._src.base import shape as sh
from lucerne._src.ir import op as op_
from lucerne._src.ir.define import structural
from lucerne._src.ir.meta import TensorMeta, make_meta
from lucerne._src.ir.op import Tensor
from lucerne._src.ops import late
from lucerne._src.ops.checks import conj_of
from lucerne._src.ops.copy import join


def adjoint(x: Tensor) -> Tensor:
    """The conjugate transpose."""
    return conj_of(x).transpose(-2, -1)


def column_major(shape: sh.Shape) -> sh.Shape:
    """Strides of a batch of matrices stored by columns."""
    strides = list(sh.contiguous_strides(shape))
    strides[-2], strides[-1] = 1, max(shape[-2], 1)
    return tuple(strides)


def matrix_meta(like: TensorMeta, shape: sh.Shape, dtype: dt.dtype | None = None) -> TensorMeta:
    return make_meta(dtype or like.dtype, tuple(shape), column_major(shape), like.device)


def plain_meta(like: TensorMeta, shape: sh.Shape, dtype: dt.dtype) -> TensorMeta:
    return make_meta(dtype, tuple(shape), None, like.device)


def quotient(a: Tensor, b: Tensor) -> Tensor:
    """`a / b` where 0 / 0 is 0: a gradient that is absent stays absent where values coincide."""
    return a / b.masked_fill((a == 0) & (b == 0), 1)


def with_diagonal(x: Tensor, diagonal: Tensor) -> Tensor:
    """`x` with another main diagonal."""
    return x - x.diagonal(0, -2, -1).diag_embed() + diagonal.diag_embed()


def gaps(values: Tensor) -> Tensor:
    """All differences `values[j] - values[i]`, with ones on the diagonal."""
    found = values.unsqueeze(-2) - values.unsqueeze(-1)
    eye = found.new_ones(values.shape).diag_embed()
    return found + eye


def check_phase(name: str, diagonal: Tensor) -> None:
    """A complex factor is free up to a phase: a loss that depends on it has no derivative."""
    if diagonal.dtype.category != dt.COMPLEX or diagonal.device.type == "meta":
        return
    imaginary = diagonal.imag.abs()
    if imaginary.numel() and float(imaginary.max()) > 1e-2:
        raise RuntimeError(
            f"{name}_backward: The singular vectors in the complex case are specified up to "
            "multiplication by e^{i phi}. The specified loss function depends on this quantity, so "
            "it is ill-defined."
        )


# ---- triangular systems -----------------------------------------------------------------------


def _solve_meta(A: TensorMeta, B: TensorMeta, *statics: bool) -> TensorMeta:
    batch = sh.broadcast_shapes(A.shape[:-2], B.shape[:-2])
    return matrix_meta(B, (*batch, *B.shape[-2:]))


def _tri_solve_back(
    g: Tensor, A: Tensor, y: Tensor, upper: bool, left: bool, unitriangular: bool, needs: Any
) -> tuple[Tensor | None, Tensor]:
    """Of both operands: that of A is a product with that of B."""
    turned = adjoint(A)
    back = tri_solve(turned, g, not upper, left, unitriangular)
    if "A" not in needs:
        return None, back
    full = -(back @ adjoint(y) if left else adjoint(y) @ back)
    step = 1 if unitriangular else 0
    return (full.triu(step) if upper else full.tril(-step)), back


@structural(
    internal=True,
    meta=_solve_meta,
    vjp={("A", "B"): _tri_solve_back},
    out=False,
    torch="linalg_solve_triangular",
)
def tri_solve(A: Tensor, B: Tensor, upper: bool, left: bool, unitriangular: bool) -> Tensor:
    """X with `A X = B` (or `X A = B`) for triangular A; the other triangle is not read."""


# ---- Cholesky ---------------------------------------------------------------------------------


def _cholesky_meta(input: TensorMeta, upper: bool) -> tuple[TensorMeta, ...]:
    shape = tuple(input.shape)
    return matrix_meta(input, shape), plain_meta(input, shape[:-2], dt.int32)


def cholesky_gradient(g: Tensor, y: Tensor, upper: bool) -> Tensor:
    """From the gradient of the factor `y`."""
    factor, gradient = (adjoint(y), adjoint(g)) if upper else (y, g)
    middle = (adjoint(factor) @ gradient).tril()
    middle = (middle + adjoint(middle.tril(-1))) * 0.5
    middle = tri_solve(adjoint(factor), middle, True, True, False)
    return tri_solve(factor, middle, False, False, False)


def _cholesky_backward(g: Any, y0: Tensor, upper: bool) -> Tensor:
    return cholesky_gradient(g[0], y0, upper)


@structural(
    internal=True,
    meta=_cholesky_meta,
    vjp={"input": _cholesky_backward},
    out=False,
    torch="linalg_cholesky_ex",
)
def cholesky_factor(input: Tensor, upper: bool) -> Any:
    """Triangular factor of a positive-definite matrix, and the order of the failed minor (or 0)."""


# ---- LU ---------------------------------------------------------------------------------------


def lu_metas(input: TensorMeta) -> tuple[TensorMeta, ...]:
    *batch, m, n = input.shape
    return (
        matrix_meta(input, tuple(input.shape)),
        plain_meta(input, (*batch, min(m, n)), dt.int32),
        plain_meta(input, tuple(batch), dt.int32),
    )


def _lu_backward(g: Any, y: Any) -> Tensor:
    return lu_gradient(g[0], y[0], y[1])


def lu_gradient(gradient: Tensor, packed: Tensor, pivots: Tensor) -> Tensor:
    """From the packed gradient; a rectangular rest is the solution of triangular systems."""
    m, n = packed.shape[-2:]
    k = min(m, n)
    square, g_square = packed[..., :k, :k], gradient[..., :k, :k]
    lower = with_diagonal(square.tril(), square.new_ones((*square.shape[:-2], k)))
    upper = square.triu()
    below, above = adjoint(lower) @ g_square.tril(-1), g_square.triu() @ adjoint(upper)
    parts = []
    if m > n:
        rest = gradient[..., k:, :]
        above = above - adjoint(packed[..., k:, :]) @ rest
        parts.append(tri_solve(adjoint(upper), rest, False, False, False))
    if m < n:
        rest = gradient[..., :, k:]
        below = below - rest @ adjoint(packed[..., :, k:])
        parts.append(tri_solve(adjoint(lower), rest, True, True, True))
    middle = below.tril(-1) + above.triu()
    middle = tri_solve(adjoint(upper), middle, False, False, False)
    middle = tri_solve(adjoint(lower), middle, True, True, True)
    whole = _joined([middle, *parts], -2 if m > n else -1)
    return permute_rows(whole, inverse_permutation(pivots_to_permutation(pivots, m)))


def _joined(parts: list[Any], dim: int) -> Tensor:
    return parts[0] if len(parts) == 1 else join.cat(parts, dim)


@structural(
    internal=True,
    meta=lu_metas,
    vjp={"input": _lu_backward},
    out=False,
    torch="linalg_lu_factor_ex",
)
def lu_packed(input: Tensor) -> Any:
    """LU with row pivots: both factors in one matrix, pivots counted from 1, and an info number."""


def _permutation_meta(pivots: TensorMeta, n: int) -> TensorMeta:
    return plain_meta(pivots, (*pivots.shape[:-1], n), dt.int64)


@structural(internal=True, meta=_permutation_meta, vjp={}, out=False)
def pivots_to_permutation(pivots: Tensor, n: int) -> Tensor:
    """Row exchanges, done one after the other, as a permutation of `n` rows."""


def inverse_permutation(order: Tensor) -> Tensor:
    return order.argsort(-1)


def permute_rows(x: Tensor, order: Tensor) -> Tensor:
    """Rows of each matrix in another order, stored by columns; batch dimensions broadcast."""
    batch = sh.broadcast_shapes(x.shape[:-2], order.shape[:-1])
    turned = x.expand(*batch, *x.shape[-2:]).transpose(-2, -1)
    index = order.unsqueeze(-2).expand(*batch, x.shape[-1], order.shape[-1])
    return turned.gather(-1, index).transpose(-2, -1)


# ---- QR ---------------------------------------------------------------------------------------


def _qr_meta(input: TensorMeta, complete: bool) -> tuple[TensorMeta, ...]:
    *batch, m, n = input.shape
    k = m if complete else min(m, n)
    return matrix_meta(input, (*batch, m, k)), matrix_meta(input, (*batch, k, n))


def _qr_backward(g: Any, y: Any, complete: bool) -> Tensor:
    (gQ, gR), (Q, R) = g, y
    m, n = Q.shape[-2], R.shape[-1]
    if complete and m > n:
        raise RuntimeError(
            "The QR decomposition is not differentiable when mode='complete' and nrows > ncols."
        )
    if m >= n:
        return _qr_tall_backward(gQ, gR, Q, R)
    # The last columns are `Q R2`: their gradient is direct, and they add to that of Q.
    R1, R2, gR1, gR2 = R[..., :m], R[..., m:], gR[..., :m], gR[..., m:]
    first = _qr_tall_backward(gQ + Q @ (R2 @ adjoint(gR2)), gR1, Q, R1)
    return _joined([first, Q @ gR2], -1)


def _qr_tall_backward(gQ: Tensor, gR: Tensor, Q: Tensor, R: Tensor) -> Tensor:
    middle = gR @ adjoint(R) - adjoint(Q) @ gQ
    strict = middle.triu(1)
    diagonal = middle.diagonal(0, -2, -1)
    diagonal = diagonal.real if diagonal.dtype.category == dt.COMPLEX else diagonal
    symmetric = strict + adjoint(strict) + diagonal.diag_embed()
    return tri_solve(adjoint(R), gQ + Q @ symmetric, False, False, False)


@structural(
    internal=True,
    meta=_qr_meta,
    vjp={"input": _qr_backward},
    out=False,
    oracle=lambda input, complete: np.linalg.qr(input, "complete" if complete else "reduced"),
    up_to_sign=True,
    torch="linalg_qr",
)
def qr_factors(input: Tensor, complete: bool) -> Any:
    """Orthonormal columns and an upper triangle whose product is the matrix."""


def _geqrf_meta(input: TensorMeta) -> tuple[TensorMeta, ...]:
    *batch, m, n = input.shape
    return (
        matrix_meta(input, tuple(input.shape)),
        plain_meta(input, (*batch, min(m, n)), input.dtype),
    )


@structural(internal=True, meta=_geqrf_meta, out=False)
def qr_reflectors(input: Tensor) -> Any:
    """QR as LAPACK keeps it: R above, the vectors of the reflections below, and their factors."""


# ---- eigenvalues ------------------------------------------------------------------------------


def _eigh_meta(input: TensorMeta, upper: bool, vectors: bool = True) -> tuple[TensorMeta, ...]:
    shape = tuple(input.shape)
    return (
        plain_meta(input, shape[:-1], input.dtype.to_real()),
        matrix_meta(input, shape if vectors else (*shape[:-2], 0, 0)),
    )


def _eigh_backward(g: Any, y: Any, input: Tensor, upper: bool, vectors: bool) -> Tensor:
    (gL, gV), (L, V) = g, y
    if not vectors:  # computed now that they are needed
        L, V = eigh_factors(input, upper)
        return V @ (gL.unsqueeze(-1) * adjoint(V))
    middle = adjoint(V) @ gV
    check_phase("linalg_eigh", middle.diagonal(0, -2, -1))
    skew = (middle - adjoint(middle)) * 0.5
    middle = with_diagonal(quotient(skew, gaps(L)), gL)
    return V @ (middle @ adjoint(V))


@structural(
    checks=op_.VALUES,
    internal=True,
    meta=_eigh_meta,
    vjp={"input": _eigh_backward},
    out=False,
    torch="linalg_eigh",
)
def eigh_factors(input: Tensor, upper: bool, vectors: bool = True) -> Any:
    """Ascending eigenvalues and orthonormal eigenvectors (or nothing, if those are not asked for);
    one triangle of the matrix is read."""


def _eig_meta(input: TensorMeta, vectors: bool = True) -> tuple[TensorMeta, ...]:
    shape, dtype = tuple(input.shape), input.dtype.to_complex()
    square = shape if vectors else (*shape[:-2], 0, 0)
    return plain_meta(input, shape[:-1], dtype), matrix_meta(input, square, dtype)


def _eig_backward(g: Any, y: Any, input: Tensor, vectors: bool) -> Tensor:
    (gL, gV), (L, V) = g, y
    if not vectors:  # computed now that they are needed
        Vh = adjoint(eig_factors(input)[1])
        return late.fn("linalg.solve")(Vh, gL.unsqueeze(-1) * Vh)
    Vh = adjoint(V)
    middle = Vh @ gV
    diagonal = middle.diagonal(0, -2, -1)
    check_phase("linalg_eig", diagonal)
    # The columns of V have norm one: remove what would change it.
    middle = middle - Vh @ (V * diagonal.real.unsqueeze(-2))
    middle = with_diagonal(quotient(middle, conj_of(gaps(L))), gL)
    return late.fn("linalg.solve")(Vh, middle @ Vh)


@structural(
    checks=op_.VALUES,
    internal=True,
    meta=_eig_meta,
    vjp={"input": _eig_backward},
    out=False,
    torch="linalg_eig",
)
def eig_factors(input: Tensor, vectors: bool = True) -> Any:
    """Eigenvalues and eigenvectors (or nothing, if those are not asked for) of a square matrix,
    always complex."""


# ---- singular values --------------------------------------------------------------------------


def _svd_meta(input: TensorMeta, full: bool, vectors: bool = True) -> tuple[TensorMeta, ...]:
    *batch, m, n = input.shape
    k = min(m, n)
    values = plain_meta(input, (*batch, k), input.dtype.to_real())
    if not vectors:
        none = matrix_meta(input, (*batch, 0, 0))
        return none, values, none
    return (
        matrix_meta(input, (*batch, m, m if full else k)),
        values,
        matrix_meta(input, (*batch, n if full else k, n)),
    )


def _svd_backward(g: Any, y: Any, input: Tensor, full: bool, vectors: bool) -> Tensor:
    (gU, gS, gVh), (U, S, Vh) = g, y
    if not vectors:  # computed now that they are needed
        U, _, Vh = svd_factors(input, False)
        return U @ (gS.unsqueeze(-1) * Vh)
    k = S.shape[-1]
    U, gU, Vh, gVh = U[..., :k], gU[..., :k], Vh[..., :k, :], gVh[..., :k, :]
    m, n = U.shape[-2], Vh.shape[-1]
    inner_U, inner_V = adjoint(U) @ gU, Vh @ adjoint(gVh)
    inner_U, inner_V = inner_U - adjoint(inner_U), inner_V - adjoint(inner_V)
    check_phase("svd", (inner_U + inner_V).diagonal(0, -2, -1))
    wide = inner_U * S.unsqueeze(-2) + S.unsqueeze(-1) * inner_V
    middle = quotient(wide, gaps(S * S)) + gS.diag_embed()
    if U.dtype.category == dt.COMPLEX:
        phases = quotient(inner_U.diagonal(0, -2, -1), 2 * S)
        middle = middle + phases.diag_embed()
    if m > n:
        outside = quotient(gU, S.unsqueeze(-2).expand(gU.shape))
        return (U @ middle + outside - U @ (adjoint(U) @ outside)) @ Vh
    if m < n:
        outside = quotient(gVh, S.unsqueeze(-1).expand(gVh.shape))
        return U @ (middle @ Vh + outside - (outside @ adjoint(Vh)) @ Vh)
    return U @ (middle @ Vh)


@structural(
    checks=op_.VALUES,
    internal=True,
    meta=_svd_meta,
    vjp={"input": _svd_backward},
    out=False,
    oracle=lambda input, full, vectors: np.linalg.svd(input, full),
    up_to_sign=True,
    torch="linalg_svd",
)
def svd_factors(input: Tensor, full: bool, vectors: bool = True) -> Any:
    """U, descending singular values and the adjoint of V, with `input = U diag(S) Vh`; U and V are
    empty if only the values are asked for."""


# ---- LDL --------------------------------------------------------------------------------------


def _ldl_meta(input: TensorMeta, hermitian: bool) -> tuple[TensorMeta, ...]:
    shape = tuple(input.shape)
    return (
        matrix_meta(input, shape),
        plain_meta(input, shape[:-1], dt.int32),
        plain_meta(input, shape[:-2], dt.int32),
    )


@structural(checks=op_.VALUES, internal=True, meta=_ldl_meta, out=False)
def ldl_packed(input: Tensor, hermitian: bool) -> Any:
    """Bunch-Kaufman factors of a symmetric matrix, packed; pivots; an info number."""


def _ldl_solve_meta(
    LD: TensorMeta, pivots: TensorMeta, B: TensorMeta, hermitian: bool
) -> TensorMeta:
    return _solve_meta(LD, B)


@structural(internal=True, meta=_ldl_solve_meta, out=False)
def ldl_apply_inverse(LD: Tensor, pivots: Tensor, B: Tensor, hermitian: bool) -> Tensor:
    """Solution of a system from its packed LDL factors."""
