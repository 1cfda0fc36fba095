"""Batches that count as one event."""

from __future__ import annotations

from typing import Any

from lucerne._src.tensor import api as lu
from lucerne.distributions import constraints
from lucerne.distributions.distribution import Distribution
from lucerne.distributions.utils import EMPTY, _sum_rightmost, reads

__all__ = ["Independent"]


class Independent(Distribution):
    """A distribution whose rightmost batch dimensions became event dimensions.

    >>> import lucerne
    >>> dist = lucerne.distributions
    >>> vector = dist.Independent(dist.Normal(lucerne.zeros(3), 1.0), 1)
    >>> vector.batch_shape, vector.event_shape
    (torch.Size([]), torch.Size([3]))
    """

    arg_constraints: Any = {}

    def __init__(
        self,
        base_distribution: Any,
        reinterpreted_batch_ndims: int,
        validate_args: bool | None = None,
    ) -> None:
        batch = base_distribution.batch_shape
        if reinterpreted_batch_ndims > len(batch):
            raise ValueError(
                "Expected reinterpreted_batch_ndims <= len(base_distribution.batch_shape), "
                f"actual {reinterpreted_batch_ndims} vs {len(batch)}"
            )
        self.base_dist = base_distribution
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims
        cut = len(batch) - reinterpreted_batch_ndims
        event = batch[cut:] + base_distribution.event_shape
        super().__init__(batch[:cut], event, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(Independent, _instance)
        batch_shape = lu.Size(batch_shape)
        n = self.reinterpreted_batch_ndims
        new.base_dist = self.base_dist.expand(batch_shape + self.event_shape[:n])
        new.reinterpreted_batch_ndims = n
        return self._expanded(new, batch_shape)

    has_rsample = reads("base_dist.has_rsample")

    @property
    def has_enumerate_support(self) -> Any:
        return self.base_dist.has_enumerate_support and self.reinterpreted_batch_ndims == 0

    @constraints.dependent_property
    def support(self) -> Any:
        support = self.base_dist.support
        if self.reinterpreted_batch_ndims:
            return constraints.independent(support, self.reinterpreted_batch_ndims)
        return support

    mean = reads("base_dist.mean")
    mode = reads("base_dist.mode")
    variance = reads("base_dist.variance")

    def sample(self, sample_shape: Any = EMPTY) -> Any:
        return self.base_dist.sample(sample_shape)

    def rsample(self, sample_shape: Any = EMPTY) -> Any:
        return self.base_dist.rsample(sample_shape)

    def log_prob(self, value: Any) -> Any:
        return _sum_rightmost(self.base_dist.log_prob(value), self.reinterpreted_batch_ndims)

    def entropy(self) -> Any:
        return _sum_rightmost(self.base_dist.entropy(), self.reinterpreted_batch_ndims)

    def enumerate_support(self, expand: bool = True) -> Any:
        if self.reinterpreted_batch_ndims > 0:
            raise NotImplementedError("Enumeration over cartesian product is not implemented")
        return self.base_dist.enumerate_support(expand=expand)

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self.base_dist}, {self.reinterpreted_batch_ndims})"
