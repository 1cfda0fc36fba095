"""Addition and its kin, element by element."""

from __future__ import annotations

from typing import Any

import numpy as np

from lucerne.base import dtype as dt
from lucerne.ir.define import front, pointwise
from lucerne.ir.op import Scalar, Tensor
from lucerne.ir.scalar import s


@pointwise(
    name="add2",
    vjp={"input": lambda g: g, "other": lambda g: g},
    oracle=np.add,
)
def add2(input: Tensor, other: Tensor) -> Tensor:
    """Sum of two operands (`add` with alpha 1)."""
    return input | other if input.dtype is dt.bool_ else input + other


@pointwise(
    vjp={"input": lambda g: g, "other": lambda g, alpha: g * conj_number(alpha)},
    oracle=lambda input, other, alpha: input + alpha * other,
)
def add_scaled(input: Tensor, other: Tensor, alpha: Scalar) -> Tensor:
    """`input + alpha * other` in one pass."""
    if input.dtype is dt.bool_:
        return input | (alpha & other)
    return input + alpha * other


def conj_number(x: Any) -> Any:
    return x.conjugate() if isinstance(x, complex) else x


def check_alpha(alpha: Any, input: Any, other: Any) -> Any:
    """torch's rules for `alpha`: a bool needs bools, a float needs floats."""
    types = [t.dtype for t in (input, other) if hasattr(t, "_meta")]
    if isinstance(alpha, bool) and any(t is not dt.bool_ for t in types):
        raise RuntimeError("Boolean alpha only supported for Boolean results.")
    if isinstance(alpha, float) and all(t.category < dt.FLOAT for t in types):
        raise RuntimeError("For integral input tensors, argument alpha must not be a floating point number.")
    if isinstance(alpha, complex) and all(t.category < dt.COMPLEX for t in types):
        raise RuntimeError("For non-complex input tensors, argument alpha must not be a complex number.")
    return alpha


@front(method=True, inplace=True)
def add(input: Tensor, other: Tensor, *, alpha: Any = 1, out: Any = None) -> Tensor:
    """`input + alpha * other`.

    >>> import lucerne
    >>> lucerne.add(lucerne.tensor([1.0, 2.0]), 10, alpha=2)
    tensor([21., 22.])
    """
    if type(alpha) is int and alpha == 1:
        return add2(input, other, out=out)
    return add_scaled(input, other, check_alpha(alpha, input, other), out=out)


@pointwise(name="sub2", vjp={"input": lambda g: g, "other": lambda g: -g}, oracle=np.subtract)
def sub2(input: Tensor, other: Tensor) -> Tensor:
    """Difference of two operands."""
    return input - other


@front(method=True, inplace=True, aliases=("subtract",))
def sub(input: Tensor, other: Tensor, *, alpha: Any = 1, out: Any = None) -> Tensor:
    """`input - alpha * other`."""
    for t in (input, other):
        if getattr(t, "dtype", None) is dt.bool_:
            raise RuntimeError(
                "Subtraction, the `-` operator, with a bool tensor is not supported. If you are "
                "trying to invert a mask, use the `~` or `logical_not()` operator instead."
            )
    if type(alpha) is int and alpha == 1:
        return sub2(input, other, out=out)
    return add_scaled(input, other, -check_alpha(alpha, input, other), out=out)


@pointwise(
    vjp={
        "input": lambda g, other: g * conj_of(other),
        "other": lambda g, input: g * conj_of(input),
    },
    method=True,
    inplace=True,
    aliases=("multiply",),
    oracle=np.multiply,
)
def mul(input: Tensor, other: Tensor) -> Tensor:
    """Product, element by element."""
    return input & other if input.dtype is dt.bool_ else input * other


def conj_of(x: Any) -> Any:
    """The conjugate of a tensor or number; real ones as they are."""
    if hasattr(x, "_meta"):
        return x.conj_physical() if x._meta.dtype.category == dt.COMPLEX else x
    return conj_number(x)


@pointwise(
    name="true_divide",
    promote="float",
    vjp={
        "input": lambda g, other: g / conj_of(other),
        "other": lambda g, input, other: -g * conj_of((input / other) / other),
    },
    method=True,
    inplace=True,
    oracle=np.true_divide,
)
def true_divide(input: Tensor, other: Tensor) -> Tensor:
    """Quotient; integers divide as floats."""
    return input / other


@front(method=True, inplace=True, aliases=("divide",))
def div(input: Tensor, other: Tensor, *, rounding_mode: str | None = None, out: Any = None) -> Tensor:
    """Quotient: true division, or rounded with `rounding_mode` "floor" or "trunc"."""
    if rounding_mode is None:
        return true_divide(input, other, out=out)
    raise RuntimeError(
        "div expected rounding_mode to be one of None, 'trunc', or 'floor' but found "
        f"'{rounding_mode}'"
    )


@pointwise(vjp={"input": lambda g: -g}, method=True, inplace=True, aliases=("negative",), oracle=np.negative)
def neg(input: Tensor) -> Tensor:
    """The value with its sign changed."""
    if input.dtype is dt.bool_:
        raise RuntimeError(
            "Negation, the `-` operator, on a bool tensor is not supported. If you are trying to "
            "invert a mask, use the `~` or `logical_not()` operator instead."
        )
    return -input


@pointwise(promote="float", vjp={"input": lambda g, y: g * conj_of(y)}, method=True, inplace=True, oracle=np.exp)
def exp(input: Tensor) -> Tensor:
    """`e` to the power of each element."""
    return s.exp(input)
