"""Mixtures of distributions of one family."""

from __future__ import annotations

from typing import Any

from lucerne._src.tensor import api as lu
from lucerne.distributions import constraints
from lucerne.distributions.categorical import Categorical
from lucerne.distributions.distribution import Distribution
from lucerne.distributions.utils import EMPTY, reads

__all__ = ["MixtureSameFamily"]


class MixtureSameFamily(Distribution):
    """Components batched in the last batch dimension, chosen by a `Categorical`.

    >>> import lucerne
    >>> dist = lucerne.distributions
    >>> halves = dist.Categorical(lucerne.ones(2))
    >>> dist.MixtureSameFamily(halves, dist.Normal(lucerne.tensor([-1.0, 3.0]), 1.0)).mean
    tensor(1.)
    """

    arg_constraints: Any = {}
    has_rsample = False

    def __init__(
        self,
        mixture_distribution: Any,
        component_distribution: Any,
        validate_args: bool | None = None,
    ) -> None:
        self._mixture_distribution = mixture_distribution
        self._component_distribution = component_distribution
        _check(mixture_distribution, component_distribution)
        self._num_component = component_distribution.batch_shape[-1]
        self._event_ndims = len(component_distribution.event_shape)
        super().__init__(
            batch_shape=component_distribution.batch_shape[:-1],
            event_shape=component_distribution.event_shape,
            validate_args=validate_args,
        )

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(MixtureSameFamily, _instance)
        batch_shape = lu.Size(batch_shape)
        new._component_distribution = self._component_distribution.expand(
            (*batch_shape, self._num_component)
        )
        new._mixture_distribution = self._mixture_distribution.expand(batch_shape)
        new._num_component, new._event_ndims = self._num_component, self._event_ndims
        return self._expanded(new, batch_shape)

    @constraints.dependent_property
    def support(self) -> Any:
        return constraints.MixtureSameFamilyConstraint(self._component_distribution.support)

    mixture_distribution = reads("_mixture_distribution")
    component_distribution = reads("_component_distribution")

    @property
    def _weights(self) -> Any:
        return self._pad_mixture_dimensions(self.mixture_distribution.probs)

    @property
    def mean(self) -> Any:
        parts = self._weights * self.component_distribution.mean
        return parts.sum(dim=-1 - self._event_ndims)

    @property
    def variance(self) -> Any:
        """Of the total: mean of the variances and variance of the means."""
        weights, dim = self._weights, -1 - self._event_ndims
        within = (weights * self.component_distribution.variance).sum(dim=dim)
        apart = (self.component_distribution.mean - self._pad(self.mean)).pow(2.0)
        return within + (weights * apart).sum(dim=dim)

    def cdf(self, x: Any) -> Any:
        parts = self.component_distribution.cdf(self._pad(x))
        return (parts * self.mixture_distribution.probs).sum(dim=-1)

    def log_prob(self, x: Any) -> Any:
        if self._validate_args:
            self._validate_sample(x)
        parts = self.component_distribution.log_prob(self._pad(x))
        weights = lu.log_softmax(self.mixture_distribution.logits, dim=-1)
        return lu.logsumexp(parts + weights, dim=-1)

    def sample(self, sample_shape: Any = EMPTY) -> Any:
        with lu.no_grad():
            sample_shape = lu.Size(sample_shape)
            dim = len(sample_shape) + len(self.batch_shape)
            chosen = self.mixture_distribution.sample(sample_shape)
            parts = self.component_distribution.sample(sample_shape)
            places = chosen.reshape(chosen.shape + (1,) * (self._event_ndims + 1))
            places = places.expand((*chosen.shape, 1, *self.event_shape))
            return lu.gather(parts, dim, places).squeeze(dim)

    def _pad(self, x: Any) -> Any:
        return x.unsqueeze(-1 - self._event_ndims)

    def _pad_mixture_dimensions(self, x: Any) -> Any:
        """Batch dimensions the mixture lacks, and event dimensions behind."""
        missing = len(self.batch_shape) - len(self.mixture_distribution.batch_shape)
        missing = missing if self.mixture_distribution.batch_shape else 0
        lead = x.shape[:-1] + (1,) * missing
        return x.reshape(lead + x.shape[-1:] + (1,) * self._event_ndims)

    def __repr__(self) -> str:
        return (
            f"MixtureSameFamily(\n  {self.mixture_distribution},\n  {self.component_distribution})"
        )


def _check(mixture: Any, component: Any) -> None:
    if not isinstance(mixture, Categorical):
        raise ValueError(
            " The Mixture distribution needs to be an  instance of torch.distributions.Categorical"
        )
    if not isinstance(component, Distribution):
        raise ValueError(
            "The Component distribution needs to be an instance of torch.distributions.Distribution"
        )
    sizes, others = mixture.batch_shape, component.batch_shape[:-1]
    for a, b in zip(reversed(sizes), reversed(others), strict=False):
        if a != 1 and b != 1 and a != b:
            raise ValueError(
                f"`mixture_distribution.batch_shape` ({sizes}) is not compatible with "
                f"`component_distribution.batch_shape`({others})"
            )
    count, batch = mixture.logits.shape[-1], component.batch_shape[-1]
    if count is not None and batch is not None and count != batch:
        raise ValueError(
            f"`mixture_distribution component` ({count}) does not equal "
            f"`component_distribution.batch_shape[-1]` ({batch})"
        )
