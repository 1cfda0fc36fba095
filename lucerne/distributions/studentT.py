"""Student's t distribution."""

from __future__ import annotations

import math
from typing import Any

from lucerne._src.tensor import api as lu
from lucerne.distributions import constraints
from lucerne.distributions.chi2 import Chi2
from lucerne.distributions.distribution import Distribution
from lucerne.distributions.utils import EMPTY, _standard_normal, broadcast_all, reads

__all__ = ["StudentT"]


class StudentT(Distribution):
    """A bell with heavier tails, the heavier the fewer degrees of freedom.

    >>> import lucerne
    >>> lucerne.distributions.StudentT(4.0).variance
    tensor(2.)
    """

    arg_constraints = {
        "df": constraints.positive,
        "loc": constraints.real,
        "scale": constraints.positive,
    }
    support = constraints.real
    has_rsample = True
    _batched = {"df": 0, "loc": 0, "scale": 0, "_chi2": 0}

    def __init__(
        self, df: Any, loc: Any = 0.0, scale: Any = 1.0, validate_args: bool | None = None
    ) -> None:
        self.df, self.loc, self.scale = broadcast_all(df, loc, scale)
        self._chi2 = Chi2(self.df)
        super().__init__(self.df.size(), validate_args=validate_args)

    @property
    def mean(self) -> Any:
        mean = self.loc.clone(memory_format=lu.contiguous_format)
        mean[self.df <= 1] = lu.nan
        return mean

    mode = reads("loc")

    @property
    def variance(self) -> Any:
        finite = self.scale.pow(2) * self.df / (self.df - 2)
        heavy = lu.where(self.df > 1, lu.inf, lu.nan).to(finite)
        return lu.where(self.df > 2, finite, heavy)

    def rsample(self, sample_shape: Any = EMPTY) -> Any:
        shape = self._extended_shape(sample_shape)
        normal = _standard_normal(shape, dtype=self.df.dtype, device=self.df.device)
        spread = self._chi2.rsample(sample_shape)
        return self.loc + self.scale * (normal * lu.rsqrt(spread / self.df))

    def log_prob(self, value: Any) -> Any:
        self._check_value(value)
        steps = (value - self.loc) / self.scale
        normalizer = (
            self.scale.log()
            + 0.5 * self.df.log()
            + 0.5 * math.log(math.pi)
            + lu.lgamma(0.5 * self.df)
            - lu.lgamma(0.5 * (self.df + 1.0))
        )
        return -0.5 * (self.df + 1.0) * lu.log1p(steps**2.0 / self.df) - normalizer

    def entropy(self) -> Any:
        half, next_half = 0.5 * self.df, 0.5 * (self.df + 1)
        log_beta = lu.lgamma(half) + math.lgamma(0.5) - lu.lgamma(next_half)
        return (
            self.scale.log()
            + next_half * (lu.digamma(next_half) - lu.digamma(half))
            + 0.5 * self.df.log()
            + log_beta
        )
