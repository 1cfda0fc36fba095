"""The multivariate normal distribution."""

from __future__ import annotations

import math
from typing import Any

from lucerne import linalg
from lucerne._src.tensor import api as lu
from lucerne.distributions import constraints
from lucerne.distributions.distribution import Distribution
from lucerne.distributions.utils import EMPTY, _standard_normal, lazy_property, reads

__all__ = ["MultivariateNormal"]


def _batch_mv(matrix: Any, vector: Any) -> Any:
    """Batched matrix times vector, both with any batch dimensions."""
    return (matrix @ vector.unsqueeze(-1)).squeeze(-1)


def _batch_mahalanobis(factor: Any, diff: Any) -> Any:
    """The squared length of `factor^-1 diff`, for Cholesky factors that may repeat over batches."""
    shape = lu.broadcast_shapes(factor.shape[:-2], diff.shape[:-1])
    if factor.dim() == 2:  # one factor for all: solve once for many right sides
        columns = diff.reshape(-1, diff.shape[-1]).mT
        solved = linalg.solve_triangular(factor, columns, upper=False)
        return solved.pow(2).sum(-2).reshape(diff.shape[:-1])
    factors = factor.expand(shape + factor.shape[-2:])
    columns = diff.expand(shape + diff.shape[-1:]).unsqueeze(-1)
    return linalg.solve_triangular(factors, columns, upper=False).pow(2).sum([-2, -1])


def _precision_to_scale_tril(precision: Any) -> Any:
    """The Cholesky factor of the inverse, by a factorisation from the far corner."""
    flipped = linalg.cholesky(lu.flip(precision, (-2, -1)))
    upper = lu.flip(flipped, (-2, -1)).mT  # precision = upper.mT @ upper, upper lower-triangular
    identity = lu.eye(precision.shape[-1], dtype=precision.dtype, device=precision.device)
    return linalg.solve_triangular(upper, identity, upper=False)


def pick_matrix(given: dict[str, Any], error: type[Exception]) -> str:
    """The one matrix parameter that was given."""
    names = [name for name, value in given.items() if value is not None]
    if len(names) != 1:
        raise error(
            "Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified."
        )
    return names[0]


class MultivariateNormal(Distribution):
    """Normal vectors, by covariance, precision or Cholesky factor of the covariance.

    >>> import lucerne
    >>> plane = lucerne.distributions.MultivariateNormal(lucerne.zeros(2), lucerne.eye(2))
    >>> plane.log_prob(lucerne.zeros(2))
    tensor(-1.8379)
    """

    arg_constraints = {
        "loc": constraints.real_vector,
        "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite,
        "scale_tril": constraints.lower_cholesky,
    }
    support = constraints.real_vector
    has_rsample = True

    def __init__(
        self,
        loc: Any,
        covariance_matrix: Any = None,
        precision_matrix: Any = None,
        scale_tril: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        given = {
            "scale_tril": scale_tril,
            "covariance_matrix": covariance_matrix,
            "precision_matrix": precision_matrix,
        }
        name = pick_matrix(given, ValueError)
        matrix = given[name]
        if matrix.dim() < 2:
            called = "scale_tril matrix" if name == "scale_tril" else name
            raise ValueError(
                f"{called} must be at least two-dimensional, with optional leading batch dimensions"
            )
        batch = lu.broadcast_shapes(matrix.shape[:-2], loc.shape[:-1])
        setattr(self, name, matrix.expand((*batch, -1, -1)))
        self.loc = loc.expand((*batch, -1))
        super().__init__(batch, self.loc.shape[-1:], validate_args=validate_args)
        if name == "scale_tril":
            self._unbroadcasted_scale_tril = matrix
        elif name == "covariance_matrix":
            self._unbroadcasted_scale_tril = linalg.cholesky(matrix)
        else:
            self._unbroadcasted_scale_tril = _precision_to_scale_tril(matrix)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(MultivariateNormal, _instance)
        batch_shape = lu.Size(batch_shape)
        new.loc = self.loc.expand(batch_shape + self.event_shape)
        new._unbroadcasted_scale_tril = self._unbroadcasted_scale_tril
        for name in ("covariance_matrix", "scale_tril", "precision_matrix"):
            if name in self.__dict__:
                whole = batch_shape + self.event_shape + self.event_shape
                setattr(new, name, getattr(self, name).expand(whole))
        return self._expanded(new, batch_shape)

    def _whole(self, matrix: Any) -> Any:
        return matrix.expand(self._batch_shape + self._event_shape + self._event_shape)

    @lazy_property
    def scale_tril(self) -> Any:
        return self._whole(self._unbroadcasted_scale_tril)

    @lazy_property
    def covariance_matrix(self) -> Any:
        factor = self._unbroadcasted_scale_tril
        return self._whole(factor @ factor.mT)

    @lazy_property
    def precision_matrix(self) -> Any:
        return self._whole(lu.cholesky_inverse(self._unbroadcasted_scale_tril))

    mean = mode = reads("loc")

    @property
    def variance(self) -> Any:
        diagonal = self._unbroadcasted_scale_tril.pow(2).sum(-1)
        return diagonal.expand(self._batch_shape + self._event_shape)

    def rsample(self, sample_shape: Any = EMPTY) -> Any:
        shape = self._extended_shape(sample_shape)
        noise = _standard_normal(shape, dtype=self.loc.dtype, device=self.loc.device)
        return self.loc + _batch_mv(self._unbroadcasted_scale_tril, noise)

    def _half_log_det(self) -> Any:
        return self._unbroadcasted_scale_tril.diagonal(dim1=-2, dim2=-1).log().sum(-1)

    def log_prob(self, value: Any) -> Any:
        self._check_value(value)
        distance = _batch_mahalanobis(self._unbroadcasted_scale_tril, value - self.loc)
        constant = self._event_shape[0] * math.log(2 * math.pi)
        return -0.5 * (constant + distance) - self._half_log_det()

    def entropy(self) -> Any:
        constant = 0.5 * self._event_shape[0] * (1.0 + math.log(2 * math.pi))
        entropy = constant + self._half_log_det()
        return entropy if not self._batch_shape else entropy.expand(self._batch_shape)
