"""The multivariate normal with a covariance of low rank plus a diagonal."""

from __future__ import annotations

import math
from typing import Any

from lucerne import linalg
from lucerne._src.tensor import api as lu
from lucerne.distributions import constraints
from lucerne.distributions.distribution import Distribution
from lucerne.distributions.multivariate_normal import _batch_mahalanobis, _batch_mv
from lucerne.distributions.utils import EMPTY, _standard_normal, lazy_property, reads

__all__ = ["LowRankMultivariateNormal"]


def _batch_capacitance_tril(W: Any, D: Any) -> Any:
    """The Cholesky factor of `I + W' D^-1 W`, the small matrix all large ones reduce to."""
    scaled = W.mT / D.unsqueeze(-2)
    small = scaled @ W
    identity = lu.eye(W.size(-1), dtype=W.dtype, device=W.device)
    return linalg.cholesky(small + identity)


def _batch_lowrank_logdet(W: Any, D: Any, capacitance_tril: Any) -> Any:
    """`log det(W W' + D)`, by the matrix determinant lemma."""
    return 2 * capacitance_tril.diagonal(dim1=-2, dim2=-1).log().sum(-1) + D.log().sum(-1)


def _batch_lowrank_mahalanobis(W: Any, D: Any, x: Any, capacitance_tril: Any) -> Any:
    """`x' (W W' + D)^-1 x`, by the Woodbury identity."""
    projected = _batch_mv(W.mT / D.unsqueeze(-2), x)
    whole = (x.pow(2) / D).sum(-1)
    return whole - _batch_mahalanobis(capacitance_tril, projected)


class LowRankMultivariateNormal(Distribution):
    """Normal vectors with covariance `cov_factor @ cov_factor.mT + diag(cov_diag)`.

    >>> import lucerne
    >>> wide = lucerne.ones(3, 1)
    >>> normal = lucerne.distributions.LowRankMultivariateNormal(
    ...     lucerne.zeros(3), wide, lucerne.ones(3)
    ... )
    >>> normal.variance
    tensor([2., 2., 2.])
    """

    arg_constraints = {
        "loc": constraints.real_vector,
        "cov_factor": constraints.independent(constraints.real, 2),
        "cov_diag": constraints.independent(constraints.positive, 1),
    }
    support = constraints.real_vector
    has_rsample = True

    def __init__(
        self, loc: Any, cov_factor: Any, cov_diag: Any, validate_args: bool | None = None
    ) -> None:
        _check_sizes(loc, cov_factor, cov_diag)
        try:
            batch = lu.broadcast_shapes(loc.shape[:-1], cov_factor.shape[:-2], cov_diag.shape[:-1])
        except RuntimeError as error:
            raise ValueError(
                f"Incompatible batch shapes: loc {loc.shape}, cov_factor {cov_factor.shape}, "
                f"cov_diag {cov_diag.shape}"
            ) from error
        self.loc = loc.expand((*batch, -1))
        self.cov_diag = cov_diag.expand((*batch, -1))
        self.cov_factor = cov_factor.expand(batch + cov_factor.shape[-2:])
        self._unbroadcasted_cov_factor = cov_factor
        self._unbroadcasted_cov_diag = cov_diag
        self._capacitance_tril = _batch_capacitance_tril(cov_factor, cov_diag)
        super().__init__(batch, loc.shape[-1:], validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(LowRankMultivariateNormal, _instance)
        batch_shape = lu.Size(batch_shape)
        new.loc = self.loc.expand(batch_shape + self.event_shape)
        new.cov_diag = self.cov_diag.expand(batch_shape + self.event_shape)
        new.cov_factor = self.cov_factor.expand(batch_shape + self.cov_factor.shape[-2:])
        for name in ("_unbroadcasted_cov_factor", "_unbroadcasted_cov_diag", "_capacitance_tril"):
            setattr(new, name, getattr(self, name))
        return self._expanded(new, batch_shape)

    def _whole(self, matrix: Any) -> Any:
        return matrix.expand(self._batch_shape + self._event_shape + self._event_shape)

    mean = mode = reads("loc")

    @lazy_property
    def variance(self) -> Any:
        square = self._unbroadcasted_cov_factor.pow(2).sum(-1)
        whole = square + self._unbroadcasted_cov_diag
        return whole.expand(self._batch_shape + self._event_shape)

    @lazy_property
    def scale_tril(self) -> Any:
        """Through `D^-1/2 W`, which is better conditioned than the covariance."""
        root = self._unbroadcasted_cov_diag.sqrt().unsqueeze(-1)
        scaled = self._unbroadcasted_cov_factor / root
        size = self._event_shape[0]
        inner = scaled @ scaled.mT + lu.eye(size, dtype=scaled.dtype, device=scaled.device)
        return self._whole(root * linalg.cholesky(inner))

    @lazy_property
    def covariance_matrix(self) -> Any:
        factor = self._unbroadcasted_cov_factor
        diagonal = lu.diag_embed(self._unbroadcasted_cov_diag)
        return self._whole(factor @ factor.mT + diagonal)

    @lazy_property
    def precision_matrix(self) -> Any:
        """By the Woodbury identity."""
        diagonal = self._unbroadcasted_cov_diag
        scaled = self._unbroadcasted_cov_factor.mT / diagonal.unsqueeze(-2)
        solved = linalg.solve_triangular(self._capacitance_tril, scaled, upper=False)
        return self._whole(lu.diag_embed(diagonal.reciprocal()) - solved.mT @ solved)

    def rsample(self, sample_shape: Any = EMPTY) -> Any:
        shape = self._extended_shape(sample_shape)
        like = {"dtype": self.loc.dtype, "device": self.loc.device}
        shared = _standard_normal(shape[:-1] + self.cov_factor.shape[-1:], **like)
        own = _standard_normal(shape, **like)
        return (
            self.loc
            + _batch_mv(self._unbroadcasted_cov_factor, shared)
            + self._unbroadcasted_cov_diag.sqrt() * own
        )

    def _log_det(self) -> Any:
        return _batch_lowrank_logdet(
            self._unbroadcasted_cov_factor, self._unbroadcasted_cov_diag, self._capacitance_tril
        )

    def log_prob(self, value: Any) -> Any:
        self._check_value(value)
        distance = _batch_lowrank_mahalanobis(
            self._unbroadcasted_cov_factor,
            self._unbroadcasted_cov_diag,
            value - self.loc,
            self._capacitance_tril,
        )
        constant = self._event_shape[0] * math.log(2 * math.pi)
        return -0.5 * (constant + self._log_det() + distance)

    def entropy(self) -> Any:
        constant = self._event_shape[0] * (1.0 + math.log(2 * math.pi))
        entropy = 0.5 * (constant + self._log_det())
        return entropy if not self._batch_shape else entropy.expand(self._batch_shape)


def _check_sizes(loc: Any, cov_factor: Any, cov_diag: Any) -> None:
    if loc.dim() < 1:
        raise ValueError("loc must be at least one-dimensional.")
    event = loc.shape[-1:]
    if cov_factor.dim() < 2:
        raise ValueError(
            "cov_factor must be at least two-dimensional, with optional leading batch dimensions"
        )
    if cov_factor.shape[-2:-1] != event:
        raise ValueError(f"cov_factor must be a batch of matrices with shape {event[0]} x m")
    if cov_diag.shape[-1:] != event:
        raise ValueError(f"cov_diag must be a batch of vectors with shape {event}")
