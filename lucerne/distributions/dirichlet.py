"""The Dirichlet distribution."""

from __future__ import annotations

from typing import Any

from lucerne._src.tensor import api as lu
from lucerne.distributions import constraints
from lucerne.distributions.exp_family import ExponentialFamily
from lucerne.nn import functional as F

__all__ = ["Dirichlet"]


class Dirichlet(ExponentialFamily):
    """Points of the simplex: shares that sum to one.

    >>> import lucerne
    >>> lucerne.distributions.Dirichlet(lucerne.tensor([1.0, 3.0])).mean
    tensor([0.2500, 0.7500])
    """

    arg_constraints = {"concentration": constraints.independent(constraints.positive, 1)}
    support = constraints.simplex
    has_rsample = True
    _batched = {"concentration": 1}

    def __init__(self, concentration: Any, validate_args: bool | None = None) -> None:
        if concentration.dim() < 1:
            raise ValueError("`concentration` parameter must be at least one-dimensional.")
        self.concentration = concentration
        batch, event = concentration.shape[:-1], concentration.shape[-1:]
        super().__init__(batch, event, validate_args=validate_args)

    def rsample(self, sample_shape: Any = ()) -> Any:
        return lu._sample_dirichlet(self.concentration.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Any) -> Any:
        self._check_value(value)
        return (
            lu.xlogy(self.concentration - 1.0, value).sum(-1)
            + lu.lgamma(self.concentration.sum(-1))
            - lu.lgamma(self.concentration).sum(-1)
        )

    @property
    def mean(self) -> Any:
        return self.concentration / self.concentration.sum(-1, True)

    @property
    def mode(self) -> Any:
        inner = (self.concentration - 1).clamp(min=0.0)
        mode = inner / inner.sum(-1, True)
        corner = (self.concentration < 1).all(dim=-1, keepdim=True)
        places = F.one_hot(mode.argmax(dim=-1), self.concentration.shape[-1])
        return lu.where(corner, places.to(mode), mode)

    @property
    def variance(self) -> Any:
        total = self.concentration.sum(-1, True)
        rest = total - self.concentration
        return self.concentration * rest / (total.pow(2) * (total + 1))

    def entropy(self) -> Any:
        k, total = self.concentration.size(-1), self.concentration.sum(-1)
        return (
            lu.lgamma(self.concentration).sum(-1)
            - lu.lgamma(total)
            - (k - total) * lu.digamma(total)
            - ((self.concentration - 1.0) * lu.digamma(self.concentration)).sum(-1)
        )

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        return (self.concentration,)

    def _log_normalizer(self, x: Any) -> Any:
        return x.lgamma().sum(-1) - lu.lgamma(x.sum(-1))
