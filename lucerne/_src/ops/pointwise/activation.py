"""Activation functions of neural networks. `inplace=True` writes over the input."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lucerne._src.base import dtype as dt
from lucerne._src.base import shape as sh
from lucerne._src.ir.define import composite, front, pointwise
from lucerne._src.ir.dispatch import InPlace
from lucerne._src.ir.op import Scalar, Tensor
from lucerne._src.ir.scalar.protocol import s
from lucerne._src.ir.scalar.special import polynomial
from lucerne._src.ops.checks import conj_of, is_integral, refuse
from lucerne._src.ops.copy.join import cat
from lucerne._src.ops.pointwise.select import choose
from lucerne._src.ops.pointwise.unary import sigmoid, tanh
from lucerne._src.ops.scalars import number_for


def over(input: Tensor, inplace: bool) -> InPlace | None:
    """What `out=` must be for an activation that may write over its input."""
    return InPlace(input) if inplace else None


# ---- the relu kin -------------------------------------------------------------------------------


@pointwise(
    name="relu",
    vjp={"input": lambda g, y: relu_gradient(g, y)},
    method=True,
    inplace=True,
    oracle=lambda input: np.maximum(input, 0),
    exact="choice",
    cost="cheap",
    onnx="Relu",
    sparse=True,
)
def relu_op(input: Tensor) -> Tensor:
    """Zero for negative elements."""
    if input.dtype is dt.bool_:
        raise RuntimeError("Boolean inputs not supported for relu")
    return s.maximum(input, 0)


@composite(
    internal=True,
    out=False,
    fuse=True,
    vjp={"g": lambda g, output: relu_gradient(g, output)},
    linear=True,
    zero_for=("output",),
    torch="threshold_backward",
)
def relu_gradient(g: Tensor, output: Tensor) -> Tensor:
    """What relu passes back of a gradient."""
    return choose(output <= 0, 0, g)  # also where it is nan, as torch


@front(namespace="nn.functional")
def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """Zero for negative elements.

    >>> import lucerne
    >>> lucerne.nn.functional.relu(lucerne.tensor([-1.0, 2.0]))
    tensor([0., 2.])
    """
    return relu_op(input, out=over(input, inplace))


@composite(
    internal=True,
    opmath=True,
    out=False,
    fuse=True,
    vjp={"g": lambda g, input, negative_slope: leaky_relu_gradient(g, input, negative_slope)},
    linear=True,
    zero_for=("input",),
    torch="leaky_relu_backward",
)
def leaky_relu_gradient(g: Tensor, input: Tensor, negative_slope: float) -> Tensor:
    """What leaky_relu passes back of a gradient."""
    return choose(input > 0, g, g * negative_slope)


@pointwise(
    internal=True,
    vjp={
        "input": lambda g, input, negative_slope: leaky_relu_gradient(g, input, negative_slope),
    },
    oracle=lambda input, slope: np.where(input > 0, input, input * slope),
    cost="light",
)
def leaky_relu_op(input: Tensor, negative_slope: Scalar) -> Tensor:
    """`input` times a slope where it is negative."""
    refuse(input, "leaky_relu_cpu", dt.INTEGER, dt.BOOL, dt.COMPLEX)
    return s.where(input > 0, input, input * negative_slope)


@front(namespace="nn.functional")
def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """`input`, or `negative_slope * input` where it is negative."""
    return leaky_relu_op(input, negative_slope, out=over(input, inplace))


@pointwise(
    internal=True,
    vjp={
        "input": lambda g, input, weight: choose(input > 0, g, g * weight),
        "weight": lambda g, input: choose(input > 0, 0, g * input),
    },
    oracle=lambda input, weight: np.where(input > 0, input, input * weight),
    autocast="lower",
    cost="light",
    torch="_prelu_kernel",
)
def prelu_kernel(input: Tensor, weight: Tensor) -> Tensor:
    """`leaky_relu` with learnt slopes."""
    return s.where(input > 0, input, input * weight)


@front(namespace="nn.functional", aliases=(), autocast="lower")
def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """`input`, or `weight * input` where it is negative; one weight, or one for each channel."""
    if weight.dtype is not input.dtype:
        raise RuntimeError(
            f"prelu: Type promoting not supported. Got {input.dtype} and {weight.dtype}"
        )
    if weight.ndim > 1:
        raise RuntimeError(
            f"prelu: Expected `weight` to be a scalar or 1D tensor, but got: ndim = {weight.ndim}"
        )
    if weight.ndim == 1 and weight.numel() != 1:
        _check_channels(input, weight)
        weight = weight.reshape(-1, *([1] * (input.ndim - 2))) if input.ndim > 1 else weight
    elif weight.ndim == 1:
        weight = weight.reshape([1] * input.ndim if input.ndim else [])
    return prelu_kernel(input, weight)


def _check_channels(input: Tensor, weight: Tensor) -> None:
    if not input.ndim:
        raise RuntimeError("Not allow zero-dim input tensor.")
    channels = input.shape[1] if input.ndim > 1 else 1
    if channels != weight.numel():
        raise RuntimeError(
            f"Mismatch of parameter numbers and input channel size. Found parameter numbers = "
            f"{weight.numel()} and channel size = {channels}."
        )


front(name="prelu", method=True)(prelu)


@composite(
    internal=True,
    out=False,
    fuse=True,
    vjp={"g": lambda g, input, min_val, max_val: hardtanh_gradient(g, input, min_val, max_val)},
    linear=True,
    zero_for=("input",),
    torch="hardtanh_backward",
)
def hardtanh_gradient(g: Tensor, input: Tensor, min_val: float, max_val: float) -> Tensor:
    """What hardtanh passes back of a gradient."""
    return choose((input > min_val) & (input < max_val), g, 0)


@pointwise(
    internal=True,
    vjp={
        "input": lambda g, input, min_val, max_val: hardtanh_gradient(g, input, min_val, max_val),
    },
    oracle=np.clip,
    cost="light",
)
def hardtanh_op(input: Tensor, min_val: Scalar, max_val: Scalar) -> Tensor:
    """Values limited to a range; no gradient at its ends."""
    return s.minimum(s.maximum(input, min_val), max_val)


def _limited(input: Tensor, low: Any, high: Any, inplace: bool) -> Tensor:
    if input.dtype is dt.bool_:
        raise RuntimeError("Bool inputs not supported for hardtanh")
    if is_integral(input.dtype):
        low, high = (number_for(x, input.dtype) for x in (low, high))
    return hardtanh_op(input, low, high, out=over(input, inplace))


@front(namespace="nn.functional")
def hardtanh(
    input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False
) -> Tensor:
    """Values limited to `min_val` ... `max_val`."""
    if min_val > max_val:
        raise ValueError("min_val cannot be greater than max_val")
    if not input.dtype.is_signed and (min_val < 0 or max_val < 0):
        raise RuntimeError("cannot do hardtanh on an unsigned type with negative limits")
    return _limited(input, min_val, max_val, inplace)


@front(namespace="nn.functional")
def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """Values limited to 0 ... 6."""
    return _limited(input, 0.0, 6.0, inplace)


@pointwise(
    internal=True,
    vjp={
        "input": lambda g, input, threshold: choose(input <= threshold, 0, g),
    },
    oracle=lambda input, threshold, value: np.where(input <= threshold, value, input),
    cost="light",
    expanded="fill",
)
def threshold_op(input: Tensor, threshold: Scalar, value: Scalar) -> Tensor:
    """`value` where elements are not above the threshold."""
    return s.where(input <= threshold, value, input)


@front(namespace="nn.functional")
def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """Elements above the threshold, `value` elsewhere."""
    if input.dtype is dt.bool_:
        raise NotImplementedError("\"threshold_cpu\" not implemented for 'Bool'")
    if is_integral(input.dtype):
        threshold, value = (number_for(x, input.dtype) for x in (threshold, value))
    return threshold_op(input, threshold, value, out=over(input, inplace))


# ---- the elu kin --------------------------------------------------------------------------------


@composite(internal=True, opmath=True, out=False, fuse=True, torch="elu_backward")
def elu_gradient(
    g: Tensor, input: Tensor, alpha: float, scale: float, input_scale: float
) -> Tensor:
    """What elu and its kin pass back of a gradient."""
    below = g * (input_scale * alpha * scale) * (input * input_scale).exp()
    return choose(input <= 0, below, g * scale)


@pointwise(
    internal=True,
    vjp={
        "input": lambda g, input, alpha, scale, input_scale: elu_gradient(
            g, input, alpha, scale, input_scale
        )
    },
)
def elu_op(input: Tensor, alpha: Scalar, scale: Scalar, input_scale: Scalar) -> Tensor:
    """`scale * x`, or `scale * alpha * (exp(input_scale * x) - 1)` where x is negative."""
    refuse(input, "elu_cpu", dt.INTEGER, dt.BOOL, dt.COMPLEX)
    below = s.expm1(input * input_scale) * (alpha * scale)
    return s.where(input <= 0, below, input * scale)


@front(namespace="nn.functional")
def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """`x`, or `alpha * (exp(x) - 1)` where x is negative."""
    return elu_op(input, alpha, 1.0, 1.0, out=over(input, inplace))


SELU_ALPHA = 1.6732632423543772848170429916717
SELU_SCALE = 1.0507009873554804934193349852946


@front(namespace="nn.functional")
def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """The elu whose constants keep activations normalised."""
    return elu_op(input, SELU_ALPHA, SELU_SCALE, 1.0, out=over(input, inplace))


@front(namespace="nn.functional")
def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """The elu with a continuous derivative for any `alpha`."""
    if alpha == 0:
        raise RuntimeError("ZeroDivisionError: alpha cannot be 0 for CELU")
    return elu_op(input, alpha, 1.0, 1.0 / alpha, out=over(input, inplace))


# ---- smooth ones --------------------------------------------------------------------------------


@composite(internal=True, opmath=True, out=False, fuse=True, torch="gelu_backward")
def gelu_gradient(g: Tensor, input: Tensor, approximate: str) -> Tensor:
    """What gelu passes back of a gradient."""
    if approximate == "tanh":
        inner = (input + input * input * input * 0.044715) * _GELU_TANH
        t = tanh(inner)
        slope = (1 + input * input * (3 * 0.044715)) * _GELU_TANH
        return g * (0.5 * (1 + t) + input * 0.5 * (1 - t * t) * slope)
    below = 0.5 * (1 + (input * math.sqrt(0.5)).erf())
    density = (input * input * -0.5).exp() * (1 / math.sqrt(2 * math.pi))
    return g * (below + input * density)


_GELU_TANH = math.sqrt(2 / math.pi)


@pointwise(
    out="exact",
    vjp={"input": lambda g, input, approximate: gelu_gradient(g, input, approximate)},
    name="gelu",
    namespace="nn.functional",
)
def gelu(input: Tensor, *, approximate: str = "none") -> Tensor:
    """`x * P(normal < x)`, exactly or by the tanh formula.

    >>> import lucerne
    >>> lucerne.nn.functional.gelu(lucerne.tensor([1.0]))
    tensor([0.8413])
    """
    refuse(input, "GeluKernelImpl", dt.INTEGER, dt.BOOL, dt.COMPLEX)
    if approximate == "tanh":
        return s.gelu_tanh(input)
    if approximate != "none":
        raise RuntimeError("approximate argument must be either none or tanh.")
    return s.gelu(input)


@composite(internal=True, opmath=True, out=False, fuse=True, torch="silu_backward")
def silu_gradient(g: Tensor, input: Tensor) -> Tensor:
    """What silu passes back of a gradient."""
    part = sigmoid(input)
    return g * conj_of(part * (1 + input * (1 - part)))


@pointwise(
    internal=True,
    vjp={"input": lambda g, input: silu_gradient(g, input)},
    oracle=lambda x: x / (1 + np.exp(-x)),
)
def silu_op(input: Tensor) -> Tensor:
    """`x * sigmoid(x)`."""
    refuse(input, "silu_cpu", dt.INTEGER, dt.BOOL)
    return s.silu(input)


@front(namespace="nn.functional")
def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """`x * sigmoid(x)`."""
    return silu_op(input, out=over(input, inplace))


@composite(internal=True, opmath=True, out=False, fuse=True, torch="mish_backward")
def mish_gradient(g: Tensor, input: Tensor) -> Tensor:
    """What mish passes back of a gradient."""
    t = tanh(softplus(input))
    return g * (t + input * sigmoid(input) * (1 - t * t))


@pointwise(internal=True, vjp={"input": lambda g, input: mish_gradient(g, input)})
def mish_op(input: Tensor) -> Tensor:
    """`x * tanh(softplus(x))`: with e = exp(x) that is x * n / (n + 2), n = e * (e + 2).

    Far below zero it is x * e, where e alone would be denormal long before the product is.
    """
    refuse(input, "mish_cpu", dt.INTEGER, dt.BOOL, dt.COMPLEX)
    low = input < -60
    e = s.exp(s.where(low, input + 64, s.minimum(input, 20)))
    n = s.mul_add(e, e, e + e)
    return s.where(low, input * e * math.exp(-64.0), input * (n / (n + 2)))


@front(namespace="nn.functional")
def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """`x * tanh(softplus(x))`."""
    return mish_op(input, out=over(input, inplace))


@composite(internal=True, opmath=True, out=False, fuse=True, torch="softplus_backward")
def softplus_gradient(g: Tensor, input: Tensor, beta: float, threshold: float) -> Tensor:
    """What softplus passes back of a gradient."""
    scaled = input * beta
    return choose(scaled > threshold, g, g * sigmoid(scaled))


@pointwise(
    out="exact",
    vjp={
        "input": lambda g, input, beta, threshold: softplus_gradient(g, input, beta, threshold),
    },
    name="softplus",
    namespace="nn.functional",
)
def softplus(input: Tensor, beta: Scalar = 1, threshold: Scalar = 20) -> Tensor:
    """`log(1 + exp(beta * x)) / beta`, and `x` itself where that is as good."""
    refuse(input, "softplus_cpu", dt.INTEGER, dt.BOOL, dt.COMPLEX)
    scaled = input * beta
    return s.where(scaled > threshold, input, s.log1p(s.exp(scaled)) / beta)


@composite(internal=True, opmath=True, out=False, fuse=True, torch="log_sigmoid_backward")
def logsigmoid_gradient(g: Tensor, input: Tensor) -> Tensor:
    """What logsigmoid passes back of a gradient."""
    return g * sigmoid(-input)


@pointwise(
    internal=True,
    out="exact",
    vjp={"input": lambda g, input: logsigmoid_gradient(g, input)},
    torch="log_sigmoid",
)
def logsigmoid_op(input: Tensor) -> Tensor:
    """`log(sigmoid(x))` without underflow."""
    refuse(input, "log_sigmoid_cpu", dt.INTEGER, dt.BOOL, dt.COMPLEX)
    return s.minimum(input, 0) - s.log1p(s.exp(-s.abs(input)))


@front(namespace="nn.functional", torch="log_sigmoid")
def logsigmoid(input: Tensor, *, out: Any = None) -> Tensor:
    """`log(sigmoid(x))` without underflow."""
    if out is not None and out.shape != input.shape:
        out.resize_(0)  # torch gives it the right shape without a warning
    return logsigmoid_op(input, out=out)


@composite(namespace="nn.functional", out=False, fuse=True, torch=None)
def softsign(input: Tensor) -> Tensor:
    """`x / (1 + |x|)`."""
    return input / (input.abs() + 1)


_SHRUNK = tuple(n / 218243025 for n in (16081065, 289575, 1430, 1))
_SHRUNK_UNDER = tuple(n / 218243025 for n in (654729075, 310134825, 18918900, 315315, 1485, 1))
"""`(x - tanh(x)) / x ** 3` as (1 + y p(y)) / q(y) with y = x * x, from Lambert's continued fraction
of tanh cut at 19: right to 2e-16 below 3 / 2. All terms are positive: nothing cancels."""


@pointwise(
    internal=True,
    vjp={"input": lambda g, input: g * tanh(input) * tanh(input)},
    grad_fn="SubBackward0",
)
def less_tanh(input: Tensor) -> Tensor:
    """`x - tanh(x)`, with all digits where both are nearly the same."""
    near = s.abs(input) < 1.5
    x = s.where(near, input, 0.0)
    square = x * x
    cube = x * square
    small = s.mul_add(cube, square * polynomial(square, _SHRUNK), cube)
    small = small / polynomial(square, _SHRUNK_UNDER)
    # (plus zero: of nothing torch gives 0.0, whatever the sign of x)
    return s.where(near, small + 0.0, input - s.tanh(input))


@front(namespace="nn.functional", torch=None)
def tanhshrink(input: Tensor) -> Tensor:
    """`x - tanh(x)`."""
    if input.dtype.category != dt.FLOAT:
        return input - tanh(input)
    return less_tanh(input)


# ---- pieces of lines ----------------------------------------------------------------------------


@composite(
    internal=True,
    opmath=True,
    out=False,
    fuse=True,
    vjp={"g": lambda g, input: hardsigmoid_gradient(g, input)},
    linear=True,
    zero_for=("input",),
    torch="hardsigmoid_backward",
)
def hardsigmoid_gradient(g: Tensor, input: Tensor) -> Tensor:
    """What hardsigmoid passes back of a gradient."""
    return choose((input > -3) & (input < 3), g / 6, 0)


@pointwise(
    internal=True,
    vjp={"input": lambda g, input: hardsigmoid_gradient(g, input)},
    oracle=lambda input: np.clip(input + 3, 0, 6) / 6,
    cost="light",
)
def hardsigmoid_op(input: Tensor) -> Tensor:
    """A sigmoid of three straight pieces."""
    refuse(input, "hardsigmoid_cpu", dt.INTEGER, dt.BOOL, dt.COMPLEX)
    return s.minimum(s.maximum(input + 3, 0), 6) / 6


@front(namespace="nn.functional")
def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """A sigmoid of three straight pieces."""
    return hardsigmoid_op(input, out=over(input, inplace))


@composite(internal=True, opmath=True, out=False, fuse=True, torch="hardswish_backward")
def hardswish_gradient(g: Tensor, input: Tensor) -> Tensor:
    """What hardswish passes back of a gradient."""
    middle = choose(input >= 3, g, g * (input / 3 + 0.5))  # (of NaN it is NaN)
    return choose(input <= -3, 0, middle)


@pointwise(
    internal=True,
    vjp={"input": lambda g, input: hardswish_gradient(g, input)},
    oracle=lambda input: input * np.clip(input + 3, 0, 6) / 6,
    cost="light",
)
def hardswish_op(input: Tensor) -> Tensor:
    """`x * hardsigmoid(x)`."""
    refuse(input, "hardswish_cpu", dt.INTEGER, dt.BOOL, dt.COMPLEX)
    return input * s.minimum(s.maximum(input + 3, 0), 6) / 6


@front(namespace="nn.functional")
def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """`x * hardsigmoid(x)`."""
    return hardswish_op(input, out=over(input, inplace))


@pointwise(
    out="exact",
    vjp={
        "input": lambda g, input, lambd: choose((input >= -lambd) & (input <= lambd), 0, g),
    },
    name="hardshrink",
    method=True,
    cost="light",
)
def hardshrink(input: Tensor, lambd: Scalar = 0.5) -> Tensor:
    """Zero for elements within `lambd` of zero."""
    refuse(input, "hardshrink_cpu", dt.INTEGER, dt.BOOL, dt.COMPLEX)
    return s.where((input >= -lambd) & (input <= lambd), 0, input)


front(name="hardshrink", namespace="nn.functional")(hardshrink)


@pointwise(
    internal=True,
    out="exact",
    vjp={
        "input": lambda g, input, lambd: choose((input >= -lambd) & (input <= lambd), 0, g),
    },
    cost="light",
)
def softshrink_op(input: Tensor, lambd: Scalar) -> Tensor:
    """Elements moved towards zero by `lambd`, no further."""
    refuse(input, "softshrink_cpu", dt.INTEGER, dt.BOOL, dt.COMPLEX)
    inner = s.where(input < -lambd, input + lambd, input * 0)
    return s.where(input > lambd, input - lambd, inner)


@front(namespace="nn.functional")
def softshrink(input: Tensor, lambd: float = 0.5, *, out: Any = None) -> Tensor:
    """Elements moved towards zero by `lambd`, no further."""
    if lambd < 0:
        limit = np.finfo(input.dtype.compute.storage).max
        raise RuntimeError(
            f"lambda must be in range [0, {limit:g}] for input dtype {dt.cxx_name(input.dtype)}, "
            f"but found {lambd:g}"
        )
    return softshrink_op(input, lambd, out=out)


def _halves(input: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    half = input.shape[dim] // 2
    return input.narrow(dim, 0, half), input.narrow(dim, half, half)


@composite(internal=True, opmath=True, out=False, fuse=True)
def glu_first_gradient(g: Tensor, gate: Tensor) -> Tensor:
    """What glu passes back to its first half."""
    return g * sigmoid(gate)


@composite(internal=True, opmath=True, out=False, fuse=True)
def glu_gate_gradient(g: Tensor, first: Tensor, gate: Tensor) -> Tensor:
    """What glu passes back to its second half."""
    part = sigmoid(gate)
    return g * first * (part * (1 - part))


def _glu_vjp(g: Tensor, input: Tensor, dim: int) -> Tensor:
    d = sh.wrap_dim(dim, input.ndim)
    first, gate = _halves(input, d)
    return cat([glu_first_gradient(g, gate), glu_gate_gradient(g, first, gate)], d)


@composite(namespace="nn.functional", opmath=True, vjp={"input": _glu_vjp}, fuse=True)
def glu(input: Tensor, dim: int = -1) -> Tensor:
    """The first half of a dimension, gated by the sigmoid of the second."""
    if not input.ndim:
        raise RuntimeError("glu does not support 0-dimensional tensors")
    d = sh.wrap_dim(dim, input.ndim)
    if input.shape[d] % 2:
        raise RuntimeError(
            f"Halving dimension must be even, but dimension {d} is size {input.shape[d]}"
        )
    first, gate = _halves(input, d)
    return first * sigmoid(gate)


# ---- the same under torch's other names ---------------------------------------------------------


def _written_over(fn: Any) -> Any:
    """`relu_` and its kin: the activation with `inplace=True`."""

    def written(input: Tensor, *args: Any, **options: Any) -> Tensor:
        return fn(input, *args, inplace=True, **options)

    written.__name__ = f"{fn.__name__}_"
    written.__doc__ = f"In-place version of `{fn.__name__}`."
    return written


for _function in (relu, leaky_relu, hardtanh, threshold, elu, selu, celu):
    front(name=f"{_function.__name__}_", namespace="nn.functional")(_written_over(_function))
for _function in (threshold, selu, celu):
    front(name=_function.__name__)(_function)
    front(name=f"{_function.__name__}_")(_written_over(_function))
