"""The Gumbel distribution."""

from __future__ import annotations

import math
from typing import Any

from lucerne._src.tensor import api as lu
from lucerne.distributions import constraints
from lucerne.distributions.transformed_distribution import TransformedDistribution
from lucerne.distributions.transforms import AffineTransform, ExpTransform
from lucerne.distributions.uniform import Uniform
from lucerne.distributions.utils import broadcast_all, euler_constant, reads

__all__ = ["Gumbel"]


class Gumbel(TransformedDistribution):
    """The largest of many exponential tails.

    >>> import lucerne
    >>> lucerne.distributions.Gumbel(0.0, 1.0).mean
    tensor(0.5772)
    """

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    _params: Any = ("loc", "scale")

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        info = lu.finfo(self.loc.dtype)
        low, high = lu.full_like(self.loc, info.tiny), lu.full_like(self.loc, 1 - info.eps)
        base = Uniform(low, high, validate_args=validate_args)
        super().__init__(base, self._chain(), validate_args=validate_args)

    def _chain(self) -> list[Any]:
        """`y = loc - scale * log(-log(u))`."""
        ones = lu.ones_like(self.scale)
        return [
            ExpTransform().inv,
            AffineTransform(loc=0, scale=-ones),
            ExpTransform().inv,
            AffineTransform(loc=self.loc, scale=-self.scale),
        ]

    def log_prob(self, value: Any) -> Any:
        self._check_value(value)
        y = (self.loc - value) / self.scale
        return (y - y.exp()) - self.scale.log()

    @property
    def mean(self) -> Any:
        return self.loc + self.scale * euler_constant

    mode = reads("loc")

    @property
    def stddev(self) -> Any:
        return (math.pi / math.sqrt(6)) * self.scale

    @property
    def variance(self) -> Any:
        return self.stddev.pow(2)

    def entropy(self) -> Any:
        return self.scale.log() + (1 + euler_constant)
