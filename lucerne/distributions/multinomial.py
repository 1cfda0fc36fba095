"""The multinomial distribution."""

from __future__ import annotations

from typing import Any

from lucerne._src.tensor import api as lu
from lucerne.distributions import constraints
from lucerne.distributions.binomial import Binomial
from lucerne.distributions.categorical import Categorical
from lucerne.distributions.distribution import Distribution
from lucerne.distributions.utils import EMPTY, broadcast_all, reads

__all__ = ["Multinomial"]


class Multinomial(Distribution):
    """How often each category comes up in `total_count` draws.

    >>> import lucerne
    >>> lucerne.distributions.Multinomial(4, lucerne.tensor([1.0, 3.0])).mean
    tensor([1., 3.])
    """

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}

    def __init__(
        self,
        total_count: int = 1,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        if not isinstance(total_count, int):
            raise NotImplementedError("inhomogeneous total_count is not supported")
        self.total_count = total_count
        self._categorical = Categorical(probs=probs, logits=logits)
        batch, event = self._categorical.batch_shape, self._categorical.param_shape[-1:]
        super().__init__(batch, event, validate_args=validate_args)

    @property
    def _binomial(self) -> Any:
        return Binomial(total_count=self.total_count, probs=self.probs)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(Multinomial, _instance)
        batch_shape = lu.Size(batch_shape)
        new.total_count = self.total_count
        new._categorical = self._categorical.expand(batch_shape)
        return self._expanded(new, batch_shape)

    def _new(self, *args: Any, **kwargs: Any) -> Any:
        return self._categorical._new(*args, **kwargs)

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> Any:
        return constraints.multinomial(self.total_count)

    @property
    def mean(self) -> Any:
        return self.probs * self.total_count

    @property
    def variance(self) -> Any:
        return self.total_count * self.probs * (1 - self.probs)

    logits = reads("_categorical.logits")
    probs = reads("_categorical.probs")
    param_shape = reads("_categorical.param_shape")

    def sample(self, sample_shape: Any = EMPTY) -> Any:
        sample_shape = lu.Size(sample_shape)
        drawn = self._categorical.sample(lu.Size((self.total_count,)) + sample_shape)
        drawn = drawn.movedim(0, -1)  # the draws of one event, side by side
        counts = drawn.new_zeros(self._extended_shape(sample_shape))
        return counts.scatter_add_(-1, drawn, lu.ones_like(drawn)).type_as(self.probs)

    def entropy(self) -> Any:
        n = lu.tensor(self.total_count)
        categories = self._categorical.entropy()
        counts = self._binomial.enumerate_support(expand=False)[1:]
        probs = lu.exp(self._binomial.log_prob(counts))
        ways = (probs * lu.lgamma(counts + 1)).sum([0, -1])
        return n * categories - lu.lgamma(n + 1) + ways

    def log_prob(self, value: Any) -> Any:
        self._check_value(value)
        logits, value = broadcast_all(self.logits, value)
        logits = logits.clone(memory_format=lu.contiguous_format)
        logits[(value == 0) & (logits == -lu.inf)] = 0
        ways = lu.lgamma(value.sum(-1) + 1) - lu.lgamma(value + 1).sum(-1)
        return ways + (logits * value).sum(-1)
