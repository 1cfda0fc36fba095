"""Comparisons and questions about values: results are bool."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lucerne._src.base import dtype as dt
from lucerne._src.ir.define import Decorator, front, pointwise
from lucerne._src.ir.op import Scalar, Tensor
from lucerne._src.ir.scalar.protocol import s
from lucerne._src.ops.checks import need_tensors, refuse


def _question(**fields: Any) -> Decorator:
    """A bool for each pair of elements."""
    return pointwise(promote="bool", vjp={}, method=True, exact=True, cost="cheap", **fields)


@_question(numbers="rest", inplace=True, oracle=np.equal)
def eq(input: Tensor, other: Tensor) -> Tensor:
    """Whether elements are equal.

    >>> import lucerne
    >>> lucerne.tensor([1, 2]) == 2
    tensor([False,  True])
    """
    return input == other


@_question(numbers="rest", inplace=True, aliases=("not_equal",), oracle=np.not_equal)
def ne(input: Tensor, other: Tensor) -> Tensor:
    """Whether elements differ."""
    return input != other


@_question(numbers="rest", inplace=True, aliases=("less",), oracle=np.less)
def lt(input: Tensor, other: Tensor) -> Tensor:
    """Whether `input` is smaller."""
    refuse(input, "lt_cpu", dt.COMPLEX)
    return input < other


@_question(numbers="rest", inplace=True, aliases=("less_equal",), oracle=np.less_equal)
def le(input: Tensor, other: Tensor) -> Tensor:
    """Whether `input` is smaller or equal."""
    refuse(input, "le_cpu", dt.COMPLEX)
    return input <= other


@_question(numbers="rest", inplace=True, aliases=("greater",), oracle=np.greater)
def gt(input: Tensor, other: Tensor) -> Tensor:
    """Whether `input` is larger."""
    refuse(input, "gt_cpu", dt.COMPLEX)
    return input > other


@_question(numbers="rest", inplace=True, aliases=("greater_equal",), oracle=np.greater_equal)
def ge(input: Tensor, other: Tensor) -> Tensor:
    """Whether `input` is larger or equal."""
    refuse(input, "ge_cpu", dt.COMPLEX)
    return input >= other


# ---- questions about one value ------------------------------------------------------------------


@_question(out=False, oracle=np.isnan, sparse=True)
def isnan(input: Tensor) -> Tensor:
    """Whether elements are nan."""
    if input.dtype.category < dt.FLOAT:
        return input != input
    return s.is_nan(input)


def _infinite(x: Any) -> Any:
    if x.dtype.category == dt.COMPLEX:
        return s.is_inf(s.real(x)) | s.is_inf(s.imag(x))
    return x != x if x.dtype.category < dt.FLOAT else s.is_inf(x)


@pointwise(
    promote="bool",
    vjp={},
    method=True,
    out=False,
    oracle=np.isinf,
    exact=True,
    cost="light",
    sparse=True,
)
def isinf(input: Tensor) -> Tensor:
    """Whether elements are infinite."""
    return _infinite(input)


@pointwise(
    promote="bool", vjp={}, method=True, out=False, oracle=np.isfinite, exact=True, cost="light"
)
def isfinite(input: Tensor) -> Tensor:
    """Whether elements are neither infinite nor nan."""
    if input.dtype.category < dt.FLOAT:
        return input == input
    return ~(_infinite(input) | s.is_nan(input))


@pointwise(
    out="exact",
    promote="bool",
    vjp={},
    method=True,
    oracle=np.isposinf,
    exact=True,
    cost="light",
    sparse=True,
)
def isposinf(input: Tensor) -> Tensor:
    """Whether elements are positive infinity."""
    _refuse_complex(input, "isposinf")
    return input != input if input.dtype.category < dt.FLOAT else input == math.inf


@pointwise(
    out="exact",
    promote="bool",
    vjp={},
    method=True,
    oracle=np.isneginf,
    exact=True,
    cost="light",
    sparse=True,
)
def isneginf(input: Tensor) -> Tensor:
    """Whether elements are negative infinity."""
    _refuse_complex(input, "isneginf")
    return input != input if input.dtype.category < dt.FLOAT else input == -math.inf


def _refuse_complex(x: Any, name: str) -> None:
    if x.dtype.category == dt.COMPLEX:
        raise RuntimeError(f"{name} does not support complex inputs.")


@pointwise(promote="bool", vjp={}, method=True, out=False, oracle=np.isreal, cost="light")
def isreal(input: Tensor) -> Tensor:
    """Whether elements have no imaginary part."""
    if input.dtype.category == dt.COMPLEX:
        return s.imag(input) == 0
    return (input == input) | (input != input)


@pointwise(
    out="exact",
    promote="bool",
    vjp={},
    method=True,
    oracle=np.signbit,
    exact=True,
    cost="light",
    sparse=True,
)
def signbit(input: Tensor) -> Tensor:
    """Whether the sign is negative, that of -0.0 included."""
    if input.dtype.category == dt.COMPLEX:
        raise NotImplementedError("signbit is not implemented for complex tensors.")
    if input.dtype is dt.bool_:
        return input != input
    return input < 0 if input.dtype.category < dt.FLOAT else s.signbit(input)


# ---- closeness ----------------------------------------------------------------------------------


@pointwise(
    internal=True,
    promote="bool",
    vjp={},
    out=False,
    oracle=lambda input, other, rtol, atol, equal_nan: np.isclose(
        input, other, rtol, atol, equal_nan
    ),
    torch="isclose",
)
def isclose_within(
    input: Tensor, other: Tensor, rtol: Scalar, atol: Scalar, equal_nan: bool
) -> Tensor:
    """Whether elements agree within `atol + rtol * |other|`."""
    equal = input == other
    if equal_nan and input.dtype.category >= dt.FLOAT:
        equal = equal | (s.is_nan(input) & s.is_nan(other))
    if input.dtype.category < dt.FLOAT:
        input, other = s.cast(input, dt.float64), s.cast(other, dt.float64)
    gap = s.abs(input - other)
    finite = ~(s.is_inf(gap) | s.is_nan(gap))
    return equal | (finite & (gap <= atol + rtol * s.abs(other)))


@front(method=True)
def isclose(
    input: Tensor,
    other: Tensor,
    rtol: float = 1e-05,
    atol: float = 1e-08,
    equal_nan: bool = False,
) -> Tensor:
    """Whether elements agree within `atol + rtol * |other|`.

    >>> import lucerne
    >>> lucerne.isclose(lucerne.tensor([1.0, 2.0]), lucerne.tensor([1.0, 2.1]))
    tensor([ True, False])
    """
    need_tensors("isclose", input=input, other=other)
    if input.dtype is not other.dtype:
        raise RuntimeError(f"{dt.cxx_name(input.dtype)} did not match {dt.cxx_name(other.dtype)}")
    if rtol < 0:
        raise RuntimeError(f"rtol must be greater than or equal to zero, but got {rtol}")
    if atol < 0:
        raise RuntimeError(f"atol must be greater than or equal to zero, but got {atol}")
    return isclose_within(input, other, float(rtol), float(atol), bool(equal_nan))


@front(method=True)
def allclose(
    input: Tensor,
    other: Tensor,
    rtol: float = 1e-05,
    atol: float = 1e-08,
    equal_nan: bool = False,
) -> bool:
    """Whether all elements agree within `atol + rtol * |other|`, as a Python bool."""
    return bool(isclose(input, other, rtol, atol, equal_nan).all())


@front(method=True)
def equal(input: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same shape and elements, as a Python bool."""
    return input.shape == other.shape and bool((input == other).all())


@front(method=True, torch=None)
def is_nonzero(input: Tensor) -> bool:
    """Whether the one element is not zero."""
    return bool(input)
