"""Distributions of transformed samples."""

from __future__ import annotations

from typing import Any

from lucerne._src.tensor import api as lu
from lucerne.distributions import constraints
from lucerne.distributions.distribution import Distribution
from lucerne.distributions.independent import Independent
from lucerne.distributions.transforms import ComposeTransform, Transform
from lucerne.distributions.utils import EMPTY, _sum_rightmost, reads

__all__ = ["TransformedDistribution"]


def of_base(name: str) -> Any:
    """A property: the parameter of that name of the distribution that is transformed."""
    return property(lambda self: getattr(self.base_dist, name))


class TransformedDistribution(Distribution):
    """What a chain of transforms makes of a base distribution.

    >>> import lucerne
    >>> dist = lucerne.distributions
    >>> log_normal = dist.TransformedDistribution(dist.Normal(0.0, 1.0), [dist.ExpTransform()])
    >>> log_normal.log_prob(lucerne.tensor(1.0))
    tensor(-0.9189)

    A subclass names the parameters it keeps in `_params` and builds its transforms of them in
    `_chain`; `expand` then works without further code.
    """

    arg_constraints: Any = {}
    _params: Any = ()

    def __init__(
        self, base_distribution: Any, transforms: Any, validate_args: bool | None = None
    ) -> None:
        self.transforms = _as_list(transforms)
        whole = ComposeTransform(self.transforms)
        shape = base_distribution.batch_shape + base_distribution.event_shape
        if len(shape) < whole.domain.event_dim:
            raise ValueError(
                "base_distribution needs to have shape with size at least "
                f"{whole.domain.event_dim}, but got {shape}."
            )
        out_shape = whole.forward_shape(shape)
        base_shape = whole.inverse_shape(out_shape)
        if base_shape != shape:
            cut = len(base_shape) - len(base_distribution.event_shape)
            base_distribution = base_distribution.expand(base_shape[:cut])
        more = whole.domain.event_dim - len(base_distribution.event_shape)
        self.base_dist: Any = (
            Independent(base_distribution, more) if more > 0 else base_distribution
        )
        change = whole.codomain.event_dim - whole.domain.event_dim
        event_dim = max(whole.codomain.event_dim, len(self.base_dist.event_shape) + change)
        cut = len(out_shape) - event_dim
        super().__init__(out_shape[:cut], out_shape[cut:], validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        cls: Any = next(c for c in type(self).__mro__ if "_params" in vars(c))
        new = self._get_checked_instance(cls, _instance)
        batch_shape = lu.Size(batch_shape)
        shape = batch_shape + self.event_shape
        for transform in reversed(self.transforms):
            shape = transform.inverse_shape(shape)
        new.base_dist = self.base_dist.expand(shape[: len(shape) - len(self.base_dist.event_shape)])
        for name in cls._params:
            setattr(new, name, getattr(self, name).expand(batch_shape))
        new.transforms = new._chain() if cls._params else self.transforms
        return self._expanded(new, batch_shape)

    def _chain(self) -> list[Any]:
        raise NotImplementedError

    @constraints.dependent_property(is_discrete=False)
    def support(self) -> Any:
        if not self.transforms:
            return self.base_dist.support
        support = self.transforms[-1].codomain
        missing = len(self.event_shape) - support.event_dim
        return constraints.independent(support, missing) if missing > 0 else support

    has_rsample = reads("base_dist.has_rsample")

    def _forward(self, x: Any) -> Any:
        for transform in self.transforms:
            x = transform(x)
        return x

    def sample(self, sample_shape: Any = EMPTY) -> Any:
        with lu.no_grad():
            return self._forward(self.base_dist.sample(sample_shape))

    def rsample(self, sample_shape: Any = EMPTY) -> Any:
        return self._forward(self.base_dist.rsample(sample_shape))

    def log_prob(self, value: Any) -> Any:
        self._check_value(value)
        event_dim, change, y = len(self.event_shape), 0.0, value
        for transform in reversed(self.transforms):
            x = transform.inv(y)
            event_dim += transform.domain.event_dim - transform.codomain.event_dim
            change = change - _sum_rightmost(
                transform.log_abs_det_jacobian(x, y), event_dim - transform.domain.event_dim
            )
            y = x
        base = self.base_dist.log_prob(y)
        return change + _sum_rightmost(base, event_dim - len(self.base_dist.event_shape))

    def _monotonize_cdf(self, value: Any) -> Any:
        """Turn a probability around where the transforms decrease."""
        sign: Any = 1
        for transform in self.transforms:
            sign = sign * transform.sign
        if isinstance(sign, int) and sign == 1:
            return value
        return sign * (value - 0.5) + 0.5

    def cdf(self, value: Any) -> Any:
        for transform in self.transforms[::-1]:
            value = transform.inv(value)
        if self._validate_args:
            self.base_dist._validate_sample(value)
        return self._monotonize_cdf(self.base_dist.cdf(value))

    def icdf(self, value: Any) -> Any:
        return self._forward(self.base_dist.icdf(self._monotonize_cdf(value)))


def _as_list(transforms: Any) -> list[Any]:
    if isinstance(transforms, Transform):
        return [transforms]
    if not isinstance(transforms, list):
        raise ValueError(f"transforms must be a Transform or list, but was {transforms}")
    if not all(isinstance(t, Transform) for t in transforms):
        raise ValueError("transforms must be a Transform or a list of Transforms")
    return transforms
