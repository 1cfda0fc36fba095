"""Convolutions in one, two and three dimensions, and their transposes."""

from __future__ import annotations

from typing import Any

from lucerne._src.base import shape as sh
from lucerne._src.ir.define import front
from lucerne._src.ir.op import Tensor
from lucerne._src.ops.spatial.convolution import (
    bounded_stride,
    check_bias,
    check_fits,
    check_rank,
    check_settings,
    check_types,
    check_weight,
    conv,
    conv_input,
    to_list,
)
from lucerne._src.ops.spatial.padding import constant_pad_nd


@front()
def convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> Tensor:
    """Convolution or transposed convolution over any number of spatial dimensions."""
    if weight.ndim < 3:
        raise RuntimeError("weight should have at least three dimensions")
    n = weight.ndim - 2
    stride, padding = to_list(stride, n, "stride"), to_list(padding, n, "padding")
    dilation = to_list(dilation, n, "dilation")
    extra = to_list(output_padding, n, "output_padding")
    check_settings(stride, padding, dilation, extra, groups)
    check_weight(input, weight, groups, transposed)
    if transposed:
        return _transposed(input, weight, bias, stride, padding, dilation, extra, groups)
    check_bias(weight, bias, weight.shape[0], transposed)
    check_fits(input, weight, padding, dilation)
    check_types(input, weight, bias)
    stride = _bounded(input.shape[2:], weight.shape[2:], stride, padding, dilation)
    return conv(input, weight, bias, stride, padding, dilation, groups)


def _transposed(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: sh.Shape,
    padding: sh.Shape,
    dilation: sh.Shape,
    extra: sh.Shape,
    groups: int,
) -> Tensor:
    """The transposed convolution: the input's gradient of a convolution, used forwards."""
    channels = weight.shape[1] * groups
    check_bias(weight, bias, channels, True)
    check_types(input, weight, bias)
    if any(e >= s and e >= d for e, s, d in zip(extra, stride, dilation, strict=True)):
        raise RuntimeError(
            "output padding must be smaller than either stride or dilation, but got "
            f"output_padding: {list(extra)} stride: {list(stride)} dilation: {list(dilation)}"
        )
    size = tuple(
        (n - 1) * s - 2 * p + d * (k - 1) + e + 1
        for n, k, s, p, d, e in zip(
            input.shape[2:], weight.shape[2:], stride, padding, dilation, extra, strict=True
        )
    )
    if min(size) < 1:
        raise RuntimeError(
            f"Given input size per channel: ({' x '.join(map(str, input.shape[2:]))}). Calculated "
            f"output size per channel: ({' x '.join(map(str, size))}). Output size is too small"
        )
    if any(m == 1 for m in input.shape[2:]):  # one step only: its length doesn't matter
        whole = _bounded(size, weight.shape[2:], stride, padding, dilation)
        rows = zip(input.shape[2:], whole, stride, strict=True)
        stride = tuple(w if m == 1 else s for m, w, s in rows)
    return conv_input(input, weight, bias, size, stride, padding, dilation, groups)


def _bounded(sizes: Any, kernels: Any, *settings: sh.Shape) -> sh.Shape:
    rows = zip(sizes, kernels, *settings, strict=True)
    return tuple(bounded_stride(*row) for row in rows)


def _forward(
    n: int,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
) -> Tensor:
    """A convolution over `n` dimensions; `padding` may be "same" or "valid", batch optional."""
    batched = check_rank(input, n, f"conv{n}d")
    x = input if batched else input.unsqueeze(0)
    if weight.ndim < 3:
        raise RuntimeError("weight should have at least three dimensions")
    if isinstance(padding, str):
        x, padding = _named_padding(x, weight, n, stride, padding, dilation, groups)
    stride, padding = to_list(stride, n, "stride"), to_list(padding, n, "padding")
    result = convolution(
        x, weight, bias, stride, padding, to_list(dilation, n, "dilation"), False, 0, groups
    )
    return result if batched else result.squeeze(0)


def _named_padding(
    x: Tensor, weight: Tensor, n: int, stride: Any, padding: str, dilation: Any, groups: int
) -> tuple[Tensor, sh.Shape]:
    """Padding by name: the input (padded here where the sides differ) and what is left to pad."""
    if padding == "valid":
        return x, (0,) * n
    if padding != "same":
        raise RuntimeError(f"Invalid padding string: '{padding}'")
    check_settings((1,), (0,), (1,), (0,), groups)
    check_weight(x, weight, groups, False)
    steps, gaps = to_list(stride, n, "stride"), to_list(dilation, n, "dilation")
    if any(s != 1 for s in steps):
        raise RuntimeError("padding='same' is not supported for strided convolutions")
    total = [d * (k - 1) for k, d in zip(weight.shape[2:], gaps, strict=True)]
    if any(t % 2 for t in total):
        ends: list[int] = []
        for t in reversed(total):
            ends += [0, t % 2]
        x = constant_pad_nd(x, ends, 0)
    return x, tuple(t // 2 for t in total)


def _backward(
    n: int,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    output_padding: Any,
    groups: int,
    dilation: Any,
) -> Tensor:
    """A transposed convolution over `n` dimensions; the batch may be absent."""
    batched = check_rank(input, n, f"conv_transpose{n}d")
    x = input if batched else input.unsqueeze(0)
    settings = [
        to_list(v, n, name)
        for v, name in (
            (stride, "stride"),
            (padding, "padding"),
            (dilation, "dilation"),
            (output_padding, "output_padding"),
        )
    ]
    result = convolution(x, weight, bias, *settings[:3], True, settings[3], groups)
    return result if batched else result.squeeze(0)


@front(namespace="nn.functional", autocast="lower")
def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """Convolution of (N, C, ...) with (O, C/groups, ...) over one dimension."""
    return _forward(1, input, weight, bias, stride, padding, dilation, groups)


@front(namespace="nn.functional", autocast="lower")
def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """Convolution of (N, C, ...) with (O, C/groups, ...) over two dimensions.

    >>> import lucerne as torch
    >>> torch.conv2d(torch.ones(1, 2, 4, 4), torch.ones(3, 2, 3, 3), padding="same").shape
    torch.Size([1, 3, 4, 4])
    """
    return _forward(2, input, weight, bias, stride, padding, dilation, groups)


@front(namespace="nn.functional", autocast="lower")
def conv3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """Convolution of (N, C, ...) with (O, C/groups, ...) over three dimensions."""
    return _forward(3, input, weight, bias, stride, padding, dilation, groups)


@front(namespace="nn.functional", autocast="lower")
def conv_transpose1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Tensor:
    """Transposed convolution of (N, C, ...) with (C, O/groups, ...) over one dimension."""
    return _backward(1, input, weight, bias, stride, padding, output_padding, groups, dilation)


@front(namespace="nn.functional", autocast="lower")
def conv_transpose2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Tensor:
    """Transposed convolution of (N, C, ...) with (C, O/groups, ...) over two dimensions.

    >>> import lucerne as torch
    >>> torch.conv_transpose2d(torch.ones(1, 2, 4, 4), torch.ones(2, 3, 2, 2), stride=2).shape
    torch.Size([1, 3, 8, 8])
    """
    return _backward(2, input, weight, bias, stride, padding, output_padding, groups, dilation)


@front(namespace="nn.functional", autocast="lower")
def conv_transpose3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Tensor:
    """Transposed convolution of (N, C, ...) with (C, O/groups, ...) over three dimensions."""
    return _backward(3, input, weight, bias, stride, padding, output_padding, groups, dilation)


@front(namespace="nn.functional")
def conv_tbc(input: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    """One-dimensional convolution of (time, batch, channels) with (kernel, in, out)."""
    if input.ndim != 3:
        raise RuntimeError("Input must have 3 dims: time, batch, in_channel")
    if weight.ndim != 3:
        raise RuntimeError(
            "Weight tensor must have 3 dims: kernel_width, in_channels, out_channels."
        )
    if bias.ndim != 1:
        raise RuntimeError("Bias must be 1-D")
    result = conv1d(input.permute(1, 2, 0), weight.permute(2, 1, 0), bias, padding=pad)
    return result.permute(2, 0, 1).contiguous()


for _fn in (conv1d, conv2d, conv3d, conv_transpose1d, conv_transpose2d, conv_transpose3d, conv_tbc):
    front()(_fn)  # torch has them at top level too
