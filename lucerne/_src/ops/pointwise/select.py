"""One of several values, element by element: where, maximum, minimum, clamp."""

from __future__ import annotations

from typing import Any

import numpy as np

from lucerne._src.base import dtype as dt
from lucerne._src.ir.define import front, pointwise
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.ir.op import Tensor
from lucerne._src.ir.scalar.protocol import s
from lucerne._src.ops.checks import is_tensor, refuse
from lucerne._src.ops.scalars import check_beside


@pointwise(
    internal=True,
    out="exact",
    numbers="all",
    name="choose",
    promote="where",
    vjp={
        "input": lambda g, condition: choose(condition, g, 0),
        "other": lambda g, condition: choose(condition, 0, g),
    },
    oracle=np.where,
    holomorphic=True,
    exact=True,
    cost="cheap",
    torch="where",
)
def choose(condition: Tensor, input: Tensor, other: Tensor) -> Tensor:
    """`input` where the condition holds, else `other`."""
    return s.where(condition, input, other)


@front()
def where(condition: Tensor, input: Any = None, other: Any = None, *, out: Any = None) -> Any:
    """`input` where `condition` holds, else `other`; given alone, the indices where it holds.

    >>> import lucerne
    >>> x = lucerne.tensor([-1.0, 2.0])
    >>> lucerne.where(x > 0, x, 0.0)
    tensor([0., 2.])
    """
    if input is None and other is None:
        return condition.nonzero(as_tuple=True)
    if input is None or other is None:
        raise TypeError("where(): expected both input and other, or neither")
    for x in (condition, input, other):
        if is_tensor(x) and x.device != condition.device and x.ndim:
            raise RuntimeError(
                "Expected condition, x and y to be on the same device, but condition is on "
                f"{condition.device} and x or y is on {x.device}"
            )
    if condition.dtype not in (dt.bool_, dt.uint8):
        raise RuntimeError(
            "where expected condition to be a boolean tensor, but got a tensor with dtype "
            f"{dt.cxx_name(condition.dtype)}"
        )
    if is_tensor(input) != is_tensor(other):
        number, x = (other, input) if is_tensor(input) else (input, other)
        if x.dtype.category < dt.FLOAT:
            check_beside(number, x)
    return choose(condition, input, other, out=out)


@front(name="where", namespace="Tensor", method=True)
def where_method(input: Tensor, condition: Tensor, other: Any) -> Tensor:
    """`input` where `condition` holds, else `other`."""
    return where(condition, input, other)


def _larger_share(g: Tensor, mine: Any, other: Any) -> Tensor:
    """The gradient of the larger operand; equal ones share it."""
    return choose(mine == other, g / 2, choose(mine < other, 0, g))


def _smaller_share(g: Tensor, mine: Any, other: Any) -> Tensor:
    return choose(mine == other, g / 2, choose(mine > other, 0, g))


@pointwise(
    numbers="none",
    vjp={
        "input": lambda g, input, other: _larger_share(g, input, other),
        "other": lambda g, input, other: _larger_share(g, other, input),
    },
    method=True,
    oracle=np.maximum,
    exact="choice",
    cost="cheap",
)
def maximum(input: Tensor, other: Tensor) -> Tensor:
    """The larger of two elements; nan if either is nan.

    >>> import lucerne
    >>> lucerne.maximum(lucerne.tensor([1.0, 5.0]), lucerne.tensor([3.0, 2.0]))
    tensor([3., 5.])
    """
    refuse_complex("maximum", input)
    return s.maximum(input, other)


@pointwise(
    numbers="none",
    vjp={
        "input": lambda g, input, other: _smaller_share(g, input, other),
        "other": lambda g, input, other: _smaller_share(g, other, input),
    },
    method=True,
    oracle=np.minimum,
    exact="choice",
    cost="cheap",
)
def minimum(input: Tensor, other: Tensor) -> Tensor:
    """The smaller of two elements; nan if either is nan."""
    refuse_complex("minimum", input)
    return s.minimum(input, other)


def refuse_complex(name: str, x: Any) -> None:
    if x.dtype.category == dt.COMPLEX:
        raise RuntimeError(f"{name} not implemented for complex tensors.")


@pointwise(
    numbers="none",
    vjp={
        "input": lambda g, input, other: choose((input >= other) | other.isnan(), g, 0),
        "other": lambda g, input, other: choose((input >= other) | other.isnan(), 0, g),
    },
    method=True,
    oracle=np.fmax,
    exact=True,
    cost="light",
)
def fmax(input: Tensor, other: Tensor) -> Tensor:
    """The larger of two elements; a number wins over nan."""
    refuse(input, "fmax_cpu", dt.COMPLEX)
    larger = s.maximum(input, other)
    if input.dtype.category < dt.FLOAT:
        return larger
    return s.where(s.is_nan(input), other, s.where(s.is_nan(other), input, larger))


@pointwise(
    numbers="none",
    vjp={
        "input": lambda g, input, other: choose((input <= other) | other.isnan(), g, 0),
        "other": lambda g, input, other: choose((input <= other) | other.isnan(), 0, g),
    },
    method=True,
    oracle=np.fmin,
    exact=True,
    cost="light",
)
def fmin(input: Tensor, other: Tensor) -> Tensor:
    """The smaller of two elements; a number wins over nan."""
    refuse(input, "fmin_cpu", dt.COMPLEX)
    smaller = s.minimum(input, other)
    if input.dtype.category < dt.FLOAT:
        return smaller
    return s.where(s.is_nan(input), other, s.where(s.is_nan(other), input, smaller))


# ---- clamp --------------------------------------------------------------------------------------


def _inside_gradient(g: Tensor, input: Tensor, min: Any, max: Any) -> Tensor:
    """The gradient passes where the value was left as it is, the bounds included."""
    if min is None:
        return choose(input <= max, g, 0)
    if max is None:
        return choose(input >= min, g, 0)
    return choose((input >= min) & (input <= max), g, 0)


def _min_gradient(g: Tensor, input: Tensor, min: Any, max: Any) -> Tensor:
    chosen = input < min
    return choose(chosen if max is None else chosen & (min < max), g, 0)


def _max_gradient(g: Tensor, input: Tensor, min: Any, max: Any) -> Tensor:
    chosen = input > max
    return choose(chosen if min is None else chosen | (max < min), g, 0)


def _clamp_oracle(input: Any, min: Any, max: Any) -> Any:
    low = input if min is None else np.maximum(input, min)
    return low if max is None else np.minimum(low, max)


@pointwise(
    internal=True,
    numbers="rest",
    vjp={"input": _inside_gradient, "min": _min_gradient, "max": _max_gradient},
    oracle=_clamp_oracle,
    exact=True,
    cost="cheap",
    torch="clamp",
    grad_fn=lambda input, *ends: f"ClampBackward{int(TensorMeta not in map(type, ends))}",
)
def clamp_between(input: Tensor, min: Tensor | None, max: Tensor | None) -> Tensor:
    """Values limited to a range."""
    if input.dtype.category == dt.COMPLEX:
        raise NotImplementedError("clamp is not supported for complex types")
    low = input if min is None else s.maximum(input, min)
    return low if max is None else s.minimum(low, max)


@front(method=True, inplace=True, aliases=("clip",))
def clamp(input: Tensor, min: Any = None, max: Any = None, *, out: Any = None) -> Tensor:
    """Values limited to the range from `min` to `max`; either bound may be missing.

    >>> import lucerne
    >>> lucerne.tensor([-2.0, 0.5, 3.0]).clamp(0, 1)
    tensor([0.0000, 0.5000, 1.0000])
    """
    if min is None and max is None:
        raise RuntimeError("torch.clamp: At least one of 'min' or 'max' must not be None")
    for bound in (min, max):
        if is_tensor(input) and not is_tensor(bound):
            check_beside(bound, input)
    return clamp_between(input, min, max, out=out)


@front(method=True, inplace=True)
def clamp_min(input: Tensor, min: Tensor, *, out: Any = None) -> Tensor:
    """Values not below `min`."""
    return clamp(input, min, None, out=out)


@front(method=True, inplace=True)
def clamp_max(input: Tensor, max: Tensor, *, out: Any = None) -> Tensor:
    """Values not above `max`."""
    return clamp(input, None, max, out=out)
