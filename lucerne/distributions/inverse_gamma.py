"""The inverse gamma distribution."""

from __future__ import annotations

from typing import Any

from lucerne._src.tensor import api as lu
from lucerne.distributions import constraints
from lucerne.distributions.gamma import Gamma
from lucerne.distributions.transformed_distribution import TransformedDistribution, of_base
from lucerne.distributions.transforms import PowerTransform

__all__ = ["InverseGamma"]


class InverseGamma(TransformedDistribution):
    """One over a gamma variable.

    >>> import lucerne
    >>> lucerne.distributions.InverseGamma(3.0, 4.0).mean
    tensor(2.)
    """

    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}
    support = constraints.positive
    has_rsample = True
    _params: Any = ()
    concentration = of_base("concentration")
    rate = of_base("rate")

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        base = Gamma(concentration, rate, validate_args=validate_args)
        flip = PowerTransform(-base.rate.new_ones(()))
        super().__init__(base, flip, validate_args=validate_args)

    @property
    def mean(self) -> Any:
        result = self.rate / (self.concentration - 1)
        return lu.where(self.concentration > 1, result, lu.inf)

    @property
    def mode(self) -> Any:
        return self.rate / (self.concentration + 1)

    @property
    def variance(self) -> Any:
        result = self.rate.square() / ((self.concentration - 1).square() * (self.concentration - 2))
        return lu.where(self.concentration > 2, result, lu.inf)

    def entropy(self) -> Any:
        return (
            self.concentration
            + self.rate.log()
            + self.concentration.lgamma()
            - (1 + self.concentration) * self.concentration.digamma()
        )
