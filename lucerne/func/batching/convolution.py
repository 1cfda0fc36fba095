"""Convolutions: a batch of images is more images, a batch of kernels more channels or groups."""

from __future__ import annotations

from typing import Any

from lucerne.func.batching.elementwise import fold, unfold
from lucerne.func.batching.level import Call, rule


def channels_first(value: Any) -> Any:
    """(B, N, C, ...) to (N, B*C, ...)."""
    moved = value.transpose(0, 1)
    return moved.reshape(moved.shape[0], moved.shape[1] * moved.shape[2], *moved.shape[3:])


def channels_back(value: Any, size: int) -> Any:
    """(N, B*C, ...) to (B, N, C, ...)."""
    split = value.reshape(value.shape[0], size, value.shape[1] // size, *value.shape[2:])
    return split.transpose(0, 1)


def _with_bias(result: Any, call: Call, at: int) -> Any:
    """A bias that could not be handed on is added: one number for each channel."""
    bias = call.values[at]
    if bias is None:
        return result
    spatial = (1,) * (result.ndim - 3)
    if call.batched[at]:
        return result + bias.reshape(call.size, 1, -1, *spatial)
    return result + bias.reshape(-1, *spatial)


@rule("conv")
def conv(call: Call) -> Any:
    image, weight, bias, stride, padding, dilation, groups = call.values
    rest = stride, padding, dilation
    many_images, many_weights, many_biases = call.batched[:3]
    if many_images and not many_weights:
        own = None if many_biases else bias
        found = unfold(call.run(fold(image), weight, own, *rest, groups), call.size)
        return _with_bias(found, call, 2) if many_biases else found
    if many_weights and many_images:
        found = call.run(channels_first(image), fold(weight), None, *rest, call.size * groups)
        return _with_bias(channels_back(found, call.size), call, 2)
    if many_weights:
        return _with_bias(_many_kernels(call, image, weight, rest, groups), call, 2)
    found = call.run(image, weight, None, *rest, groups)
    return _with_bias(call.level.full(found), call, 2)


def _many_kernels(call: Call, image: Any, weight: Any, rest: Any, groups: int) -> Any:
    """One image, many kernels: they are more channels of the result, in each group."""
    size, out = weight.shape[:2]
    per_group = out // groups
    split = weight.reshape(size, groups, per_group, *weight.shape[2:]).transpose(0, 1)
    found = call.run(image, split.reshape(size * out, *weight.shape[2:]), None, *rest, groups)
    parts = found.reshape(found.shape[0], groups, size, per_group, *found.shape[2:])
    order = (2, 0, 1, *range(3, parts.ndim))
    return parts.permute(order).reshape(size, found.shape[0], out, *found.shape[2:])


@rule("conv_input")
def conv_input(call: Call) -> Any:
    value, weight, bias, size, stride, padding, dilation, groups = call.values
    rest = size, stride, padding, dilation
    if call.batched[0] and not call.batched[1]:
        own = None if call.batched[2] else bias
        found = unfold(call.run(fold(value), weight, own, *rest, groups), call.size)
        return _with_bias(found, call, 2) if call.batched[2] else found
    if not call.batched[1]:
        found = call.run(value, weight, None, *rest, groups)
        return _with_bias(call.level.full(found), call, 2)
    many = call.size * groups
    found = call.run(channels_first(call.full(0)), fold(weight), None, *rest, many)
    return _with_bias(channels_back(found, call.size), call, 2)


@rule("conv_weight")
def conv_weight(call: Call) -> Any:
    g, image, size, stride, padding, dilation, groups = call.values
    rest = size, stride, padding, dilation
    if groups == 1 and not call.batched[1]:  # more channels of the result
        return unfold(call.run(channels_first(g), image, *rest, 1), call.size)
    if groups == 1 and not call.batched[0]:  # more channels of the image
        found = call.run(g, channels_first(image), *rest, 1)
        split = found.reshape(found.shape[0], call.size, -1, *found.shape[2:])
        return split.transpose(0, 1)
    many = call.size * groups
    found = call.run(channels_first(call.full(0)), channels_first(call.full(1)), *rest, many)
    return unfold(found, call.size)
