"""From constraints to transforms: `biject_to` (one to one) and `transform_to` (onto).

Both start from unconstrained tensors: optimise those, and transform them into valid parameters.

>>> import lucerne
>>> dist = lucerne.distributions
>>> dist.transform_to(dist.constraints.positive)(lucerne.zeros(2))
tensor([1., 1.])
"""

from __future__ import annotations

from collections.abc import Callable
from numbers import Number
from typing import Any

from lucerne.distributions import constraints, transforms

__all__ = ["ConstraintRegistry", "biject_to", "transform_to"]


class ConstraintRegistry:
    """A function from constraints to transforms, extended with `register`."""

    def __init__(self) -> None:
        self._registry: dict[type, Callable[[Any], Any]] = {}

    def register(self, constraint: Any, factory: Any = None) -> Any:
        """Use `factory(constraint)` for a class of constraints; also as a decorator."""
        if factory is None:
            return lambda factory: self.register(constraint, factory)
        kind = type(constraint) if isinstance(constraint, constraints.Constraint) else constraint
        if not isinstance(kind, type) or not issubclass(kind, constraints.Constraint):
            raise TypeError(
                "Expected constraint to be either a Constraint subclass or instance, "
                f"but got {constraint}"
            )
        self._registry[kind] = factory
        return factory

    def __call__(self, constraint: Any) -> Any:
        """A transform from unconstrained values to those that satisfy `constraint`."""
        factory = self._registry.get(type(constraint))
        if factory is None:
            raise NotImplementedError(f"Cannot transform {type(constraint).__name__} constraints")
        return factory(constraint)


biject_to = ConstraintRegistry()
transform_to = ConstraintRegistry()
_BOTH = (biject_to, transform_to)


def _for(*kinds: Any, into: tuple[ConstraintRegistry, ...] = _BOTH) -> Callable[[Any], Any]:
    """Register a factory for several constraints in several registries."""

    def register(factory: Any) -> Any:
        for registry in into:
            for kind in kinds:
                registry.register(kind, factory)
        return factory

    return register


@_for(constraints.real)
def _to_real(constraint: Any) -> Any:
    return transforms.identity_transform


def _independent(registry: ConstraintRegistry) -> Callable[[Any], Any]:
    def factory(constraint: Any) -> Any:
        base = registry(constraint.base_constraint)
        return transforms.IndependentTransform(base, constraint.reinterpreted_batch_ndims)

    return factory


def _cat(registry: ConstraintRegistry) -> Callable[[Any], Any]:
    def factory(constraint: Any) -> Any:
        parts = [registry(c) for c in constraint.cseq]
        return transforms.CatTransform(parts, constraint.dim, constraint.lengths)

    return factory


def _stack(registry: ConstraintRegistry) -> Callable[[Any], Any]:
    def factory(constraint: Any) -> Any:
        return transforms.StackTransform([registry(c) for c in constraint.cseq], constraint.dim)

    return factory


for _registry in _BOTH:
    _registry.register(constraints.independent, _independent(_registry))
    _registry.register(constraints.cat, _cat(_registry))
    _registry.register(constraints.stack, _stack(_registry))


@_for(constraints.greater_than, constraints.greater_than_eq)
def _to_greater(constraint: Any) -> Any:
    shift = transforms.AffineTransform(constraint.lower_bound, 1)
    return transforms.ComposeTransform([transforms.ExpTransform(), shift])


@_for(constraints.less_than)
def _to_less(constraint: Any) -> Any:
    mirror = transforms.AffineTransform(constraint.upper_bound, -1)
    return transforms.ComposeTransform([transforms.ExpTransform(), mirror])


@_for(constraints.interval, constraints.half_open_interval)
def _to_interval(constraint: Any) -> Any:
    low, high = constraint.lower_bound, constraint.upper_bound
    numbers = isinstance(low, Number) and isinstance(high, Number)
    if numbers and low == 0 and high == 1:
        return transforms.SigmoidTransform()
    stretch = transforms.AffineTransform(loc=low, scale=high - low)
    return transforms.ComposeTransform([transforms.SigmoidTransform(), stretch])


@_for(constraints.simplex, into=(biject_to,))
def _biject_to_simplex(constraint: Any) -> Any:
    return transforms.StickBreakingTransform()


@_for(constraints.simplex, into=(transform_to,))
def _transform_to_simplex(constraint: Any) -> Any:
    return transforms.SoftmaxTransform()


@_for(constraints.corr_cholesky)
def _to_corr_cholesky(constraint: Any) -> Any:
    return transforms.CorrCholeskyTransform()


@_for(constraints.lower_cholesky, into=(transform_to,))
def _to_lower_cholesky(constraint: Any) -> Any:
    return transforms.LowerCholeskyTransform()


@_for(constraints.positive_definite, constraints.positive_semidefinite, into=(transform_to,))
def _to_positive_definite(constraint: Any) -> Any:
    return transforms.PositiveDefiniteTransform()
