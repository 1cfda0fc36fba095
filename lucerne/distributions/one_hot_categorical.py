"""One-hot categorical distributions."""

from __future__ import annotations

from typing import Any

from lucerne._src.tensor import api as lu
from lucerne.distributions import constraints
from lucerne.distributions.categorical import Categorical
from lucerne.distributions.distribution import Distribution
from lucerne.distributions.utils import EMPTY, reads
from lucerne.nn import functional as F

__all__ = ["OneHotCategorical", "OneHotCategoricalStraightThrough"]


class OneHotCategorical(Distribution):
    """A categorical whose samples are vectors of zeros with a single one.

    >>> import lucerne
    >>> lucerne.distributions.OneHotCategorical(lucerne.tensor([0.25, 0.75])).mode
    tensor([0., 1.])
    """

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support = constraints.one_hot
    has_enumerate_support = True
    _batched = {"_categorical": 0}

    def __init__(
        self, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        self._categorical = Categorical(probs, logits)
        batch, event = self._categorical.batch_shape, self._categorical.param_shape[-1:]
        super().__init__(batch, event, validate_args=validate_args)

    def _new(self, *args: Any, **kwargs: Any) -> Any:
        return self._categorical._new(*args, **kwargs)

    _param = reads("_categorical._param")
    probs = reads("_categorical.probs")
    logits = reads("_categorical.logits")
    mean = reads("_categorical.probs")

    @property
    def mode(self) -> Any:
        places = self._categorical.probs.argmax(dim=-1)
        return F.one_hot(places, num_classes=self.event_shape[-1]).to(self.probs)

    @property
    def variance(self) -> Any:
        return self._categorical.probs * (1 - self._categorical.probs)

    param_shape = reads("_categorical.param_shape")

    def sample(self, sample_shape: Any = EMPTY) -> Any:
        places = self._categorical.sample(sample_shape)
        return F.one_hot(places, self._categorical._num_events).to(self._categorical.probs)

    def log_prob(self, value: Any) -> Any:
        self._check_value(value)
        return self._categorical.log_prob(value.max(-1)[1])

    def entropy(self) -> Any:
        return self._categorical.entropy()

    def enumerate_support(self, expand: bool = True) -> Any:
        n = self.event_shape[0]
        values = lu.eye(n, dtype=self._param.dtype, device=self._param.device)
        values = values.view((n,) + (1,) * len(self.batch_shape) + (n,))
        return values.expand((n, *self.batch_shape, n)) if expand else values


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """One-hot samples whose gradient is that of the probabilities (the straight-through estimator).

    >>> import lucerne
    >>> lucerne.distributions.OneHotCategoricalStraightThrough(lucerne.ones(3)).has_rsample
    True
    """

    has_rsample = True

    def rsample(self, sample_shape: Any = EMPTY) -> Any:
        samples = self.sample(sample_shape)
        probs = self._categorical.probs
        return samples + (probs - probs.detach())
