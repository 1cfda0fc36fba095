"""The Cauchy distribution."""

from __future__ import annotations

import math
from typing import Any

from lucerne._src.tensor import api as lu
from lucerne.distributions import constraints
from lucerne.distributions.distribution import Distribution
from lucerne.distributions.utils import EMPTY, broadcast_all, reads

__all__ = ["Cauchy"]


class Cauchy(Distribution):
    """The ratio of two normals: a bell with tails so heavy that it has no mean.

    >>> import lucerne
    >>> lucerne.distributions.Cauchy(0.0, 1.0).cdf(lucerne.tensor(1.0))
    tensor(0.7500)
    """

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True
    _batched = {"loc": 0, "scale": 0}

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        super().__init__(self.loc.size(), validate_args=validate_args)

    def _filled(self, value: float) -> Any:
        return lu.full(self._extended_shape(), value, dtype=self.loc.dtype, device=self.loc.device)

    @property
    def mean(self) -> Any:
        return self._filled(lu.nan)

    mode = reads("loc")

    @property
    def variance(self) -> Any:
        return self._filled(lu.inf)

    def rsample(self, sample_shape: Any = EMPTY) -> Any:
        return self.loc + self._blank(sample_shape, self.loc).cauchy_() * self.scale

    def log_prob(self, value: Any) -> Any:
        self._check_value(value)
        steps = (value - self.loc) / self.scale
        return -math.log(math.pi) - self.scale.log() - (steps**2).log1p()

    def cdf(self, value: Any) -> Any:
        self._check_value(value)
        return lu.atan((value - self.loc) / self.scale) / math.pi + 0.5

    def icdf(self, value: Any) -> Any:
        return lu.tan(math.pi * (value - 0.5)) * self.scale + self.loc

    def entropy(self) -> Any:
        return math.log(4 * math.pi) + self.scale.log()
