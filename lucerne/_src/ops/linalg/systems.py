"""`lucerne.linalg`: factorisations, linear systems, inverses and determinants."""

from __future__ import annotations

from typing import Any

import numpy as np

from lucerne._src.base import dtype as dt
from lucerne._src.ir import op as op_
from lucerne._src.ir.convert import Dtype
from lucerne._src.ir.define import Decorator, composite
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.ir.op import Tensor
from lucerne._src.ir.results import named
from lucerne._src.ops.checks import conj_of
from lucerne._src.ops.creation import ranges
from lucerne._src.ops.linalg import decompositions as dc
from lucerne._src.ops.linalg.checks import (
    check_float,
    check_matrix,
    check_same_dtype,
    check_sizes,
    check_square,
    check_system,
    is_vector_case,
    raise_if_failed,
)
from lucerne._src.ops.linalg.decompositions import adjoint, tri_solve
from lucerne._src.ops.pointwise import complexes


def _linalg(**fields: Any) -> Decorator:
    """A function of `linalg`, in full precision under autocast."""
    return composite(namespace="linalg", out="exact", autocast="full", **fields)


_CHOLESKY_EX = named("linalg_cholesky_ex", "L info")
_LU = named("linalg_lu", "P L U")
_LU_FACTOR = named("linalg_lu_factor", "LU pivots")
_LU_FACTOR_EX = named("linalg_lu_factor_ex", "LU pivots info")
_QR = named("linalg_qr", "Q R")
_EIGH = named("linalg_eigh", "eigenvalues eigenvectors")
_EIG = named("linalg_eig", "eigenvalues eigenvectors")
_SVD = named("linalg_svd", "U S Vh")
_INV_EX = named("linalg_inv_ex", "inverse info")
_SOLVE_EX = named("linalg_solve_ex", "result info")
_SLOGDET = named("linalg_slogdet", "sign logabsdet")
_LDL_FACTOR = named("linalg_ldl_factor", "LD pivots")
_LDL_FACTOR_EX = named("linalg_ldl_factor_ex", "LD pivots info")


def identity(n: int, m: int, like: Tensor) -> Tensor:
    """The identity in the dtype and on the device of another tensor."""
    return ranges.eye(n, m, dtype=like.dtype, device=like.device)


# ---- factorisations ---------------------------------------------------------------------------


@_linalg()
def cholesky_ex(input: Tensor, *, upper: bool = False, check_errors: bool = False) -> Any:
    """Cholesky factor and an info number instead of an error."""
    check_square(input, "linalg.cholesky")
    check_float(input, "linalg.cholesky")
    factor, info = dc.cholesky_factor(input, upper)
    if check_errors:
        raise_if_failed(info, "linalg.cholesky_ex", "cholesky")
    return _CHOLESKY_EX(factor, info)


@_linalg(
    oracle=lambda input, upper: np.linalg.cholesky(input, upper=upper),
    samples=[([[4.0, 1.0], [1.0, 3.0]],)],
)
def cholesky(input: Tensor, *, upper: bool = False) -> Tensor:
    """Triangular L with `L @ L.mH` equal to the positive-definite input.

    >>> import lucerne
    >>> lucerne.linalg.cholesky(lucerne.tensor([[4.0, 2.0], [2.0, 5.0]]))
    tensor([[2., 0.],
            [1., 2.]])
    """
    check_square(input, "linalg.cholesky")
    check_float(input, "linalg.cholesky")
    return cholesky_checked(input, upper)


@composite(
    checks=op_.VALUES,
    internal=True,
    out=False,
    meta=lambda input, upper: dc.matrix_meta(input, tuple(input.shape)),
    vjp={"input": lambda g, y, upper: dc.cholesky_gradient(g, y, upper)},
    torch="linalg_cholesky_ex",
)
def cholesky_checked(input: Tensor, upper: bool) -> Tensor:
    """The Cholesky factor; raises where there is none."""
    factor, info = dc.cholesky_factor(input, upper)
    raise_if_failed(info, "linalg.cholesky", "cholesky")
    return factor


@_linalg()
def lu_factor_ex(A: Tensor, *, pivot: bool = True, check_errors: bool = False) -> Any:
    """LU factors in one matrix, pivots, and an info number instead of an error."""
    _check_lu(A, pivot)
    packed, pivots, info = dc.lu_packed(A)
    if check_errors:
        raise_if_failed(info, "torch.linalg.lu_factor_ex", "lu")
    return _LU_FACTOR_EX(packed, pivots, info)


@_linalg()
def lu_factor(A: Tensor, *, pivot: bool = True) -> Any:
    """LU factors in one matrix, and pivots; `lu_solve` takes them."""
    _check_lu(A, pivot)
    return _LU_FACTOR(*lu_checked(A))


def _check_lu(A: Tensor, pivot: bool) -> None:
    check_matrix(A, "torch.lu_factor")
    check_float(A, "torch.lu_factor")
    if not pivot:
        raise RuntimeError("linalg.lu_factor: LU without pivoting is not implemented on the CPU")


@composite(
    checks=op_.VALUES,
    internal=True,
    out=False,
    meta=lambda A: dc.lu_metas(A)[:2],
    vjp={"A": lambda g, y0, y1: dc.lu_gradient(g[0], y0, y1)},
    torch="linalg_lu_factor_ex",
)
def lu_checked(A: Tensor) -> Any:
    """LU factors in one matrix, and pivots; raises where a pivot is zero."""
    packed, pivots, info = dc.lu_packed(A)
    raise_if_failed(info, "torch.linalg.lu_factor", "lu")
    return packed, pivots


def unpack_factors(packed: Tensor) -> tuple[Tensor, Tensor]:
    """L and U from one matrix that holds both."""
    m, n = packed.shape[-2:]
    k = min(m, n)
    left, right = packed[..., :k], packed[..., :k, :]
    return left.tril(-1) + identity(m, k, packed), right.triu()


def permutation_matrix(packed: Tensor, pivots: Tensor) -> Tensor:
    """P with `P @ L @ U` equal to the factorised matrix."""
    m = packed.shape[-2]
    order = dc.pivots_to_permutation(pivots, m)
    columns = ranges.arange(m, device=packed.device).unsqueeze(-1)
    return (order.unsqueeze(-2) == columns).to(packed.dtype)


@composite(namespace="linalg", out="exact")
def lu(A: Tensor, *, pivot: bool = True) -> Any:
    """Permutation, lower and upper triangle whose product is the matrix."""
    packed, pivots, _ = lu_factor_ex(A, pivot=pivot)
    lower, upper = unpack_factors(packed)
    return _LU(permutation_matrix(packed, pivots), lower, upper)


def _needs_q(g: Tensor) -> Tensor:
    raise RuntimeError(
        "The derivative of linalg.qr depends on Q, which is not computed when mode='r'. Please use "
        "linalg.qr(A, mode='reduced') if you are going to require gradients."
    )


@composite(internal=True, name="qr_triangle", out=False, vjp={"A": _needs_q})
def qr_triangle(A: Tensor) -> Tensor:
    """R of the QR decomposition alone."""
    return dc.qr_factors(A, False)[1]


@_linalg(oracle=lambda A, mode: np.linalg.qr(A, mode), up_to_sign=True)
def qr(A: Tensor, mode: str = "reduced") -> Any:
    """Orthonormal Q and upper triangular R with `A = Q @ R`."""
    check_matrix(A, "linalg.qr")
    check_float(A, "linalg.qr")
    if mode not in ("reduced", "complete", "r"):
        raise RuntimeError(
            f"qr received unrecognized mode '{mode}' but expected one of 'reduced' (default), 'r', "
            "or 'complete'"
        )
    if mode == "r":
        return _QR(A.new_empty(0), qr_triangle(A))
    return _QR(*dc.qr_factors(A, mode == "complete"))


@_linalg(oracle=lambda A, UPLO: np.linalg.eigh(A, UPLO), up_to_sign=True)
def eigh(A: Tensor, UPLO: str = "L") -> Any:
    """Real eigenvalues in ascending order and eigenvectors of a symmetric or Hermitian matrix.

    >>> import lucerne
    >>> lucerne.linalg.eigh(lucerne.tensor([[2.0, 0.0], [0.0, 1.0]])).eigenvalues
    tensor([1., 2.])
    """
    return _EIGH(*dc.eigh_factors(A, _reads_upper(A, UPLO)))


def _reads_upper(A: Tensor, UPLO: str) -> bool:
    check_square(A, "linalg.eigh")
    check_float(A, "linalg.eigh")
    if UPLO.upper() not in ("L", "U"):
        raise RuntimeError(f"Expected UPLO argument to be 'L' or 'U', but got {UPLO}")
    return UPLO.upper() == "U"


@_linalg(oracle=lambda A, UPLO: np.linalg.eigvalsh(A, UPLO))
def eigvalsh(A: Tensor, UPLO: str = "L") -> Tensor:
    """Eigenvalues of a symmetric or Hermitian matrix, ascending."""
    return dc.eigh_factors(A, _reads_upper(A, UPLO), False)[0]


@composite(namespace="linalg", oracle=np.linalg.eig, autocast="full", up_to_sign=True)
def eig(input: Tensor) -> Any:
    """Eigenvalues and eigenvectors of a square matrix; complex even where they could be real."""
    check_square(input, "linalg.eig")
    check_float(input, "linalg.eig")
    return _EIG(*dc.eig_factors(input))


@composite(namespace="linalg", oracle=np.linalg.eigvals, autocast="full")
def eigvals(input: Tensor) -> Tensor:
    """Eigenvalues of a square matrix."""
    check_square(input, "linalg.eigvals")
    check_float(input, "linalg.eigvals")
    return dc.eig_factors(input, False)[0]


@_linalg(oracle=lambda A, full_matrices, driver: np.linalg.svd(A, full_matrices), up_to_sign=True)
def svd(A: Tensor, full_matrices: bool = True, *, driver: Any = None) -> Any:
    """Singular value decomposition `A = U @ diag(S) @ Vh`."""
    check_matrix(A, "linalg.svd")
    check_float(A, "linalg.svd")
    _refuse_driver("linalg.svd", driver)
    return _SVD(*dc.svd_factors(A, full_matrices))


def _refuse_driver(name: str, driver: Any) -> None:
    if driver is not None:
        raise RuntimeError(
            f"{name}: keyword argument `driver=` is only supported on CUDA inputs with cuSOLVER "
            "backend."
        )


@_linalg(oracle=lambda A, driver: np.linalg.svd(A, compute_uv=False))
def svdvals(A: Tensor, *, driver: Any = None) -> Tensor:
    """Singular values, descending."""
    check_matrix(A, "linalg.svdvals")
    check_float(A, "linalg.svdvals")
    _refuse_driver("linalg.svdvals", driver)
    return dc.svd_factors(A, False, False)[1]


@composite(namespace="linalg", out="exact")
def ldl_factor_ex(A: Tensor, *, hermitian: bool = False, check_errors: bool = False) -> Any:
    """LDL factors of a symmetric matrix, packed; pivots; an info number instead of an error."""
    check_square(A, "torch.linalg.ldl_factor_ex", "self")
    check_float(A, "torch.linalg.ldl_factor_ex")
    packed, pivots, info = dc.ldl_packed(A, hermitian)
    if check_errors:
        raise_if_failed(info, "torch.linalg.ldl_factor_ex", "ldl")
    return _LDL_FACTOR_EX(packed, pivots, info)


@composite(namespace="linalg", out="exact")
def ldl_factor(A: Tensor, *, hermitian: bool = False) -> Any:
    """LDL factors of a symmetric matrix, packed, and pivots."""
    packed, pivots, info = ldl_factor_ex(A, hermitian=hermitian)
    raise_if_failed(info, "torch.linalg.ldl_factor", "ldl")
    return _LDL_FACTOR(packed, pivots)


@composite(namespace="linalg", out="exact")
def ldl_solve(LD: Tensor, pivots: Tensor, B: Tensor, *, hermitian: bool = False) -> Tensor:
    """Solution of a system from the factors `ldl_factor` returned."""
    check_square(LD, "torch.linalg.ldl_solve", "LD")
    check_float(LD, "torch.linalg.ldl_solve")
    if B.ndim < 2:
        raise RuntimeError(
            "torch.linalg.ldl_solve: Expected B to have at least 2 dimensions, but it has "
            f"{B.ndim} dimensions instead"
        )
    if tuple(LD.shape[:-1]) != tuple(pivots.shape):
        raise RuntimeError(
            "torch.linalg.ldl_solve: Expected LD.shape[:-1] and pivots.shape to be the same, but "
            f"got pivots with shape {list(pivots.shape)} instead"
        )
    if pivots.dtype.category != dt.INTEGER:
        raise RuntimeError(
            "torch.linalg.ldl_solve: Expected pivots to be integers. Got "
            f"{dt.cxx_name(pivots.dtype)}"
        )
    check_same_dtype("torch.linalg.ldl_solve", LD=LD, B=B)
    return dc.ldl_apply_inverse(LD, pivots, B, hermitian)


# ---- linear systems ---------------------------------------------------------------------------


@composite(namespace="linalg", out="exact")
def solve_triangular(
    A: Tensor,
    B: Tensor,
    *,
    upper: bool,
    left: bool = True,
    unitriangular: bool = False,
) -> Tensor:
    """X with `A X = B` (or `X A = B`) for a triangular A."""
    name = "linalg.solve_triangular"
    check_matrix(A, name, "A")
    check_matrix(B, name, "B")
    check_same_dtype(name, A=A, B=B)
    check_float(A, name)
    check_square(A, name)
    check_sizes(A, B, left, name)
    return tri_solve(A, B, upper, left, unitriangular)


def solve_with_lu(packed: Tensor, pivots: Tensor, B: Tensor) -> Tensor:
    """X with `A X = B` from the packed factors of A."""
    rows = dc.permute_rows(B, dc.pivots_to_permutation(pivots, packed.shape[-1]))
    return tri_solve(packed, tri_solve(packed, rows, False, True, True), True, True, False)


def solve_adjoint_with_lu(packed: Tensor, pivots: Tensor, B: Tensor) -> Tensor:
    """X with `A^H X = B` from the packed factors of A."""
    turned = adjoint(packed)
    rows = tri_solve(turned, tri_solve(turned, B, False, True, False), True, True, True)
    order = dc.pivots_to_permutation(pivots, packed.shape[-1])
    return dc.permute_rows(rows, dc.inverse_permutation(order))


@composite(namespace="linalg", out="exact")
def lu_solve(
    LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool = True, adjoint: bool = False
) -> Tensor:
    """Solution of a system from the factors `lu_factor` returned."""
    check_same_dtype("linalg.lu_solve", LU=LU, B=B)
    if pivots.dtype is not dt.int32:
        raise RuntimeError("linalg.lu_solve: pivots should be a Tensor of scalar type torch.int32")
    check_square(LU, "torch.linalg.lu_solve")
    check_system(LU, B, left, "linalg.lu_solve")
    if tuple(LU.shape[:-1]) != tuple(pivots.shape):
        raise RuntimeError(
            "linalg.lu_solve: Number of pivots per batch should be same as the dimension of the "
            "matrix"
        )
    if not left:
        flipped = dc.adjoint(B)
        return dc.adjoint(lu_solve(LU, pivots, flipped, left=True, adjoint=not adjoint))
    return solve_adjoint_with_lu(LU, pivots, B) if adjoint else solve_with_lu(LU, pivots, B)


def _solve_gradients(
    g: Tensor, A: Tensor, B: Tensor, left: bool, y: Tensor, needs: Any
) -> tuple[Tensor | None, Tensor]:
    """Of both operands: that of A is a product with that of B."""
    back = solve_checked(A, g, left, True)
    if "A" not in needs:
        return None, back
    if is_vector_case(A, B):
        return -(back.unsqueeze(-1) @ conj_of(y).unsqueeze(-2)), back
    return -(back @ adjoint(y) if left else adjoint(y) @ back), back


def _solved(A: Tensor, B: Tensor, left: bool, name: str) -> tuple[Tensor, Tensor]:
    check_square(A, name)
    check_float(A, name)
    check_same_dtype(name, A=A, B=B)
    vector = is_vector_case(A, B)
    if vector and not left:
        raise RuntimeError(
            f"{name}: Vector broadcasting of the left hand side is not supported for left=False. "
            "In this case linalg.solve is equivalent to B / A.squeeze(-1)"
        )
    right = B.unsqueeze(-1) if vector else B
    check_system(A, right, left, name)
    packed, pivots, info = dc.lu_packed(A)
    found = lu_solve(packed, pivots, right, left=left)
    return (_by_columns(found.squeeze(-1)) if vector else found), info


def _by_columns(x: Tensor) -> Tensor:
    """The last two dimensions stored by columns, as torch leaves a batch of solution vectors."""
    return x.transpose(-2, -1).contiguous().transpose(-2, -1) if x.ndim > 1 else x


def _checked_gradients(
    g: Tensor, A: Tensor, B: Tensor, left: bool, adjoint: bool, y: Tensor, needs: Any
) -> tuple[Tensor | None, Tensor]:
    if not adjoint:
        return _solve_gradients(g, A, B, left, y, needs)
    of_A, of_B = _solve_gradients(g, dc.adjoint(A), B, left, y, needs)
    return None if of_A is None else dc.adjoint(of_A), of_B


def _solution_meta(A: TensorMeta, B: TensorMeta, left: bool, adjoint: bool) -> TensorMeta | None:
    """None: the body has something to say about the arguments."""
    if A.ndim < 2 or A.shape[-1] != A.shape[-2] or B.dtype is not A.dtype:
        return None
    if A.ndim - 1 == B.ndim and tuple(B.shape) == tuple(A.shape[:-1]) and left:
        return dc.matrix_meta(B, tuple(B.shape)) if B.ndim > 1 else B.like(strides=(1,))
    if B.ndim < 2 or B.shape[-2 if left else -1] != A.shape[-1]:
        return None
    if A.ndim != B.ndim or tuple(A.shape[:-2]) != tuple(B.shape[:-2]):
        return None
    shape = tuple(B.shape)
    return dc.matrix_meta(B, shape) if left else dc.plain_meta(B, shape, B.dtype)


@composite(
    checks=op_.VALUES,
    internal=True,
    out=False,
    meta=_solution_meta,
    vjp={("A", "B"): _checked_gradients},
    torch="linalg_solve_ex",
)
def solve_checked(A: Tensor, B: Tensor, left: bool, adjoint: bool) -> Tensor:
    """The solution of a system with A or its adjoint; raises where a matrix is singular."""
    found, info = _solved(dc.adjoint(A) if adjoint else A, B, left, "linalg.solve")
    raise_if_failed(info, "torch.linalg.solve", "solve")
    return found


@composite(
    internal=True,
    name="solve_unchecked",
    out=False,
    vjp={
        ("A", "B"): lambda g, A, B, left, y0, needs: _solve_gradients(g[0], A, B, left, y0, needs)
    },
    torch="linalg_solve_ex",
)
def solve_unchecked(A: Tensor, B: Tensor, left: bool, name: str) -> Any:
    """Solution and info number; a singular matrix raises no error."""
    return _solved(A, B, left, name)


@composite(namespace="linalg", out="exact")
def solve_ex(A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False) -> Any:
    """Solution of `A X = B` and an info number instead of an error."""
    found, info = solve_unchecked(A, B, left, "linalg.solve")
    if check_errors:
        raise_if_failed(info, "torch.linalg.solve_ex", "solve")
    return _SOLVE_EX(found, info)


@_linalg(
    oracle=lambda A, B, left: np.linalg.solve(A, B), samples=[([[4.0, 1.0], [1.0, 3.0]], (2, 2))]
)
def solve(A: Tensor, B: Tensor, *, left: bool = True) -> Tensor:
    """X with `A X = B` (or `X A = B` when `left` is False); B may be a vector.

    >>> import lucerne
    >>> lucerne.linalg.solve(lucerne.tensor([[2.0, 0.0], [0.0, 4.0]]), lucerne.tensor([2.0, 2.0]))
    tensor([1.0000, 0.5000])
    """
    return solve_checked(A, B, left, False)


@composite(
    internal=True,
    name="inverse_unchecked",
    out=False,
    vjp={"A": lambda g, y0: -(adjoint(y0) @ (g[0] @ adjoint(y0)))},
    torch="linalg_inv_ex",
)
def inverse_unchecked(A: Tensor) -> Any:
    """Inverse and info number; a singular matrix raises no error."""
    check_square(A, "linalg.inv")
    check_float(A, "linalg.inv")
    return _inverse_and_info(A)


def _inverse_and_info(A: Tensor) -> tuple[Tensor, Tensor]:
    packed, pivots, info = dc.lu_packed(A)
    n = A.shape[-1]
    return solve_with_lu(packed, pivots, identity(n, n, A).expand(A.shape)), info


@composite(
    checks=op_.VALUES,
    internal=True,
    out=False,
    meta=lambda A: dc.matrix_meta(A, tuple(A.shape)),
    vjp={"A": lambda g, y: -(adjoint(y) @ (g @ adjoint(y)))},
    torch="linalg_inv_ex",
)
def inverse_checked(A: Tensor) -> Tensor:
    """Inverse; raises where a matrix is singular."""
    found, info = _inverse_and_info(A)
    raise_if_failed(info, "linalg.inv", "inv")
    return found


@_linalg()
def inv_ex(A: Tensor, *, check_errors: bool = False) -> Any:
    """Inverse and an info number instead of an error."""
    found, info = inverse_unchecked(A)
    if check_errors:
        raise_if_failed(info, "linalg.inv_ex", "inv")
    return _INV_EX(found, info)


@_linalg(oracle=np.linalg.inv, samples=[([[4.0, 1.0], [1.0, 3.0]],)])
def inv(A: Tensor) -> Tensor:
    """The matrix whose product with A is the identity."""
    check_square(A, "linalg.inv")
    check_float(A, "linalg.inv")
    return inverse_checked(A)


@composite(
    name="inverse",
    method=True,
    oracle=np.linalg.inv,
    samples=[([[4.0, 1.0], [1.0, 3.0]],)],
    autocast="full",
)
def inverse(input: Tensor) -> Tensor:
    """`lucerne.linalg.inv`."""
    return inv(input)


# ---- determinants -----------------------------------------------------------------------------


def _without_zeros(packed: Tensor) -> Tensor:
    """A tiny pivot where it is zero: the nearest matrix that has an inverse."""
    diagonal = packed.diagonal(0, -2, -1)
    tiny = float(np.finfo(packed.dtype.to_real().storage).eps)
    return packed + ((diagonal == 0).to(packed.dtype) * tiny).diag_embed()


@composite(internal=True, out=False, meta=lambda A, factor: dc.matrix_meta(A, tuple(A.shape)))
def scaled_adjoint_inverse(A: Tensor, factor: Tensor) -> Tensor:
    """`factor * A^-H` for each matrix, a tiny pivot in the place of one that is zero."""
    packed, pivots, _ = dc.lu_packed(A)
    right = factor.to(A.dtype).unsqueeze(-1).expand(A.shape[:-1]).diag_embed()
    return solve_adjoint_with_lu(_without_zeros(packed), pivots, right)


def _determinant_meta(A: TensorMeta) -> TensorMeta | None:
    """None: the body refuses such a tensor."""
    if A.ndim < 2 or A.shape[-1] != A.shape[-2] or A.dtype.category < dt.FLOAT:
        return None
    return dc.plain_meta(A, tuple(A.shape[:-2]), A.dtype)


def _sign_of_exchanges(pivots: Tensor, dtype: Dtype) -> Tensor:
    """-1 for an odd number of row exchanges."""
    own = ranges.arange(1, pivots.shape[-1] + 1, dtype=pivots.dtype, device=pivots.device)
    odd = (pivots != own).sum(-1) % 2
    return (1 - 2 * odd).to(dtype)


@composite(
    namespace="linalg",
    out="exact",
    meta=lambda A: _determinant_meta(A),
    vjp={"A": lambda g, A, y: scaled_adjoint_inverse(A, g * conj_of(y))},
    oracle=np.linalg.det,
)
def det(A: Tensor) -> Tensor:
    """Determinants of square matrices."""
    check_square(A, "linalg.det")
    check_float(A, "linalg.det")
    packed, pivots, _ = dc.lu_packed(A)
    return packed.diagonal(0, -2, -1).prod(-1) * _sign_of_exchanges(pivots, A.dtype)


def _slogdet_backward(g: Any, A: Tensor, y0: Tensor) -> Tensor:
    factor = g[1]
    if A.dtype.category == dt.COMPLEX:
        turn = (g[0] * conj_of(y0)).imag
        factor = complexes.complex(factor, turn)
    return scaled_adjoint_inverse(A, factor)


@composite(namespace="linalg", out="exact", vjp={"A": _slogdet_backward}, oracle=np.linalg.slogdet)
def slogdet(A: Tensor) -> Any:
    """Sign and logarithm of the absolute value of the determinant."""
    check_square(A, "linalg.slogdet")
    check_float(A, "linalg.slogdet")
    packed, pivots, _ = dc.lu_packed(A)
    diagonal = packed.diagonal(0, -2, -1)
    sign = diagonal.sgn().prod(-1) * _sign_of_exchanges(pivots, A.dtype)
    return _SLOGDET(sign, diagonal.abs().log().sum(-1))
