"""Normalisation over features: layer, group and root-mean-square norm, and their common part."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lucerne._src.base import dtype as dt
from lucerne._src.base import shape as sh
from lucerne._src.ir.convert import IntList
from lucerne._src.ir.define import composite, front
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.ir.op import Tensor
from lucerne._src.ops.pointwise.select import choose
from lucerne._src.ops.spatial.padding import constant_pad_nd
from lucerne._src.ops.spatial.pool import avg_pool2d


def widened(x: Any) -> Any:
    """16-bit floats as float32, anything else as it is."""
    if x is None or x.dtype.compute is x.dtype:
        return x
    return x.to(x.dtype.compute)


def narrowed(x: Tensor, dtype: dt.dtype) -> Tensor:
    return x if x.dtype is dtype else x.to(dtype)


def _standardize_back(g: Any, y: Any, dims: sh.Shape, eps: float, needs: Any) -> Tensor:
    """The gradient through value, mean and variance; the last two folded in while still small."""
    unit, _, var = y
    count = math.prod(unit.shape[d] for d in dims)
    rstd = (var + eps).rsqrt()
    by_unit = g[0]
    by_mean, by_var = (tuple.__getitem__(g, i) for i in (1, 2))  # None: nobody asked
    level = by_unit.mean(dims, keepdim=True)
    if by_mean is not None:
        level = level - by_mean / (count * rstd)
    slope = (by_unit * unit).mean(dims, keepdim=True)
    if by_var is not None:
        slope = slope - 2 * by_var * (var + eps) / count
    return rstd * (by_unit - level - unit * slope)


@composite(
    internal=True,
    name="standardize",
    out=False,
    vjp={
        "input": lambda g, y, dims, eps, needs: _standardize_back(g, y, dims, eps, needs),
    },
    oracle=lambda input, dims, eps: (
        (input - input.mean(dims, keepdims=True)) / np.sqrt(input.var(dims, keepdims=True) + eps),
        input.mean(dims, keepdims=True),
        input.var(dims, keepdims=True),
    ),
    fuse=True,
)
def standardize(input: Tensor, dims: IntList, eps: float) -> Any:
    """`input` with mean 0 and variance 1 over `dims`; also the mean and variance it had."""
    mean = input.mean(dims, keepdim=True)
    centred = input - mean
    # The mean is rounded: the mean of what is left, which should be zero, tells by how much.
    # Only where numbers are nearer to each other than to zero that counts, and is looked at.
    var = (centred * centred).mean(dims, keepdim=True)
    near = var <= mean * mean * _NEAR
    slip = choose(near, centred, 0).mean(dims, keepdim=True)
    var, mean = (var - slip * slip).abs(), mean + slip
    return (input - mean) * (var + eps).rsqrt(), mean, var


_NEAR = 1 / 16


def scaled(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """`x * weight + bias`, leaving out what is None; never `x` itself, which backward may need."""
    if weight is None and bias is None:
        return x.clone()
    if weight is not None:
        x = x * weight
    return x if bias is None else x + bias


def check_same_type(input: Tensor, *others: Tensor | None) -> None:
    """Parameters have the input's dtype, or float32 beside a 16-bit input (all of them)."""
    kinds = {o.dtype for o in others if o is not None}
    if not kinds or kinds == {input.dtype}:
        return
    if input.dtype.compute is input.dtype or kinds - {input.dtype.compute, input.dtype}:
        raise RuntimeError("mixed dtype (CPU): all inputs must share same datatype.")
    if kinds != {input.dtype.compute}:
        raise RuntimeError("mixed dtype (CPU): expect parameter to have scalar type of Float")


def check_float(input: Tensor, kernel: str) -> None:
    if input.dtype.category < dt.FLOAT:
        raise NotImplementedError(f"\"{kernel}\" not implemented for '{dt.cxx_name(input.dtype)}'")


# ---- layer norm -------------------------------------------------------------------------------


def _normalized_dims(
    input: Tensor, shape: sh.Shape, weight: Tensor | None, bias: Tensor | None
) -> sh.Shape:
    """The trailing dimensions that `shape` names, checked."""
    if not shape:
        raise RuntimeError(
            "Expected normalized_shape to be at least 1-dimensional, i.e., containing at least one "
            "element, but got normalized_shape = []"
        )
    for name, given in (("weight", weight), ("bias", bias)):
        if given is not None and tuple(given.shape) != shape:
            raise RuntimeError(
                f"Expected {name} to be of same shape as normalized_shape, but got {name} of shape "
                f"{list(given.shape)} and normalized_shape = {list(shape)}"
            )
    if tuple(input.shape[-len(shape) :]) != shape or input.ndim < len(shape):
        wanted = ", ".join(("*", *map(str, shape)))
        raise RuntimeError(
            f"Given normalized_shape={list(shape)}, expected input with shape [{wanted}], but got "
            f"input of size{list(input.shape)}"
        )
    return tuple(range(input.ndim - len(shape), input.ndim))


def _back_meta(
    g: TensorMeta, input: TensorMeta, weight: TensorMeta, *rest: Any
) -> tuple[TensorMeta, ...]:
    return (
        input.like(tuple(input.shape)),
        weight.like(tuple(weight.shape)),
        weight.like(tuple(weight.shape)),
    )


@composite(internal=True, out=False, meta=_back_meta, torch="native_layer_norm_backward")
def layer_norm_backward(g: Tensor, input: Tensor, weight: Tensor, dims: IntList, eps: float) -> Any:
    """Gradients of `layer_norm_rows` for input, weight and bias."""
    g, x, w = widened(g), widened(input).contiguous(), widened(weight)
    centred = x - x.mean(dims, keepdim=True)
    rstd = ((centred * centred).mean(dims, keepdim=True) + eps).rsqrt()
    unit, arriving = centred * rstd, g * w
    level, slope = (t.mean(dims, keepdim=True) for t in (arriving, arriving * unit))
    found = rstd * (arriving - level - unit * slope)
    rows = tuple(range(input.ndim - len(dims)))
    by_weight, by_bias = (t.sum(rows) if rows else t for t in (g * unit, g.contiguous()))
    return (
        narrowed(found.contiguous(), input.dtype),
        narrowed(by_weight, weight.dtype),
        narrowed(by_bias, weight.dtype),
    )


def _layer_norm_back(g: Tensor, input: Tensor, weight: Tensor, dims: sh.Shape, eps: float) -> Any:
    return layer_norm_backward(g.contiguous(), input.contiguous(), weight, dims, eps)


@composite(
    internal=True,
    out=False,
    vjp={("input", "weight", "bias"): _layer_norm_back},
    fuse=True,
    torch="native_layer_norm",
)
def layer_norm_rows(
    input: Tensor, weight: Tensor, bias: Tensor | None, dims: IntList, eps: float
) -> Tensor:
    """Layer norm over the trailing `dims`, all arguments checked."""
    unit, _, _ = standardize(widened(input).contiguous(), dims, eps)
    return narrowed(scaled(unit, widened(weight), widened(bias)), input.dtype)


@composite(out=False, fuse=True)
def native_layer_norm(
    input: Tensor, normalized_shape: IntList, weight: Tensor | None, bias: Tensor | None, eps: float
) -> Any:
    """Layer norm, with the mean and reciprocal deviation it used."""
    dims = _normalized_dims(input, normalized_shape, weight, bias)
    check_float(input, "LayerNormKernelImpl")
    check_same_type(input, weight, bias)
    unit, mean, var = standardize(widened(input).contiguous(), dims, eps)
    result = narrowed(scaled(unit, widened(weight), widened(bias)), input.dtype)
    kind = input.dtype if weight is None else weight.dtype
    # The statistics are for inspection: torch's are not differentiable either.
    return result, narrowed(mean.detach(), kind), narrowed((var.detach() + eps).rsqrt(), kind)


@front(namespace="nn.functional")
def layer_norm(
    input: Tensor,
    normalized_shape: Any,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Mean 0 and variance 1 over the trailing dimensions, then `* weight + bias`.

    >>> import lucerne as torch
    >>> torch.nn.functional.layer_norm(torch.tensor([[1.0, 3.0]]), (2,))
    tensor([[-1.0000,  1.0000]])
    """
    if weight is None and bias is None and input.dtype.category == dt.FLOAT:
        weight = input.new_ones(normalized_shape)
    if weight is None or not input.numel():
        return native_layer_norm(input, normalized_shape, weight, bias, eps)[0]
    shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    dims = _normalized_dims(input, shape, weight, bias)
    check_float(input, "LayerNormKernelImpl")
    check_same_type(input, weight, bias)
    return layer_norm_rows(input, weight, bias, dims, eps)


@front(name="layer_norm")
def torch_layer_norm(
    input: Tensor,
    normalized_shape: Any,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Tensor:
    """Layer norm (see `nn.functional.layer_norm`)."""
    return layer_norm(input, normalized_shape, weight, bias, eps)


@composite(namespace="nn.functional", out=False, fuse=True)
def rms_norm(
    input: Tensor, normalized_shape: IntList, weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """Divide by the root of the mean square over the trailing dimensions, then `* weight`.

    >>> import lucerne as torch
    >>> torch.nn.functional.rms_norm(torch.tensor([3.0, -3.0]), (2,), eps=0.0)
    tensor([ 1., -1.])
    """
    dims = _normalized_dims(input, normalized_shape, weight, None)
    check_float(input, "rms_norm")
    x = widened(input.contiguous())  # as is the result, whatever the input
    small = float(np.finfo(x.dtype.to_real().storage).eps) if eps is None else eps
    result = x * ((x * x).mean(dims, keepdim=True) + small).rsqrt()
    if weight is not None:
        result = result * widened(weight)
    return narrowed(result, input.dtype)


front()(rms_norm)


# ---- group norm -------------------------------------------------------------------------------


@composite(internal=True, out=False, fuse=True)
def channel_sums(g: Tensor, input: Tensor, mean: Tensor) -> Any:
    """Sums over the last dimension of a gradient, and of it times the centred input."""
    return g.sum((-1,), keepdim=True), (g * (input - mean)).sum((-1,), keepdim=True)


@composite(internal=True, out=False, fuse=True)
def group_slope(
    g: Tensor, input: Tensor, mean: Tensor, rstd: Tensor, by: Tensor, level: Tensor, slope: Tensor
) -> Tensor:
    """The gradient of a standardised input, from the group's means `level` and `slope`."""
    return rstd * (g * by - level - (input - mean) * (rstd * slope))


def _group_rows_back(
    g: Any, y1: Tensor, y2: Tensor, input: Tensor, weight: Tensor, eps: float, needs: Any
) -> tuple[Any, Any, Any]:
    """Two walks over the planes: sums by channel, then the gradient made of them."""
    arriving, mean, rstd = g[0], y1, (y2 + eps).rsqrt()
    by_mean, by_var = (tuple.__getitem__(g, i) for i in (1, 2))  # None: nobody asked
    count = math.prod(input.shape[2:])
    total, cross = channel_sums(arriving, input, mean)
    cross = cross * rstd
    level, slope = ((t * weight).sum(2, keepdim=True) / count for t in (total, cross))
    if by_mean is not None:
        level = level - by_mean / (count * rstd)
    if by_var is not None:
        slope = slope - 2 * by_var * (y2 + eps) / count
    by_input = group_slope(arriving, input, mean, rstd, weight, level, slope)
    return by_input, cross.sum(0), total.sum(0)


@composite(internal=True, out=False, vjp={("input", "weight", "bias"): _group_rows_back}, fuse=True)
def group_norm_rows(input: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Any:
    """Group norm of (N, groups, channels of a group, plane), parameters (groups, channels, 1);
    also mean and variance of each group."""
    unit, mean, var = standardize(input, (2, 3), eps)
    return unit * weight + bias, mean, var


def _grouped(
    input: Tensor, num_groups: int, weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Group norm with mean and variance (N, groups, 1...)."""
    n, channels, *rest = input.shape
    x = widened(input)
    x = x.contiguous(memory_format=sh.suggested_format(x.shape, x.stride()))
    if weight is not None and bias is not None and x.numel() and x.is_contiguous():
        each = channels // num_groups
        parts = x.reshape(n, num_groups, each, math.prod(rest))
        by, plus = (widened(t).reshape(num_groups, each, 1) for t in (weight, bias))
        result, mean, var = group_norm_rows(parts, by, plus, eps)
        return result.reshape(input.shape), mean, var
    parts = x.reshape(n, num_groups, channels // num_groups, *rest)
    unit, mean, var = standardize(parts, tuple(range(2, parts.ndim)), eps)
    tail = (channels, *(1 for _ in rest))
    by = None if weight is None else widened(weight).reshape(tail)
    plus = None if bias is None else widened(bias).reshape(tail)
    return scaled(unit.reshape(n, channels, *rest), by, plus), mean, var


def _check_group(
    input: Tensor, num_groups: int, weight: Tensor | None, bias: Tensor | None
) -> None:
    if input.ndim < 2:
        raise RuntimeError(
            f"Expected at least 2 dimensions for input tensor but received {input.ndim}"
        )
    if num_groups <= 0:
        raise RuntimeError(f"Expected num groups to be greater than 0, got {num_groups}")
    if input.shape[1] % num_groups:
        raise RuntimeError(
            "Expected number of channels in input to be divisible by num_groups, but got input of "
            f"shape {list(input.shape)} and num_groups={num_groups}"
        )
    for name, given in (("weight", weight), ("bias", bias)):
        if given is not None and tuple(given.shape) != (input.shape[1],):
            raise RuntimeError(
                f"Expected {name} to be a vector of size equal to the number of channels in input, "
                f"but got {name} of shape {list(given.shape)} and input of shape "
                f"{list(input.shape)}"
            )


@composite(out=False)
def native_group_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    N: int,
    C: int,
    HxW: int,
    group: int,
    eps: float,
) -> Any:
    """Group norm, with the mean and reciprocal deviation it used."""
    check_same_type(input, weight, bias)
    x = input.reshape(N, C, HxW) if tuple(input.shape[:2]) != (N, C) else input
    _check_group(x, group, weight, bias)
    result, mean, var = _grouped(x, group, weight, bias, eps)
    kind = input.dtype if weight is None else weight.dtype
    stats = [narrowed(s.reshape(N, group), kind) for s in (mean, (var + eps).rsqrt())]
    return narrowed(result.reshape(input.shape), input.dtype), stats[0], stats[1]


@composite(namespace="nn.functional", out=False, grad_fn="NativeGroupNormBackward0")
def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Mean 0 and variance 1 within each group of channels of each sample, then `* weight + bias`.

    >>> import lucerne as torch
    >>> torch.nn.functional.group_norm(torch.tensor([[1.0, 3.0]]), 1)
    tensor([[-1.0000,  1.0000]])
    """
    if input.ndim < 2:
        raise RuntimeError(
            f"Expected at least 2 dimensions for input tensor but received {input.ndim}"
        )
    check_batch_size((input.shape[0] * input.shape[1] // num_groups, num_groups, *input.shape[2:]))
    _check_group(input, num_groups, weight, bias)
    check_float(input, "GroupNormKernelImpl")
    check_same_type(input, weight, bias)
    return narrowed(_grouped(input, num_groups, weight, bias, eps)[0], input.dtype)


@front(name="group_norm")
def torch_group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Tensor:
    """Group norm (see `nn.functional.group_norm`)."""
    return group_norm(input, num_groups, weight, bias, eps)


def check_batch_size(size: Any) -> None:
    if size[0] * math.prod(size[2:]) == 1:
        shown = size if isinstance(size, sh.Size) else list(size)
        raise ValueError(
            f"Expected more than 1 value per channel when training, got input size {shown}"
        )


@composite(namespace="nn.functional", out=False, torch=None)
def local_response_norm(
    input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Tensor:
    """Divide by a power of the mean square over neighbouring channels."""
    if input.ndim < 3:
        raise ValueError(
            "Expected 3D or higher dimensionality                         "
            f" input (got {input.ndim} dimensions)"
        )
    if input.numel() == 0:
        return input
    if size <= 0:
        raise RuntimeError(f"kernel size should be greater than zero, but got {size}")
    n, channels = input.shape[:2]
    rows = (input * input).reshape(n, 1, channels, -1)
    padded = constant_pad_nd(rows, (0, 0, size // 2, (size - 1) // 2), 0)
    mean = avg_pool2d(padded, (size, 1), stride=1)
    return input / (mean.reshape(input.shape) * alpha + k).pow(beta)
