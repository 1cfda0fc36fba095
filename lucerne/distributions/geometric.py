"""The geometric distribution."""

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
from lucerne.nn import functional as F

__all__ = ["Geometric"]


class Geometric(ProbsOrLogits, Distribution):
    """Failures before the first success.

    >>> import lucerne
    >>> lucerne.distributions.Geometric(0.25).mean
    tensor(3.)
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.nonnegative_integer
    _batched = {"probs": 0, "logits": 0}

    def __init__(
        self, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        one_of(probs, logits)
        if probs is not None:
            (self.probs,) = (given,) = broadcast_all(probs)
        else:
            (self.logits,) = (given,) = broadcast_all(logits)
        super().__init__(given.size(), validate_args=validate_args)
        if self._validate_args and probs is not None and not bool((self.probs > 0).all()):
            value = self.probs
            raise ValueError(
                "Expected parameter probs "
                f"({type(value).__name__} of shape {tuple(value.shape)}) "
                f"of distribution {self!r} "
                f"to be positive but found invalid values:\n{value[~(value > 0)]}"
            )

    @property
    def mean(self) -> Any:
        return 1.0 / self.probs - 1.0

    @property
    def mode(self) -> Any:
        return lu.zeros_like(self.probs)

    @property
    def variance(self) -> Any:
        return (1.0 / self.probs - 1.0) / self.probs

    def sample(self, sample_shape: Any = EMPTY) -> Any:
        with lu.no_grad():
            u = self._blank(sample_shape, self.probs)
            u.uniform_(lu.finfo(self.probs.dtype).tiny, 1)
            return (u.log() / (-self.probs).log1p()).floor()

    def log_prob(self, value: Any) -> Any:
        self._check_value(value)
        value, probs = broadcast_all(value, self.probs)
        probs = probs.clone(memory_format=lu.contiguous_format)
        probs[(probs == 1) & (value == 0)] = 0
        return value * (-probs).log1p() + self.probs.log()

    def entropy(self) -> Any:
        cross = F.binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")
        return cross / self.probs
