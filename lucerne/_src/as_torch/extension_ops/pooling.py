"""Boxes of feature maps as small pictures: the mean or the largest value of each bin.

The mean of a bin is linear in the map, and its two directions are independent of each other: a bin
is a product of weights of lines, of weights of columns, and the map. The derivative is the same
product the other way round. The `ps_` operators read a channel of its own for each bin.

Two things are other than in torchvision, whose loops decide them by accident: a box without extent
gives 0 in `ps_roi_align` (there nan), and the derivative of `ps_roi_pool` is that of its forward
pass at the border of the map (there, bins that the forward pass cuts off have one as well).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from lucerne._src.tensor import api as lu

_CHUNK = 64
"""How many boxes are pooled at once: what lies between the two products grows with it."""

Weights = Callable[[Any, tuple[int, int], tuple[int, int]], tuple[Any, Any]]
"""Boxes, bins and size of the map: how much each line and each column adds to each bin."""


def _weights(start: Any, bins: Any, pooled: int, samples: Any, size: int) -> Any:
    """How much each of `size` lines adds to each of `pooled` bins: [boxes, pooled, size].

    A bin is the mean of sample points, each linear between its two lines; so the mean is linear,
    too.
    """
    most = max(1, int(samples.max()))
    p = lu.arange(pooled, dtype=start.dtype).view(1, -1, 1)
    s = lu.arange(most, dtype=start.dtype).view(1, 1, -1)
    count = samples.to(start.dtype).view(-1, 1, 1)
    at = start.view(-1, 1, 1) + (p + (s + 0.5) / count) * bins.view(-1, 1, 1)
    counts = (s < count) & (at >= -1.0) & (at <= size)
    at = at.clamp(0, size - 1)
    low = at.floor()
    high_part = at - low
    low = low.to(lu.int64)
    found = lu.zeros(len(start), pooled, size, dtype=start.dtype)
    each = counts.to(start.dtype) / count.clamp(min=1)
    found.scatter_add_(2, low, (1 - high_part) * each)
    found.scatter_add_(2, (low + 1).clamp(max=size - 1), high_part * each)
    return found


def _samples(
    rois: Any, pooled: tuple[int, int], size: tuple[int, int], *, scale: float, ratio: int,
    shift: float, least: float | None,
) -> tuple[Any, Any]:  # fmt: skip
    """The weights of sample points between the edges of boxes."""
    left, top, right, bottom = (rois[:, k] * scale - shift for k in range(1, 5))
    found = []
    for begin, end, p, n in ((top, bottom, pooled[0], size[0]), (left, right, pooled[1], size[1])):
        extent = end - begin if least is None else (end - begin).clamp(min=least)
        bins = extent / p
        samples = bins.new_full(bins.shape, ratio) if ratio > 0 else bins.ceil()
        found.append(_weights(begin, bins, p, samples, n))
    return found[0], found[1]


def _bounds(begin: Any, end: Any, pooled: int, most: int) -> tuple[Any, Any]:
    """The first line of each bin, and the one behind its last: [boxes, pooled]; whole numbers."""
    extent = (end - begin).clamp(min=1)
    bins = extent.view(-1, 1) / pooled
    p = lu.arange(pooled, dtype=bins.dtype).view(1, -1)
    first, last = (p * bins).floor(), ((p + 1) * bins).ceil()
    return tuple((x + begin.view(-1, 1)).clamp(0, most) for x in (first, last))


def _edges(rois: Any, scale: float) -> tuple[Any, ...]:
    """Left, top, right and bottom, to the nearest line; halves away from zero, as in C."""
    scaled = [rois[:, k] * scale for k in range(1, 5)]
    return tuple((x.abs() + 0.5).floor() * x.sign() for x in scaled)


def _lines(
    rois: Any, pooled: tuple[int, int], size: tuple[int, int], *, scale: float
) -> tuple[Any, Any]:
    """The weights of whole lines, each bin the mean of its own (the map's last line in none)."""
    left, top, right, bottom = _edges(rois, scale)
    found = []
    for begin, end, p, n in ((top, bottom, pooled[0], size[0]), (left, right, pooled[1], size[1])):
        first, last = _bounds(begin, end, p, n - 1)
        at = lu.arange(n, dtype=first.dtype).view(1, 1, -1)
        inside = (at >= first.unsqueeze(2)) & (at < last.unsqueeze(2))
        found.append(inside.to(first.dtype) / (last - first).clamp(min=1).unsqueeze(2))
    return found[0], found[1]


def _by_image(rois: Any) -> Iterator[tuple[Any, int]]:
    """The numbers of boxes of one picture, a chunk at a time, and its number."""
    images = rois[:, 0].to(lu.int64)
    for image in images.unique().tolist():
        boxes = (images == image).nonzero().flatten()
        for part in boxes.split(_CHUNK):
            yield part, image


def _means(input: Any, rois: Any, pooled: tuple[int, int], weights: Weights, placed: bool) -> Any:
    """The mean of each bin; `placed`: of its own channel."""
    number, channels, *size = input.shape
    if placed:
        if channels % (pooled[0] * pooled[1]):
            raise RuntimeError(
                "input channels must be a multiple of pooling height * pooling width: got "
                f"{channels} for {pooled[0]} * {pooled[1]}"
            )
        channels //= pooled[0] * pooled[1]
        input = input.reshape(number, channels, *pooled, *size)
    maps = "cpqyx" if placed else "cyx"
    found = input.new_zeros((len(rois), channels, *pooled))
    for boxes, image in _by_image(rois):
        down, across = weights(rois[boxes], pooled, (size[0], size[1]))
        found[boxes] = lu.einsum(f"kpy,{maps},kqx->kcpq", down, input[image], across)
    return found


def _means_backward(
    grad: Any, rois: Any, pooled: tuple[int, int], shape: tuple[int, ...], weights: Weights,
    placed: bool,
) -> Any:  # fmt: skip
    """The derivative of `_means` towards its input: the same weights, the other way."""
    size = shape[2], shape[3]
    spread = (shape[0], grad.shape[1], *pooled, *size) if placed else shape
    maps = "cpqyx" if placed else "cyx"
    found = grad.new_zeros(spread)
    for boxes, image in _by_image(rois):
        down, across = weights(rois[boxes], pooled, size)
        found[image] += lu.einsum(f"kpy,kcpq,kqx->{maps}", down, grad[boxes], across)
    return found.reshape(shape)


# ---- the operators ----------------------------------------------------------------------------


def _aligned(scale: float, ratio: int, aligned: bool) -> Weights:
    shift, least = (0.5, None) if aligned else (0.0, 1.0)
    return functools.partial(_samples, scale=scale, ratio=ratio, shift=shift, least=least)


def roi_align(
    input: Any, rois: Any, spatial_scale: float, pooled_height: int, pooled_width: int,
    sampling_ratio: int, aligned: bool,
) -> Any:  # fmt: skip
    """The mean of sample points in each bin."""
    weights = _aligned(spatial_scale, sampling_ratio, aligned)
    return _means(input, rois, (pooled_height, pooled_width), weights, placed=False)


def roi_align_backward(
    grad: Any, rois: Any, spatial_scale: float, pooled_height: int, pooled_width: int,
    batch_size: int, channels: int, height: int, width: int, sampling_ratio: int, aligned: bool,
) -> Any:  # fmt: skip
    """The derivative of `roi_align` towards its input."""
    shape = (batch_size, channels, height, width)
    weights = _aligned(spatial_scale, sampling_ratio, aligned)
    return _means_backward(grad, rois, (pooled_height, pooled_width), shape, weights, placed=False)


def _channels(input: Any, found: Any) -> Any:
    """Which channel each bin was read from."""
    own = lu.arange(input.shape[1], dtype=lu.int32).view(1, *found.shape[1:])
    return own.expand(found.shape).contiguous()


def ps_roi_align(
    input: Any, rois: Any, spatial_scale: float, pooled_height: int, pooled_width: int,
    sampling_ratio: int,
) -> tuple[Any, Any]:  # fmt: skip
    """The mean of sample points in each bin, of its own channel; and which that is."""
    weights = _aligned(spatial_scale, sampling_ratio, aligned=True)
    found = _means(input, rois, (pooled_height, pooled_width), weights, placed=True)
    return found, _channels(input, found)


def ps_roi_align_backward(
    grad: Any, rois: Any, channel_mapping: Any, spatial_scale: float, pooled_height: int,
    pooled_width: int, sampling_ratio: int, batch_size: int, channels: int, height: int, width: int,
) -> Any:  # fmt: skip
    """The derivative of `ps_roi_align` towards its input (which channel, the place says)."""
    shape = (batch_size, channels, height, width)
    weights = _aligned(spatial_scale, sampling_ratio, aligned=True)
    return _means_backward(grad, rois, (pooled_height, pooled_width), shape, weights, placed=True)


def ps_roi_pool(
    input: Any, rois: Any, spatial_scale: float, pooled_height: int, pooled_width: int
) -> tuple[Any, Any]:
    """The mean of the places of each bin, of its own channel; and which that is."""
    weights = functools.partial(_lines, scale=spatial_scale)
    found = _means(input, rois, (pooled_height, pooled_width), weights, placed=True)
    return found, _channels(input, found)


def ps_roi_pool_backward(
    grad: Any, rois: Any, channel_mapping: Any, spatial_scale: float, pooled_height: int,
    pooled_width: int, batch_size: int, channels: int, height: int, width: int,
) -> Any:  # fmt: skip
    """The derivative of `ps_roi_pool` towards its input."""
    shape = (batch_size, channels, height, width)
    weights = functools.partial(_lines, scale=spatial_scale)
    return _means_backward(grad, rois, (pooled_height, pooled_width), shape, weights, placed=True)


def roi_pool(
    input: Any, rois: Any, spatial_scale: float, pooled_height: int, pooled_width: int
) -> tuple[Any, Any]:
    """The largest value of each bin, and where in the map it is; 0 and -1 where a bin is empty."""
    maps, images = input.detach().numpy(), rois[:, 0].to(lu.int64).tolist()
    height, width = maps.shape[2:]
    left, top, right, bottom = _edges(rois.detach(), spatial_scale)
    rows = _bounds(top, bottom + 1, pooled_height, height)
    columns = _bounds(left, right + 1, pooled_width, width)
    spans = [[x.to(lu.int64).tolist() for x in both] for both in (rows, columns)]
    values = np.zeros((len(images), maps.shape[1], pooled_height, pooled_width), maps.dtype)
    places = np.full(values.shape, -1, np.int32)
    for k, image in enumerate(images):
        down = [(p, y, z) for p, (y, z) in enumerate(_pairs(spans[0], k)) if z > y]
        across = [(q, x, z) for q, (x, z) in enumerate(_pairs(spans[1], k)) if z > x]
        for (p, y, below), (q, x, behind) in ((a, b) for a in down for b in across):
            part = maps[image, :, y:below, x:behind]
            best = part.reshape(len(part), -1).argmax(axis=1)
            line, column = np.divmod(best, behind - x)
            values[k, :, p, q] = part[np.arange(len(part)), line, column]
            places[k, :, p, q] = (y + line) * width + x + column
    return lu.from_numpy(values), lu.from_numpy(places)


def _pairs(spans: list[Any], box: int) -> Any:
    return zip(spans[0][box], spans[1][box], strict=True)


def roi_pool_backward(
    grad: Any, rois: Any, argmax: Any, spatial_scale: float, pooled_height: int, pooled_width: int,
    batch_size: int, channels: int, height: int, width: int,
) -> Any:  # fmt: skip
    """The derivative of `roi_pool` towards its input: to the places of the largest values."""
    images = rois[:, 0].to(lu.int64).view(-1, 1, 1, 1)
    maps = images * channels + lu.arange(channels).view(1, -1, 1, 1)
    filled = argmax >= 0
    place = maps * (height * width) + argmax.to(lu.int64).clamp(min=0)
    found = grad.new_zeros(batch_size * channels * height * width)
    found.index_add_(0, place.flatten(), (grad * filled).flatten())
    return found.view(batch_size, channels, height, width)


KERNELS = {
    "roi_align": roi_align, "_roi_align_backward": roi_align_backward,
    "roi_pool": roi_pool, "_roi_pool_backward": roi_pool_backward,
    "ps_roi_align": ps_roi_align, "_ps_roi_align_backward": ps_roi_align_backward,
    "ps_roi_pool": ps_roi_pool, "_ps_roi_pool_backward": ps_roi_pool_backward,
}  # fmt: skip


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.shape = tuple(inputs[0].shape)
    ctx.options = inputs[2:]
    second = output[1:] if isinstance(output, tuple) else ()
    ctx.save_for_backward(inputs[1], *second)
    ctx.mark_non_differentiable(*second)


def _align_derivative(ctx: Any, grad: Any) -> tuple[Any, ...]:
    [rois] = ctx.saved_tensors
    scale, height, width, ratio, aligned = ctx.options
    given = (grad, rois, scale, height, width, *ctx.shape, ratio, aligned)
    found = roi_align_backward(*given)
    return (found, *[None] * 6)


def _derivative(kernel: Callable[..., Any], ctx: Any, grad: Any, _: Any) -> tuple[Any, ...]:
    rois, second = ctx.saved_tensors
    return (kernel(grad, rois, second, *ctx.options, *ctx.shape), *[None] * (len(ctx.options) + 1))


DERIVATIVES: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "roi_align": (_keep, _align_derivative),
    "roi_pool": (_keep, functools.partial(_derivative, roi_pool_backward)),
    "ps_roi_align": (_keep, functools.partial(_derivative, ps_roi_align_backward)),
    "ps_roi_pool": (_keep, functools.partial(_derivative, ps_roi_pool_backward)),
}
"""By operator: what its derivative keeps, and the derivative."""
