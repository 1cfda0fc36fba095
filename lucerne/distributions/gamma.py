"""The gamma distribution."""

from __future__ import annotations

from typing import Any

from lucerne._src.tensor import api as lu
from lucerne.distributions import constraints
from lucerne.distributions.exp_family import ExponentialFamily
from lucerne.distributions.utils import EMPTY, broadcast_all

__all__ = ["Gamma"]


class Gamma(ExponentialFamily):
    """Positive numbers with density proportional to `x^(concentration - 1) exp(-rate x)`.

    >>> import lucerne
    >>> lucerne.distributions.Gamma(2.0, 4.0).mean
    tensor(0.5000)
    """

    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True
    _batched = {"concentration": 0, "rate": 0}
    _mean_carrier_measure = 0

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        self.concentration, self.rate = broadcast_all(concentration, rate)
        super().__init__(self.concentration.size(), validate_args=validate_args)

    @property
    def mean(self) -> Any:
        return self.concentration / self.rate

    @property
    def mode(self) -> Any:
        return ((self.concentration - 1) / self.rate).clamp(min=0)

    @property
    def variance(self) -> Any:
        return self.concentration / self.rate.pow(2)

    def rsample(self, sample_shape: Any = EMPTY) -> Any:
        shape = self._extended_shape(sample_shape)
        value = lu._standard_gamma(self.concentration.expand(shape)) / self.rate.expand(shape)
        value.detach().clamp_(min=lu.finfo(value.dtype).tiny)  # not recorded
        return value

    def log_prob(self, value: Any) -> Any:
        value = lu.as_tensor(value, dtype=self.rate.dtype, device=self.rate.device)
        self._check_value(value)
        return (
            lu.xlogy(self.concentration, self.rate)
            + lu.xlogy(self.concentration - 1, value)
            - self.rate * value
            - lu.lgamma(self.concentration)
        )

    def cdf(self, value: Any) -> Any:
        self._check_value(value)
        return lu.igamma(self.concentration, self.rate * value)

    def entropy(self) -> Any:
        return (
            self.concentration
            - lu.log(self.rate)
            + lu.lgamma(self.concentration)
            + (1.0 - self.concentration) * lu.digamma(self.concentration)
        )

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        return self.concentration - 1, -self.rate

    def _log_normalizer(self, x: Any, y: Any) -> Any:
        return lu.lgamma(x + 1) + (x + 1) * lu.log(-y.reciprocal())
