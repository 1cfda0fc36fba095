"""Addition, multiplication, division and their kin, element by element."""

from __future__ import annotations

from typing import Any

import numpy as np

from lucerne._src.base import dtype as dt
from lucerne._src.ir import op as op_
from lucerne._src.ir.define import Decorator, front, pointwise
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.ir.op import Scalar, Tensor
from lucerne._src.ir.scalar.protocol import s
from lucerne._src.ops.checks import conj_of, flat, is_integral, is_tensor, need_tensors, refuse
from lucerne._src.ops.scalars import check_fits


def _arithmetic(**fields: Any) -> Decorator:
    """Rounded once."""
    return pointwise(method=True, inplace=True, exact=True, **fields)


@pointwise(
    internal=True,
    numbers="all",
    name="add2",
    vjp={"input": lambda g: g, "other": lambda g: g},
    ufunc=np.add,
    holomorphic=True,
    exact=True,
    cost="cheap",
    torch="add",
)
def add2(input: Tensor, other: Tensor) -> Tensor:
    """Sum of two operands (`add` with alpha 1)."""
    return input | other if input.dtype is dt.bool_ else input + other


@pointwise(
    internal=True,
    numbers="all",
    whole="none",
    vjp={"input": lambda g: g, "other": lambda g, alpha: g * conj_of(alpha)},
    oracle=lambda input, other, alpha: input + alpha * other,
    holomorphic=True,
    cost="cheap",
    torch="add",
)
def add_scaled(input: Tensor, other: Tensor, alpha: Scalar) -> Tensor:
    """`input + alpha * other` in one pass."""
    if input.dtype is dt.bool_:
        return input | (alpha & other)
    return input + alpha * other


def check_alpha(alpha: Any, input: Any, other: Any) -> Any:
    """torch's rules for `alpha`: a bool needs bools, a float needs floats."""
    types = [t.dtype for t in (input, other) if is_tensor(t)]
    numbers = [type(t) for t in (input, other) if not is_tensor(t)]
    if isinstance(alpha, bool) and any(t is not dt.bool_ for t in types):
        raise RuntimeError("Boolean alpha only supported for Boolean results.")
    real = complex not in numbers and all(t.category < dt.COMPLEX for t in types)
    integral = real and float not in numbers and all(t.category < dt.FLOAT for t in types)
    if isinstance(alpha, float) and integral:
        raise RuntimeError(
            "For integral input tensors, argument alpha must not be a floating point number."
        )
    if isinstance(alpha, complex) and real:
        raise RuntimeError(
            "For non-complex input tensors, argument alpha must not be a complex number."
        )
    for kind in types:
        if kind.category == dt.FLOAT and type(alpha) in (int, float):
            check_fits(alpha, kind)
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


@pointwise(
    internal=True,
    numbers="all",
    name="sub2",
    vjp={"input": lambda g: g, "other": lambda g: -g},
    ufunc=np.subtract,
    holomorphic=True,
    exact=True,
    cost="cheap",
    torch="sub",
    grad_fn=lambda input, _: "SubBackward0" if type(input) is TensorMeta else "RsubBackward1",
)
def sub2(input: Tensor, other: Tensor) -> Tensor:
    """Difference of two operands."""
    return input - other


def refuse_bools(*operands: Any) -> None:
    """Subtracting bools is a mistake more often than not: torch forbids it."""
    bools = [getattr(t, "dtype", None) is dt.bool_ or isinstance(t, bool) for t in operands]
    if all(bools):
        raise RuntimeError(
            "Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or "
            "`logical_xor()` operator instead."
        )
    if any(bools):
        raise RuntimeError(
            "Subtraction, the `-` operator, with a bool tensor is not supported. If you are "
            "trying to invert a mask, use the `~` or `logical_not()` operator instead."
        )


@front(method=True, inplace=True, aliases=("subtract",))
def sub(input: Tensor, other: Tensor, *, alpha: Any = 1, out: Any = None) -> Tensor:
    """`input - alpha * other`."""
    refuse_bools(input, other)
    if type(alpha) is int and alpha == 1:
        return sub2(input, other, out=out)
    return add_scaled(input, other, -check_alpha(alpha, input, other), out=out)


@front()
def rsub(input: Tensor, other: Tensor, *, alpha: Any = 1) -> Tensor:
    """`other - alpha * input`."""
    need_tensors("rsub", input=input)
    return sub(other, input, alpha=alpha)


@_arithmetic(
    numbers="all",
    whole="second",
    vjp={
        "input": lambda g, other: g * conj_of(other),
        "other": lambda g, input: g * conj_of(input),
    },
    aliases=("multiply",),
    ufunc=np.multiply,
    holomorphic=True,
    cost="cheap",
)
def mul(input: Tensor, other: Tensor) -> Tensor:
    """Product, element by element.

    >>> import lucerne
    >>> lucerne.tensor([1.0, 2.0]) * 3
    tensor([3., 6.])
    """
    return input & other if input.dtype is dt.bool_ else input * other


@_arithmetic(
    numbers="all",
    whole="second",
    name="true_divide",
    promote="float",
    vjp={
        "input": lambda g, other: g / conj_of(other),
        "other": lambda g, input, other: -g * conj_of((input / other) / other),
    },
    ufunc=np.true_divide,
    holomorphic=True,
    cost="cheap",
    torch="div",
)
def true_divide(input: Tensor, other: Tensor) -> Tensor:
    """Quotient; integers divide as floats."""
    return input / other


@pointwise(
    checks=op_.DIVISION,
    internal=True,
    numbers="all",
    whole="second",
    name="div_trunc",
    vjp={"input": flat, "other": flat},
    oracle=lambda input, other: np.trunc(input / other),
    exact=True,
    torch="div",
    grad_fn="DivBackward1",
)
def div_trunc(input: Tensor, other: Tensor) -> Tensor:
    """Quotient rounded towards zero."""
    refuse(input, "div_trunc_cpu", dt.COMPLEX, dt.BOOL)
    if is_integral(input.dtype):
        return s.floor_div_int(input - s.fmod(input, other), other)
    return s.trunc(input / other)


@pointwise(
    checks=op_.DIVISION,
    internal=True,
    numbers="all",
    whole="second",
    name="div_floor",
    vjp={"input": flat, "other": flat},
    oracle=np.floor_divide,
    exact=True,
    torch="div",
    grad_fn="DivBackward1",
)
def div_floor(input: Tensor, other: Tensor) -> Tensor:
    """Quotient rounded down."""
    return _floor_quotient(input, other)


def _floor_quotient(a: Any, b: Any) -> Any:
    """Python's `//`: for floats by the exact remainder, since floor(a / b) may be one too high."""
    refuse(a, "div_floor_cpu", dt.COMPLEX, dt.BOOL)
    if is_integral(a.dtype):
        return s.floor_div_int(a, b)
    rest = s.fmod(a, b)
    quotient = (a - rest) / b
    quotient = s.where((rest != 0) & ((b < 0) != (rest < 0)), quotient - 1, quotient)
    down = s.floor(quotient)
    down = s.where(quotient - down > 0.5, down + 1, down)
    down = s.where(quotient == 0, s.copysign(quotient * 0, a / b), down)
    return s.where(b == 0, a / b, down)


@front(method=True, inplace=True, aliases=("divide",))
def div(
    input: Tensor, other: Tensor, *, rounding_mode: str | None = None, out: Any = None
) -> Tensor:
    """Quotient: true division, or rounded with `rounding_mode` "floor" or "trunc".

    >>> import lucerne
    >>> lucerne.div(lucerne.tensor([7, -7]), 2, rounding_mode="floor")
    tensor([ 3, -4])
    """
    if rounding_mode is None:
        return true_divide(input, other, out=out)
    if rounding_mode == "trunc":
        return div_trunc(input, other, out=out)
    if rounding_mode == "floor":
        return div_floor(input, other, out=out)
    raise RuntimeError(
        "div expected rounding_mode to be one of None, 'trunc', or 'floor' but found "
        f"'{rounding_mode}'"
    )


@_arithmetic(checks=op_.DIVISION, numbers="all", whole="second", oracle=np.floor_divide)
def floor_divide(input: Tensor, other: Tensor) -> Tensor:
    """Quotient rounded down; not differentiable, as in torch."""
    return _floor_quotient(input, other)


@_arithmetic(
    checks=op_.DIVISION,
    vjp={
        "input": lambda g: g,
        "other": lambda g, input, other: -g * div(input, other, rounding_mode="floor"),
    },
    oracle=np.remainder,
)
def remainder(input: Tensor, other: Tensor) -> Tensor:
    """What is left after floor division: it has the sign of `other`, as Python's `%`.

    >>> import lucerne
    >>> lucerne.remainder(lucerne.tensor([-3.0, 3.0]), 2)
    tensor([1., 1.])
    """
    refuse(input, "remainder_cpu", dt.COMPLEX, dt.BOOL)
    rest = s.fmod(input, other)
    return s.where((rest != 0) & ((rest < 0) != (other < 0)), rest + other, rest)


@_arithmetic(
    checks=op_.DIVISION,
    numbers="rest",
    vjp={
        "input": lambda g: g,
        "other": lambda g, input, other: -g * div(input, other, rounding_mode="trunc"),
    },
    oracle=np.fmod,
)
def fmod(input: Tensor, other: Tensor) -> Tensor:
    """What is left after division towards zero: it has the sign of `input`, as C's fmod."""
    refuse(input, "fmod_cpu", dt.COMPLEX, dt.BOOL)
    return s.fmod(input, other)


@pointwise(
    out="exact",
    vjp={"input": lambda g: -g},
    method=True,
    inplace=True,
    aliases=("negative",),
    ufunc=np.negative,
    linear=True,
    exact="choice",
    cost="cheap",
    sparse=True,
    foreach=True,
)
def neg(input: Tensor) -> Tensor:
    """The value with its sign changed."""
    if input.dtype is dt.bool_:
        raise RuntimeError(
            "Negation, the `-` operator, on a bool tensor is not supported. If you are trying to "
            "invert a mask, use the `~` or `logical_not()` operator instead."
        )
    return -input


@front(method=True, sparse=True, linear=True)
def positive(input: Tensor) -> Tensor:
    """The tensor itself: `+x`."""
    if input.dtype is dt.bool_:
        raise RuntimeError("The `+` operator, on a bool tensor is not supported.")
    return input


@pointwise(
    numbers="none",
    vjp={
        "input": lambda g: g,
        "tensor1": lambda g, tensor2, value: g * conj_of(tensor2 * value),
        "tensor2": lambda g, tensor1, value: g * conj_of(tensor1 * value),
    },
    method=True,
    inplace=True,
    oracle=lambda input, tensor1, tensor2, value: input + value * tensor1 * tensor2,
    holomorphic=True,
    cost="light",
)
def addcmul(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Scalar = 1) -> Tensor:
    """`input + value * tensor1 * tensor2`."""
    refuse(input, "addcmul_cpu_out", dt.BOOL)
    if is_integral(input.dtype):
        value = s.cast(value, input.dtype)
    return input + value * tensor1 * tensor2


@pointwise(
    numbers="none",
    vjp={
        "input": lambda g: g,
        "tensor1": lambda g, tensor2, value: g * conj_of(value / tensor2),
        "tensor2": lambda g, tensor1, tensor2, value: (
            -g * conj_of((value * tensor1) / (tensor2 * tensor2))
        ),
    },
    method=True,
    inplace=True,
    oracle=lambda input, tensor1, tensor2, value: input + value * (tensor1 / tensor2),
    holomorphic=True,
)
def addcdiv(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Scalar = 1) -> Tensor:
    """`input + value * tensor1 / tensor2`."""
    if is_integral(input.dtype):
        raise RuntimeError(
            "Integer division with addcdiv is no longer supported, and in a future release "
            "addcdiv will perform a true division of tensor1 and tensor2. The historic addcdiv "
            "behavior can be implemented as (input + value * torch.trunc(tensor1 / tensor2))"
            ".to(input.dtype) for integer inputs and as (input + value * tensor1 / tensor2) for "
            "float inputs."
        )
    return input + value * tensor1 / tensor2


def _between(input: Any, end: Any, weight: Any) -> Any:
    refuse(input, "lerp_kernel_scalar", dt.BOOL, dt.INTEGER)
    step = end - input
    # From the nearer end: the result is then exact at both ends.
    return s.where(s.abs(weight) < 0.5, input + weight * step, end - step * (1 - weight))


@pointwise(
    internal=True,
    numbers="none",
    out="exact",
    vjp={
        "input": lambda g, weight: g * conj_of(1 - weight),
        "end": lambda g, weight: g * conj_of(weight),
        "weight": lambda g, input, end: g * conj_of(end - input),
    },
    oracle=lambda input, end, weight: input + weight * (end - input),
    cost="light",
    torch="lerp",
    grad_fn="LerpBackward1",
)
def lerp_tensor(input: Tensor, end: Tensor, weight: Tensor) -> Tensor:
    """Linear interpolation with a weight for each element."""
    return _between(input, end, weight)


@pointwise(
    internal=True,
    numbers="none",
    vjp={
        "input": lambda g, weight: g * conj_of(1 - weight),
        "end": lambda g, weight: g * conj_of(weight),
    },
    oracle=lambda input, end, weight: input + weight * (end - input),
    cost="light",
    torch="lerp",
)
def lerp_number(input: Tensor, end: Tensor, weight: Scalar) -> Tensor:
    """Linear interpolation with one weight."""
    return _between(input, end, weight)


@front(method=True, inplace=True)
def lerp(input: Tensor, end: Tensor, weight: Any, *, out: Any = None) -> Tensor:
    """Linear interpolation: `input + weight * (end - input)`.

    >>> import lucerne
    >>> lucerne.lerp(lucerne.tensor([0.0, 10.0]), lucerne.tensor([1.0, 20.0]), 0.5)
    tensor([ 0.5000, 15.0000])
    """
    for x, name in ((end, "end"), (weight, "weight")):
        if is_tensor(x) and x.dtype is not input.dtype:
            raise RuntimeError(f"expected dtype {input.dtype} for `{name}` but got dtype {x.dtype}")
    if is_tensor(weight):
        return lerp_tensor(input, end, weight, out=out)
    return lerp_number(input, end, weight, out=out)
