"""The base class of all distributions: shapes, checks of parameters and values, expansion."""

from __future__ import annotations

from typing import Any, ClassVar

from lucerne._src.base.process import notices
from lucerne._src.ir.dispatch import capturing, raise_if
from lucerne._src.tensor import api as lu
from lucerne.distributions import constraints
from lucerne.distributions.utils import EMPTY, lazy_property

__all__ = ["Distribution"]

Shape = Any


class Distribution:
    """What every distribution has: `sample`, `log_prob`, moments, `batch_shape`, `event_shape`.

    A subclass names its parameters in `arg_constraints`.  If it also lists them in `_batched`
    (parameter name to number of event dimensions), `expand` works without further code.
    """

    has_rsample: Any = False
    has_enumerate_support: Any = False
    _validate_args: bool = __debug__
    _batched: ClassVar[dict[str, int]]

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Check parameters and values from now on, or stop to."""
        if value not in (True, False):
            raise ValueError
        Distribution._validate_args = value

    def __init__(
        self,
        batch_shape: Shape = EMPTY,
        event_shape: Shape = EMPTY,
        validate_args: bool | None = None,
    ) -> None:
        self._batch_shape = batch_shape
        self._event_shape = event_shape
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args:
            self._check_parameters()

    def _check_parameters(self) -> None:
        try:
            wanted = self.arg_constraints
        except NotImplementedError:
            wanted = {}
            notices.warn(
                f"{self.__class__} does not define `arg_constraints`. "
                "Please set `arg_constraints = {}` or initialize the distribution "
                "with `validate_args=False` to turn off validation."
            )
        for name, constraint in wanted.items():
            lazy = isinstance(getattr(type(self), name, None), lazy_property)
            if constraints.is_dependent(constraint) or (lazy and name not in self.__dict__):
                continue
            value = getattr(self, name)
            self._refuse(
                constraint.check(value),
                f"Expected parameter {name} "
                f"({type(value).__name__} of shape {tuple(value.shape)}) of distribution",
                f" to satisfy the constraint {constraint!r}, but found invalid values",
                value,
            )

    def _refuse(self, held: Any, what: str, why: str, value: Any) -> None:
        """Raise unless all of `held` is true. (A captured function checks at each call, and then
        neither the values nor the distribution of the trace are those of the call.)"""
        if capturing():
            name = type(self).__name__
            raise_if(~held.all(), lambda: ValueError(f"{what} {name}{why}"))
        elif not bool(held.all()):
            raise ValueError(f"{what} {self!r}{why}:\n{value}")

    def _own_class(self) -> type:
        """The class whose constructor made the parameters that `_batched` lists."""
        for cls in type(self).__mro__:
            if "_batched" in vars(cls):
                return cls
        raise NotImplementedError

    def expand(self, batch_shape: Shape, _instance: Any = None) -> Any:
        """The same distribution with another batch shape; parameters are views, not copies."""
        cls: Any = self._own_class()
        new = self._get_checked_instance(cls, _instance)
        batch_shape = lu.Size(batch_shape)
        for name, event_ndim in cls._batched.items():
            if name in self.__dict__:
                new.__dict__[name] = self._stretched(self.__dict__[name], batch_shape, event_ndim)
        return self._expanded(new, batch_shape)

    def _expanded(self, new: Any, batch_shape: Shape) -> Any:
        """The end of `expand`: a new distribution that has its parameters gets its shapes."""
        Distribution.__init__(new, batch_shape, self._event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    @staticmethod
    def _stretched(value: Any, batch_shape: Shape, event_ndim: int) -> Any:
        if isinstance(value, Distribution):
            return value.expand(batch_shape)
        return value.expand(batch_shape + value.shape[value.ndim - event_ndim :])

    @property
    def batch_shape(self) -> Any:
        """The shape over which parameters are batched."""
        return self._batch_shape

    @property
    def event_shape(self) -> Any:
        """The shape of one sample, without batching."""
        return self._event_shape

    @property
    def arg_constraints(self) -> Any:
        """The constraint that each parameter must satisfy, by name."""
        raise NotImplementedError

    @property
    def support(self) -> Any:
        """The constraint that describes where the density is not zero."""
        raise NotImplementedError

    @property
    def mean(self) -> Any:
        """The mean."""
        raise NotImplementedError

    @property
    def mode(self) -> Any:
        """The most probable value."""
        raise NotImplementedError(f"{self.__class__} does not implement mode")

    @property
    def variance(self) -> Any:
        """The variance."""
        raise NotImplementedError

    @property
    def stddev(self) -> Any:
        """The standard deviation."""
        return self.variance.sqrt()

    def sample(self, sample_shape: Shape = EMPTY) -> Any:
        """A sample, or a batch of `sample_shape` of them, without a gradient."""
        with lu.no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Shape = EMPTY) -> Any:
        """Samples that are differentiable in the parameters."""
        raise NotImplementedError

    def sample_n(self, n: int) -> Any:
        """`n` samples (the older spelling of `sample((n,))`)."""
        notices.warn("`sample_n(n)` will be deprecated. Use `sample((n,))` instead.", FutureWarning)
        return self.sample(lu.Size((n,)))

    def log_prob(self, value: Any) -> Any:
        """The logarithm of the density or probability at `value`."""
        raise NotImplementedError

    def cdf(self, value: Any) -> Any:
        """The probability of a value up to `value`."""
        raise NotImplementedError

    def icdf(self, value: Any) -> Any:
        """The quantile: the inverse of `cdf`."""
        raise NotImplementedError

    def enumerate_support(self, expand: bool = True) -> Any:
        """All values of a discrete distribution, in a new first dimension."""
        raise NotImplementedError

    def entropy(self) -> Any:
        """The entropy, in nats."""
        raise NotImplementedError

    def perplexity(self) -> Any:
        """The exponential of the entropy."""
        return lu.exp(self.entropy())

    def _extended_shape(self, sample_shape: Shape = EMPTY) -> Any:
        return lu.Size(sample_shape) + self._batch_shape + self._event_shape

    def _blank(self, sample_shape: Shape, like: Any) -> Any:
        """Uninitialised samples, with the dtype and device of a parameter."""
        shape = self._extended_shape(sample_shape)
        return lu.empty(shape, dtype=like.dtype, device=like.device)

    def _check_value(self, value: Any) -> None:
        """What `log_prob` and its kin begin with: `_validate_sample`, if checks are on."""
        if self._validate_args:
            self._validate_sample(value)

    def _validate_sample(self, value: Any) -> None:
        """Raise unless `value` is a tensor that fits the shapes and lies in the support."""
        if not isinstance(value, lu.Tensor):
            raise ValueError("The value argument to log_prob must be a Tensor")
        self._check_sample_shape(value)
        try:
            support = self.support
        except NotImplementedError:
            notices.warn(
                f"{self.__class__} does not define `support` to enable "
                "sample validation. Please initialize the distribution with "
                "`validate_args=False` to turn off validation."
            )
            return
        self._refuse(
            support.check(value),
            f"Expected value argument ({type(value).__name__} of shape {tuple(value.shape)}) "
            f"to be within the support ({support!r}) of the distribution",
            ", but found invalid values",
            value,
        )

    def _check_sample_shape(self, value: Any) -> None:
        event = self._event_shape
        if value.shape[value.ndim - len(event) :] != event:
            raise ValueError(
                f"The right-most size of value must match event_shape: {value.shape} vs {event}."
            )
        expected = self._batch_shape + event
        pairs = zip(reversed(value.shape), reversed(expected), strict=False)
        if any(1 not in pair and pair[0] != pair[1] for pair in pairs):
            raise ValueError(
                "Value is not broadcastable with batch_shape+event_shape: "
                f"{value.shape} vs {expected}."
            )

    def _get_checked_instance(self, cls: Any, _instance: Any = None) -> Any:
        """A blank object of this type, unless a subclass has a constructor we don't know."""
        if _instance is None and type(self).__init__ != cls.__init__:
            raise NotImplementedError(
                f"Subclass {self.__class__.__name__} of {cls.__name__} that defines a custom "
                "__init__ method must also define a custom .expand() method."
            )
        return self.__new__(type(self)) if _instance is None else _instance

    def __repr__(self) -> str:
        given = [(k, self.__dict__[k]) for k in self.arg_constraints if k in self.__dict__]
        shown = (f"{k}: {v if v.numel() == 1 else v.size()}" for k, v in given)
        return self.__class__.__name__ + "(" + ", ".join(shown) + ")"
