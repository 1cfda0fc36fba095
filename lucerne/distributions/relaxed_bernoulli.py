"""Bernoulli samples made smooth."""

from __future__ import annotations

from typing import Any

from lucerne._src.tensor import api as lu
from lucerne.distributions import constraints
from lucerne.distributions.distribution import Distribution
from lucerne.distributions.transformed_distribution import TransformedDistribution, of_base
from lucerne.distributions.transforms import SigmoidTransform
from lucerne.distributions.utils import (
    EMPTY,
    ProbsOrLogits,
    broadcast_all,
    clamp_probs,
    one_of,
)

__all__ = ["LogitRelaxedBernoulli", "RelaxedBernoulli"]


class LogitRelaxedBernoulli(ProbsOrLogits, Distribution):
    """The log-odds of a relaxed Bernoulli sample, at a given `temperature`."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.real
    has_rsample = True
    _batched = {"probs": 0, "logits": 0, "_param": 0}

    def __init__(
        self,
        temperature: Any,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        self.temperature = temperature
        one_of(probs, logits)
        if probs is not None:
            (self.probs,) = (self._param,) = broadcast_all(probs)
        else:
            (self.logits,) = (self._param,) = broadcast_all(logits)
        super().__init__(self._param.size(), validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = super().expand(batch_shape, _instance)
        new.temperature = self.temperature
        return new

    def rsample(self, sample_shape: Any = EMPTY) -> Any:
        shape = self._extended_shape(sample_shape)
        probs = clamp_probs(self.probs.expand(shape))
        u = clamp_probs(lu.rand(shape, dtype=probs.dtype, device=probs.device))
        noise = u.log() - (-u).log1p()
        return (noise + probs.log() - (-probs).log1p()) / self.temperature

    def log_prob(self, value: Any) -> Any:
        self._check_value(value)
        logits, value = broadcast_all(self.logits, value)
        diff = logits - value.mul(self.temperature)
        return self.temperature.log() + diff - 2 * diff.exp().log1p()


class RelaxedBernoulli(TransformedDistribution):
    """A Bernoulli relaxed to (0, 1), reparameterised: the colder, the closer to zeros and ones.

    >>> import lucerne
    >>> soft = lucerne.distributions.RelaxedBernoulli(lucerne.tensor(0.5), lucerne.tensor([0.3]))
    >>> soft.has_rsample, soft.support
    (True, Interval(lower_bound=0.0, upper_bound=1.0))
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.unit_interval
    has_rsample = True
    _params: Any = ()
    temperature = of_base("temperature")
    logits = of_base("logits")
    probs = of_base("probs")

    def __init__(
        self,
        temperature: Any,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        base = LogitRelaxedBernoulli(temperature, probs, logits)
        super().__init__(base, SigmoidTransform(), validate_args=validate_args)
