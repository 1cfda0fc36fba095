"""`lucerne.linalg`: norms, ranks, powers, pseudo-inverses and products of many matrices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lucerne._src.base import dtype as dt
from lucerne._src.base import shape as sh
from lucerne._src.ir.convert import Dtype, IntList
from lucerne._src.ir.define import composite, front
from lucerne._src.ir.dispatch import every_value
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.ir.op import Tensor, TensorList
from lucerne._src.ir.results import named
from lucerne._src.ops import late
from lucerne._src.ops.checks import conj_of, need_dtype_of
from lucerne._src.ops.copy import join
from lucerne._src.ops.linalg import decompositions as dc
from lucerne._src.ops.linalg import matmul
from lucerne._src.ops.linalg.checks import check_float, check_matrix, check_same_dtype, check_square
from lucerne._src.ops.linalg.decompositions import adjoint, qr_factors, svd_factors, tri_solve
from lucerne._src.ops.linalg.matmul import mm, refuse_bool
from lucerne._src.ops.linalg.systems import eigh, eigvalsh, identity, inv, inv_ex, solve, svdvals
from lucerne._src.ops.pointwise import select
from lucerne._src.ops.signal.fft import resized

# ---- norms ------------------------------------------------------------------------------------


def _order(name: str, ord: Any) -> Any:
    if ord in ("fro", "nuc") or (not isinstance(ord, str) and abs(ord) in (1, 2, math.inf)):
        return ord
    raise RuntimeError(f"{name}: Order {ord} not supported.")


def _matrix_dims(A: Tensor, dim: Any, name: str) -> tuple[int, int]:
    if len(dim) != 2:
        raise RuntimeError(f"{name}: dim must be a 2-tuple. Got {' '.join(map(str, dim))}")
    a, b = (sh.wrap_dim(d, A.ndim) for d in dim)
    if a == b:
        raise RuntimeError(f"{name}: dims must be different. Got ({dim[0]}, {dim[1]})")
    return a, b


def _norm_by_sums(A: Tensor, ord: float, dims: tuple[int, int], keepdim: bool) -> Tensor:
    """Largest (or smallest) sum of absolute values over rows or columns."""
    over, along = dims if abs(ord) == 1 else dims[::-1]
    sums = A.abs().sum(over, keepdim=keepdim)
    if not keepdim and along > over:
        along -= 1
    return _largest(sums, along, keepdim) if ord > 0 else sums.amin(along, keepdim=keepdim)


def _largest(x: Tensor, dim: int, keepdim: bool) -> Tensor:
    """The largest of values that are never negative: zero when there are none."""
    return x.amax(dim, keepdim) if x.shape[dim] else x.sum(dim, keepdim)


def _norm_by_values(A: Tensor, ord: Any, dims: tuple[int, int], keepdim: bool) -> Tensor:
    """Sum, largest or smallest of the singular values."""
    rest = [d for d in range(A.ndim) if d not in dims]
    values = svdvals(A.permute(*rest, *dims))
    if ord == "nuc":
        found = values.sum(-1)
    else:
        found = _largest(values, -1, False) if ord > 0 else values.amin(-1)
    if keepdim:
        for d in sorted(dims):
            found = found.unsqueeze(d)
    return found


@composite(namespace="linalg", out="exact")
def matrix_norm(
    A: Tensor,
    ord: Any = "fro",
    dim: IntList = (-2, -1),
    keepdim: bool = False,
    *,
    dtype: Dtype | None = None,
) -> Tensor:
    """Norm of each matrix: "fro", "nuc", or 1, 2, inf and their negatives."""
    name = "linalg.matrix_norm"
    check_matrix(A, name)
    check_float(A, name, low=True)
    dims = _matrix_dims(A, dim, name)
    _order(name, ord)
    if ord == "fro":
        return late.fn("linalg.vector_norm")(A, 2, dims, keepdim, dtype=dtype)
    x = A if dtype is None else A.to(dtype)
    if ord == "nuc" or abs(ord) == 2:
        check_float(x, name)
        return _norm_by_values(x, ord, dims, keepdim)
    return _norm_by_sums(x, ord, dims, keepdim)


@composite(namespace="linalg", oracle=np.linalg.cond, autocast="full")
def cond(input: Tensor, p: Any = None) -> Tensor:
    """Condition number: the norm of the matrix times that of its inverse."""
    check_matrix(input, "linalg.cond")
    check_float(input, "linalg.cond")
    if p is None or p in (2, -2):
        values = svdvals(input)
        if not values.shape[-1]:
            return values.new_zeros(values.shape[:-1])
        first, last = values[..., 0], values[..., -1]
        return last / first if p == -2 else first / last
    check_square(input, f"linalg.cond(ord={p})")
    _order("linalg.cond", p)
    if not input.numel():
        return input.abs().sum((-2, -1))
    inverse, info = inv_ex(input)
    found = matrix_norm(input, p) * matrix_norm(inverse, p)
    return found.masked_fill(info > 0, math.inf)


# ---- ranks and pseudo-inverses ----------------------------------------------------------------


def _tolerances(A: Tensor, atol: Any, rtol: Any) -> tuple[Any, Any]:
    """Absolute and relative tolerance; the default is relative, unless an absolute one is given."""
    if rtol is None:
        eps = float(np.finfo(A.dtype.to_real().storage).eps) * max(A.shape[-2:])
        if atol is None:
            rtol = eps
        elif hasattr(atol, "_meta"):
            rtol = select.where(atol > 0, 0.0, eps)
        else:
            rtol = 0.0 if atol > 0 else eps
    return (0.0 if atol is None else atol), rtol


def _threshold(values: Tensor, atol: Any, rtol: Any) -> Tensor:
    """max(atol, rtol * largest), one per matrix."""
    relative = values.amax(-1) * rtol
    if hasattr(atol, "_meta"):
        return select.maximum(relative, atol.to(relative.dtype))
    return relative.clamp(min=atol)


def _magnitudes(A: Tensor, hermitian: bool) -> Tensor:
    return eigvalsh(A).abs() if hermitian else svdvals(A)


@composite(internal=True, name="rank_of", namespace="linalg", autocast="full")
def rank_of(input: Tensor, atol: Tensor | None, rtol: Tensor | None, hermitian: bool) -> Tensor:
    """How many singular values exceed the tolerance."""
    if not input.numel():
        return input.new_zeros(input.shape[:-2], dtype=dt.int64)
    values = _magnitudes(input, hermitian)
    absolute, relative = _tolerances(input, atol, rtol)
    return (values > _threshold(values, absolute, relative).unsqueeze(-1)).sum(-1)


def _check_rank_arguments(name: str, A: Tensor, hermitian: bool, *tolerances: Any) -> None:
    if hermitian:
        check_square(A, name)
    else:
        check_matrix(A, name)
    check_float(A, name)
    for label, t in zip(("atol", "rtol"), tolerances, strict=True):
        if hasattr(t, "_meta") and t.dtype.category == dt.COMPLEX:
            raise RuntimeError(
                f"{name}: {label} tensor of complex type is not supported. Got "
                f"{dt.cxx_name(t.dtype)}"
            )


@front(namespace="linalg")
def matrix_rank(
    A: Tensor,
    tol: Any = None,
    hermitian: bool = False,
    *,
    atol: Any = None,
    rtol: Any = None,
    out: Any = None,
) -> Tensor:
    """Rank of each matrix: how many singular values exceed `max(atol, rtol * largest)`."""
    if tol is not None:
        atol, rtol = tol, 0.0
    _check_rank_arguments("linalg.matrix_rank", A, hermitian, atol, rtol)
    return rank_of(A, atol, rtol, hermitian, out=out)


def _pinv_backward(g: Tensor, A: Tensor, y: Tensor) -> Tensor:
    back, yh = adjoint(g), adjoint(y)
    if A.shape[-2] <= A.shape[-1]:
        k = back @ y
        kyh = k @ yh
        return -adjoint(y @ k) + kyh - (A @ y) @ kyh + (yh @ y) @ (back - k @ A)
    k = y @ back
    yhk = yh @ k
    return -adjoint(k @ y) + (back - A @ k) @ y @ yh + yhk - (yhk @ y) @ A


@composite(
    internal=True, name="pseudo_inverse", out=True, vjp={"A": _pinv_backward}, autocast="full"
)
def pseudo_inverse(A: Tensor, atol: Tensor | None, rtol: Tensor | None, hermitian: bool) -> Tensor:
    """Moore-Penrose inverse; singular values under the tolerance count as zero."""
    if not A.numel():
        return A.new_empty((*A.shape[:-2], A.shape[-1], A.shape[-2]))
    absolute, relative = _tolerances(A, atol, rtol)
    if hermitian:
        values, right = eigh(A)
        left_h = adjoint(right)
        size = values.abs()
    else:
        left, values, right_h = svd_factors(A, False)
        left_h, right, size = adjoint(left), adjoint(right_h), values
    keep = size > _threshold(size, absolute, relative).unsqueeze(-1)
    inverted = select.where(keep, values.reciprocal(), 0.0).to(A.dtype)
    return (right * inverted.unsqueeze(-2)) @ left_h


@front(namespace="linalg")
def pinv(
    A: Tensor,
    rcond: Any = None,
    hermitian: bool = False,
    *,
    atol: Any = None,
    rtol: Any = None,
    out: Any = None,
) -> Tensor:
    """Pseudo-inverse of each matrix, of any shape.

    >>> import lucerne
    >>> lucerne.linalg.pinv(lucerne.tensor([[2.0], [0.0]]))
    tensor([[0.5000, 0.0000]])
    """
    if rcond is not None:
        atol, rtol = 0.0, rcond
    _check_rank_arguments("linalg.pinv", A, hermitian, atol, rtol)
    return pseudo_inverse(A, atol, rtol, hermitian, out=out)


_LSTSQ = named("linalg_lstsq", "solution residuals rank singular_values")


def _check_lstsq(A: Tensor, B: Tensor, driver: str) -> bool:
    """Whether B holds one vector per matrix; raises when the sizes do not fit."""
    name = "torch.linalg.lstsq"
    if A.ndim < 2:
        raise RuntimeError(f"{name}: input must have at least 2 dimensions.")
    if B.ndim < 1:
        raise RuntimeError(f"{name}: other must have at least 1 dimension.")
    if A.dtype is not B.dtype:
        raise RuntimeError(
            f"{name}: Expected input and other to have the same dtype, but got input's dtype "
            f"{dt.cxx_name(A.dtype)} and other's dtype {dt.cxx_name(B.dtype)}"
        )
    if not 0 <= A.ndim - B.ndim <= 1:
        raise RuntimeError(
            f"{name}: input.dim() must be greater or equal to other.dim() and (input.dim() - "
            "other.dim()) <= 1"
        )
    vector = B.ndim == 1 or (A.ndim - 1 == B.ndim and tuple(B.shape) == tuple(A.shape[:-1]))
    if vector:
        if A.shape[-2] != B.shape[-1]:
            raise RuntimeError(f"{name}: input.size(-2) should match other.size(-1)")
    elif A.shape[-2] != B.shape[-2]:
        raise RuntimeError(f"{name}: input.size(-2) should match other.size(-2)")
    if driver not in ("gels", "gelsy", "gelsd", "gelss"):
        raise RuntimeError(
            f"{name}: parameter `driver` should be one of (gels, gelsy, gelsd, gelss)"
        )
    return vector


@composite(namespace="linalg", out="lapack", autocast="full")
def lstsq(A: Tensor, B: Tensor, rcond: float | None = None, *, driver: Any = None) -> Any:
    """X that makes `A X - B` smallest; of several the one with the smallest norm.

    Also the squared residuals, the rank and the singular values, where the driver gives them.
    """
    driver = driver or "gelsy"
    vector = _check_lstsq(A, B, driver)
    check_float(A, "torch.linalg.lstsq")
    right = B.unsqueeze(-1) if vector else B
    m, n = A.shape[-2:]
    relative = rcond if rcond is not None and rcond >= 0 else None
    if rcond is not None and rcond < 0:
        relative = float(np.finfo(A.dtype.to_real().storage).eps)
    fixed, full = A.detach(), driver == "gels"
    rank = A.new_empty(0, dtype=dt.int64)
    if full:  # the rank is taken for granted
        found = _by_triangle(A, right)
    elif driver == "gelsy":
        found, rank = least_squares(A, right, relative)
    else:
        found, rank = _by_singular_values(A, right, relative)
    solution = _in_work_space(found, max(m, n))
    empty = A.new_empty(0, dtype=A.dtype.to_real())
    # Even when there are none, residuals are part of the graph.
    residuals = A.reshape(-1).narrow(0, 0, 0).abs()
    if m > n and driver != "gelsy" and (full or _all_full(rank, n)):
        residuals = (A @ solution - right).abs().square().sum(-2)
    values = svdvals(fixed) if driver in ("gelsd", "gelss") else empty
    return _LSTSQ(solution.squeeze(-1) if vector else solution, residuals, rank, values)


def _least_squares_meta(A: TensorMeta, B: TensorMeta, relative: float | None) -> Any:
    """None: the body broadcasts."""
    *batch, _, n = A.shape
    if tuple(B.shape[:-2]) != tuple(batch) or B.ndim != A.ndim or not A.numel:
        return None
    shape = (*batch, n, B.shape[-1])
    return dc.matrix_meta(B, shape), dc.plain_meta(A, tuple(batch), dt.int64)


@composite(internal=True, out=False, meta=_least_squares_meta)
def least_squares(A: Tensor, B: Tensor, relative: float | None) -> Any:
    """X that makes `A X - B` smallest, and the rank of A: singular values below this share of the
    largest one count as zero."""
    return _by_singular_values(A, B, relative)


def _by_singular_values(A: Tensor, B: Tensor, relative: float | None) -> tuple[Tensor, Tensor]:
    least = None if relative is None else 0.0
    found = pseudo_inverse(A, least, relative, False) @ B
    return found, rank_of(A.detach(), least, relative, False)


def _by_triangle(A: Tensor, right: Tensor) -> Tensor:
    """The solution for a matrix of full rank, by its QR factors or those of its adjoint."""
    if A.shape[-2] >= A.shape[-1]:
        q, r = qr_factors(A, False)
        return tri_solve(r, adjoint(q) @ right, True, True, False)
    q, r = qr_factors(adjoint(A), False)
    return q @ tri_solve(adjoint(r), right, False, True, False)


def _in_work_space(x: Tensor, rows: int) -> Tensor:
    """The strides LAPACK leaves: columns of a matrix that had room for both sides."""
    tall = resized(x, (x.ndim - 2,), (rows,)).transpose(-2, -1).contiguous().transpose(-2, -1)
    return tall.narrow(-2, 0, x.shape[-2])


def _all_full(rank: Tensor, n: int) -> bool:
    return bool(every_value(rank == n).all())


# ---- powers and exponentials ------------------------------------------------------------------


def _to_the_power(A: Tensor, n: int) -> Tensor:
    check_square(A, "linalg.matrix_power")
    if n == 0:
        # The empty sum is zero: it ties the result to the graph.
        one = identity(A.shape[-1], A.shape[-1], A).expand(A.shape)
        return one + A.narrow(-1, 0, 0).sum(dtype=A.dtype)
    if n == 1:
        return A.clone()
    if n == -1:
        return inv(A)
    base = inv(A) if n < 0 else A
    return _power(base, abs(n))


@composite(internal=True, out="exact plain")
def matrix_power_multiplied(A: Tensor, n: int) -> Tensor:
    """A power whose last step is a product: that is written to `out=`."""
    return _to_the_power(A, n)


@composite(internal=True, out="plain")
def matrix_power_copied(A: Tensor, n: int) -> Tensor:
    """A power that torch copies into `out=`, which may be of a wider dtype then."""
    return _to_the_power(A, n)


@front(namespace="linalg")
def matrix_power(A: Tensor, n: int, *, out: Any = None) -> Tensor:
    """A multiplied with itself n times; negative powers are those of the inverse."""
    size = abs(n)
    copied = n in (0, 1) or (size > 2 and not size & (size - 1))
    return (matrix_power_copied if copied else matrix_power_multiplied)(A, n, out=out)


def _power(base: Tensor, n: int) -> Tensor:
    """By squaring, bit after bit."""
    result = None
    while True:
        if n & 1:
            result = base if result is None else result @ base
        n >>= 1
        if not n:
            return result
        base = base @ base


@composite(name="matrix_power", method=True, oracle=np.linalg.matrix_power)
def matrix_power_method(input: Tensor, n: int) -> Tensor:
    """`lucerne.linalg.matrix_power`."""
    return matrix_power(input, n)


_TERMS = 18
"""Enough for float64 when the norm is below one half."""


def _exp_backward(g: Tensor, A: Tensor) -> Tensor:
    """The derivative stands in the corner of the exponential of a block matrix."""
    n = A.shape[-1]
    turned = adjoint(A)
    cat = join.cat
    below = cat([turned.new_zeros(turned.shape), turned], -1)
    block = cat([cat([turned, g], -1), below], -2)
    return matrix_exp(block)[..., :n, n:]


@composite(namespace="linalg", opmath=True, vjp={"A": _exp_backward})
def matrix_exp(A: Tensor) -> Tensor:
    """`I + A + A @ A / 2 + ...`: scaled down, summed, and squared up again."""
    check_square(A, "linalg.matrix_exp")
    check_float(A, "linalg.matrix_exp", low=True)
    if not A.numel():
        return A.clone()
    # Every squaring doubles the relative error: single numbers are squared in double precision.
    return _exponential(A.to(dt.promote_types(A.dtype, dt.float64))).to(A.dtype)


def _exponential(A: Tensor) -> Tensor:
    n = A.shape[-1]
    norm = A.abs().sum(-2).amax(-1)
    halvings = norm.log2().ceil().clamp(min=-1).add(1).nan_to_num(0.0, 0.0, 0.0)
    scaled = A * (0.5**halvings).to(A.dtype).unsqueeze(-1).unsqueeze(-1)
    one = identity(n, n, A)
    total = one + scaled / _TERMS
    for k in range(_TERMS - 1, 0, -1):
        total = one + (scaled @ total) / k
    for i in range(int(every_value(halvings).max())):
        again = (halvings > i).unsqueeze(-1).unsqueeze(-1)
        total = select.where(again, total @ total, total)
    return total


@composite(name="matrix_exp", method=True)
def matrix_exp_method(input: Tensor) -> Tensor:
    """`lucerne.linalg.matrix_exp`."""
    return matrix_exp(input)


# ---- tensors as matrices ----------------------------------------------------------------------


@composite(
    namespace="linalg",
    out="plain",
    oracle=np.linalg.tensorinv,
    samples=[((2, 3, 6), 2)],
    autocast="full",
)
def tensorinv(A: Tensor, ind: int = 2) -> Tensor:
    """Inverse of a tensor whose first `ind` dimensions form the rows of a matrix."""
    if ind <= 0:
        raise RuntimeError("Expected a strictly positive integer for 'ind'")
    rows, columns = tuple(A.shape[:ind]), tuple(A.shape[ind:])
    if sh.numel(rows) != sh.numel(columns):
        raise RuntimeError(
            "Expected self to satisfy the requirement prod(self.shape[ind:]) == "
            f"prod(self.shape[:ind]), but got {sh.numel(columns)} != {sh.numel(rows)}"
        )
    n = sh.numel(rows)
    return inv(A.reshape(n, n)).reshape(*columns, *rows)


@composite(
    namespace="linalg",
    oracle=lambda A, B, dims: np.linalg.tensorsolve(A, B, dims),
    samples=[((2, 3, 6), (2, 3))],
    autocast="full",
)
def tensorsolve(A: Tensor, B: Tensor, dims: IntList | None = None) -> Tensor:
    """X with `tensordot(A, X) = B`."""
    if dims is not None:
        moved = sh.wrap_dims(dims, A.ndim)
        A = A.permute(*[d for d in range(A.ndim) if d not in moved], *moved)
    shape = tuple(A.shape[B.ndim :])
    if sh.numel(shape) != B.numel():
        raise RuntimeError(
            "Expected self to satisfy the requirement prod(self.shape[other.ndim:]) == "
            f"prod(self.shape[:other.ndim]), but got {sh.numel(shape)} != {B.numel()}"
        )
    n = B.numel()
    return solve(A.reshape(n, n), B.reshape(-1)).reshape(shape)


# ---- products ---------------------------------------------------------------------------------


def _check_multi_dot(tensors: tuple[Any, ...]) -> None:
    if len(tensors) < 2:
        raise RuntimeError(f"multi_dot(): expected at least 2 tensors but got {len(tensors)}")
    for place, t in (("first", tensors[0]), ("last", tensors[-1])):
        if t.ndim not in (1, 2):
            raise RuntimeError(
                f"multi_dot(): the {place} tensor must be 1D or 2D but got {t.ndim}D"
            )
    for i, t in enumerate(tensors[1:-1], 1):
        if t.ndim != 2:
            raise RuntimeError(f"multi_dot(): tensor {i} must be 2D but got {t.ndim}D")
    first = tensors[0]
    for i, t in enumerate(tensors):
        if t.dtype is not first.dtype:
            raise RuntimeError(
                f"multi_dot(): all tensors must have be the same dtype but tensor 0 is "
                f"{dt.cxx_name(first.dtype)} and tensor {i} {dt.cxx_name(t.dtype)}"
            )
    for i in range(len(tensors) - 1):
        if tensors[i].shape[-1] != tensors[i + 1].shape[0]:
            raise RuntimeError(
                f"multi_dot(): tensors {i} and {i + 1} with shapes {list(tensors[i].shape)} and "
                f"{list(tensors[i + 1].shape)} cannot be multiplied"
            )


def chain_order(sizes: list[int]) -> list[list[int]]:
    """Where to split each part of a chain so that it costs the fewest multiplications."""
    n = len(sizes) - 1
    cost = [[0] * n for _ in range(n)]
    split = [[0] * n for _ in range(n)]
    for length in range(1, n):
        for i in range(n - length):
            j = i + length
            cost[i][j], split[i][j] = min(
                (cost[i][k] + cost[k + 1][j] + sizes[i] * sizes[k + 1] * sizes[j + 1], k)
                for k in range(i, j)
            )
    return split


def _chain(matrices: list[Any], split: list[list[int]], i: int, j: int) -> Tensor:
    if i == j:
        return matrices[i]
    k = split[i][j]
    return mm(_chain(matrices, split, i, k), _chain(matrices, split, k + 1, j))


@composite(
    namespace="linalg",
    out="exact",
    oracle=lambda tensors: np.linalg.multi_dot(tensors),
    samples=[([(2, 3), (3, 4), (4, 2)],)],
)
def multi_dot(tensors: TensorList) -> Tensor:
    """Product of a chain of matrices, in the cheapest order; the ends may be vectors."""
    _check_multi_dot(tensors)
    matrices = list(tensors)
    shape = []
    if matrices[0].ndim == 1:
        matrices[0] = matrices[0].unsqueeze(0)
    else:
        shape.append(matrices[0].shape[0])
    if matrices[-1].ndim == 1:
        matrices[-1] = matrices[-1].unsqueeze(-1)
    else:
        shape.append(matrices[-1].shape[1])
    sizes = [m.shape[0] for m in matrices] + [matrices[-1].shape[1]]
    return _chain(matrices, chain_order(sizes), 0, len(matrices) - 1).reshape(shape)


@front()
def chain_matmul(*matrices: Any, out: Any = None) -> Tensor:
    """Product of a chain of matrices (`linalg.multi_dot` is its newer form)."""
    given = (
        list(matrices[0])
        if len(matrices) == 1 and isinstance(matrices[0], (list, tuple))
        else list(matrices)
    )
    if len(given) == 1:
        return given[0]
    return multi_dot(given, out=out)


def _check_cross(input: Tensor, other: Tensor, dim: int) -> None:
    if input.ndim != other.ndim:
        raise RuntimeError("linalg.cross: inputs must have the same number of dimensions.")
    sh.wrap_dim(dim, input.ndim)
    a, b = input.shape[dim], other.shape[dim]
    if a != 3 or b != 3:
        raise RuntimeError(
            f"linalg.cross: inputs dimension {dim} must have length 3. Got {a} and {b}"
        )
    need_dtype_of(input, other)
    refuse_bool("cross", input.dtype)


@composite(
    namespace="linalg",
    out="exact",
    vjp={
        "input": lambda g, other, dim: cross(conj_of(other), g, dim=dim),
        "other": lambda g, input, dim: cross(g, conj_of(input), dim=dim),
    },
)
def cross(input: Tensor, other: Tensor, *, dim: int = -1) -> Tensor:
    """Vector product of 3-vectors along a dimension."""
    _check_cross(input, other, dim)
    after = (1, 2, 0)
    before = (2, 0, 1)
    a, b = [input.select(dim, i) for i in range(3)], [other.select(dim, i) for i in range(3)]
    parts = [a[i] * b[j] - a[j] * b[i] for i, j in zip(after, before, strict=True)]
    return join.stack(parts, sh.wrap_dim(dim, input.ndim))


@front(name="cross", method=True)
def cross_any(input: Tensor, other: Tensor, dim: int | None = None, *, out: Any = None) -> Tensor:
    """Vector product; without `dim`, along the first dimension of size 3."""
    if dim is None:
        if input.ndim != other.ndim:
            raise RuntimeError("linalg.cross: inputs must have the same number of dimensions.")
        dim = next((d for d, n in enumerate(input.shape) if n == 3), None)
        if dim is None:
            raise RuntimeError("no dimension of size 3 in input")
    return cross(input, other, dim=dim, out=out)


@composite(namespace="linalg", out="exact", autocast="lower")
def vecdot(x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    """Sum over a dimension of the conjugate of `x` times `y`."""
    check_float(x, "linalg.vecdot", low=True)
    check_same_dtype("linalg.vecdot", x=x, y=y)
    if x.ndim == 1 and y.ndim == 1:
        return matmul.vdot(x, y)
    return (conj_of(x) * y).sum(dim)


@composite(
    namespace="linalg",
    oracle=lambda x, N: np.vander(x, N, increasing=True),
    samples=[((4,), 3)],
)
def vander(x: Tensor, N: int | None = None) -> Tensor:
    """Powers 0 to N-1 of each element, as rows."""
    t = x.dtype
    if t.category < dt.FLOAT and t.category != dt.INTEGER:
        raise RuntimeError(
            "linalg.vander supports floating point, complex, and integer tensors, but got "
            f"{dt.cxx_name(t)}"
        )
    if not x.ndim:
        x = x.reshape(1)
    n = x.shape[-1] if N is None else N
    if n <= 1:
        raise RuntimeError(f"N must be greater than 1. Got {n}")
    spread = x.unsqueeze(-1).expand(*x.shape, n - 1)
    powers = spread.cumprod(-1)
    return join.cat([x.new_ones((*x.shape, 1), dtype=powers.dtype), powers], -1)


@front(namespace="linalg")
def diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Diagonals of the last two dimensions, as a view."""
    return A.diagonal(offset, dim1, dim2)
