"""The binomial distribution."""

from __future__ import annotations

from typing import Any

from lucerne._src.tensor import api as lu
from lucerne.distributions import constraints
from lucerne.distributions.distribution import Distribution
from lucerne.distributions.utils import (
    EMPTY,
    ProbsOrLogits,
    broadcast_all,
    one_of,
)

__all__ = ["Binomial"]


def _half_clamped(x: Any) -> Any:
    """`max(x, 0)` with a gradient of one half at zero."""
    return (x.clamp(min=0) + x - x.clamp(max=0)) / 2


class Binomial(ProbsOrLogits, Distribution):
    """Successes among `total_count` independent trials.

    >>> import lucerne
    >>> lucerne.distributions.Binomial(10, lucerne.tensor([0.1, 0.5])).mean
    tensor([1., 5.])
    """

    arg_constraints = {
        "total_count": constraints.nonnegative_integer,
        "probs": constraints.unit_interval,
        "logits": constraints.real,
    }
    has_enumerate_support = True
    _batched = {"total_count": 0, "probs": 0, "logits": 0, "_param": 0}

    def __init__(
        self,
        total_count: Any = 1,
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

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Any:
        return constraints.integer_interval(0, self.total_count)

    @property
    def mean(self) -> Any:
        return self.total_count * self.probs

    @property
    def mode(self) -> Any:
        return ((self.total_count + 1) * self.probs).floor().clamp(max=self.total_count)

    @property
    def variance(self) -> Any:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = EMPTY) -> Any:
        shape = self._extended_shape(sample_shape)
        with lu.no_grad():
            return lu.binomial(self.total_count.expand(shape), self.probs.expand(shape))

    def log_prob(self, value: Any) -> Any:
        self._check_value(value)
        n, logits = self.total_count, self.logits
        # log(1 + exp(logits)), for logits of either sign
        softplus = _half_clamped(logits) + lu.log1p(lu.exp(-lu.abs(logits)))
        ways = lu.lgamma(n + 1) - lu.lgamma(value + 1) - lu.lgamma(n - value + 1)
        return value * logits - n * softplus + ways

    def _common_count(self, where: str) -> int:
        count = int(self.total_count.max())
        if not self.total_count.min() == count:
            raise NotImplementedError(f"Inhomogeneous total count not supported by `{where}`.")
        return count

    def entropy(self) -> Any:
        self._common_count("entropy")
        log_prob = self.log_prob(self.enumerate_support(False))
        return -(lu.exp(log_prob) * log_prob).sum(0)

    def enumerate_support(self, expand: bool = True) -> Any:
        count = self._common_count("enumerate_support")
        values = lu.arange(1 + count, dtype=self._param.dtype, device=self._param.device)
        values = values.view((-1,) + (1,) * len(self._batch_shape))
        return values.expand((-1, *self._batch_shape)) if expand else values
