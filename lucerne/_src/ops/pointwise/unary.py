"""Exponentials, logarithms, trigonometric and hyperbolic functions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lucerne._src.base import dtype as dt
from lucerne._src.ir.define import Decorator, composite, front, pointwise
from lucerne._src.ir.op import Tensor
from lucerne._src.ir.scalar.protocol import s
from lucerne._src.ops.checks import conj_of, refuse
from lucerne._src.ops.pointwise.powers import rsqrt
from lucerne._src.ops.pointwise.select import choose


def _smooth(**fields: Any) -> Decorator:
    """A function of one number with a complex derivative, computed in floats."""
    return pointwise(promote="float", method=True, inplace=True, holomorphic=True, **fields)


@_smooth(vjp={"input": lambda g, y: g * conj_of(y)}, ufunc=np.exp, foreach=True)
def exp(input: Tensor) -> Tensor:
    """`e` to the power of each element.

    >>> import lucerne
    >>> lucerne.exp(lucerne.tensor([0.0, 1.0]))
    tensor([1.0000, 2.7183])
    """
    return s.exp(input)


@_smooth(vjp={"input": lambda g, y: g * conj_of(y) * math.log(2.0)}, oracle=np.exp2)
def exp2(input: Tensor) -> Tensor:
    """Two to the power of each element."""
    return s.exp2(input)


@_smooth(vjp={"input": lambda g, y: g * conj_of(y + 1)}, oracle=np.expm1, sparse=True, foreach=True)
def expm1(input: Tensor) -> Tensor:
    """`exp(x) - 1`, exact for small x."""
    return s.expm1(input)


@_smooth(vjp={"input": lambda g, input: g / conj_of(input)}, ufunc=np.log, foreach=True)
def log(input: Tensor) -> Tensor:
    """Natural logarithm; nan for negative numbers."""
    return s.log(input)


@_smooth(
    vjp={"input": lambda g, input: g / conj_of(input * math.log(2.0))}, oracle=np.log2, foreach=True
)
def log2(input: Tensor) -> Tensor:
    """Logarithm to base two."""
    return s.log2(input)


@_smooth(
    vjp={"input": lambda g, input: g / conj_of(input * math.log(10.0))},
    oracle=np.log10,
    foreach=True,
)
def log10(input: Tensor) -> Tensor:
    """Logarithm to base ten."""
    return s.log10(input)


@_smooth(
    vjp={"input": lambda g, input: g / conj_of(input + 1)},
    oracle=np.log1p,
    sparse=True,
    foreach=True,
)
def log1p(input: Tensor) -> Tensor:
    """`log(1 + x)`, exact for small x."""
    return s.log1p(input)


# ---- trigonometric ------------------------------------------------------------------------------


@_smooth(
    vjp={"input": lambda g, input: g * conj_of(cos(input))},
    ufunc=np.sin,
    sparse=True,
    foreach=True,
)
def sin(input: Tensor) -> Tensor:
    """Sine of each element, in radians."""
    return s.sin(input)


@_smooth(vjp={"input": lambda g, input: g * -conj_of(sin(input))}, ufunc=np.cos, foreach=True)
def cos(input: Tensor) -> Tensor:
    """Cosine of each element, in radians."""
    return s.cos(input)


@_smooth(
    vjp={"input": lambda g, y: g * conj_of(1 + y * y)}, oracle=np.tan, sparse=True, foreach=True
)
def tan(input: Tensor) -> Tensor:
    """Tangent of each element, in radians."""
    return s.tan(input)


@_smooth(
    vjp={"input": lambda g, input: g * conj_of(rsqrt(1 - input * input))},
    aliases=("arcsin",),
    oracle=np.arcsin,
    sparse=True,
    foreach=True,
)
def asin(input: Tensor) -> Tensor:
    """The angle whose sine is given."""
    return s.asin(input)


@_smooth(
    vjp={"input": lambda g, input: g * -conj_of(rsqrt(1 - input * input))},
    aliases=("arccos",),
    oracle=np.arccos,
    foreach=True,
)
def acos(input: Tensor) -> Tensor:
    """The angle whose cosine is given."""
    return s.acos(input)


@_smooth(
    vjp={"input": lambda g, input: g / conj_of(input * input + 1)},
    aliases=("arctan",),
    oracle=np.arctan,
    sparse=True,
    foreach=True,
)
def atan(input: Tensor) -> Tensor:
    """The angle whose tangent is given."""
    return s.atan(input)


def _radius_share(g: Tensor, mine: Any, input: Any, other: Any) -> Tensor:
    """`g * mine / (input^2 + other^2)`, and zero at the origin."""
    squared = input * input + other * other
    return choose(squared == 0, 0.0, g * (mine / squared))


@pointwise(
    numbers="none",
    promote="float",
    vjp={
        "input": lambda g, input, other: _radius_share(g, other, input, other),
        "other": lambda g, input, other: _radius_share(g, -input, input, other),
    },
    method=True,
    inplace=True,
    aliases=("arctan2",),
    oracle=np.arctan2,
)
def atan2(input: Tensor, other: Tensor) -> Tensor:
    """The angle of the point (other, input), in all four quadrants."""
    refuse(input, "atan2_cpu", dt.COMPLEX)
    return s.atan2(input, other)


@pointwise(
    numbers="none",
    vjp={
        "input": lambda g, input, y: choose(y == 0, 0.0, g * (input / y)),
        "other": lambda g, other, y: choose(y == 0, 0.0, g * (other / y)),
    },
    method=True,
    inplace=True,
    oracle=np.hypot,
)
def hypot(input: Tensor, other: Tensor) -> Tensor:
    """The length of the vector (input, other)."""
    refuse(input, "hypot_cpu", dt.COMPLEX, dt.INTEGER, dt.BOOL)
    return s.hypot(input, other)


# ---- hyperbolic ---------------------------------------------------------------------------------


@_smooth(
    vjp={"input": lambda g, input: g * conj_of(cosh(input))},
    oracle=np.sinh,
    sparse=True,
    foreach=True,
)
def sinh(input: Tensor) -> Tensor:
    """Hyperbolic sine."""
    return s.sinh(input)


@_smooth(vjp={"input": lambda g, input: g * conj_of(sinh(input))}, oracle=np.cosh, foreach=True)
def cosh(input: Tensor) -> Tensor:
    """Hyperbolic cosine."""
    return s.cosh(input)


@_smooth(vjp={"input": lambda g, y: tanh_gradient(g, y)}, ufunc=np.tanh, sparse=True, foreach=True)
def tanh(input: Tensor) -> Tensor:
    """Hyperbolic tangent."""
    return s.tanh(input)


@_smooth(
    vjp={"input": lambda g, input: g * conj_of(rsqrt(input * input + 1))},
    aliases=("arcsinh",),
    oracle=np.arcsinh,
    sparse=True,
)
def asinh(input: Tensor) -> Tensor:
    """The number whose hyperbolic sine is given."""
    return s.asinh(input)


def _acosh_gradient(g: Tensor, input: Tensor) -> Tensor:
    slope = rsqrt(input - 1) * rsqrt(input + 1)
    if not input.is_complex():  # flat far away, on the side where it has no value too
        slope = choose(input == -math.inf, 0, slope)
    return g * conj_of(slope)


@_smooth(vjp={"input": _acosh_gradient}, aliases=("arccosh",), oracle=np.arccosh)
def acosh(input: Tensor) -> Tensor:
    """The positive number whose hyperbolic cosine is given."""
    return s.acosh(input)


@_smooth(
    vjp={"input": lambda g, input: g / conj_of(1 - input * input)},
    aliases=("arctanh",),
    oracle=np.arctanh,
    sparse=True,
)
def atanh(input: Tensor) -> Tensor:
    """The number whose hyperbolic tangent is given."""
    return s.atanh(input)


@_smooth(vjp={"input": lambda g, y: sigmoid_gradient(g, y)}, onnx="Sigmoid", foreach=True)
def sigmoid(input: Tensor) -> Tensor:
    """`1 / (1 + exp(-x))`: any number to (0, 1).

    >>> import lucerne
    >>> lucerne.sigmoid(lucerne.tensor([0.0]))
    tensor([0.5000])
    """
    return s.sigmoid(input)


# ---- angles and sums of exponentials ------------------------------------------------------------


@pointwise(
    promote="float",
    vjp={"input": lambda g: g * (math.pi / 180)},
    method=True,
    inplace=True,
    oracle=np.deg2rad,
    linear=True,
    cost="light",
    sparse=True,
)
def deg2rad(input: Tensor) -> Tensor:
    """Degrees as radians."""
    refuse_complex("deg2rad", input)
    return input * (math.pi / 180)


@pointwise(
    promote="float",
    vjp={"input": lambda g: g * (180 / math.pi)},
    method=True,
    inplace=True,
    oracle=np.rad2deg,
    linear=True,
    cost="light",
    sparse=True,
)
def rad2deg(input: Tensor) -> Tensor:
    """Radians as degrees."""
    refuse_complex("rad2deg", input)
    return input * (180 / math.pi)


def refuse_complex(name: str, x: Any) -> None:
    if x.dtype.category == dt.COMPLEX:
        raise RuntimeError(f"{name} is not supported for complex tensors.")


def _sinc_gradient(g: Tensor, input: Tensor) -> Tensor:
    scaled = input * math.pi
    squared = scaled * scaled
    slope = g * conj_of((scaled * scaled.cos() - scaled.sin()) / squared * math.pi)
    return choose(squared == 0, 0.0, slope)  # the square of a small number is nothing


@pointwise(
    promote="float",
    vjp={"input": _sinc_gradient},
    method=True,
    inplace=True,
    oracle=np.sinc,
)
def sinc(input: Tensor) -> Tensor:
    """`sin(pi x) / (pi x)`, and 1 at zero."""
    scaled = input * math.pi
    sine = s.sin(scaled) if input.dtype.category == dt.COMPLEX else s.sin_pi(input)
    return s.where(input == 0, 1.0, sine / scaled)


def _complex_logsum(a: Any, b: Any) -> Any:
    """For complex operands the one with the larger real part is taken out."""
    swap = s.real(a) < s.real(b)
    larger, smaller = s.where(swap, b, a), s.where(swap, a, b)
    found = s.log1p(s.exp(smaller - larger)) + larger
    same = (a == b) & s.is_inf(s.real(a))
    return s.where(same, a, found)


@pointwise(
    numbers="none",
    vjp={
        "input": lambda g, input, other: g / conj_of(1 + exp(other - input)),
        "other": lambda g, input, other: g / conj_of(1 + exp(input - other)),
    },
    method=True,
    oracle=np.logaddexp,
)
def logaddexp(input: Tensor, other: Tensor) -> Tensor:
    """`log(exp(input) + exp(other))` without overflow."""
    refuse(input, "logaddexp_cpu", dt.INTEGER, dt.BOOL)
    if input.dtype.category == dt.COMPLEX:
        return _complex_logsum(input, other)
    return s.logaddexp(input, other)


@pointwise(
    numbers="none",
    vjp={
        "input": lambda g, input, other: g / (1 + exp2(other - input)),
        "other": lambda g, input, other: g / (1 + exp2(input - other)),
    },
    method=True,
    oracle=np.logaddexp2,
)
def logaddexp2(input: Tensor, other: Tensor) -> Tensor:
    """`log2(2 ** input + 2 ** other)` without overflow."""
    refuse(input, "logaddexp2_cpu", dt.INTEGER, dt.BOOL, dt.COMPLEX)
    return s.logaddexp2(input, other)


for _name, _function in (("tanh", tanh), ("sigmoid", sigmoid)):
    front(name=_name, namespace="nn.functional")(_function)


# ---- derivatives, as ops of their own: an engine runs each as one kernel -----------------------


@composite(internal=True, out=False, fuse=True, torch="tanh_backward")
def tanh_gradient(g: Tensor, y: Tensor) -> Tensor:
    """What tanh passes back of a gradient."""
    return g * conj_of(1 - y * y)


@composite(internal=True, out=False, fuse=True, torch="sigmoid_backward")
def sigmoid_gradient(g: Tensor, y: Tensor) -> Tensor:
    """What sigmoid passes back of a gradient."""
    return g * conj_of(y * (1 - y))
