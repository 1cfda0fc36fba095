"""The logistic-normal distribution."""

from __future__ import annotations

from typing import Any

from lucerne.distributions import constraints
from lucerne.distributions.normal import Normal
from lucerne.distributions.transformed_distribution import TransformedDistribution
from lucerne.distributions.transforms import StickBreakingTransform
from lucerne.distributions.utils import reads

__all__ = ["LogisticNormal"]


class LogisticNormal(TransformedDistribution):
    """Points of the simplex whose breaks of the stick are normal.

    >>> import lucerne
    >>> lucerne.distributions.LogisticNormal(lucerne.zeros(3), lucerne.ones(3)).event_shape
    torch.Size([4])
    """

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.simplex
    has_rsample = True
    _params: Any = ()

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        base = Normal(loc, scale, validate_args=validate_args)
        if not base.batch_shape:
            base = base.expand([1])
        super().__init__(base, StickBreakingTransform(), validate_args=validate_args)

    loc = reads("base_dist.base_dist.loc")
    scale = reads("base_dist.base_dist.scale")
