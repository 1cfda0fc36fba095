"""Transforms between regions: of single elements (`_elementwise`), vectors, matrices and parts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from lucerne import linalg
from lucerne._src.tensor import api as lu
from lucerne.distributions import constraints
from lucerne.distributions._elementwise import (
    AbsTransform,
    AffineTransform,
    CumulativeDistributionTransform,
    ExpTransform,
    PowerTransform,
    SigmoidTransform,
    SoftplusTransform,
    TanhTransform,
    _Plain,
    clipped_sigmoid,
)
from lucerne.distributions._transform import (
    ComposeTransform,
    IndependentTransform,
    Transform,
    _InverseTransform,
    identity_transform,
    too_few,
)
from lucerne.distributions.utils import _sum_rightmost, tril_matrix_to_vec, vec_to_tril_matrix
from lucerne.nn import functional as F

__all__ = [
    "AbsTransform",
    "AffineTransform",
    "CatTransform",
    "ComposeTransform",
    "CorrCholeskyTransform",
    "CumulativeDistributionTransform",
    "ExpTransform",
    "IndependentTransform",
    "LowerCholeskyTransform",
    "PositiveDefiniteTransform",
    "PowerTransform",
    "ReshapeTransform",
    "SigmoidTransform",
    "SoftmaxTransform",
    "SoftplusTransform",
    "StackTransform",
    "StickBreakingTransform",
    "TanhTransform",
    "Transform",
    "identity_transform",
]

_InverseTransform = _InverseTransform  # users test for it by this path


class ReshapeTransform(Transform):
    """Give the rightmost dimensions another shape of as many elements."""

    bijective = True

    def __init__(self, in_shape: Any, out_shape: Any, cache_size: int = 0) -> None:
        self.in_shape = lu.Size(in_shape)
        self.out_shape = lu.Size(out_shape)
        if self.in_shape.numel() != self.out_shape.numel():
            raise ValueError("in_shape, out_shape have different numbers of elements")
        super().__init__(cache_size=cache_size)

    @property
    def domain(self) -> Any:
        return constraints.independent(constraints.real, len(self.in_shape))

    @property
    def codomain(self) -> Any:
        return constraints.independent(constraints.real, len(self.out_shape))

    def with_cache(self, cache_size: int = 1) -> Any:
        if self._cache_size == cache_size:
            return self
        return ReshapeTransform(self.in_shape, self.out_shape, cache_size=cache_size)

    def _call(self, x: Any) -> Any:
        return x.reshape(x.shape[: x.dim() - len(self.in_shape)] + self.out_shape)

    def _inverse(self, y: Any) -> Any:
        return y.reshape(y.shape[: y.dim() - len(self.out_shape)] + self.in_shape)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return x.new_zeros(x.shape[: x.dim() - len(self.in_shape)])

    def forward_shape(self, shape: Any) -> Any:
        return self._exchange(shape, self.in_shape, self.out_shape)

    def inverse_shape(self, shape: Any) -> Any:
        return self._exchange(shape, self.out_shape, self.in_shape)

    @staticmethod
    def _exchange(shape: Any, old: Any, new: Any) -> Any:
        if len(shape) < len(old):
            raise too_few()
        cut = len(shape) - len(old)
        if tuple(shape[cut:]) != tuple(old):
            raise ValueError(f"Shape mismatch: expected {shape[cut:]} but got {old}")
        return shape[:cut] + new


class _VectorTransform(_Plain):
    """Vectors of n elements to vectors of n + `longer`."""

    domain = constraints.real_vector
    codomain = constraints.simplex
    longer = 0

    def forward_shape(self, shape: Any) -> Any:
        return self._grown(shape, self.longer)

    def inverse_shape(self, shape: Any) -> Any:
        return self._grown(shape, -self.longer)

    @staticmethod
    def _grown(shape: Any, by: int) -> Any:
        if len(shape) < 1:
            raise too_few()
        return type(shape)((*shape[:-1], shape[-1] + by)) if by else shape


class SoftmaxTransform(_VectorTransform):
    """`y = exp(x)` normalised: onto the simplex, but not one to one.

    >>> import lucerne
    >>> lucerne.distributions.SoftmaxTransform()(lucerne.zeros(4))
    tensor([0.2500, 0.2500, 0.2500, 0.2500])
    """

    def _call(self, x: Any) -> Any:
        weights = (x - x.max(-1, True)[0]).exp()
        return weights / weights.sum(-1, True)

    def _inverse(self, y: Any) -> Any:
        return y.log()


class StickBreakingTransform(_VectorTransform):
    """A stick broken n times gives n + 1 parts: one to one with the simplex.

    The element k says which share of the rest of the stick is broken off, offset so that zeros
    give equal parts.
    """

    bijective = True
    longer = 1

    @staticmethod
    def _log_left(like: Any, parts: int) -> Any:
        """The log of how many more parts follow, for each break."""
        return (parts - like.new_ones(like.shape[-1]).cumsum(-1)).log()

    def _call(self, x: Any) -> Any:
        share = clipped_sigmoid(x - self._log_left(x, x.shape[-1] + 1))
        left = (1 - share).cumprod(-1)
        return F.pad(share, [0, 1], value=1) * F.pad(left, [1, 0], value=1)

    def _inverse(self, y: Any) -> Any:
        broken = y[..., :-1]
        left = lu.clamp(1 - broken.cumsum(-1), min=lu.finfo(y.dtype).tiny)
        return broken.log() - left.log() + self._log_left(broken, y.shape[-1])

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        x = x - self._log_left(x, x.shape[-1] + 1)
        return (-x + F.logsigmoid(x) + y[..., :-1].log()).sum(-1)


class CorrCholeskyTransform(Transform):
    """Vectors of n(n-1)/2 elements to Cholesky factors of n x n correlation matrices.

    The tanh of the elements are partial correlations; each row is broken off like a stick whose
    squared parts sum to one.
    """

    domain = constraints.real_vector
    codomain = constraints.corr_cholesky
    bijective = True

    def _call(self, x: Any) -> Any:
        eps = lu.finfo(x.dtype).eps
        partial = vec_to_tril_matrix(lu.tanh(x).clamp(min=-1 + eps, max=1 - eps), diag=-1)
        left = (1 - partial**2).sqrt().cumprod(-1)
        whole = partial + lu.eye(partial.shape[-1], dtype=x.dtype, device=x.device)
        return whole * F.pad(left[..., :-1], [1, 0], value=1)

    def _inverse(self, y: Any) -> Any:
        left = F.pad((1 - lu.cumsum(y * y, dim=-1))[..., :-1], [1, 0], value=1)
        partial = tril_matrix_to_vec(y, diag=-1) / tril_matrix_to_vec(left, diag=-1).sqrt()
        return (partial.log1p() - partial.neg().log1p()) / 2

    def log_abs_det_jacobian(self, x: Any, y: Any, intermediates: Any = None) -> Any:
        left = 1 - (y * y).cumsum(dim=-1)
        sticks = 0.5 * tril_matrix_to_vec(left, diag=-2).log().sum(-1)
        tanhs = -2 * (x + F.softplus(-2 * x) - math.log(2.0)).sum(dim=-1)
        return sticks + tanhs

    def forward_shape(self, shape: Any) -> Any:
        if len(shape) < 1:
            raise too_few()
        n = round((0.25 + 2 * shape[-1]) ** 0.5 + 0.5)
        if n * (n - 1) // 2 != shape[-1]:
            raise ValueError("Input is not a flattened lower-diagonal number")
        return type(shape)((*shape[:-1], n, n))

    def inverse_shape(self, shape: Any) -> Any:
        if len(shape) < 2:
            raise too_few()
        if shape[-2] != shape[-1]:
            raise ValueError("Input is not square")
        return type(shape)((*shape[:-2], shape[-1] * (shape[-1] - 1) // 2))


class LowerCholeskyTransform(_Plain):
    """Square matrices to lower triangular ones with a positive diagonal."""

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.lower_cholesky

    def _call(self, x: Any) -> Any:
        return x.tril(-1) + x.diagonal(dim1=-2, dim2=-1).exp().diag_embed()

    def _inverse(self, y: Any) -> Any:
        return y.tril(-1) + y.diagonal(dim1=-2, dim2=-1).log().diag_embed()


class PositiveDefiniteTransform(_Plain):
    """Square matrices to positive definite ones."""

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.positive_definite

    def _call(self, x: Any) -> Any:
        factor = LowerCholeskyTransform()(x)
        return factor @ factor.mT

    def _inverse(self, y: Any) -> Any:
        return LowerCholeskyTransform().inv(linalg.cholesky(y))


class _Parts(Transform):
    """One transform for each part of the dimension `dim`."""

    transforms: list[Any]
    dim: int

    def _take(self, tseq: Sequence[Any], cache_size: int) -> None:
        assert all(isinstance(t, Transform) for t in tseq), (
            "All elements of tseq must be Transform instances"
        )
        self.transforms = [t.with_cache(cache_size) for t in tseq] if cache_size else list(tseq)

    @property
    def bijective(self) -> Any:
        return all(t.bijective for t in self.transforms)

    def _split(self, value: Any, name: str) -> list[Any]:
        raise NotImplementedError


class CatTransform(_Parts):
    """Parts of `lengths` along `dim`, each with its own transform, laid end to end."""

    def __init__(
        self,
        tseq: Sequence[Any],
        dim: int = 0,
        lengths: Sequence[int] | None = None,
        cache_size: int = 0,
    ) -> None:
        self._take(tseq, cache_size)
        super().__init__(cache_size=cache_size)
        self.lengths = [1] * len(self.transforms) if lengths is None else list(lengths)
        assert len(self.lengths) == len(self.transforms), (
            f"lengths ({len(self.lengths)}) must have the same length as "
            f"transforms ({len(self.transforms)})"
        )
        self.dim = dim

    @property
    def event_dim(self) -> int:
        return max(t.event_dim for t in self.transforms)

    @property
    def length(self) -> int:
        """Of all parts together."""
        return sum(self.lengths)

    def with_cache(self, cache_size: int = 1) -> Any:
        if self._cache_size == cache_size:
            return self
        return CatTransform(self.transforms, self.dim, self.lengths, cache_size)

    def _split(self, value: Any, name: str) -> list[Any]:
        assert -value.dim() <= self.dim < value.dim()
        size = value.size(self.dim)
        assert size == self.length, (
            f"{name}.size({self.dim}) = {size} must equal length {self.length}"
        )
        starts = [sum(self.lengths[:i]) for i in range(len(self.lengths))]
        return [value.narrow(self.dim, s, n) for s, n in zip(starts, self.lengths, strict=True)]

    def _each(self, value: Any, name: str, act: Callable[[Any, Any], Any]) -> Any:
        pairs = zip(self.transforms, self._split(value, name), strict=True)
        return lu.cat([act(t, v) for t, v in pairs], dim=self.dim)

    def _call(self, x: Any) -> Any:
        return self._each(x, "x", lambda transform, part: transform(part))

    def _inverse(self, y: Any) -> Any:
        return self._each(y, "y", lambda transform, part: transform.inv(part))

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        pieces = zip(self.transforms, self._split(x, "x"), self._split(y, "y"), strict=True)
        changes = [
            _sum_rightmost(t.log_abs_det_jacobian(a, b), self.event_dim - t.event_dim)
            for t, a, b in pieces
        ]
        dim = (self.dim - x.dim() if self.dim >= 0 else self.dim) + self.event_dim
        return lu.cat(changes, dim=dim) if dim < 0 else sum(changes)

    @property
    def domain(self) -> Any:
        return constraints.cat([t.domain for t in self.transforms], self.dim, self.lengths)

    @property
    def codomain(self) -> Any:
        return constraints.cat([t.codomain for t in self.transforms], self.dim, self.lengths)


class StackTransform(_Parts):
    """Slices along `dim`, each with its own transform."""

    def __init__(self, tseq: Sequence[Any], dim: int = 0, cache_size: int = 0) -> None:
        self._take(tseq, cache_size)
        super().__init__(cache_size=cache_size)
        self.dim = dim

    def with_cache(self, cache_size: int = 1) -> Any:
        if self._cache_size == cache_size:
            return self
        return StackTransform(self.transforms, self.dim, cache_size)

    def _split(self, value: Any, name: str) -> list[Any]:
        assert -value.dim() <= self.dim < value.dim()
        size = value.size(self.dim)
        assert size == len(self.transforms), (
            f"{name}.size({self.dim}) = {size} must equal len(transforms) {len(self.transforms)}"
        )
        return [value.select(self.dim, i) for i in range(size)]

    def _call(self, x: Any) -> Any:
        pairs = zip(self.transforms, self._split(x, "x"), strict=True)
        return lu.stack([t(v) for t, v in pairs], dim=self.dim)

    def _inverse(self, y: Any) -> Any:
        pairs = zip(self.transforms, self._split(y, "y"), strict=True)
        return lu.stack([t.inv(v) for t, v in pairs], dim=self.dim)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        pieces = zip(self.transforms, self._split(x, "x"), self._split(y, "y"), strict=True)
        return lu.stack([t.log_abs_det_jacobian(a, b) for t, a, b in pieces], dim=self.dim)

    @property
    def domain(self) -> Any:
        return constraints.stack([t.domain for t in self.transforms], self.dim)

    @property
    def codomain(self) -> Any:
        return constraints.stack([t.codomain for t in self.transforms], self.dim)
