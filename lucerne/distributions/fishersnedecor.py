"""The F distribution."""

from __future__ import annotations

from typing import Any

from lucerne._src.tensor import api as lu
from lucerne.distributions import constraints
from lucerne.distributions.distribution import Distribution
from lucerne.distributions.gamma import Gamma
from lucerne.distributions.utils import EMPTY, broadcast_all

__all__ = ["FisherSnedecor"]


class FisherSnedecor(Distribution):
    """The ratio of two chi-squared variables, each over its degrees of freedom.

    >>> import lucerne
    >>> lucerne.distributions.FisherSnedecor(2.0, 4.0).mean
    tensor(2.)
    """

    arg_constraints = {"df1": constraints.positive, "df2": constraints.positive}
    support = constraints.positive
    has_rsample = True
    _batched = {"df1": 0, "df2": 0, "_gamma1": 0, "_gamma2": 0}

    def __init__(self, df1: Any, df2: Any, validate_args: bool | None = None) -> None:
        self.df1, self.df2 = broadcast_all(df1, df2)
        self._gamma1 = Gamma(self.df1 * 0.5, self.df1)
        self._gamma2 = Gamma(self.df2 * 0.5, self.df2)
        super().__init__(self.df1.size(), validate_args=validate_args)

    @property
    def mean(self) -> Any:
        df2 = self.df2.clone()
        df2[df2 <= 2] = lu.nan
        return df2 / (df2 - 2)

    @property
    def mode(self) -> Any:
        mode = (self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2)
        mode[self.df1 <= 2] = lu.nan
        return mode

    @property
    def variance(self) -> Any:
        df2 = self.df2.clone()
        df2[df2 <= 4] = lu.nan
        top = 2 * df2.pow(2) * (self.df1 + df2 - 2)
        return top / (self.df1 * (df2 - 2).pow(2) * (df2 - 4))

    def rsample(self, sample_shape: Any = EMPTY) -> Any:
        shape = self._extended_shape(sample_shape)
        first = self._gamma1.rsample(sample_shape).view(shape)
        second = self._gamma2.rsample(sample_shape).view(shape)
        tiny = lu.finfo(second.dtype).tiny
        second.clamp_(min=tiny)
        return (first / second).clamp_(min=tiny)

    def log_prob(self, value: Any) -> Any:
        self._check_value(value)
        half1, half2, ratio = self.df1 * 0.5, self.df2 * 0.5, self.df1 / self.df2
        normalizer = (half1 + half2).lgamma() - half1.lgamma() - half2.lgamma()
        powers = half1 * ratio.log() + (half1 - 1) * lu.log(value)
        return normalizer + powers - (half1 + half2) * lu.log1p(ratio * value)
