"""The continuous Bernoulli distribution."""

from __future__ import annotations

import math
from typing import Any

from lucerne._src.tensor import api as lu
from lucerne.distributions import constraints
from lucerne.distributions.exp_family import ExponentialFamily
from lucerne.distributions.utils import (
    EMPTY,
    ProbsOrLogits,
    broadcast_all,
    clamp_probs,
    lazy_property,
    logits_to_probs,
    one_of,
)
from lucerne.nn import functional as F

__all__ = ["ContinuousBernoulli"]


class ContinuousBernoulli(ProbsOrLogits, ExponentialFamily):
    """Numbers in [0, 1] with density proportional to `probs^x (1 - probs)^(1 - x)`.

    Close to `probs = 0.5` (between `lims`) the formulas are replaced by Taylor series.

    >>> import lucerne
    >>> lucerne.distributions.ContinuousBernoulli(0.5).mean
    tensor(0.5000)
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.unit_interval
    has_rsample = True
    _batched = {"probs": 0, "logits": 0, "_param": 0}
    _mean_carrier_measure = 0

    def __init__(
        self,
        probs: Any = None,
        logits: Any = None,
        lims: tuple[float, float] = (0.499, 0.501),
        validate_args: bool | None = None,
    ) -> None:
        one_of(probs, logits)
        if probs is not None:
            (self.probs,) = broadcast_all(probs)
            if validate_args and not bool(constraints.unit_interval.check(self.probs).all()):
                raise ValueError("The parameter probs has invalid values")
            self.probs = self._param = clamp_probs(self.probs)
        else:
            (self.logits,) = (self._param,) = broadcast_all(logits)
        self._lims = lims
        super().__init__(self._param.size(), validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = super().expand(batch_shape, _instance)
        new._lims = self._lims
        return new

    def _outside_unstable_region(self) -> Any:
        return (self.probs <= self._lims[0]) | (self.probs > self._lims[1])

    def _cut_probs(self) -> Any:
        """`probs`, with a safe number where the series is used."""
        safe = self._lims[0] * lu.ones_like(self.probs)
        return lu.where(self._outside_unstable_region(), self.probs, safe)

    def _cont_bern_log_norm(self) -> Any:
        cut = self._cut_probs()
        below = lu.where(cut <= 0.5, cut, lu.zeros_like(cut))
        above = lu.where(cut >= 0.5, cut, lu.ones_like(cut))
        apart = lu.log(lu.abs(lu.log1p(-cut) - lu.log(cut)))
        exact = apart - lu.where(cut <= 0.5, lu.log1p(-2.0 * below), lu.log(2.0 * above - 1.0))
        x = lu.pow(self.probs - 0.5, 2)
        series = math.log(2.0) + (4.0 / 3.0 + 104.0 / 45.0 * x) * x
        return lu.where(self._outside_unstable_region(), exact, series)

    @property
    def mean(self) -> Any:
        cut = self._cut_probs()
        exact = cut / (2.0 * cut - 1.0) + 1.0 / (lu.log1p(-cut) - lu.log(cut))
        x = self.probs - 0.5
        series = 0.5 + (1.0 / 3.0 + 16.0 / 45.0 * lu.pow(x, 2)) * x
        return lu.where(self._outside_unstable_region(), exact, series)

    @property
    def stddev(self) -> Any:
        return lu.sqrt(self.variance)

    @property
    def variance(self) -> Any:
        cut = self._cut_probs()
        exact = cut * (cut - 1.0) / lu.pow(1.0 - 2.0 * cut, 2)
        exact = exact + 1.0 / lu.pow(lu.log1p(-cut) - lu.log(cut), 2)
        x = lu.pow(self.probs - 0.5, 2)
        series = 1.0 / 12.0 - (1.0 / 15.0 - 128.0 / 945.0 * x) * x
        return lu.where(self._outside_unstable_region(), exact, series)

    @lazy_property
    def probs(self) -> Any:
        return clamp_probs(logits_to_probs(self.logits, is_binary=True))

    def rsample(self, sample_shape: Any = EMPTY) -> Any:
        shape = self._extended_shape(sample_shape)
        return self.icdf(lu.rand(shape, dtype=self.probs.dtype, device=self.probs.device))

    def log_prob(self, value: Any) -> Any:
        self._check_value(value)
        logits, value = broadcast_all(self.logits, value)
        cross = F.binary_cross_entropy_with_logits(logits, value, reduction="none")
        return -cross + self._cont_bern_log_norm()

    def cdf(self, value: Any) -> Any:
        self._check_value(value)
        cut = self._cut_probs()
        weight = lu.pow(cut, value) * lu.pow(1.0 - cut, 1.0 - value)
        exact = (weight + cut - 1.0) / (2.0 * cut - 1.0)
        inside = lu.where(self._outside_unstable_region(), exact, value)
        return lu.where(value <= 0.0, 0.0, lu.where(value >= 1.0, 1.0, inside)).to(inside)

    def icdf(self, value: Any) -> Any:
        cut = self._cut_probs()
        low = lu.log1p(-cut)
        exact = (lu.log1p(-cut + value * (2.0 * cut - 1.0)) - low) / (lu.log(cut) - low)
        return lu.where(self._outside_unstable_region(), exact, value)

    def entropy(self) -> Any:
        low, high = lu.log1p(-self.probs), lu.log(self.probs)
        return self.mean * (low - high) - self._cont_bern_log_norm() - low

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        return (self.logits,)

    def _log_normalizer(self, x: Any) -> Any:
        outside = (x <= self._lims[0] - 0.5) | (x > self._lims[1] - 0.5)
        cut = lu.where(outside, x, (self._lims[0] - 0.5) * lu.ones_like(x))
        exact = lu.log(lu.abs(lu.expm1(cut))) - lu.log(lu.abs(cut))
        series = 0.5 * x + lu.pow(x, 2) / 24.0 - lu.pow(x, 4) / 2880.0
        return lu.where(outside, exact, series)
