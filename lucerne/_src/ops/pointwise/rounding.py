"""Rounding, signs and the parts of a number."""

from __future__ import annotations

import builtins
import math
from typing import Any

import numpy as np

from lucerne._src.base import dtype as dt
from lucerne._src.base.numeric import finfo
from lucerne._src.ir import promote
from lucerne._src.ir.define import Decorator, composite, front, pointwise
from lucerne._src.ir.op import Tensor
from lucerne._src.ir.results import named
from lucerne._src.ir.scalar.protocol import s
from lucerne._src.ops.checks import (
    conj_of,
    flat,
    is_complex,
    is_integral,
    need_tensors,
    refuse,
    zeros_of,
)
from lucerne._src.ops.pointwise.select import choose


def _stepped(**fields: Any) -> Decorator:
    """A few instructions for each element."""
    return pointwise(method=True, inplace=True, cost="light", **fields)


@_stepped(
    out="exact", vjp={"input": flat}, oracle=np.floor, exact="choice", sparse=True, foreach=True
)
def floor(input: Tensor) -> Tensor:
    """The largest integer not above each element."""
    refuse(input, "floor_vml_cpu", dt.COMPLEX, dt.BOOL)
    return input if is_integral(input.dtype) else s.floor(input)


@_stepped(
    out="exact", vjp={"input": flat}, oracle=np.ceil, exact="choice", sparse=True, foreach=True
)
def ceil(input: Tensor) -> Tensor:
    """The smallest integer not below each element."""
    refuse(input, "ceil_vml_cpu", dt.COMPLEX, dt.BOOL)
    return input if is_integral(input.dtype) else s.ceil(input)


@_stepped(
    out="exact",
    vjp={"input": flat},
    aliases=("fix",),
    oracle=np.trunc,
    exact="choice",
    sparse=True,
    foreach=True,
)
def trunc(input: Tensor) -> Tensor:
    """Each element without its fraction."""
    refuse(input, "trunc_vml_cpu", dt.COMPLEX, dt.BOOL)
    return input if is_integral(input.dtype) else s.trunc(input)


@_stepped(
    out="exact",
    vjp={"input": lambda g: g},
    oracle=lambda input: input - np.trunc(input),
    sparse=True,
    foreach=True,
)
def frac(input: Tensor) -> Tensor:
    """The fraction of each element, with its sign."""
    refuse(input, "frac_cpu", dt.COMPLEX, dt.BOOL, dt.INTEGER)
    return input - s.trunc(input)


@pointwise(
    internal=True,
    out="exact",
    vjp={"input": flat},
    oracle=np.rint,
    exact=True,
    cost="light",
    torch="round",
)
def round_even(input: Tensor) -> Tensor:
    """The nearest integer; halves go to the even one."""
    refuse(input, "round_vml_cpu", dt.COMPLEX, dt.BOOL)
    return input if is_integral(input.dtype) else s.round(input)


@pointwise(
    internal=True,
    out="exact",
    vjp={"input": flat},
    oracle=lambda input, decimals: np.round(input, decimals),
    torch="round",
    grad_fn="RoundBackward1",
)
def round_decimals(input: Tensor, decimals: int) -> Tensor:
    """The nearest number with so many decimals."""
    refuse(input, "round_vml_cpu", dt.COMPLEX, dt.BOOL, dt.INTEGER)
    power = 10.0 ** builtins.abs(decimals)
    return s.round(input * power) / power if decimals > 0 else s.round(input / power) * power


@front(method=True, inplace=True, sparse=True, foreach=True)
def round(input: Tensor, *, decimals: int = 0, out: Any = None) -> Tensor:
    """The nearest integer (halves to even), or the nearest number with so many decimals.

    >>> import lucerne
    >>> lucerne.round(lucerne.tensor([0.5, 1.5, 2.6]))
    tensor([0., 2., 3.])
    """
    return round_decimals(input, decimals, out=out) if decimals else round_even(input, out=out)


# ---- signs --------------------------------------------------------------------------------------


@pointwise(
    out="exact",
    promote="real",
    vjp={"input": lambda g, input: g * sgn(input)},
    method=True,
    inplace=True,
    aliases=("absolute",),
    ufunc=np.abs,
    exact="choice",
    cost="cheap",
    sparse=True,
    foreach=True,
)
def abs(input: Tensor) -> Tensor:
    """The size of each element; of a complex one its distance from zero."""
    refuse(input, "abs_cpu", dt.BOOL)
    return s.abs(input)


def _sign(x: Any) -> Any:
    if x.dtype is dt.bool_:
        return x
    up = s.cast(x > 0, x.dtype)
    return up - s.cast(x < 0, x.dtype) if x.dtype.is_signed else up


@_stepped(
    out="exact",
    vjp={"input": flat},
    oracle=np.sign,
    exact="choice",
    onnx="Sign",
    sparse=True,
    foreach=True,
)
def sign(input: Tensor) -> Tensor:
    """-1, 0 or 1 by the sign of each element (0 for nan)."""
    if input.dtype.category == dt.COMPLEX:
        raise NotImplementedError(
            "Unlike NumPy, torch.sign is not intended to support complex numbers. Please use "
            "torch.sgn instead."
        )
    return _sign(input)


def _sgn_gradient(g: Tensor, y: Tensor, input: Tensor) -> Tensor:
    """Only a turn changes the direction: the part of `g` along it is taken away."""
    if not is_complex(input):
        return zeros_of(g._meta)
    size = abs(input)
    along = (g * conj_of(y)).real
    return choose(size == 0, 0.0, (g - along * y) / size)


@pointwise(out="exact", vjp={"input": _sgn_gradient}, method=True, inplace=True, sparse=True)
def sgn(input: Tensor) -> Tensor:
    """The direction of each element: x / |x|, or 0 at zero."""
    if input.dtype.category != dt.COMPLEX:
        return _sign(input)
    size = s.abs(input)
    return s.where(size == 0, 0.0, input / size)


@_stepped(
    numbers="rest",
    promote="float",
    vjp={
        "input": lambda g, input, y: choose(input == 0, 0.0, g * (y / input)),
        "other": flat,
    },
    oracle=np.copysign,
    exact=True,
)
def copysign(input: Tensor, other: Tensor) -> Tensor:
    """The size of `input` with the sign of `other`."""
    refuse(input, "copysign_cpu", dt.COMPLEX)
    return s.copysign(input, other)


@pointwise(internal=True, numbers="none", out="exact", vjp={}, oracle=np.heaviside)
def heaviside_op(input: Tensor, values: Tensor) -> Tensor:
    """0 below zero, 1 above, `values` at zero."""
    return s.where(input == 0, values, s.cast(input > 0, input.dtype))


@front(method=True, inplace=True)
def heaviside(input: Tensor, values: Tensor, *, out: Any = None) -> Tensor:
    """0 below zero, 1 above, `values` at zero."""
    need_tensors("heaviside", input=input, values=values)
    if is_complex(input) or is_complex(values):
        raise RuntimeError("heaviside is not yet implemented for complex tensors.")
    if input.dtype is not values.dtype:
        raise RuntimeError("heaviside is not yet implemented for tensors with different dtypes.")
    return heaviside_op(input, values, out=out)


@pointwise(
    internal=True,
    out="exact",
    vjp={"input": lambda g, input: g * input.isfinite()},
    oracle=lambda input, nan, posinf, neginf: np.nan_to_num(
        input, nan=nan, posinf=posinf, neginf=neginf
    ),
    cost="light",
)
def nan_to_num_op(input: Tensor, nan: float, posinf: float, neginf: float) -> Tensor:
    """Numbers in place of nan and the infinities."""
    if is_integral(input.dtype):
        return input
    if input.dtype.category == dt.COMPLEX:
        re, im = (_finite(part, nan, posinf, neginf) for part in (s.real(input), s.imag(input)))
        return s.complex(re, im)
    return _finite(input, nan, posinf, neginf)


def _finite(x: Any, nan: float, posinf: float, neginf: float) -> Any:
    x = s.where(s.is_nan(x), nan, x)
    return s.where(x == -math.inf, neginf, s.where(x == math.inf, posinf, x))


@front(method=True, inplace=True, sparse=True)
def nan_to_num(
    input: Tensor,
    nan: float | None = None,
    posinf: float | None = None,
    neginf: float | None = None,
    *,
    out: Any = None,
) -> Tensor:
    """Numbers in place of nan and the infinities (by default 0 and the largest of the type).

    >>> import lucerne as torch
    >>> torch.nan_to_num(torch.tensor([float("inf")], dtype=torch.float16))
    tensor([65504.], dtype=torch.float16)
    """
    # The largest of the type that is stored: a kernel computes half types in float32
    largest = 0.0 if is_integral(input.dtype) else finfo(input.dtype).max
    return nan_to_num_op(
        input,
        0.0 if nan is None else nan,
        largest if posinf is None else posinf,
        -largest if neginf is None else neginf,
        out=out,
    )


# ---- mantissa and exponent ----------------------------------------------------------------------


@pointwise(internal=True, vjp={"input": lambda g, exponent: g / 2.0**exponent}, out=False)
def frexp_mantissa(input: Tensor, exponent: Tensor) -> Tensor:
    """The fraction m in [0.5, 1) with `input = m * 2 ** exponent`."""
    return s.frexp_mantissa(input)


@pointwise(internal=True, promote="int32", vjp={}, out=False)
def frexp_exponent(input: Tensor) -> Tensor:
    """The power of two that `frexp` takes out."""
    if input.dtype.category != dt.FLOAT:
        raise RuntimeError("torch.frexp() only supports floating-point dtypes")
    return s.frexp_exponent(input)


_FREXP = named("frexp", "mantissa exponent")


@front(method=True)
def frexp(input: Tensor, *, out: Any = None) -> Any:
    """Mantissa in [0.5, 1) and exponent of two of each element."""
    exponent = frexp_exponent(input)
    mantissa = frexp_mantissa(input, exponent)
    if out is None:
        return _FREXP(mantissa, exponent)
    for target, found, part in zip(out, (mantissa, exponent), _FREXP._fields, strict=True):
        if target.dtype is not found.dtype:
            raise RuntimeError(
                f"torch.frexp() expects {part} to have dtype {found.dtype} but got {target.dtype}"
            )
    return _FREXP(copied(mantissa, out=out[0]), copied(exponent, out=out[1]))


@pointwise(
    internal=True, vjp={"input": lambda g: g}, linear=True, exact=True, cost="light", torch="clone"
)
def copied(input: Tensor) -> Tensor:
    """The values as they are: for writing a result into `out=`."""
    return input


def _before(g: Tensor, input: Tensor, other: Tensor) -> Tensor:
    """What `nextafter` passes back: nothing where it has arrived."""
    return choose(input == other, 0, g)


@pointwise(
    internal=True,
    numbers="none",
    vjp={"input": _before, "other": flat},
    oracle=np.nextafter,
)
def next_wide(input: Tensor, other: Tensor) -> Tensor:
    """`nextafter` of numbers that are computed in their own type."""
    refuse(input, "nextafter", dt.BOOL, dt.INTEGER, dt.COMPLEX)
    return s.nextafter(input, other)


@composite(internal=True, vjp={"input": _before, "other": flat})
def next_narrow(input: Tensor, other: Tensor) -> Tensor:
    """`nextafter` of 16-bit floats: their bits, read as integers, are in the order of size."""
    common = promote.result_type([input._meta, other._meta])
    start, goal = input.to(common), other.to(common)
    bits = start.view(dt.int16)
    away = (start < goal) == (start > 0)
    # the smallest number of the goal's sign: 1, or the integer whose bits are 1 and the sign
    least = choose(goal > 0, 1, -0x7FFF)
    found = choose(start == 0, least, bits + choose(away, 1, -1)).to(dt.int16).view(common)
    found = choose(start == goal, goal, found)
    return choose((start != start) | (goal != goal), start + goal, found)


@front(method=True, inplace=True)
def nextafter(input: Tensor, other: Tensor, *, out: Any = None) -> Tensor:
    """The next representable number after `input` towards `other`.

    >>> import lucerne as torch
    >>> one, two = torch.tensor([[1.0], [2.0]], dtype=torch.bfloat16)
    >>> torch.nextafter(one, two)
    tensor([1.0078], dtype=torch.bfloat16)
    """
    need_tensors("nextafter", input=input, other=other)
    common = promote.result_type([input._meta, other._meta])
    narrow = common.category == dt.FLOAT and common.compute is not common
    return (next_narrow if narrow else next_wide)(input, other, out=out)


_EXPONENTS = 4500
"""Powers of two beyond this are 0 or infinity whatever a float64 is multiplied by."""


@composite(method=True, inplace=True, oracle=np.ldexp)
def ldexp(input: Tensor, other: Tensor) -> Tensor:
    """`input * 2 ** other`: an exponent put back."""
    need_tensors("ldexp", input=input, other=other)
    if not (input.dtype.category == dt.FLOAT and other.dtype.category < dt.FLOAT):
        return input * 2.0**other
    refuse(other, "ldexp_cpu_exp", dt.BOOL)
    # 2.0**other may not fit where the product does: four steps in float64, then one rounding
    wide = input.to(dt.float64)
    near = other.to(dt.int64).clamp(-_EXPONENTS, _EXPONENTS)
    quarter = near.div(4, rounding_mode="trunc")
    step = 2.0 ** quarter.to(dt.float64)
    rest = 2.0 ** (near - 3 * quarter).to(dt.float64)
    return (wide * step * step * step * rest).to(input.dtype)
