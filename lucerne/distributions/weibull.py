"""The Weibull distribution."""

from __future__ import annotations

from typing import Any

from lucerne._src.tensor import api as lu
from lucerne.distributions import constraints
from lucerne.distributions.exponential import Exponential
from lucerne.distributions.transformed_distribution import TransformedDistribution
from lucerne.distributions.transforms import AffineTransform, PowerTransform
from lucerne.distributions.utils import broadcast_all, euler_constant

__all__ = ["Weibull"]


class Weibull(TransformedDistribution):
    """A power of an exponential variable: life times that age.

    >>> import lucerne
    >>> lucerne.distributions.Weibull(1.0, 1.0).mean
    tensor(1.)
    """

    arg_constraints = {"scale": constraints.positive, "concentration": constraints.positive}
    support = constraints.positive
    _params: Any = ("scale", "concentration", "concentration_reciprocal")

    def __init__(self, scale: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.scale, self.concentration = broadcast_all(scale, concentration)
        self.concentration_reciprocal = self.concentration.reciprocal()
        base = Exponential(lu.ones_like(self.scale), validate_args=validate_args)
        super().__init__(base, self._chain(), validate_args=validate_args)

    def _chain(self) -> list[Any]:
        return [
            PowerTransform(exponent=self.concentration_reciprocal),
            AffineTransform(loc=0, scale=self.scale),
        ]

    @property
    def mean(self) -> Any:
        return self.scale * lu.exp(lu.lgamma(1 + self.concentration_reciprocal))

    @property
    def mode(self) -> Any:
        k = self.concentration
        return self.scale * ((k - 1) / k) ** k.reciprocal()

    @property
    def variance(self) -> Any:
        square = lu.exp(lu.lgamma(1 + 2 * self.concentration_reciprocal))
        mean_squared = lu.exp(2 * lu.lgamma(1 + self.concentration_reciprocal))
        return self.scale.pow(2) * (square - mean_squared)

    def entropy(self) -> Any:
        k = self.concentration_reciprocal
        return euler_constant * (1 - k) + lu.log(self.scale * k) + 1
