"""Convolution that reads each tap from a place of its own, between the points of the map."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucerne import autograd
from lucerne._src.tensor import api as lu


def deform_conv2d(
    input: Any, weight: Any, offset: Any, mask: Any, bias: Any, stride_h: int, stride_w: int,
    pad_h: int, pad_w: int, dilation_h: int, dilation_w: int, groups: int, offset_groups: int,
    use_mask: bool,
) -> Any:  # fmt: skip
    """The convolution, as a product of its kernel and of what the taps read."""
    number, channels, height, width = input.shape
    out, _, tall, wide = weight.shape
    lines, columns = offset.shape[2:]
    moved = offset.reshape(number, offset_groups, tall * wide, 2, lines, columns)
    down = (lu.arange(tall) * dilation_h).repeat_interleave(wide).view(-1, 1, 1) - pad_h
    across = (lu.arange(wide) * dilation_w).repeat(tall).view(-1, 1, 1) - pad_w
    y = moved[:, :, :, 0] + (down + lu.arange(lines).view(-1, 1) * stride_h)
    x = moved[:, :, :, 1] + (across + lu.arange(columns) * stride_w)
    maps = input.reshape(number, offset_groups, channels // offset_groups, height * width)
    read = _between(maps, (height, width), y.flatten(2), x.flatten(2))
    if use_mask:
        read = read * mask.reshape(number, offset_groups, 1, -1)
    read = read.reshape(number, groups, -1, lines * columns)
    kernel = weight.reshape(groups, out // groups, -1)
    found = lu.einsum("gok,ngkl->ngol", kernel, read).reshape(number, out, lines, columns)
    return found + bias.view(1, -1, 1, 1)


def _between(maps: Any, size: tuple[int, int], y: Any, x: Any) -> Any:
    """What maps [n, g, c, places] hold at points [n, g, points]: linear in both directions; 0
    outside."""
    height, width = size
    top, left = y.detach().floor(), x.detach().floor()
    below, right = y - top, x - left
    top, left = top.to(lu.int64), left.to(lu.int64)
    found = 0
    for line, part_y in ((top, 1 - below), (top + 1, below)):
        for column, part_x in ((left, 1 - right), (left + 1, right)):
            there = (line >= 0) & (line < height) & (column >= 0) & (column < width)
            place = line.clamp(0, height - 1) * width + column.clamp(0, width - 1)
            index = place.unsqueeze(2).expand(-1, -1, maps.shape[2], -1)
            part = part_y * part_x * there
            found = found + maps.gather(3, index) * part.unsqueeze(2)
    return found


def deform_conv2d_backward(
    grad: Any, input: Any, weight: Any, offset: Any, mask: Any, bias: Any, *options: Any
) -> tuple[Any, ...]:
    """The derivatives towards the five tensors; a mask that is not used has zeros."""
    given = [x.detach().requires_grad_() for x in (input, weight, offset, mask, bias)]
    with lu.enable_grad():
        found = deform_conv2d(*given, *options)
    return tuple(autograd.grad(found, given, grad, allow_unused=True, materialize_grads=True))


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.save_for_backward(*inputs[:5])
    ctx.options = inputs[5:]


def _derivative(ctx: Any, grad: Any) -> tuple[Any, ...]:
    found = deform_conv2d_backward(grad, *ctx.saved_tensors, *ctx.options)
    return (*found, *[None] * len(ctx.options))


KERNELS = {"deform_conv2d": deform_conv2d, "_deform_conv2d_backward": deform_conv2d_backward}
DERIVATIVES: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "deform_conv2d": (_keep, _derivative),
}
"""By operator: what its derivative keeps, and the derivative."""
