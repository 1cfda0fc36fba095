"""The Laplace distribution."""

from __future__ import annotations

from typing import Any

from lucerne._src.tensor import api as lu
from lucerne.distributions import constraints
from lucerne.distributions.distribution import Distribution
from lucerne.distributions.utils import EMPTY, broadcast_all, reads

__all__ = ["Laplace"]


class Laplace(Distribution):
    """Two exponentials back to back.

    >>> import lucerne
    >>> lucerne.distributions.Laplace(0.0, 1.0).variance
    tensor(2.)
    """

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True
    _batched = {"loc": 0, "scale": 0}

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        super().__init__(self.loc.size(), validate_args=validate_args)

    mean = mode = reads("loc")

    @property
    def variance(self) -> Any:
        return 2 * self.scale.pow(2)

    @property
    def stddev(self) -> Any:
        return (2**0.5) * self.scale

    def rsample(self, sample_shape: Any = EMPTY) -> Any:
        u = self._blank(sample_shape, self.loc)
        u.uniform_(lu.finfo(self.loc.dtype).eps - 1, 1)
        return self.loc - self.scale * u.sign() * lu.log1p(-u.abs())

    def log_prob(self, value: Any) -> Any:
        self._check_value(value)
        return -lu.log(2 * self.scale) - lu.abs(value - self.loc) / self.scale

    def cdf(self, value: Any) -> Any:
        self._check_value(value)
        apart = value - self.loc
        return 0.5 - 0.5 * apart.sign() * lu.expm1(-apart.abs() / self.scale)

    def icdf(self, value: Any) -> Any:
        term = value - 0.5
        return self.loc - self.scale * term.sign() * lu.log1p(-2 * term.abs())

    def entropy(self) -> Any:
        return 1 + lu.log(2 * self.scale)
