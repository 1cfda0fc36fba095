"""The Wishart distribution."""

from __future__ import annotations

import math
from typing import Any

from lucerne import linalg
from lucerne._src.base.process import notices
from lucerne._src.tensor import api as lu
from lucerne.distributions import constraints
from lucerne.distributions.chi2 import Chi2
from lucerne.distributions.distribution import Distribution
from lucerne.distributions.exp_family import ExponentialFamily
from lucerne.distributions.multivariate_normal import _precision_to_scale_tril, pick_matrix
from lucerne.distributions.utils import EMPTY, lazy_property

__all__ = ["Wishart"]


def _mvdigamma(x: Any, p: int) -> Any:
    """The derivative of `mvlgamma`."""
    halves = lu.arange(p, dtype=x.dtype, device=x.device).div(2)
    return lu.digamma(x.unsqueeze(-1) - halves).sum(-1)


def _clamp_above_eps(x: Any) -> Any:
    return x.clamp(min=lu.finfo(x.dtype).eps)


class Wishart(ExponentialFamily):
    """Sums of outer products of `df` normal vectors: random covariance matrices.

    >>> import lucerne
    >>> lucerne.distributions.Wishart(lucerne.tensor(3.0), lucerne.eye(2)).mean
    tensor([[3., 0.],
            [0., 3.]])
    """

    support = constraints.positive_definite
    has_rsample = True
    _mean_carrier_measure = 0

    @property
    def arg_constraints(self) -> Any:
        return {
            "covariance_matrix": constraints.positive_definite,
            "precision_matrix": constraints.positive_definite,
            "scale_tril": constraints.lower_cholesky,
            "df": constraints.greater_than(self.event_shape[-1] - 1),
        }

    def __init__(
        self,
        df: Any,
        covariance_matrix: Any = None,
        precision_matrix: Any = None,
        scale_tril: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        given = {
            "scale_tril": scale_tril,
            "covariance_matrix": covariance_matrix,
            "precision_matrix": precision_matrix,
        }
        name = pick_matrix(given, AssertionError)
        matrix = given[name]
        if matrix.dim() < 2:
            raise ValueError(
                "scale_tril must be at least two-dimensional, with optional leading batch "
                "dimensions"
            )
        if not isinstance(df, lu.Tensor):
            df = lu.tensor(df, dtype=matrix.dtype, device=matrix.device)
        batch, event = lu.broadcast_shapes(matrix.shape[:-2], df.shape), matrix.shape[-2:]
        if bool(df.le(event[-1] - 1).any()):
            raise ValueError(
                f"Value of df={df} expected to be greater than ndim - 1 = {event[-1] - 1}."
            )
        setattr(self, name, matrix.expand((*batch, -1, -1)))
        self.df = df.expand(batch)
        if bool(self.df.lt(event[-1]).any()):
            notices.warn(
                "Low df values detected. Singular samples are highly likely to occur for "
                "ndim - 1 < df < ndim."
            )
        super().__init__(batch, event, validate_args=validate_args)
        self._batch_dims = [-(x + 1) for x in range(len(self._batch_shape))]
        self._unbroadcasted_scale_tril = _factor(name, matrix)
        self._dist_chi2 = self._make_chi2()

    def _make_chi2(self) -> Any:
        size = self._event_shape[-1]
        steps = lu.arange(size, dtype=self.df.dtype, device=self.df.device)
        return Chi2(df=self.df.unsqueeze(-1) - steps.expand((*self._batch_shape, -1)))

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(Wishart, _instance)
        batch_shape = lu.Size(batch_shape)
        new._unbroadcasted_scale_tril = self._unbroadcasted_scale_tril
        new.df = self.df.expand(batch_shape)
        new._batch_dims = [-(x + 1) for x in range(len(batch_shape))]
        for name in ("covariance_matrix", "scale_tril", "precision_matrix"):
            if name in self.__dict__:
                setattr(new, name, getattr(self, name).expand(batch_shape + self.event_shape))
        Distribution.__init__(new, batch_shape, self.event_shape, validate_args=False)
        new._dist_chi2 = new._make_chi2()
        new._validate_args = self._validate_args
        return new

    def _whole(self, matrix: Any) -> Any:
        return matrix.expand(self._batch_shape + self._event_shape)

    @lazy_property
    def scale_tril(self) -> Any:
        return self._whole(self._unbroadcasted_scale_tril)

    @lazy_property
    def covariance_matrix(self) -> Any:
        factor = self._unbroadcasted_scale_tril
        return self._whole(factor @ factor.mT)

    @lazy_property
    def precision_matrix(self) -> Any:
        size = self._event_shape[-1]
        like = self._unbroadcasted_scale_tril
        identity = lu.eye(size, device=like.device, dtype=like.dtype)
        return self._whole(lu.cholesky_solve(identity, like))

    @property
    def mean(self) -> Any:
        return self.df.reshape((*self._batch_shape, 1, 1)) * self.covariance_matrix

    @property
    def mode(self) -> Any:
        factor = self.df - self.covariance_matrix.shape[-1] - 1
        factor = lu.where(factor <= 0, lu.nan, factor)
        return factor.reshape((*self._batch_shape, 1, 1)) * self.covariance_matrix

    @property
    def variance(self) -> Any:
        covariance = self.covariance_matrix
        diagonal = covariance.diagonal(dim1=-2, dim2=-1)
        outer = diagonal.unsqueeze(-1) * diagonal.unsqueeze(-2)
        return self.df.reshape((*self._batch_shape, 1, 1)) * (covariance.pow(2) + outer)

    def _bartlett_sampling(self, sample_shape: Any = EMPTY) -> Any:
        """Triangular noise: chi on the diagonal, normal below."""
        p = self._event_shape[-1]
        noise = _clamp_above_eps(self._dist_chi2.rsample(sample_shape).sqrt())
        noise = noise.diag_embed(dim1=-2, dim2=-1)
        rows, columns = lu.tril_indices(p, p, offset=-1)
        shape = lu.Size(sample_shape) + self._batch_shape + (p * (p - 1) // 2,)
        noise[..., rows, columns] = lu.randn(shape, dtype=noise.dtype, device=noise.device)
        chol = self._unbroadcasted_scale_tril @ noise
        return chol @ chol.mT

    def rsample(self, sample_shape: Any = EMPTY, max_try_correction: int | None = None) -> Any:
        """Samples; singular ones are drawn again, at most `max_try_correction` times."""
        sample_shape = lu.Size(sample_shape)
        sample = self._bartlett_sampling(sample_shape)
        singular = self._singular(sample)
        if not bool(singular.any()):
            return sample
        notices.warn("Singular sample detected.")
        for _ in range(3 if max_try_correction is None else max_try_correction):
            again = self._bartlett_sampling(sample_shape)
            sample = lu.where(singular.unsqueeze(-1).unsqueeze(-1), again, sample)
            singular = singular & self._singular(sample)
            if not bool(singular.any()):
                break
        return sample

    def _singular(self, sample: Any) -> Any:
        return ~self.support.check(sample)

    def log_prob(self, value: Any) -> Any:
        self._check_value(value)
        p, df, factor = self._event_shape[-1], self.df, self._unbroadcasted_scale_tril
        log_det = factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        solved = lu.cholesky_solve(value, factor).diagonal(dim1=-2, dim2=-1).sum(dim=-1)
        return (
            -df * (p * math.log(2) / 2 + log_det)
            - lu.mvlgamma(df / 2, p=p)
            + (df - p - 1) / 2 * linalg.slogdet(value).logabsdet
            - solved / 2
        )

    def entropy(self) -> Any:
        p, df = self._event_shape[-1], self.df
        log_det = self._unbroadcasted_scale_tril.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        return (
            (p + 1) * (p * math.log(2) / 2 + log_det)
            + lu.mvlgamma(df / 2, p=p)
            - (df - p - 1) / 2 * _mvdigamma(df / 2, p=p)
            + df * p / 2
        )

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        return -self.precision_matrix / 2, (self.df - self._event_shape[-1] - 1) / 2

    def _log_normalizer(self, x: Any, y: Any) -> Any:
        p = self._event_shape[-1]
        shape = y + (p + 1) / 2
        return shape * (-linalg.slogdet(-2 * x).logabsdet + p * math.log(2)) + lu.mvlgamma(
            shape, p=p
        )


def _factor(name: str, matrix: Any) -> Any:
    if name == "scale_tril":
        return matrix
    if name == "covariance_matrix":
        return linalg.cholesky(matrix)
    return _precision_to_scale_tril(matrix)
