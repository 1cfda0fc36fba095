"""Regions of tensor space: what a parameter may be, where a distribution lives.

A constraint has `check(value)` (a tensor of bools without the event dimensions), `is_discrete` and
`event_dim`.  The names in lower case are ready-made constraints or functions that make one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lucerne import linalg
from lucerne._src.tensor import api as lu
from lucerne.distributions.utils import reads

__all__ = [
    "Constraint",
    "MixtureSameFamilyConstraint",
    "boolean",
    "cat",
    "corr_cholesky",
    "dependent",
    "dependent_property",
    "greater_than",
    "greater_than_eq",
    "half_open_interval",
    "independent",
    "integer_interval",
    "interval",
    "is_dependent",
    "less_than",
    "lower_cholesky",
    "lower_triangular",
    "multinomial",
    "nonnegative",
    "nonnegative_integer",
    "one_hot",
    "positive",
    "positive_definite",
    "positive_integer",
    "positive_semidefinite",
    "real",
    "real_vector",
    "simplex",
    "square",
    "stack",
    "symmetric",
    "unit_interval",
]


class Constraint:
    """A region over which a variable is valid."""

    is_discrete: Any = False
    event_dim: Any = 0
    _bounds: tuple[str, ...] = ()

    def check(self, value: Any) -> Any:
        """True for each event of `value` that satisfies the constraint."""
        raise NotImplementedError

    def __repr__(self) -> str:
        bounds = ", ".join(f"{name}={getattr(self, name)}" for name in self._bounds)
        return f"{self.__class__.__name__[1:]}({bounds})"


class _Dependent(Constraint):
    """A place-holder for a constraint that depends on other variables."""

    def __init__(
        self, *, is_discrete: Any = NotImplemented, event_dim: Any = NotImplemented
    ) -> None:
        self._is_discrete = is_discrete
        self._event_dim = event_dim

    @property
    def is_discrete(self) -> Any:
        if self._is_discrete is NotImplemented:
            raise NotImplementedError(".is_discrete cannot be determined statically")
        return self._is_discrete

    @property
    def event_dim(self) -> Any:
        if self._event_dim is NotImplemented:
            raise NotImplementedError(".event_dim cannot be determined statically")
        return self._event_dim

    def __call__(
        self, *, is_discrete: Any = NotImplemented, event_dim: Any = NotImplemented
    ) -> _Dependent:
        """`dependent(is_discrete=True, event_dim=1)`: the same with more known beforehand."""
        discrete = self._is_discrete if is_discrete is NotImplemented else is_discrete
        dims = self._event_dim if event_dim is NotImplemented else event_dim
        return _Dependent(is_discrete=discrete, event_dim=dims)

    def check(self, x: Any) -> Any:
        raise ValueError("Cannot determine validity of dependent constraint")


def is_dependent(constraint: Any) -> bool:
    """Whether a constraint can only be known on an object."""
    return isinstance(constraint, _Dependent)


class _DependentProperty(property, _Dependent):
    """A property on the object, a dependent constraint on the class.

    Written as a decorator, with or without `(is_discrete=..., event_dim=...)`.
    """

    def __init__(
        self,
        fn: Callable[[Any], Any] | None = None,
        *,
        is_discrete: Any = NotImplemented,
        event_dim: Any = NotImplemented,
    ) -> None:
        property.__init__(self, fn)
        _Dependent.__init__(self, is_discrete=is_discrete, event_dim=event_dim)

    def __call__(self, fn: Callable[[Any], Any]) -> _DependentProperty:  # type: ignore[override]
        """Decorate `fn`, keeping what is known beforehand."""
        return _DependentProperty(fn, is_discrete=self._is_discrete, event_dim=self._event_dim)


def _all_rightmost(held: Any, ndim: int) -> Any:
    return held if ndim == 0 else held.reshape((*held.shape[: held.ndim - ndim], -1)).all(-1)


class _IndependentConstraint(Constraint):
    """Holds if a constraint holds at every place of some rightmost batch dimensions."""

    def __init__(self, base_constraint: Any, reinterpreted_batch_ndims: int) -> None:
        assert isinstance(base_constraint, Constraint), (
            f"base_constraint must be a Constraint, got {type(base_constraint).__name__}"
        )
        assert isinstance(reinterpreted_batch_ndims, int), (
            "reinterpreted_batch_ndims must be an int, got "
            f"{type(reinterpreted_batch_ndims).__name__}"
        )
        assert reinterpreted_batch_ndims >= 0, (
            f"reinterpreted_batch_ndims must be >= 0, got {reinterpreted_batch_ndims}"
        )
        self.base_constraint = base_constraint
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims

    is_discrete = reads("base_constraint.is_discrete")

    @property
    def event_dim(self) -> Any:
        return self.base_constraint.event_dim + self.reinterpreted_batch_ndims

    def check(self, value: Any) -> Any:
        held = self.base_constraint.check(value)
        if held.ndim < self.reinterpreted_batch_ndims:
            expected = self.base_constraint.event_dim + self.reinterpreted_batch_ndims
            raise ValueError(f"Expected value.dim() >= {expected} but got {value.dim()}")
        return _all_rightmost(held, self.reinterpreted_batch_ndims)

    def __repr__(self) -> str:
        inner = f"{self.base_constraint!r}, {self.reinterpreted_batch_ndims}"
        return f"{self.__class__.__name__[1:]}({inner})"


class MixtureSameFamilyConstraint(Constraint):
    """The support of the components, without their batch dimension."""

    def __init__(self, base_constraint: Any) -> None:
        assert isinstance(base_constraint, Constraint), (
            f"base_constraint must be a Constraint, got {type(base_constraint).__name__}"
        )
        self.base_constraint = base_constraint

    is_discrete = reads("base_constraint.is_discrete")
    event_dim = reads("base_constraint.event_dim")

    def check(self, value: Any) -> Any:
        """Every component's batch element must accept the value."""
        place = -1 - self.event_dim
        held = self.base_constraint.check(value.unsqueeze(place))
        if held.ndim < self.event_dim:
            raise ValueError(f"Expected value.dim() >= {self.event_dim} but got {value.dim()}")
        return _all_rightmost(held, held.ndim - (value.ndim - self.event_dim))

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self.base_constraint!r})"


class _Boolean(Constraint):
    """Zero or one."""

    is_discrete = True

    def check(self, value: Any) -> Any:
        return (value == 0) | (value == 1)


class _OneHot(Constraint):
    """Vectors of zeros with a single one."""

    is_discrete = True
    event_dim = 1

    def check(self, value: Any) -> Any:
        binary = ((value == 0) | (value == 1)).all(-1)
        return binary & value.sum(-1).eq(1)


class _Interval(Constraint):
    """`lower_bound <= x <= upper_bound`."""

    _bounds = ("lower_bound", "upper_bound")

    def __init__(self, lower_bound: Any, upper_bound: Any) -> None:
        self.lower_bound = lower_bound
        self.upper_bound = upper_bound

    def check(self, value: Any) -> Any:
        return (self.lower_bound <= value) & (value <= self.upper_bound)


class _HalfOpenInterval(_Interval):
    """`lower_bound <= x < upper_bound`."""

    def check(self, value: Any) -> Any:
        return (self.lower_bound <= value) & (value < self.upper_bound)


class _IntegerInterval(_Interval):
    """Integers from `lower_bound` to `upper_bound`, both included."""

    is_discrete = True

    def check(self, value: Any) -> Any:
        return (value % 1 == 0) & (self.lower_bound <= value) & (value <= self.upper_bound)


class _LowerBound(Constraint):
    _bounds = ("lower_bound",)

    def __init__(self, lower_bound: Any) -> None:
        self.lower_bound = lower_bound


class _UpperBound(Constraint):
    _bounds = ("upper_bound",)

    def __init__(self, upper_bound: Any) -> None:
        self.upper_bound = upper_bound


class _GreaterThan(_LowerBound):
    """`x > lower_bound`."""

    def check(self, value: Any) -> Any:
        return self.lower_bound < value


class _GreaterThanEq(_LowerBound):
    """`x >= lower_bound`."""

    def check(self, value: Any) -> Any:
        return self.lower_bound <= value


class _IntegerGreaterThan(_LowerBound):
    """Integers from `lower_bound` on."""

    is_discrete = True

    def check(self, value: Any) -> Any:
        return (value % 1 == 0) & (value >= self.lower_bound)


class _LessThan(_UpperBound):
    """`x < upper_bound`."""

    def check(self, value: Any) -> Any:
        return value < self.upper_bound


class _IntegerLessThan(_UpperBound):
    """Integers up to `upper_bound`."""

    is_discrete = True

    def check(self, value: Any) -> Any:
        return (value % 1 == 0) & (value <= self.upper_bound)


class _Multinomial(Constraint):
    """Counts that sum to `upper_bound`."""

    is_discrete = True
    event_dim = 1

    def __init__(self, upper_bound: Any) -> None:
        self.upper_bound = upper_bound

    def check(self, x: Any) -> Any:
        return (x >= 0).all(dim=-1) & (x.sum(dim=-1) <= self.upper_bound)


class _Real(Constraint):
    """Anything but nan."""

    def check(self, value: Any) -> Any:
        return value == value


class _Simplex(Constraint):
    """Vectors of non-negative numbers that sum to one."""

    event_dim = 1

    def check(self, value: Any) -> Any:
        return (value >= 0).all(dim=-1) & ((value.sum(-1) - 1).abs() < 1e-6)


class _Matrix(Constraint):
    event_dim = 2


class _LowerTriangular(_Matrix):
    """Square matrices with zeros above the diagonal."""

    def check(self, value: Any) -> Any:
        return _all_rightmost(value.tril() == value, 2)


class _LowerCholesky(_Matrix):
    """Lower triangular matrices with a positive diagonal."""

    def check(self, value: Any) -> Any:
        positive_diagonal = (value.diagonal(dim1=-2, dim2=-1) > 0).all(-1)
        return lower_triangular.check(value) & positive_diagonal


class _CorrCholesky(_Matrix):
    """Cholesky factors of correlation matrices: rows of length one."""

    def check(self, value: Any) -> Any:
        slack = lu.finfo(value.dtype).eps * value.size(-1) * 10
        lengths = linalg.norm(value.detach(), dim=-1)
        return lower_cholesky.check(value) & ((lengths - 1).abs() <= slack).all(dim=-1)


class _Square(_Matrix):
    """Square matrices."""

    def check(self, value: Any) -> Any:
        fits = value.shape[-2] == value.shape[-1]
        return lu.full(tuple(value.shape[:-2]), fits, dtype=lu.bool, device=value.device)


class _Symmetric(_Square):
    """Symmetric matrices."""

    def check(self, value: Any) -> Any:
        held = super().check(value)
        if not bool(held.all()):
            return held
        return _all_rightmost(lu.isclose(value, value.mT, atol=1e-6), 2)


class _PositiveSemidefinite(_Symmetric):
    """Symmetric matrices without negative eigenvalues."""

    def check(self, value: Any) -> Any:
        held = super().check(value)
        if not bool(held.all()):
            return held
        return linalg.eigvalsh(value).ge(0).all(-1)


class _PositiveDefinite(_Symmetric):
    """Symmetric matrices with a Cholesky factor."""

    def check(self, value: Any) -> Any:
        held = super().check(value)
        if not bool(held.all()):
            return held
        return linalg.cholesky_ex(value).info.eq(0)


class _Sequence(Constraint):
    """One constraint for each part of a dimension."""

    cseq: list[Any]
    dim: int

    def _take(self, cseq: Sequence[Any]) -> None:
        assert all(isinstance(c, Constraint) for c in cseq), (
            "All elements of cseq must be Constraint instances"
        )
        self.cseq = list(cseq)

    @property
    def is_discrete(self) -> bool:
        return any(c.is_discrete for c in self.cseq)


class _Cat(_Sequence):
    """Parts of `lengths` along `dim`, laid end to end."""

    def __init__(
        self, cseq: Sequence[Any], dim: int = 0, lengths: Sequence[int] | None = None
    ) -> None:
        self._take(cseq)
        self.lengths = [1] * len(self.cseq) if lengths is None else list(lengths)
        assert len(self.lengths) == len(self.cseq), (
            f"lengths must have the same length as cseq: {len(self.lengths)} vs {len(self.cseq)}"
        )
        self.dim = dim

    @property
    def event_dim(self) -> int:
        return max(c.event_dim for c in self.cseq)

    def check(self, value: Any) -> Any:
        assert -value.dim() <= self.dim < value.dim()
        held, start = [], 0
        for constraint, length in zip(self.cseq, self.lengths, strict=True):
            held.append(constraint.check(value.narrow(self.dim, start, length)))
            start += length
        return lu.cat(held, self.dim)


class _Stack(_Sequence):
    """Slices along `dim`."""

    def __init__(self, cseq: Sequence[Any], dim: int = 0) -> None:
        self._take(cseq)
        self.dim = dim

    @property
    def event_dim(self) -> int:
        dim = max(c.event_dim for c in self.cseq)
        return dim + 1 if self.dim + dim < 0 else dim

    def check(self, value: Any) -> Any:
        assert -value.dim() <= self.dim < value.dim()
        slices = [value.select(self.dim, i) for i in range(value.size(self.dim))]
        held = [c.check(v) for v, c in zip(slices, self.cseq, strict=True)]
        return lu.stack(held, self.dim)


dependent = _Dependent()
dependent_property = _DependentProperty
independent = _IndependentConstraint
boolean = _Boolean()
one_hot = _OneHot()
nonnegative_integer = _IntegerGreaterThan(0)
positive_integer = _IntegerGreaterThan(1)
integer_interval = _IntegerInterval
real = _Real()
real_vector = independent(real, 1)
positive = _GreaterThan(0.0)
nonnegative = _GreaterThanEq(0.0)
greater_than = _GreaterThan
greater_than_eq = _GreaterThanEq
less_than = _LessThan
multinomial = _Multinomial
unit_interval = _Interval(0.0, 1.0)
interval = _Interval
half_open_interval = _HalfOpenInterval
simplex = _Simplex()
lower_triangular = _LowerTriangular()
lower_cholesky = _LowerCholesky()
corr_cholesky = _CorrCholesky()
square = _Square()
symmetric = _Symmetric()
positive_semidefinite = _PositiveSemidefinite()
positive_definite = _PositiveDefinite()
cat = _Cat
stack = _Stack
