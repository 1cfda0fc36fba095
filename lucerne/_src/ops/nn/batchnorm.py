"""Normalisation over a batch: batch norm and instance norm, with running statistics."""

from __future__ import annotations

import math
from typing import Any

from lucerne._src.base import dtype as dt
from lucerne._src.base import layout as lo
from lucerne._src.base import shape as sh
from lucerne._src.ir.define import composite, front, pointwise
from lucerne._src.ir.dispatch import InPlace
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.ir.op import Scalar, Tensor, TensorList
from lucerne._src.ops.nn.normalization import (
    check_batch_size,
    check_float,
    check_same_type,
    narrowed,
    scaled,
    standardize,
    widened,
)


def _check_channels(channels: int, **given: Tensor | None) -> None:
    for name, t in given.items():
        if t is not None and t.numel() != channels:
            raise RuntimeError(f"{name} should contain {channels} elements not {t.numel()}")


def _check(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
) -> None:
    if not training:
        for name, t in (("running_mean", running_mean), ("running_var", running_var)):
            if t is None:
                raise RuntimeError(f"{name} must be defined in evaluation mode")
    channels = input.shape[1] if input.ndim > 1 else 0
    _check_channels(
        channels, running_mean=running_mean, running_var=running_var, weight=weight, bias=bias
    )
    check_float(input, "batch_norm")
    check_same_type(input, weight, bias, running_mean, running_var)


@pointwise(internal=True, vjp=None, oracle=lambda old, now, m, k: m * (now * k) + (1 - m) * old)
def running_average(running: Tensor, now: Tensor, momentum: Scalar, factor: Scalar) -> Tensor:
    """A running statistic, moved towards `now * factor`."""
    return momentum * (now * factor) + (1 - momentum) * running


def _update(running: Tensor | None, now: Tensor, momentum: float, factor: float = 1.0) -> None:
    """Move a running statistic towards this batch's (times a factor), in place."""
    if running is None:
        return
    if running.dtype is now.dtype:
        running_average(running, now.detach(), momentum, factor, out=InPlace(running))
    else:
        running.copy_(momentum * (now.detach() * factor) + (1 - momentum) * running)


def _by_channel(x: Tensor, stats: Tensor) -> Tensor:
    """One number a channel, shaped to go with `x`."""
    return stats.reshape(x.shape[1], *(1 for _ in x.shape[2:]))


def _channel_meta(input: TensorMeta, *rest: Any) -> tuple[TensorMeta, ...]:
    stats = input.like((input.shape[1],), dtype=input.dtype.compute)
    return input, stats, stats


def _channel_back_meta(
    g: TensorMeta, input: TensorMeta, weight: TensorMeta, *rest: Any
) -> tuple[TensorMeta, ...]:
    by_parameter = weight.like(tuple(weight.shape))
    return input, by_parameter, by_parameter


@composite(
    internal=True,
    out=False,
    meta=_channel_back_meta,
    images=(0, 1),
    torch="native_batch_norm_backward",
)
def channel_norm_backward(
    g: Tensor, input: Tensor, weight: Tensor, mean: Tensor, var: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of `channel_norm` for input, weight and bias.

    `mean` and `var` spare a kernel two walks over the input. The meaning doesn't need them, and
    without them second derivatives are those of the plain formula.
    """
    dims = (0, *range(2, input.ndim))
    g, x, w = widened(g), widened(input), _by_channel(input, widened(weight))
    unit, _, found = standardize(x, dims, eps)
    rstd = (found + eps).rsqrt()
    level, slope = (t.mean(dims, keepdim=True) for t in (g, g * unit))
    by_input = w * rstd * (g - level - unit * slope)
    by_weight, by_bias = (g * unit).sum(dims), g.sum(dims)
    return (
        narrowed(by_input, input.dtype),
        narrowed(by_weight, weight.dtype),
        narrowed(by_bias, weight.dtype),
    )


def _channel_back(
    g: Any, y1: Tensor, y2: Tensor, input: Tensor, weight: Tensor, bias: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    # The walk over both is the same only when both lie in memory in the same order.
    grad = g[0].contiguous(memory_format=_layout(input))
    return channel_norm_backward(grad, input, weight, y1, y2, eps)


@composite(
    internal=True,
    out=False,
    meta=_channel_meta,
    vjp={("input", "weight", "bias"): _channel_back},
    images=(0,),
    torch="native_batch_norm",
)
def channel_norm(
    input: Tensor, weight: Tensor, bias: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Batch norm by the batch's own statistics, all arguments checked and the input dense in
    its own memory order; also mean and variance of each channel, which take no gradient."""
    unit, mean, var = standardize(widened(input), (0, *range(2, input.ndim)), eps)
    by, plus = (_by_channel(input, widened(t)) for t in (weight, bias))
    result = narrowed(scaled(unit, by, plus), input.dtype)
    return result, mean.reshape(-1).detach(), var.reshape(-1).detach()


def _known_back(
    g: Tensor, input: Tensor, mean: Tensor, var: Tensor, weight: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of `known_norm` for input, weight and bias: the statistics are constants."""
    dims = (0, *range(2, input.ndim))
    g, x = widened(g), widened(input)
    scale = _by_channel(input, (widened(var) + eps).rsqrt())
    unit = (x - _by_channel(input, widened(mean))) * scale
    by_input = g * (scale * _by_channel(input, widened(weight)))
    return (
        narrowed(by_input, input.dtype),
        narrowed((g * unit).sum(dims), weight.dtype),
        narrowed(g.sum(dims), weight.dtype),
    )


@composite(
    internal=True,
    out=False,
    vjp={("input", "weight", "bias"): _known_back},
    fuse=True,
)
def known_norm(
    input: Tensor, mean: Tensor, var: Tensor, weight: Tensor, bias: Tensor, eps: float
) -> Tensor:
    """Batch norm by given statistics, all arguments checked."""
    scale = _by_channel(input, (widened(var) + eps).rsqrt())
    unit = (widened(input) - _by_channel(input, widened(mean))) * scale
    by, plus = (_by_channel(input, widened(t)) for t in (weight, bias))
    return narrowed(scaled(unit, by, plus), input.dtype)


def _normalized(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The result; when training also mean and variance, and running statistics move."""
    _check(input, weight, bias, running_mean, running_var, training)
    if input.ndim < 2:
        return input.clone(), input.new_empty((0,)), input.new_empty((0,))
    count = input.shape[0] * math.prod(input.shape[2:])
    if training and weight is None and bias is None and input.dtype.category == dt.FLOAT:
        weight, bias = input.new_ones(input.shape[1]), input.new_zeros(input.shape[1])
    if training and count and weight is not None and bias is not None:
        x = input.contiguous(memory_format=_layout(input))
        result, mean, var = channel_norm(x, weight, bias, eps)
        mean, var = mean.detach(), var.detach()
        _update(running_mean, mean, momentum)
        _update(running_var, var, momentum, count / max(count - 1, 1))
        return result, mean, var
    given: tuple[Any, ...] = (running_mean, running_var, weight, bias)
    complete = all(t is not None for t in given)
    if not training and complete and not any(t.requires_grad for t in given[:2]):
        dense = input.contiguous(memory_format=_layout(input))
        return known_norm(dense, *given, eps), None, None
    x = widened(input)
    x = x.contiguous(memory_format=_layout(x))
    tail = (x.shape[1], *(1 for _ in x.shape[2:]))
    by = None if weight is None else widened(weight).reshape(tail)
    plus = None if bias is None else widened(bias).reshape(tail)
    if not training:
        scale = (widened(running_var) + eps).rsqrt().reshape(tail)
        unit = (x - widened(running_mean).reshape(tail)) * scale
        return narrowed(scaled(unit, by, plus), input.dtype), None, None
    unit, mean, var = standardize(x, (0, *range(2, x.ndim)), eps)
    mean, var = mean.reshape(-1), var.reshape(-1)
    if count:
        _update(running_mean, mean, momentum)
        _update(running_var, var, momentum, count / max(count - 1, 1))
    return narrowed(scaled(unit, by, plus), input.dtype), mean, var


def _layout(x: Tensor) -> lo.memory_format:
    return sh.suggested_format(x.shape, x.stride())


@front(namespace="nn.functional")
def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Mean 0 and variance 1 for each channel, by this batch (training) or the running statistics.

    >>> import lucerne as torch
    >>> x = torch.tensor([[1.0], [3.0]])
    >>> torch.nn.functional.batch_norm(x, None, None, training=True)
    tensor([[-1.0000],
            [ 1.0000]])
    """
    if training:
        check_batch_size(input.shape)
    if training and eps <= 0.0:
        raise ValueError(f"batch_norm eps must be positive during training, but got {eps}")
    if eps < 0.0:
        raise ValueError(f"batch_norm eps must be non-negative, but got {eps}")
    return _normalized(input, weight, bias, running_mean, running_var, training, momentum, eps)[0]


@front(name="batch_norm")
def torch_batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Tensor:
    """Batch norm (see `nn.functional.batch_norm`)."""
    return _normalized(input, weight, bias, running_mean, running_var, training, momentum, eps)[0]


def _with_stats(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    result, mean, var = _normalized(
        input, weight, bias, running_mean, running_var, training, momentum, eps
    )
    first = next((t for t in (weight, bias, running_mean, running_var) if t is not None), input)
    if mean is None or var is None:
        return (
            result,
            input.new_empty((0,), dtype=first.dtype),
            input.new_empty((0,), dtype=first.dtype),
        )
    rstd = (var.detach() + eps).rsqrt()
    return result, narrowed(mean.detach(), first.dtype), narrowed(rstd, first.dtype)


@front()
def native_batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    *,
    out: Any = None,
) -> Any:
    """Batch norm, with the mean and reciprocal deviation of the batch (empty in evaluation)."""
    found = _with_stats(input, weight, bias, running_mean, running_var, training, momentum, eps)
    return all_into(found, out)


def all_into(found: tuple[Tensor, ...], out: Any) -> Any:
    """Results copied into the tensors of `out=`, when there are any."""
    return found if out is None else _all_into(found, out=out)


@composite(internal=True, out="exact")
def _all_into(tensors: TensorList) -> Any:
    """The tensors themselves: gives a front with several results its `out=`."""
    return tuple(tensors)


@front()
def _native_batch_norm_legit(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    *rest: Any,
    out: Any = None,
    **named: Any,
) -> Any:
    """Batch norm with statistics, with or without running ones."""
    names = ["running_mean", "running_var", "training", "momentum", "eps"]
    if (rest and isinstance(rest[0], bool)) or (not rest and "running_mean" not in named):
        names = names[2:]
    given = {
        "running_mean": None,
        "running_var": None,
        **dict(zip(names, rest, strict=False)),
        **named,
    }
    return all_into(_with_stats(input, weight, bias, **given), out)


@front(namespace="ops.aten")
def _batch_norm_with_update(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    momentum: float,
    eps: float,
    *,
    out: Any = None,
) -> Any:
    """Batch norm in training: result, mean, reciprocal deviation, and an empty workspace."""
    found = _with_stats(input, weight, bias, running_mean, running_var, True, momentum, eps)
    return all_into((*found, input.new_empty((0,), dtype=dt.uint8)), out)


@front(namespace="nn.functional")
def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Mean 0 and variance 1 for each channel of each sample on its own."""
    if use_input_stats:
        if math.prod(input.shape[2:]) == 1:
            raise ValueError(
                f"Expected more than 1 spatial element when training, got input size {input.shape}"
            )
    elif running_mean is None or running_var is None:
        raise RuntimeError(
            "Expected running_mean and running_var to be defined when use_input_stats is false"
        )
    n, c, *rest = input.shape

    def tiled(t: Any) -> Any:
        return None if t is None else t.repeat(n)

    mean, var = tiled(running_mean), tiled(running_var)
    flat = input.contiguous().reshape(1, n * c, *rest)
    result, *_ = _normalized(
        flat, tiled(weight), tiled(bias), mean, var, use_input_stats, momentum, eps
    )
    for kept, each in ((running_mean, mean), (running_var, var)):
        if use_input_stats and kept is not None:
            kept.copy_(each.reshape(n, c).mean(0))
    return result.reshape(input.shape)


@front(name="instance_norm")
def torch_instance_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Tensor:
    """Instance norm (see `nn.functional.instance_norm`)."""
    return instance_norm(
        input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps
    )
