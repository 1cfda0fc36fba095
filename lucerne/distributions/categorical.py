"""The categorical distribution."""

from __future__ import annotations

from typing import Any

from lucerne._src.tensor import api as lu
from lucerne.distributions import constraints
from lucerne.distributions.distribution import Distribution
from lucerne.distributions.utils import (
    EMPTY,
    ProbsOrLogits,
    one_of,
    reads,
)

__all__ = ["Categorical"]


class Categorical(ProbsOrLogits, Distribution):
    """Category numbers, by probabilities (or unnormalised log-probabilities) in the last dimension.

    >>> import lucerne
    >>> weather = lucerne.distributions.Categorical(lucerne.tensor([1.0, 1.0, 2.0]))
    >>> weather.probs
    tensor([0.2500, 0.2500, 0.5000])
    """

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    has_enumerate_support = True
    _is_binary = False
    _batched = {"probs": 1, "logits": 1, "_param": 1}

    def __init__(
        self, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        one_of(probs, logits)
        name, given = ("probs", probs) if probs is not None else ("logits", logits)
        if given.dim() < 1:
            raise ValueError(f"`{name}` parameter must be at least one-dimensional.")
        if probs is not None:
            self.probs = self._param = probs / probs.sum(-1, keepdim=True)
        else:
            self.logits = logits - logits.logsumexp(dim=-1, keepdim=True)
            self._param = self.logits
        super().__init__(self._param.size()[:-1], validate_args=validate_args)

    @property
    def _num_events(self) -> int:
        return int(self._param.size()[-1])

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Any:
        return constraints.integer_interval(0, self._num_events - 1)

    @property
    def mean(self) -> Any:
        return lu.full(
            self._extended_shape(), lu.nan, dtype=self.probs.dtype, device=self.probs.device
        )

    @property
    def mode(self) -> Any:
        return self.probs.argmax(dim=-1)

    variance = reads("mean")

    def sample(self, sample_shape: Any = EMPTY) -> Any:
        sample_shape = lu.Size(sample_shape)
        rows = self.probs.reshape(-1, self._num_events)
        drawn = lu.multinomial(rows, sample_shape.numel(), True).T
        return drawn.reshape(self._extended_shape(sample_shape))

    def log_prob(self, value: Any) -> Any:
        self._check_value(value)
        places, table = lu.broadcast_tensors(value.long().unsqueeze(-1), self.logits)
        return table.gather(-1, places[..., :1]).squeeze(-1)

    def entropy(self) -> Any:
        lowest = lu.finfo(self.logits.dtype).min
        return -(lu.clamp(self.logits, min=lowest) * self.probs).sum(-1)

    def enumerate_support(self, expand: bool = True) -> Any:
        values = lu.arange(self._num_events, dtype=lu.long, device=self._param.device)
        values = values.view((-1,) + (1,) * len(self._batch_shape))
        return values.expand((-1, *self._batch_shape)) if expand else values
