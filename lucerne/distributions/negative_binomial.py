"""The negative binomial distribution."""

from __future__ import annotations

from typing import Any

from lucerne._src.tensor import api as lu
from lucerne.distributions import constraints
from lucerne.distributions.distribution import Distribution
from lucerne.distributions.gamma import Gamma
from lucerne.distributions.utils import (
    EMPTY,
    ProbsOrLogits,
    broadcast_all,
    lazy_property,
    one_of,
)
from lucerne.nn import functional as F

__all__ = ["NegativeBinomial"]


class NegativeBinomial(ProbsOrLogits, Distribution):
    """Successes before `total_count` failures.

    >>> import lucerne
    >>> lucerne.distributions.NegativeBinomial(3.0, lucerne.tensor(0.5)).mean
    tensor(3.)
    """

    arg_constraints = {
        "total_count": constraints.greater_than_eq(0),
        "probs": constraints.half_open_interval(0.0, 1.0),
        "logits": constraints.real,
    }
    support = constraints.nonnegative_integer
    _batched = {"total_count": 0, "probs": 0, "logits": 0, "_param": 0}

    def __init__(
        self,
        total_count: Any,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        one_of(probs, logits)
        given = probs if probs is not None else logits
        count, self._param = broadcast_all(total_count, given)
        self.total_count = count.type_as(self._param)
        if probs is not None:
            self.probs = self._param
        else:
            self.logits = self._param
        super().__init__(self._param.size(), validate_args=validate_args)

    @property
    def mean(self) -> Any:
        return self.total_count * lu.exp(self.logits)

    @property
    def mode(self) -> Any:
        return ((self.total_count - 1) * self.logits.exp()).floor().clamp(min=0.0)

    @property
    def variance(self) -> Any:
        return self.mean / lu.sigmoid(-self.logits)

    @lazy_property
    def _gamma(self) -> Any:
        rate = lu.exp(-self.logits)
        return Gamma(concentration=self.total_count, rate=rate, validate_args=False)

    def sample(self, sample_shape: Any = EMPTY) -> Any:
        with lu.no_grad():
            return lu.poisson(self._gamma.sample(sample_shape=sample_shape))

    def log_prob(self, value: Any) -> Any:
        self._check_value(value)
        n = self.total_count
        weight = n * F.logsigmoid(-self.logits) + value * F.logsigmoid(self.logits)
        ways = lu.lgamma(n + value) - lu.lgamma(1.0 + value) - lu.lgamma(n)
        return weight + ways.masked_fill(n + value == 0.0, 0.0)
