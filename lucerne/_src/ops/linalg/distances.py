"""How far apart vectors are, and how alike."""

from __future__ import annotations

from typing import Any

import numpy as np

from lucerne._src.base import dtype as dt
from lucerne._src.base import shape as sh
from lucerne._src.ir.define import composite, front
from lucerne._src.ir.meta import TensorMeta, make_meta
from lucerne._src.ir.op import Tensor
from lucerne._src.ops.checks import need_dtype_of
from lucerne._src.ops.copy import join
from lucerne._src.ops.creation import ranges
from lucerne._src.ops.pointwise import select
from lucerne._src.ops.reduce.norms import p_norm


@front(method=True)
def dist(input: Tensor, other: Tensor, p: Any = 2) -> Tensor:
    """Norm of the difference.

    >>> import lucerne
    >>> lucerne.tensor([0.0, 0.0]).dist(lucerne.tensor([3.0, 4.0]))
    tensor(5.)
    """
    return p_norm(input - other, p, None, False)


_MODES = (None, "use_mm_for_euclid_dist_if_necessary", "use_mm_for_euclid_dist",
          "donot_use_mm_for_euclid_dist")  # fmt: skip


def _check_cdist(x1: Tensor, x2: Tensor, p: float) -> None:
    for name, x in (("X1", x1), ("X2", x2)):
        if not x.is_floating_point():
            raise RuntimeError(
                f"cdist only supports floating-point dtypes, {name} got: {dt.cxx_name(x.dtype)}"
            )
        if x.ndim < 2:
            raise RuntimeError(f"cdist only supports at least 2D tensors, {name} got: {x.ndim}D")
    if x1.shape[-1] != x2.shape[-1]:
        raise RuntimeError(
            f"X1 and X2 must have the same number of columns. X1: {x1.shape[-1]} X2: {x2.shape[-1]}"
        )
    if p < 0:
        raise RuntimeError("cdist only supports non-negative p values")


@front()
def cdist(
    x1: Tensor,
    x2: Tensor,
    p: float = 2.0,
    compute_mode: str | None = "use_mm_for_euclid_dist_if_necessary",
) -> Tensor:
    """Distance of every row of `x1` to every row of `x2`.

    >>> import lucerne
    >>> lucerne.cdist(lucerne.zeros(2, 2), lucerne.tensor([[3.0, 4.0]]))
    tensor([[5.],
            [5.]])
    """
    _check_cdist(x1, x2, p)
    if compute_mode not in _MODES:
        raise ValueError(f"{compute_mode} is not a valid value for compute_mode")
    rows = max(x1.shape[-2], x2.shape[-2])
    by_product = compute_mode == "use_mm_for_euclid_dist" or (
        compute_mode in _MODES[:2] and rows > 25
    )
    if p == 2 and by_product and 0 not in (*x1.shape, *x2.shape):
        return _euclid_by_product(x1, x2)
    return pair_distances(x1, x2, p)


@composite(internal=True, name="euclid_by_product")
def _euclid_by_product(x1: Tensor, x2: Tensor) -> Tensor:
    """|a|^2 - 2ab + |b|^2: one matrix product instead of a table of differences."""
    need_dtype_of(x1, x2)  # (here, where autocast has made them alike)
    square1, square2 = ((x * x).sum(-1, True) for x in (x1, x2))
    ones1, ones2 = square1.new_ones(square1.shape), square2.new_ones(square2.shape)
    left = join.cat([x1.mul(-2), square1, ones1], -1)
    right = join.cat([x2, ones2, square2], -1)
    return distance_of(left.matmul(right.transpose(-2, -1)))


@composite(internal=True, out=False, fuse=True)
def distance_slope(g: Tensor, y: Tensor) -> Tensor:
    """The gradient of a square, from that of its root `y`: the root of zero has an infinite slope,
    the distance of a point to itself has none."""
    return select.choose(y == 0, 0, g / (2 * y))


@composite(internal=True, out=False, vjp={"square": lambda g, y: distance_slope(g, y)}, fuse=True)
def distance_of(square: Tensor) -> Tensor:
    """The root of a squared distance, which may have been rounded below zero."""
    return square.clamp_min(0).sqrt()


@composite(
    internal=True,
    name="pair_distances",
    oracle=lambda x1, x2, p: (
        np.sum(np.abs(x1[..., :, None, :] - x2[..., None, :, :]) ** p, -1) ** (1 / p)
    ),
    autocast="full",
    torch="cdist",
)
def pair_distances(x1: Tensor, x2: Tensor, p: float) -> Tensor:
    """Norms of all differences of rows."""
    need_dtype_of(x1, x2)  # (here, where autocast has made them alike)
    away = x1.unsqueeze(-2) - x2.unsqueeze(-3)
    if not away.shape[-1]:
        return away.sum(-1)
    return _length(away, p)


def _length(away: Tensor, p: float) -> Tensor:
    """The norm of the last dimension; how many differ, for p = 0: with nan nobody knows."""
    if p == 0:
        return away.abs().ceil().clamp_max(1).sum(-1)
    return p_norm(away, p, (-1,), False)


@front()
@front(namespace="nn.functional")
def pdist(input: Tensor, p: float = 2.0) -> Tensor:
    """Distances of all pairs of rows: the upper triangle of `cdist(input, input)`, row by row."""
    if input.ndim != 2:
        raise RuntimeError(f"pdist only supports 2D tensors, got: {input.ndim}D")
    if not input.is_floating_point():
        raise RuntimeError("pdist only supports floating-point dtypes")
    if p < 0:
        raise RuntimeError("pdist only supports non-negative p values")
    rows = input.shape[0]
    if p == 2 and rows > 1 and input.shape[1]:
        return upper_distances(input)
    first, second = ranges.triu_indices(rows, rows, 1, device=input.device).unbind(0)
    away = input.index_select(0, first) - input.index_select(0, second)
    return _length(away, p) if away.shape[-1] else away.sum(-1)


def _upper_distances_back(g: Tensor, y: Tensor, input: Tensor) -> Tensor:
    """Each distance pulls its two rows apart: sums of differences, as one product of matrices.
    Only differences count, so rows are taken from their mean, where they round least."""
    rows = input.shape[0]
    upper = ranges.triangle(rows, rows, 1, input.device, False)
    pull = g.new_zeros((rows, rows)).masked_scatter(upper, distance_slope(g * 2, y))
    pull = pull + pull.t()
    x = input - input.mean(0, True)
    return x * pull.sum(1, True) - pull.matmul(x)


def _upper_meta(input: TensorMeta, columns: TensorMeta) -> TensorMeta:
    rows = input.shape[0]
    return make_meta(input.dtype, (rows * (rows - 1) // 2,), None, input.device)


@composite(internal=True, out=False, opmath=True, meta=_upper_meta)
def upper_norms(input: Tensor, columns: Tensor) -> Tensor:
    """Distances of the rows of a matrix to those below; `columns` is the same matrix turned."""
    rows = input.shape[0]
    away = input.unsqueeze(-1) - columns.unsqueeze(0)
    every = (away * away).sum((1,)).sqrt()
    return every.masked_select(ranges.triangle(rows, rows, 1, input.device, False))


@composite(internal=True, out=False, vjp={"input": _upper_distances_back})
def upper_distances(input: Tensor) -> Tensor:
    """Euclidean distances of all pairs of rows."""
    return upper_norms(input.contiguous(), input.t().contiguous())


@front()
@front(namespace="nn.functional")
def pairwise_distance(
    x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Tensor:
    """Norm of the difference along the last dimension."""
    wide = x1 if x1.ndim >= x2.ndim else x2
    return p_norm(x1 - x2 + eps, p, (wide.ndim - 1,), keepdim)


def _check_similar(x1: Tensor, x2: Tensor) -> tuple[Tensor, Tensor]:
    common = dt.promote_types(x1.dtype, x2.dtype)
    if not common.is_floating_point:
        raise RuntimeError(
            f"expected common dtype to be floating point, yet common dtype is {dt.cxx_name(common)}"
        )
    shape = sh.broadcast_shapes(x1.shape, x2.shape)
    return x1.to(common).expand(shape), x2.to(common).expand(shape)


@composite(name="cosine_similarity", out=False)
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """Cosine of the angle between vectors along `dim`."""
    x1, x2 = _check_similar(x1, x2)
    length1 = p_norm(x1, 2.0, (dim,), True)
    length2 = p_norm(x2, 2.0, (dim,), True)
    # Only the value is bounded from below: the gradient is that of the unbounded norm.
    floor1 = (length1.detach().clamp_min(eps) - length1.detach()) + length1
    floor2 = (length2.detach().clamp_min(eps) - length2.detach()) + length2
    return ((x1 / floor1) * (x2 / floor2)).sum(dim)


@front(name="cosine_similarity", namespace="nn.functional")
def functional_cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """Cosine of the angle between vectors along `dim`."""
    return cosine_similarity(x1, x2, dim, eps)


@front(method=True, inplace=True)
def renorm(input: Tensor, p: float, dim: int, maxnorm: float, *, out: Any = None) -> Tensor:
    """Slices along `dim` scaled down to norm `maxnorm` where they are longer."""
    if p <= 0:
        raise RuntimeError("renorm: non-positive-norm not supported")
    if maxnorm < 0:
        raise RuntimeError(f"renorm: expected maxnorm to be >= 0 but got {maxnorm}")
    if input.ndim < 2:
        raise RuntimeError(
            f"renorm: input needs at least 2 dimensions, got {input.ndim} dimensions"
        )
    return renormed(input, p, dim, maxnorm, out=out)


@composite(internal=True, name="renormed", opmath=True, out="exact", torch="renorm")
def renormed(input: Tensor, p: float, dim: int, maxnorm: float) -> Tensor:
    """Slices along `dim` scaled down to norm `maxnorm` where they are longer."""
    d = sh.wrap_dim(dim, input.ndim)
    others = tuple(i for i in range(input.ndim) if i != d)
    length = p_norm(input, p, others, True)
    # (Not input * (maxnorm / length): of large numbers its gradient would need 1 / length^2.)
    return select.where(length.gt(maxnorm), input / (length + 1e-7) * maxnorm, input)
