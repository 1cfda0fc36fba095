"""The Pareto distribution."""

from __future__ import annotations

from typing import Any

from lucerne.distributions import constraints
from lucerne.distributions.exponential import Exponential
from lucerne.distributions.transformed_distribution import TransformedDistribution
from lucerne.distributions.transforms import AffineTransform, ExpTransform
from lucerne.distributions.utils import broadcast_all, reads

__all__ = ["Pareto"]


class Pareto(TransformedDistribution):
    """A power law above `scale`.

    >>> import lucerne
    >>> lucerne.distributions.Pareto(1.0, 3.0).mean
    tensor(1.5000)
    """

    arg_constraints = {"alpha": constraints.positive, "scale": constraints.positive}
    _params: Any = ("scale", "alpha")

    def __init__(self, scale: Any, alpha: Any, validate_args: bool | None = None) -> None:
        self.scale, self.alpha = broadcast_all(scale, alpha)
        base = Exponential(self.alpha, validate_args=validate_args)
        super().__init__(base, self._chain(), validate_args=validate_args)

    def _chain(self) -> list[Any]:
        return [ExpTransform(), AffineTransform(loc=0, scale=self.scale)]

    @property
    def mean(self) -> Any:
        alpha = self.alpha.clamp(min=1)  # infinite up to here
        return alpha * self.scale / (alpha - 1)

    mode = reads("scale")

    @property
    def variance(self) -> Any:
        alpha = self.alpha.clamp(min=2)  # infinite up to here
        return self.scale.pow(2) * alpha / ((alpha - 1).pow(2) * (alpha - 2))

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        return constraints.greater_than_eq(self.scale)

    def entropy(self) -> Any:
        return (self.scale / self.alpha).log() + (1 + self.alpha.reciprocal())
