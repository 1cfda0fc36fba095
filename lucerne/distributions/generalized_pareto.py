"""The generalized Pareto distribution."""

from __future__ import annotations

from typing import Any

from lucerne._src.tensor import api as lu
from lucerne.distributions import constraints
from lucerne.distributions.distribution import Distribution
from lucerne.distributions.utils import EMPTY, broadcast_all, reads

__all__ = ["GeneralizedPareto"]


class GeneralizedPareto(Distribution):
    """Excesses over a threshold `loc`: tails of any weight, by `concentration`.

    >>> import lucerne
    >>> lucerne.distributions.GeneralizedPareto(0.0, 1.0, 0.0).mean
    tensor(1.)
    """

    arg_constraints = {
        "loc": constraints.real,
        "scale": constraints.positive,
        "concentration": constraints.real,
    }
    has_rsample = True
    _batched = {"loc": 0, "scale": 0, "concentration": 0}

    def __init__(
        self, loc: Any, scale: Any, concentration: Any, validate_args: bool | None = None
    ) -> None:
        self.loc, self.scale, self.concentration = broadcast_all(loc, scale, concentration)
        super().__init__(self.loc.size(), validate_args=validate_args)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        end = self.loc - self.scale / self.concentration
        return constraints.interval(self.loc, lu.where(self.concentration < 0, end, lu.inf))

    def _z(self, value: Any) -> Any:
        return (value - self.loc) / self.scale

    def _is_exponential(self) -> Any:
        return lu.isclose(self.concentration, lu.zeros_like(self.concentration))

    def _shape(self) -> Any:
        """`concentration`, with one where the exponential formula is used."""
        return lu.where(
            self._is_exponential(), lu.ones_like(self.concentration), self.concentration
        )

    def rsample(self, sample_shape: Any = EMPTY) -> Any:
        shape = self._extended_shape(sample_shape)
        return self.icdf(lu.rand(shape, dtype=self.loc.dtype, device=self.loc.device))

    def log_prob(self, value: Any) -> Any:
        self._check_value(value)
        z, k = self._z(value), self._shape()
        power = -(1 + 1 / k) * lu.log1p(z * k)
        return lu.where(self._is_exponential(), -z, power) - lu.log(self.scale)

    def log_survival_function(self, value: Any) -> Any:
        """The log of the probability of more than `value`."""
        self._check_value(value)
        z, k = self._z(value), self._shape()
        return lu.where(self._is_exponential(), -z, -lu.log1p(k * z) / k)

    def log_cdf(self, value: Any) -> Any:
        """The log of `cdf`."""
        return lu.log1p(-lu.exp(self.log_survival_function(value)))

    def cdf(self, value: Any) -> Any:
        return lu.exp(self.log_cdf(value))

    def icdf(self, value: Any) -> Any:
        k = self._shape()
        survival = lu.log1p(-value)
        z = lu.where(self._is_exponential(), -survival, lu.expm1(-k * survival) / k)
        return self.loc + self.scale * z

    @property
    def mean(self) -> Any:
        k = self.concentration
        safe = lu.where(k < 1, k, 0.5)
        return lu.where(k < 1, self.loc + self.scale / (1 - safe), lu.inf)

    @property
    def variance(self) -> Any:
        k = self.concentration
        safe = lu.where(k < 0.5, k, 0.25)
        finite = self.scale**2 / ((1 - safe) ** 2 * (1 - 2 * safe))
        return lu.where(k < 0.5, finite, lu.inf)

    def entropy(self) -> Any:
        return lu.log(self.scale) + self.concentration + 1

    mode = reads("loc")
