"""The Kumaraswamy distribution."""

from __future__ import annotations

from typing import Any

from lucerne._src.tensor import api as lu
from lucerne.distributions import constraints
from lucerne.distributions.transformed_distribution import TransformedDistribution
from lucerne.distributions.transforms import AffineTransform, PowerTransform
from lucerne.distributions.uniform import Uniform
from lucerne.distributions.utils import broadcast_all, euler_constant

__all__ = ["Kumaraswamy"]


def _log_moment(a: Any, b: Any, n: int) -> Any:
    """The log of the mean of the n-th power: `b B(1 + n/a, b)`."""
    first = 1 + n / a
    return b.log() + lu.lgamma(first) + lu.lgamma(b) - lu.lgamma(first + b)


class Kumaraswamy(TransformedDistribution):
    """A beta-like distribution with a simple cdf, `1 - (1 - x^concentration1)^concentration0`.

    >>> import lucerne
    >>> lucerne.distributions.Kumaraswamy(1.0, 1.0).mean
    tensor(0.5000)
    """

    arg_constraints = {
        "concentration1": constraints.positive,
        "concentration0": constraints.positive,
    }
    support = constraints.unit_interval
    has_rsample = True
    _params: Any = ("concentration1", "concentration0")

    def __init__(
        self, concentration1: Any, concentration0: Any, validate_args: bool | None = None
    ) -> None:
        self.concentration1, self.concentration0 = broadcast_all(concentration1, concentration0)
        low, high = lu.zeros_like(self.concentration0), lu.ones_like(self.concentration0)
        base = Uniform(low, high, validate_args=validate_args)
        super().__init__(base, self._chain(), validate_args=validate_args)

    def _chain(self) -> list[Any]:
        return [
            PowerTransform(exponent=self.concentration0.reciprocal()),
            AffineTransform(loc=1.0, scale=-1.0),
            PowerTransform(exponent=self.concentration1.reciprocal()),
        ]

    @property
    def mean(self) -> Any:
        return _log_moment(self.concentration1, self.concentration0, 1).exp()

    @property
    def mode(self) -> Any:
        a, b = self.concentration1, self.concentration0
        inside = ((a - 1) / (a * b - 1)) ** a.reciprocal()
        return lu.where((a < 1) | (b < 1), lu.nan, inside)

    @property
    def variance(self) -> Any:
        square = _log_moment(self.concentration1, self.concentration0, 2).exp()
        return square - self.mean.square()

    def entropy(self) -> Any:
        t1 = 1 - self.concentration1.reciprocal()
        t0 = 1 - self.concentration0.reciprocal()
        harmonic = lu.digamma(self.concentration0 + 1) + euler_constant
        return t0 + t1 * harmonic - lu.log(self.concentration1) - lu.log(self.concentration0)
