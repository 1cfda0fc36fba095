"""Sampling an image at the points of a grid."""

from __future__ import annotations

import math
from typing import Any

from lucerne._src.base import dtype as dt
from lucerne._src.base import shape as sh
from lucerne._src.base.process import notices
from lucerne._src.ir.define import composite, front
from lucerne._src.ir.op import Tensor
from lucerne._src.ir.symbolic.numbers import to_float
from lucerne._src.ops.checks import need_dtype_of
from lucerne._src.ops.copy.cast import counted, filled
from lucerne._src.ops.copy.join import cat, stack
from lucerne._src.ops.pointwise.select import choose, where
from lucerne._src.ops.spatial.tap_sums import tap_gather
from lucerne._src.ops.spatial.taps import cubic_weights

_MODES = ("bilinear", "nearest", "bicubic")
_PADDINGS = ("zeros", "border", "reflection")


def _unnormalized(x: Tensor, size: int, align_corners: bool) -> Tensor:
    """From [-1, 1] to positions in pixels."""
    if align_corners:
        return (x + 1) / 2 * (size - 1)
    return ((x + 1) * size - 1) / 2


def _clipped(x: Tensor, size: int, flat: bool) -> Tensor:
    """Into the image; beyond and on its edge no gradient flows, as in torch. What is no number is
    at the near edge of an image and at the far edge of a volume."""
    inside = (x > 0) & (x < size - 1)
    beyond = x > 0 if flat else ~(x <= 0)
    return where(inside, x, where(beyond, to_float(size - 1), 0.0).to(x.dtype))


def _reflected(x: Tensor, twice_low: int, twice_high: int) -> Tensor:
    """Folded back at both edges until it is inside."""
    if twice_low == twice_high:
        return x * 0
    low, span = twice_low / 2, (twice_high - twice_low) / 2
    shifted = x - low
    shifted = where(shifted < 0, -shifted, shifted)
    flips = (shifted.detach() / span).floor()
    extra = shifted - flips * span
    odd = flips.remainder(2) == 1
    return where(odd, span - extra, extra) + low


def _padded(x: Tensor, size: int, padding: str, align_corners: bool, flat: bool) -> Tensor:
    """Positions outside the image brought where the padding mode says."""
    if padding == "border":
        return _clipped(x, size, flat)
    if padding == "reflection":
        edges = (0, 2 * (size - 1)) if align_corners else (-1, 2 * size - 1)
        return _clipped(_reflected(x, *edges), size, flat)
    return x


def _axis_taps(
    x: Tensor, size: int, mode: str, padding: str, align: bool, flat: bool
) -> tuple[list[Tensor], list[Tensor]]:
    """Whole positions (float) of the taps along one dimension, and their weights."""
    if mode == "bicubic":  # padding applies to each tap's own position
        low = x.detach().floor()
        places = [_padded(low + (k - 1), size, padding, align, flat) for k in range(4)]
        return places, cubic_weights(x - low, -0.75)
    x = _padded(x, size, padding, align, flat)
    if mode == "nearest":
        # The zero keeps the grid in the graph: its gradient is zero, not absent.
        return [x.detach().round()], [x * 0 + 1]
    low = x.detach().floor()
    return [low, low + 1], [low + 1 - x, x - low]


@composite(internal=True, out=False, fuse=True)
def linear_slope(g: Tensor, places: Tensor, steps: Tensor) -> Tensor:
    """The gradient of a position from those of the weights of its two taps."""
    return choose(places < 0, 0, choose(steps == 0, -g, g)).sum((1,), keepdim=True)


def _linear_taps_back(g: Any, y0: Tensor, steps: Tensor) -> Tensor:
    return linear_slope(g[1], y0, steps)


@composite(internal=True, out=False, vjp={"x": _linear_taps_back}, fuse=True)
def linear_taps(x: Tensor, steps: Tensor, last: Tensor, flat: bool) -> tuple[Tensor, Tensor]:
    """The two taps of positions (N, 1, P) along one dimension: whole places (N, 2, P), -1 outside
    the image, and weights, which are zero there (of an image, `flat`: or no number). `steps` is 0
    and 1 as a column, `last` the last place in the image."""
    low = x.floor()
    place = low + steps
    inside = (place >= 0) & (place <= last)
    weight = choose(steps == 0, low + 1 - x, x - low)
    none = weight * 0 if flat else 0.0
    return choose(inside, place, -1.0).to(dt.int64), choose(inside, weight, none)


def _crossed_back(g: Any, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    return g[1] * right, g[1] * left


@composite(internal=True, out=False, vjp={("left", "right"): _crossed_back}, fuse=True)
def crossed_taps(
    index: Tensor, places: Tensor, left: Tensor, right: Tensor, size: Tensor
) -> tuple[Tensor, Tensor]:
    """Taps of some dimensions (N, T, 1, P) and of the next one (N, 1, t, P), together."""
    outside = (index < 0) | (places < 0)
    # No tap has the weight 0 already; naming it here makes one loop of both results.
    weight = left * right
    return choose(outside, -1, index * size + places), choose(outside, weight * 0, weight)


def _linear(grid: Tensor, spatial: sh.Shape, padding: str, align: bool) -> tuple[Tensor, Tensor]:
    """`_taps` of the linear modes, in few kernels whose code does not depend on sizes."""
    n, points, flat = grid.shape[0], math.prod(grid.shape[1:-1]), len(spatial) == 2
    steps = counted(0, 1, 2, grid.dtype, grid.device).reshape(2, 1)
    index: Any = None
    for d, size in enumerate(spatial):
        x = grid.select(-1, len(spatial) - 1 - d).reshape(n, 1, points)
        x = _padded(_unnormalized(x, size, align), size, padding, align, flat)
        last = filled((), size - 1, x.dtype, x.device, None)
        places, weights = linear_taps(x, steps, last, flat)
        if index is None:
            index, weight = places, weights
            continue
        step = filled((), size, dt.int64, x.device, None)
        sides = (index.unsqueeze(2), places.unsqueeze(1), weight.unsqueeze(2), weights.unsqueeze(1))
        index, weight = crossed_taps(*sides, step)
        index, weight = (t.reshape(n, -1, points) for t in (index, weight))
    return index, weight


def _taps(
    grid: Tensor, spatial: sh.Shape, mode: str, padding: str, align: bool
) -> tuple[Tensor, Tensor]:
    """Flat places (N, T, P), -1 outside the image, and weights of the taps of each point."""
    if mode == "bilinear" and grid.numel():
        return _linear(grid, spatial, padding, align)
    n, points = grid.shape[0], math.prod(grid.shape[1:-1])
    index: Any = None
    for d, size in enumerate(spatial):
        x = grid.select(-1, len(spatial) - 1 - d).reshape(n, 1, points)
        x = _unnormalized(x, size, align)
        taps = _axis_taps(x, size, mode, padding, align, len(spatial) == 2)
        places, weights = (cat(parts, 1) for parts in taps)
        inside = (places >= 0) & (places <= size - 1)
        if mode == "nearest":  # else a tap outside counts as zero times its weight: a nan stays
            weights = weights.masked_fill(~inside, 0)
        places = places.where(inside, 0.0).to(dt.int64)
        if index is None:
            index, weight, valid = places, weights, inside
            continue
        whole = (n, index.shape[1] * places.shape[1], points)
        index = (index.unsqueeze(2) * size + places.unsqueeze(1)).reshape(whole)
        weight = (weight.unsqueeze(2) * weights.unsqueeze(1)).reshape(whole)
        valid = (valid.unsqueeze(2) & inside.unsqueeze(1)).reshape(whole)
    return index.masked_fill(~valid, -1), weight


@composite(
    internal=True,
    name="grid_sample_op",
    opmath=True,
    out=False,
    autocast="full",
    torch="grid_sampler_2d",
)
def sampled(input: Tensor, grid: Tensor, mode: str, padding: str, align_corners: bool) -> Tensor:
    """`input` (N, C, n...) at `grid` (N, m..., dims): coordinates from the last to the first."""
    spatial, shape = tuple(input.shape[2:]), tuple(grid.shape[1:-1])
    index, weight = _taps(grid, spatial, mode, padding, align_corners)
    planes = input.reshape(*input.shape[:2], math.prod(spatial)).contiguous()
    return tap_gather(planes, index, weight).reshape(*input.shape[:2], *shape)


def _check(input: Tensor, grid: Tensor, mode: int) -> None:
    if input.device != grid.device:
        raise RuntimeError(
            f"grid_sampler(): expected input and grid to be on same device, but input is on "
            f"{input.device} and grid is on {grid.device}"
        )
    if input.shape[0] != grid.shape[0]:
        raise RuntimeError(
            "grid_sampler(): expected grid and input to have same batch size, but got input with "
            f"sizes {list(input.shape)} and grid with sizes {list(grid.shape)}"
        )
    if input.ndim not in (4, 5) or input.ndim != grid.ndim:
        raise RuntimeError(
            "grid_sampler(): expected 4D or 5D input and grid with same number of dimensions, but "
            f"got input with sizes {list(input.shape)} and grid with sizes {list(grid.shape)}"
        )
    if grid.shape[-1] != input.ndim - 2:
        raise RuntimeError(
            f"grid_sampler(): expected grid to have size {input.ndim - 2} in last dimension, but "
            "got "
            f"grid with sizes {list(grid.shape)}"
        )
    if 0 in tuple(input.shape[2:]):
        d = 2 + tuple(input.shape[2:]).index(0)
        raise RuntimeError(
            "grid_sampler(): expected input to have non-empty spatial dimensions, but input has "
            "sizes "
            f"{list(input.shape)} with dimension {d} being empty"
        )
    if input.ndim == 5 and mode == 2:
        raise RuntimeError("grid_sampler(): bicubic interpolation only supports 4D input")


@front()
def grid_sampler(
    input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Tensor:
    """`grid_sample` with modes given as numbers."""
    _check(input, grid, interpolation_mode)
    need_dtype_of(input, grid)
    return sampled(input, grid, _MODES[interpolation_mode], _PADDINGS[padding_mode], align_corners)


@front()
def grid_sampler_2d(
    input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Tensor:
    """`grid_sampler` of images."""
    return grid_sampler(input, grid, interpolation_mode, padding_mode, align_corners)


@front()
def grid_sampler_3d(
    input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Tensor:
    """`grid_sampler` of volumes."""
    return grid_sampler(input, grid, interpolation_mode, padding_mode, align_corners)


def _corners(align_corners: bool | None) -> bool:
    if align_corners is None:
        notices.warn(
            "Default grid_sample and affine_grid behavior has changed to align_corners=False since "
            "1.3.0. Please specify align_corners=True if the old behavior is desired. See the "
            "documentation of grid_sample for details.",
            stacklevel=3,
        )
    return bool(align_corners)


@front(namespace="nn.functional", autocast="full", torch="grid_sampler")
def grid_sample(
    input: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Tensor:
    """Pixels of `input` (N, C, H, W) at the points of `grid` (N, h, w, 2), which lie in [-1, 1].

    >>> import lucerne as torch
    >>> x, centre = torch.arange(4.0).reshape(1, 1, 2, 2), torch.zeros(1, 1, 1, 2)
    >>> torch.nn.functional.grid_sample(x, centre, align_corners=False)
    tensor([[[[1.5000]]]])
    """
    if mode not in _MODES:
        raise ValueError(
            "nn.functional.grid_sample(): expected mode to be 'bilinear', 'nearest' or 'bicubic', "
            "but "
            f"got: '{mode}'"
        )
    if padding_mode not in _PADDINGS:
        raise ValueError(
            "nn.functional.grid_sample(): expected padding_mode to be 'zeros', 'border', or "
            f"'reflection', but got: '{padding_mode}'"
        )
    corners = _corners(align_corners)
    return grid_sampler(input, grid, _MODES.index(mode), _PADDINGS.index(padding_mode), corners)


def _ramp(theta: Tensor, steps: int, align_corners: bool) -> list[float]:
    """Positions of pixel centres (or corners) in [-1, 1]."""
    if steps <= 1:
        return [0.0] * steps
    shrink = 1.0 if align_corners else (steps - 1) / steps
    return [(-1 + 2 * i / (steps - 1)) * shrink for i in range(steps)]


@composite(out=False)
def affine_grid_generator(theta: Tensor, size: Any, align_corners: bool) -> Tensor:
    """The grid of `affine_grid`."""
    spatial = tuple(size[2:])
    axes = []
    for d, n in enumerate(spatial):
        shape = [1] * len(spatial)
        shape[d] = n
        ramp = theta.detach().new_tensor(_ramp(theta, n, align_corners))
        axes.append(ramp.reshape(shape).expand(spatial))
    ones = theta.detach().new_ones(spatial)
    base = stack([*reversed(axes), ones], -1).reshape(1, math.prod(spatial), -1)
    points = base.expand(size[0], -1, -1) @ theta.transpose(1, 2)
    return points.reshape(size[0], *spatial, len(spatial))


@front(namespace="nn.functional", torch=None)
def affine_grid(theta: Tensor, size: Any, align_corners: bool | None = None) -> Tensor:
    """The grid that samples an image moved by the affine maps `theta`.

    >>> import lucerne as torch
    >>> theta = torch.tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]])
    >>> torch.nn.functional.affine_grid(theta, [1, 1, 2, 2], align_corners=True).shape
    torch.Size([1, 2, 2, 2])
    """
    corners = _corners(align_corners)
    if not theta.is_floating_point():
        raise ValueError(f"Expected theta to have floating point type, but got {theta.dtype}")
    n = len(size) - 2
    if n not in (2, 3):
        raise NotImplementedError(
            "affine_grid only supports 4D and 5D sizes, for 2D and 3D affine transforms, "
            f"respectively. Got size {size}."
        )
    if theta.ndim != 3 or tuple(theta.shape[1:]) != (n, n + 1):
        raise ValueError(
            f"Expected a batch of {n}D affine matrices of shape Nx{n}x{n + 1} for size {size}. Got "
            f"{theta.shape}."
        )
    if corners and min(size[2:]) == 1:
        notices.warn(
            "Since version 1.3.0, affine_grid behavior has changed for unit-size grids when "
            "align_corners=True. This is not an intended use case of affine_grid. See the "
            "documentation of affine_grid for details.",
            stacklevel=2,
        )
    elif min(size) <= 0:
        raise ValueError(f"Expected non-zero, positive output size. Got {size}")
    return affine_grid_generator(theta, tuple(size), corners)
