"""The normal distribution."""

from __future__ import annotations

import math
from typing import Any

from lucerne._src.tensor import api as lu
from lucerne.distributions import constraints
from lucerne.distributions.exp_family import ExponentialFamily
from lucerne.distributions.utils import EMPTY, _standard_normal, broadcast_all, reads

__all__ = ["Normal"]


class Normal(ExponentialFamily):
    """The bell curve around `loc` with standard deviation `scale`.

    >>> import lucerne
    >>> normal = lucerne.distributions.Normal(0.0, 1.0)
    >>> normal.log_prob(lucerne.tensor(0.0))
    tensor(-0.9189)
    """

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True
    _batched = {"loc": 0, "scale": 0}
    _mean_carrier_measure = 0

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        super().__init__(self.loc.size(), validate_args=validate_args)

    mean = mode = reads("loc")
    stddev = reads("scale")

    @property
    def variance(self) -> Any:
        return self.stddev.pow(2)

    def sample(self, sample_shape: Any = EMPTY) -> Any:
        shape = self._extended_shape(sample_shape)
        with lu.no_grad():
            return lu.normal(self.loc.expand(shape), self.scale.expand(shape))

    def rsample(self, sample_shape: Any = EMPTY) -> Any:
        shape = self._extended_shape(sample_shape)
        return self.loc + _standard_normal(shape, self.loc.dtype, self.loc.device) * self.scale

    def log_prob(self, value: Any) -> Any:
        self._check_value(value)
        square = (value - self.loc) ** 2 / (2 * self.scale**2)
        return -square - self.scale.log() - math.log(math.sqrt(2 * math.pi))

    def cdf(self, value: Any) -> Any:
        self._check_value(value)
        steps = (value - self.loc) * self.scale.reciprocal() / math.sqrt(2)
        return 0.5 * (1 + lu.erf(steps))

    def icdf(self, value: Any) -> Any:
        return self.loc + self.scale * lu.erfinv(2 * value - 1) * math.sqrt(2)

    def entropy(self) -> Any:
        return 0.5 + 0.5 * math.log(2 * math.pi) + lu.log(self.scale)

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        return self.loc / self.scale.pow(2), -0.5 * self.scale.pow(2).reciprocal()

    def _log_normalizer(self, x: Any, y: Any) -> Any:
        return -0.25 * x.pow(2) / y + 0.5 * lu.log(-math.pi / y)
