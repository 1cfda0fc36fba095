"""The exponential distribution."""

from __future__ import annotations

from typing import Any

from lucerne._src.tensor import api as lu
from lucerne.distributions import constraints
from lucerne.distributions.exp_family import ExponentialFamily
from lucerne.distributions.utils import EMPTY, broadcast_all

__all__ = ["Exponential"]


class Exponential(ExponentialFamily):
    """Waiting times of events that come at a constant `rate`.

    >>> import lucerne
    >>> lucerne.distributions.Exponential(2.0).mean
    tensor(0.5000)
    """

    arg_constraints = {"rate": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True
    _batched = {"rate": 0}
    _mean_carrier_measure = 0

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        (self.rate,) = broadcast_all(rate)
        super().__init__(self.rate.size(), validate_args=validate_args)

    @property
    def mean(self) -> Any:
        return self.rate.reciprocal()

    @property
    def mode(self) -> Any:
        return lu.zeros_like(self.rate)

    @property
    def stddev(self) -> Any:
        return self.rate.reciprocal()

    @property
    def variance(self) -> Any:
        return self.rate.pow(-2)

    def rsample(self, sample_shape: Any = EMPTY) -> Any:
        return self._blank(sample_shape, self.rate).exponential_() / self.rate

    def log_prob(self, value: Any) -> Any:
        self._check_value(value)
        return self.rate.log() - self.rate * value

    def cdf(self, value: Any) -> Any:
        self._check_value(value)
        return 1 - lu.exp(-self.rate * value)

    def icdf(self, value: Any) -> Any:
        return -lu.log1p(-value) / self.rate

    def entropy(self) -> Any:
        return 1.0 - lu.log(self.rate)

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        return (-self.rate,)

    def _log_normalizer(self, x: Any) -> Any:
        return -lu.log(-x)
