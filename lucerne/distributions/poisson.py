"""The Poisson distribution."""

from __future__ import annotations

from typing import Any

from lucerne._src.tensor import api as lu
from lucerne.distributions import constraints
from lucerne.distributions.exp_family import ExponentialFamily
from lucerne.distributions.utils import EMPTY, broadcast_all, reads

__all__ = ["Poisson"]


class Poisson(ExponentialFamily):
    """How many events happen in a unit of time at a given `rate`.

    >>> import lucerne
    >>> lucerne.distributions.Poisson(4.0).variance
    tensor(4.)
    """

    arg_constraints = {"rate": constraints.nonnegative}
    support = constraints.nonnegative_integer
    _batched = {"rate": 0}

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        (self.rate,) = broadcast_all(rate)
        super().__init__(self.rate.size(), validate_args=validate_args)

    mean = reads("rate")

    @property
    def mode(self) -> Any:
        return self.rate.floor()

    variance = reads("rate")

    def sample(self, sample_shape: Any = EMPTY) -> Any:
        with lu.no_grad():
            return lu.poisson(self.rate.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Any) -> Any:
        self._check_value(value)
        rate, value = broadcast_all(self.rate, value)
        return value.xlogy(rate) - rate - (value + 1).lgamma()

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        return (lu.log(self.rate),)

    def _log_normalizer(self, x: Any) -> Any:
        return lu.exp(x)
