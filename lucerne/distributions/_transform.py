"""What a transform is, its inverse, and transforms made of others in sequence."""

from __future__ import annotations

import weakref
from typing import Any

from lucerne._src.tensor import api as lu
from lucerne.distributions import constraints
from lucerne.distributions.utils import _sum_rightmost, reads


def too_few() -> ValueError:
    """What to raise for a shape with fewer dimensions than the transform's event."""
    return ValueError("Too few dimensions on input")


class Transform:
    """An invertible map with a log-determinant of its derivative.

    A subclass gives `domain`, `codomain`, `bijective`, `_call`, `_inverse`, and
    `log_abs_det_jacobian`.  With `cache_size=1` the last pair is remembered, so that the inverse
    of a value that was just computed is exact and free.

    >>> import lucerne
    >>> exp = lucerne.distributions.ExpTransform()
    >>> exp.inv(exp(lucerne.tensor([0.5, 2.0])))
    tensor([0.5000, 2.0000])
    """

    bijective: Any = False
    domain: Any
    codomain: Any

    def __init__(self, cache_size: int = 0) -> None:
        if cache_size not in (0, 1):
            raise ValueError("cache_size must be 0 or 1")
        self._cache_size = cache_size
        self._inv: Any = None
        if cache_size:
            self._cached_x_y: tuple[Any, Any] = (None, None)

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the weak reference to the inverse."""
        return self.__dict__ | {"_inv": None}

    @property
    def event_dim(self) -> Any:
        """Of domain and codomain, where they agree."""
        if self.domain.event_dim == self.codomain.event_dim:
            return self.domain.event_dim
        raise ValueError("Please use either .domain.event_dim or .codomain.event_dim")

    @property
    def inv(self) -> Any:
        """The inverse, as a transform whose inverse is this one."""
        inverse = self._inv() if self._inv is not None else None
        if inverse is None:
            inverse = _InverseTransform(self)
            self._inv = weakref.ref(inverse)
        return inverse

    @property
    def sign(self) -> Any:
        """Of the derivative, if it is the same everywhere."""
        raise NotImplementedError

    def with_cache(self, cache_size: int = 1) -> Any:
        """This transform with another cache size."""
        if self._cache_size == cache_size:
            return self
        if type(self).__init__ is Transform.__init__:
            return type(self)(cache_size=cache_size)
        raise NotImplementedError(f"{type(self)}.with_cache is not implemented")

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = None  # type: ignore[assignment]  # equal by value, as in torch

    def __call__(self, x: Any) -> Any:
        """Forward: x to y."""
        if not self._cache_size:
            return self._call(x)
        known_x, known_y = self._cached_x_y
        if x is not known_x:
            known_y = self._call(x)
            self._cached_x_y = x, known_y
        return known_y

    def _inv_call(self, y: Any) -> Any:
        """Backward: y to x."""
        if not self._cache_size:
            return self._inverse(y)
        known_x, known_y = self._cached_x_y
        if y is not known_y:
            known_x = self._inverse(y)
            self._cached_x_y = known_x, y
        return known_x

    def _call(self, x: Any) -> Any:
        raise NotImplementedError

    def _inverse(self, y: Any) -> Any:
        raise NotImplementedError

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        """`log |det dy/dx|` at `x`, where `y` is the transformed `x`."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return self.__class__.__name__ + "()"

    def forward_shape(self, shape: Any) -> Any:
        """The shape of y for the shape of x; the same unless a subclass says otherwise."""
        return shape

    def inverse_shape(self, shape: Any) -> Any:
        """The shape of x for the shape of y."""
        return shape


class _InverseTransform(Transform):
    """A transform read backwards; it keeps the original alive."""

    def __init__(self, transform: Any) -> None:
        super().__init__(cache_size=transform._cache_size)
        self._inv: Any = transform

    domain = reads("_inv.codomain")
    codomain = reads("_inv.domain")
    bijective = reads("_inv.bijective")
    sign = reads("_inv.sign")
    inv = reads("_inv")

    def __getstate__(self) -> dict[str, Any]:
        return dict(self.__dict__)

    def with_cache(self, cache_size: int = 1) -> Any:
        return self._inv.with_cache(cache_size).inv

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _InverseTransform) and bool(self._inv == other._inv)

    __hash__ = None

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self._inv!r})"

    def __call__(self, x: Any) -> Any:
        return self._inv._inv_call(x)

    def _inv_call(self, y: Any) -> Any:
        return self._inv(y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return -self._inv.log_abs_det_jacobian(y, x)

    def forward_shape(self, shape: Any) -> Any:
        return self._inv.inverse_shape(shape)

    def inverse_shape(self, shape: Any) -> Any:
        return self._inv.forward_shape(shape)


def _lifted(constraint: Any, event_dim: int) -> Any:
    """A constraint over `event_dim` dimensions, at least as many as it has."""
    missing = event_dim - constraint.event_dim
    return constraints.independent(constraint, missing) if missing > 0 else constraint


class ComposeTransform(Transform):
    """Transforms one after another, the first in the list first.

    >>> import lucerne
    >>> dist = lucerne.distributions
    >>> both = dist.ComposeTransform([dist.ExpTransform(), dist.AffineTransform(1.0, 2.0)])
    >>> both(lucerne.zeros(2))
    tensor([3., 3.])
    """

    def __init__(self, parts: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size=cache_size)
        self.parts = [p.with_cache(cache_size) for p in parts] if cache_size else parts

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ComposeTransform) and bool(self.parts == other.parts)

    __hash__ = None

    @property
    def domain(self) -> Any:
        if not self.parts:
            return constraints.real
        dims = self.parts[-1].codomain.event_dim
        for part in reversed(self.parts):
            dims = max(
                dims + part.domain.event_dim - part.codomain.event_dim, part.domain.event_dim
            )
        return _lifted(self.parts[0].domain, dims)

    @property
    def codomain(self) -> Any:
        if not self.parts:
            return constraints.real
        dims = self.parts[0].domain.event_dim
        for part in self.parts:
            dims = max(
                dims + part.codomain.event_dim - part.domain.event_dim, part.codomain.event_dim
            )
        return _lifted(self.parts[-1].codomain, dims)

    @property
    def bijective(self) -> Any:
        return all(p.bijective for p in self.parts)

    @property
    def sign(self) -> Any:
        product: Any = 1
        for part in self.parts:
            product = product * part.sign
        return product

    @property
    def inv(self) -> Any:
        inverse = self._inv() if self._inv is not None else None
        if inverse is None:
            inverse = ComposeTransform([p.inv for p in reversed(self.parts)])
            self._inv = weakref.ref(inverse)
            inverse._inv = weakref.ref(self)
        return inverse

    def with_cache(self, cache_size: int = 1) -> Any:
        if self._cache_size == cache_size:
            return self
        return ComposeTransform(self.parts, cache_size=cache_size)

    def __call__(self, x: Any) -> Any:
        for part in self.parts:
            x = part(x)
        return x

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        if not self.parts:
            return lu.zeros_like(x)
        values = [x]
        for part in self.parts[:-1]:
            values.append(part(values[-1]))
        values.append(y)
        total: Any = 0
        dims = self.domain.event_dim
        for part, before, after in zip(self.parts, values[:-1], values[1:], strict=True):
            change = part.log_abs_det_jacobian(before, after)
            total = total + _sum_rightmost(change, dims - part.domain.event_dim)
            dims += part.codomain.event_dim - part.domain.event_dim
        return total

    def forward_shape(self, shape: Any) -> Any:
        for part in self.parts:
            shape = part.forward_shape(shape)
        return shape

    def inverse_shape(self, shape: Any) -> Any:
        for part in reversed(self.parts):
            shape = part.inverse_shape(shape)
        return shape

    def __repr__(self) -> str:
        return (
            f"{self.__class__.__name__}(\n    "
            + ",\n    ".join(repr(p) for p in self.parts)
            + "\n)"
        )


identity_transform = ComposeTransform([])


class IndependentTransform(Transform):
    """A transform whose rightmost batch dimensions count as event dimensions."""

    def __init__(
        self, base_transform: Any, reinterpreted_batch_ndims: int, cache_size: int = 0
    ) -> None:
        super().__init__(cache_size=cache_size)
        self.base_transform = base_transform.with_cache(cache_size)
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims

    def with_cache(self, cache_size: int = 1) -> Any:
        if self._cache_size == cache_size:
            return self
        return IndependentTransform(
            self.base_transform, self.reinterpreted_batch_ndims, cache_size=cache_size
        )

    @property
    def domain(self) -> Any:
        return constraints.independent(self.base_transform.domain, self.reinterpreted_batch_ndims)

    @property
    def codomain(self) -> Any:
        return constraints.independent(self.base_transform.codomain, self.reinterpreted_batch_ndims)

    bijective = reads("base_transform.bijective")
    sign = reads("base_transform.sign")

    def _call(self, x: Any) -> Any:
        if x.dim() < self.domain.event_dim:
            raise too_few()
        return self.base_transform(x)

    def _inverse(self, y: Any) -> Any:
        if y.dim() < self.codomain.event_dim:
            raise too_few()
        return self.base_transform.inv(y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        change = self.base_transform.log_abs_det_jacobian(x, y)
        return _sum_rightmost(change, self.reinterpreted_batch_ndims)

    def __repr__(self) -> str:
        inner = f"{self.base_transform!r}, {self.reinterpreted_batch_ndims}"
        return f"{self.__class__.__name__}({inner})"

    def forward_shape(self, shape: Any) -> Any:
        return self.base_transform.forward_shape(shape)

    def inverse_shape(self, shape: Any) -> Any:
        return self.base_transform.inverse_shape(shape)
