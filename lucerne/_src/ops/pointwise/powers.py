"""Powers and roots."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

from lucerne._src.base import dtype as dt
from lucerne._src.ir.define import composite, front, pointwise
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.ir.op import Tensor
from lucerne._src.ir.scalar.protocol import s
from lucerne._src.ops.checks import conj_of, is_complex, is_integral, is_tensor, refuse, zeros_of
from lucerne._src.ops.pointwise.select import choose
from lucerne._src.ops.scalars import check_beside, check_int


def _base_gradient(g: Tensor, input: Any, exponent: Any) -> Tensor:
    """`exponent * input ** (exponent - 1)`, and zero for exponent zero even if that is 0 * inf."""
    if not is_tensor(exponent):
        if exponent == 0:
            return zeros_of(g._meta)
        if exponent in (2, 3) and not is_complex(input) and input.dtype is g.dtype:
            return power_gradient(g, input, int(exponent))
        return g * conj_of(exponent * pow(input, exponent - 1))
    return choose(exponent == 0, 0.0, g * conj_of(exponent * pow(input, exponent - 1)))


def _exponent_gradient(g: Tensor, y: Tensor, input: Any, exponent: Any) -> Tensor:
    """`y * log(input)`, and zero where the base is zero and the exponent isn't negative."""
    kept = exponent >= 0 if not is_complex(exponent) else _nonnegative(exponent)
    if is_tensor(input):
        base = input if input.dtype is y.dtype else input.to(y.dtype)
        return choose((input == 0) & kept, 0.0, g * conj_of(y * base.log()))
    slope = g * conj_of(y * _log_number(input, y))
    return choose(kept, 0.0, slope) if input == 0 else slope


def _nonnegative(exponent: Tensor) -> Tensor:
    """Which complex exponents are really real, and not negative."""
    return (exponent.imag == 0) & (exponent.real >= 0)


def _log_number(base: Any, y: Tensor) -> Any:
    """The logarithm of a Python number, complex when the result is."""
    if is_complex(y) or isinstance(base, complex):
        found = complex(np.log(complex(base)))
        return found if is_complex(y) else found.real
    with np.errstate(all="ignore"):
        return float(np.log(float(base)))


@composite(internal=True, opmath=True, out=False, fuse=True)
def power_gradient(g: Tensor, input: Tensor, exponent: int) -> Tensor:
    """What squares and cubes of real numbers pass back of a gradient."""
    return g * (2 * input if exponent == 2 else 3 * (input * input))


def _pow_node(input: Any, exponent: Any) -> str:
    tensors = [type(x) is TensorMeta for x in (input, exponent)]
    return f"PowBackward{0 if not tensors[1] else 1 if tensors[0] else 2}"


@pointwise(
    internal=True,
    name="pow2",
    vjp={"input": _base_gradient, "exponent": _exponent_gradient},
    oracle=np.power,
    torch="pow",
    grad_fn=_pow_node,
)
def pow2(input: Tensor, exponent: Tensor) -> Tensor:
    """Power of two operands."""
    refuse(input, "pow", dt.BOOL)
    return input**exponent


@front(method=True, inplace=True)
def pow(input: Tensor, exponent: Tensor, *, out: Any = None) -> Tensor:
    """`input` to the power of `exponent`; either may be a number.

    >>> import lucerne
    >>> lucerne.pow(2, lucerne.tensor([1.0, 3.0]))
    tensor([2., 8.])
    """
    if isinstance(exponent, bool) and is_tensor(input) and input.dtype is dt.bool_:
        return input.bitwise_or(not exponent, out=out)
    check_int(exponent)
    if not is_tensor(exponent) and is_tensor(input):
        if is_integral(input.dtype) and isinstance(exponent, int) and exponent < 0:
            raise RuntimeError("Integers to negative integer powers are not allowed.")
        if not is_integral(input.dtype) or not isinstance(exponent, float):
            check_beside(exponent, input)
        return _number_power(input, exponent, out)
    return pow2(input, exponent, out=out)


def _number_power(input: Tensor, exponent: Any, out: Any) -> Tensor:
    """Powers torch computes otherwise: roots keep the sign of zero and have no value at -inf."""
    if isinstance(exponent, float) and not is_integral(input.dtype):
        if exponent == 0.5:
            return sqrt_power(input, out=out)
        if exponent == -0.5:
            return rsqrt_power(input, out=out)
    return pow2(input, exponent, out=out)


def _root_gradient(exponent: float) -> Any:
    return lambda g, input: _base_gradient(g, input, exponent)


@pointwise(
    internal=True, vjp={"input": _root_gradient(0.5)}, oracle=np.sqrt, holomorphic=True, torch="pow"
)
def sqrt_power(input: Tensor) -> Tensor:
    """`input ** 0.5`."""
    return s.sqrt(input)


@pointwise(
    internal=True,
    vjp={"input": _root_gradient(-0.5)},
    oracle=lambda input: 1 / np.sqrt(input),
    holomorphic=True,
    torch="pow",
)
def rsqrt_power(input: Tensor) -> Tensor:
    """`input ** -0.5`."""
    return s.rsqrt(input)


@front(method=True, inplace=True)
def float_power(input: Tensor, exponent: Tensor, *, out: Any = None) -> Tensor:
    """Power computed in double precision, whatever the operands are."""
    wide = dt.complex128 if is_complex(input) or is_complex(exponent) else dt.float64
    base, power = _widened(input, wide), _widened(exponent, wide)
    target = getattr(out, "target", out)
    if target is not None and target.dtype is not wide:
        at = (
            "the base given to float_power_"
            if target is not out
            else "the output given to float_power"
        )
        raise RuntimeError(
            f"{at} has dtype {dt.cxx_name(target.dtype)} but the operation's result requires dtype "
            f"{dt.cxx_name(wide)}"
        )
    return pow(base, power, out=out)


def _widened(x: Any, wide: dt.dtype) -> Any:
    if is_tensor(x):
        return x if x.dtype is wide else x.to(wide)
    return builtins.complex(x) if wide is dt.complex128 else builtins.float(x)


@composite(
    method=True,
    inplace=True,
    oracle=np.square,
    holomorphic=True,
    grad_fn="PowBackward0",
    sparse=True,
)
def square(input: Tensor) -> Tensor:
    """Each element times itself."""
    return pow2(input, 2)


@pointwise(
    promote="float",
    vjp={"input": lambda g, y: g / conj_of(y * 2)},
    method=True,
    inplace=True,
    ufunc=np.sqrt,
    holomorphic=True,
    exact=True,
    cost="light",
    sparse=True,
    foreach=True,
)
def sqrt(input: Tensor) -> Tensor:
    """Square root; nan for negative numbers.

    >>> import lucerne
    >>> lucerne.sqrt(lucerne.tensor([4.0, 9.0]))
    tensor([2., 3.])
    """
    return s.sqrt(input)


@pointwise(
    promote="float",
    vjp={"input": lambda g, y: g * conj_of(y * y * y) * -0.5},
    method=True,
    inplace=True,
    oracle=lambda input: 1 / np.sqrt(input),
    holomorphic=True,
    foreach=True,
)
def rsqrt(input: Tensor) -> Tensor:
    """One over the square root."""
    return s.rsqrt(input)


@pointwise(
    promote="float",
    vjp={"input": lambda g, y: -g * conj_of(y * y)},
    method=True,
    inplace=True,
    oracle=np.reciprocal,
    holomorphic=True,
    cost="cheap",
    onnx="Reciprocal",
    foreach=True,
)
def reciprocal(input: Tensor) -> Tensor:
    """One over each element."""
    return s.reciprocal(input)
