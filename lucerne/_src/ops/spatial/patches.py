"""Windows as columns and back, and pixels traded for channels."""

from __future__ import annotations

import math
from typing import Any

from lucerne._src.base import layout as lo
from lucerne._src.base import shape as sh
from lucerne._src.ir.convert import IntList
from lucerne._src.ir.define import composite, front
from lucerne._src.ir.op import Tensor
from lucerne._src.ops.copy.join import stack
from lucerne._src.ops.spatial.padding import constant_pad_nd


def _pair(value: Any) -> sh.Shape:
    found = (value,) if isinstance(value, int) else tuple(int(v) for v in value)
    return found * 2 if len(found) == 1 else found


def _blocks(size: Any, kernel: Any, dilation: Any, padding: Any, stride: Any) -> sh.Shape:
    """How many windows fit along each dimension."""
    return tuple(
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, d, p, s in zip(size, kernel, dilation, padding, stride, strict=True)
    )


def _check_settings(kernel: Any, dilation: Any, padding: Any, stride: Any) -> None:
    for name, values in (("kernel size", kernel), ("stride", stride), ("dilation", dilation)):
        if min(values) <= 0:
            short = name.split()[0]
            raise RuntimeError(
                f"{name} should be greater than zero, but got {short}_height: {values[0]} "
                f"{short}_width: {values[1]}"
            )
    if min(padding) < 0:
        raise RuntimeError(
            f"padding should be non-negative, but got pad_height: {padding[0]} pad_width: "
            f"{padding[1]}"
        )


@composite(
    internal=True,
    name="im2col",
    out=False,
    vjp={
        "input": lambda g, input_meta, kernel, dilation, padding, stride: col2im(
            g, input_meta.shape[2:], kernel, dilation, padding, stride
        )
    },
    linear=True,
    torch="im2col",
)
def im2col(
    input: Tensor, kernel: IntList, dilation: IntList, padding: IntList, stride: IntList
) -> Tensor:
    """Each window of (N, C, H, W) as a column: (N, C * taps, windows)."""
    (p, q), (k, m) = padding, kernel
    x = constant_pad_nd(input, (q, q, p, p), 0) if p or q else input
    x = x.unfold(2, dilation[0] * (k - 1) + 1, stride[0]).unfold(
        3, dilation[1] * (m - 1) + 1, stride[1]
    )
    x = x[..., :: dilation[0], :: dilation[1]]
    n, c, a, b = x.shape[:4]
    return x.permute(0, 1, 4, 5, 2, 3).reshape(n, c * k * m, a * b)


@composite(
    internal=True,
    name="col2im",
    out=False,
    vjp={
        "input": lambda g, kernel, dilation, padding, stride: im2col(
            g, kernel, dilation, padding, stride
        )
    },
    linear=True,
    torch="col2im",
)
def col2im(
    input: Tensor,
    output_size: IntList,
    kernel: IntList,
    dilation: IntList,
    padding: IntList,
    stride: IntList,
) -> Tensor:
    """Columns (N, C * taps, windows) added up where they came from: (N, C, H, W)."""
    n, rows = input.shape[:2]
    blocks = _blocks(output_size, kernel, dilation, padding, stride)
    x = input.reshape(n, rows // math.prod(kernel), *kernel, *blocks)
    for d in range(2):  # (N, C, k, m, H, W), then (N, C, m, H, W): both times 3 without the taps
        x = _overlapped(x, 3, output_size[d], dilation[d], padding[d], stride[d])
    return x.clone(memory_format=lo.contiguous_format)  # a single tap may be a view of the input


def _overlapped(x: Tensor, dim: int, size: int, gap: int, pad: int, step: int) -> Tensor:
    """Taps of dimension 2 added up along `dim` (counted without dimension 2), which gets `size`.

    Tap i of window m belongs at `m * step + i * gap - pad`. Places with one remainder by `step` are
    made together: each tap is then a shifted stretch of windows.
    """
    windows, most = x.shape[dim + 1], -(-size // step)
    phases = []
    for first in range(step):
        total = None
        for i in range(x.shape[2]):
            shift, rest = divmod(first + pad - i * gap, step)
            low, high = max(0, -shift), min(most, windows - shift)
            if rest or high <= low:
                continue
            part = x.select(2, i).narrow(dim, low + shift, high - low)
            around = (0, 0) * (part.ndim - 1 - dim) + (low, most - high)
            part = constant_pad_nd(part, around, 0) if high - low < most else part
            total = part if total is None else total + part
        if total is None:
            shape = list(x.select(2, 0).shape)
            shape[dim] = most
            total = x.new_zeros(shape)
        phases.append(total)
    if step == 1:
        return phases[0]
    return stack(phases, dim + 1).flatten(dim, dim + 1).narrow(dim, 0, size)


@front(namespace="nn.functional", torch="im2col")
def unfold(
    input: Tensor, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
) -> Tensor:
    """Sliding windows of a batch of images, each as one column.

    >>> import lucerne as torch
    >>> torch.nn.functional.unfold(torch.arange(9.0).reshape(1, 1, 3, 3), 2).shape
    torch.Size([1, 4, 4])
    """
    kernel, gaps, pad, step = map(_pair, (kernel_size, dilation, padding, stride))
    _check_settings(kernel, gaps, pad, step)
    if input.ndim not in (3, 4) or 0 in tuple(input.shape[input.ndim - 3 :]):
        raise RuntimeError(
            "Expected 3D or 4D (batch mode) tensor with possibly 0 batch size and other non-zero "
            f"dimensions for input, but got: {list(input.shape)}"
        )
    blocks = _blocks(input.shape[-2:], kernel, gaps, pad, step)
    if min(blocks) < 1:
        raise RuntimeError(
            f"Given input with spatial size {_shown(input.shape[-2:])}, "
            f"kernel_size={_shown(kernel)}, "
            f"dilation={_shown(gaps)}, padding={_shown(pad)}, calculated shape of the array of "
            "sliding "
            f"blocks as {_shown(blocks)}, but its components must be at least one."
        )
    if input.ndim == 3:
        return im2col(input.unsqueeze(0), kernel, gaps, pad, step).squeeze(0)
    return im2col(input, kernel, gaps, pad, step)


def _shown(pair: Any) -> str:
    return f"({', '.join(map(str, pair))})"


@front(namespace="nn.functional", torch="col2im")
def fold(
    input: Tensor,
    output_size: Any,
    kernel_size: Any,
    dilation: Any = 1,
    padding: Any = 0,
    stride: Any = 1,
) -> Tensor:
    """Columns added up into images: the transpose of `unfold`.

    >>> import lucerne as torch
    >>> torch.nn.functional.fold(torch.ones(1, 4, 4), (3, 3), 2)[0, 0, 1]
    tensor([2., 4., 2.])
    """
    size, kernel, gaps, pad, step = map(
        _pair, (output_size, kernel_size, dilation, padding, stride)
    )
    _check_settings(kernel, gaps, pad, step)
    if input.ndim not in (2, 3) or 0 in tuple(input.shape[input.ndim - 2 :]):
        raise RuntimeError(
            "Expected 2D or 3D (batch mode) tensor for input with possibly 0 batch size and "
            "non-zero "
            f"dimensions for input, but got: {list(input.shape)}"
        )
    if input.shape[-2] % math.prod(kernel):
        raise RuntimeError(
            "Expected size of input's dimension 1 to be divisible by the product of kernel_size, "
            "but "
            f"got input.size(1)={input.shape[-2]} and kernel_size={_shown(kernel)}."
        )
    blocks = _blocks(size, kernel, gaps, pad, step)
    if min(blocks) < 1 or input.shape[-1] != math.prod(blocks):
        raise RuntimeError(
            f"Given output_size={_shown(size)}, kernel_size={_shown(kernel)}, "
            f"dilation={_shown(gaps)}, "
            f"padding={_shown(pad)}, stride={_shown(step)}, expected size of input's dimension 2 "
            "to "
            f"match the calculated number of sliding blocks {blocks[0]} * {blocks[1]} = "
            f"{math.prod(blocks)}, but got input.size(2)={input.shape[-1]}."
        )
    if input.ndim == 2:
        return col2im(input.unsqueeze(0), size, kernel, gaps, pad, step).squeeze(0)
    return col2im(input, size, kernel, gaps, pad, step)


# ---- pixels and channels ----------------------------------------------------------------------


@composite(namespace="nn.functional", out=False)
def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """(..., C * r * r, H, W) to (..., C, H * r, W * r).

    >>> import lucerne as torch
    >>> torch.nn.functional.pixel_shuffle(torch.arange(4.0).reshape(4, 1, 1), 2)
    tensor([[[0., 1.],
             [2., 3.]]])
    """
    r = upscale_factor
    if input.ndim < 3:
        raise RuntimeError(
            "pixel_shuffle expects input to have at least 3 dimensions, but got input with "
            f"{input.ndim} dimension(s)"
        )
    if r <= 0:
        raise RuntimeError(f"pixel_shuffle expects a positive upscale_factor, but got {r}")
    *batch, c, h, w = input.shape
    if c % (r * r):
        raise RuntimeError(
            "pixel_shuffle expects its input's 'channel' dimension to be divisible by the square "
            "of "
            f"upscale_factor, but input.size(-3)={c} is not divisible by {r * r}"
        )
    n = len(batch)
    parts = input.reshape(*batch, c // (r * r), r, r, h, w)
    order = (*range(n), n, n + 3, n + 1, n + 4, n + 2)
    return _fresh(parts.permute(order), (*batch, c // (r * r), h * r, w * r), input)


def _fresh(x: Tensor, shape: sh.Shape, input: Tensor) -> Tensor:
    """A copy under `shape`, never a view of the input, in the layout the input suggests."""
    layout = sh.suggested_format(input.shape, input.stride())
    return (
        x.clone(memory_format=lo.contiguous_format).reshape(shape).contiguous(memory_format=layout)
    )


@composite(namespace="nn.functional", out=False)
def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """(..., C, H * r, W * r) to (..., C * r * r, H, W)."""
    r = downscale_factor
    if input.ndim < 3:
        raise RuntimeError(
            "pixel_unshuffle expects input to have at least 3 dimensions, but got input with "
            f"{input.ndim} dimension(s)"
        )
    if r <= 0:
        raise RuntimeError(f"pixel_unshuffle expects a positive downscale_factor, but got {r}")
    *batch, c, h, w = input.shape
    for name, size in (("height", h), ("width", w)):
        if size % r:
            raise RuntimeError(
                f"pixel_unshuffle expects {name} to be divisible by downscale_factor, but "
                f"input.size({-2 if name == 'height' else -1})={size} is not divisible by {r}"
            )
    n = len(batch)
    parts = input.reshape(*batch, c, h // r, r, w // r, r)
    order = (*range(n), n, n + 2, n + 4, n + 1, n + 3)
    return _fresh(parts.permute(order), (*batch, c * r * r, h // r, w // r), input)


@composite(namespace="nn.functional", out=False)
def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """Channels dealt out: group by group becomes place by place."""
    if input.ndim < 3:
        raise RuntimeError(
            "channel_shuffle expects input with > 2 dims, but got input with sizes "
            f"{list(input.shape)}"
        )
    n, c, *rest = input.shape
    if groups <= 0:
        raise RuntimeError(
            f"Number of groups to divide channels in must be positive. Value of groups:{groups}"
        )
    if c % groups:
        raise RuntimeError(
            f"Number of channels must be divisible by groups. Got {c} channels and {groups} groups."
        )
    if input.numel() == 0:
        return input.clone()
    return _fresh(input.reshape(n, groups, c // groups, *rest).transpose(1, 2), input.shape, input)


for _fn in (pixel_shuffle, pixel_unshuffle, channel_shuffle):
    front()(_fn)  # torch has them at top level too
front(name="native_channel_shuffle", namespace="nn.functional")(channel_shuffle)
