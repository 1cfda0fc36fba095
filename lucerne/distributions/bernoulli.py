"""The Bernoulli distribution."""

from __future__ import annotations

from typing import Any

from lucerne._src.tensor import api as lu
from lucerne.distributions import constraints
from lucerne.distributions.exp_family import ExponentialFamily
from lucerne.distributions.utils import (
    EMPTY,
    ProbsOrLogits,
    broadcast_all,
    one_of,
    reads,
)
from lucerne.nn import functional as F

__all__ = ["Bernoulli"]


class Bernoulli(ProbsOrLogits, ExponentialFamily):
    """One with probability `probs` (or log-odds `logits`), else zero.

    >>> import lucerne
    >>> lucerne.distributions.Bernoulli(0.25).log_prob(lucerne.tensor(1.0)).exp()
    tensor(0.2500)
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.boolean
    has_enumerate_support = True
    _batched = {"probs": 0, "logits": 0, "_param": 0}
    _mean_carrier_measure = 0

    def __init__(
        self, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        one_of(probs, logits)
        if probs is not None:
            (self.probs,) = (self._param,) = broadcast_all(probs)
        else:
            (self.logits,) = (self._param,) = broadcast_all(logits)
        super().__init__(self._param.size(), validate_args=validate_args)

    mean = reads("probs")

    @property
    def mode(self) -> Any:
        likely = (self.probs >= 0.5).to(self.probs)
        return lu.where(self.probs == 0.5, lu.nan, likely)

    @property
    def variance(self) -> Any:
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = EMPTY) -> Any:
        with lu.no_grad():
            return lu.bernoulli(self.probs.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Any) -> Any:
        self._check_value(value)
        logits, value = broadcast_all(self.logits, value)
        return -F.binary_cross_entropy_with_logits(logits, value, reduction="none")

    def entropy(self) -> Any:
        return F.binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")

    def enumerate_support(self, expand: bool = True) -> Any:
        values = lu.arange(2, dtype=self._param.dtype, device=self._param.device)
        values = values.view((-1,) + (1,) * len(self._batch_shape))
        return values.expand((-1, *self._batch_shape)) if expand else values

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        return (lu.logit(self.probs),)

    def _log_normalizer(self, x: Any) -> Any:
        return lu.log1p(lu.exp(x))
