"""Interpolation to another size: a weighted sum of a few taps, one dimension at a time."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from lucerne.base import dtype as dt
from lucerne.base import notices
from lucerne.base import shape as sh
from lucerne.ir.define import composite, front
from lucerne.ir.meta import TensorMeta, make_meta
from lucerne.ir.op import Tensor
from lucerne.ops.adaptive import adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d

Array = np.ndarray[Any, Any]
Taps = list[tuple[Array, Array | None]]
"""For each tap the source index of every output position, and its weight (None: one)."""


def _step(size: int, out: int, align_corners: bool, scale: float | None, kind: Any) -> Any:
    """Source positions per output position, in the precision torch uses."""
    if align_corners:
        return kind(size - 1) / kind(out - 1) if out > 1 else kind(0)
    if scale is not None and scale > 0:
        return kind(1.0 / scale)
    return kind(size) / kind(out)


def _source(step: Any, out: int, align_corners: bool, kind: Any) -> Any:
    at = np.arange(out, dtype=kind)
    return step * at if align_corners else step * (at + kind(0.5)) - kind(0.5)


def nearest_taps(size: int, out: int, align: bool, scale: float | None, kind: Any) -> Taps:
    step = _step(size, out, False, scale, kind)
    index = np.floor((step * np.arange(out, dtype=kind)).astype(np.float32)).astype(np.int64)
    return [(np.minimum(index, size - 1), None)]


def nearest_exact_taps(size: int, out: int, align: bool, scale: float | None, kind: Any) -> Taps:
    step = _step(size, out, False, scale, kind)
    middle = step * (np.arange(out, dtype=kind) + kind(0.5))
    index = np.floor(middle.astype(np.float32)).astype(np.int64)
    return [(np.minimum(index, size - 1), None)]


def linear_taps(size: int, out: int, align: bool, scale: float | None, kind: Any) -> Taps:
    at = np.maximum(_source(_step(size, out, align, scale, kind), out, align, kind), 0)
    low = np.minimum(at.astype(np.int64), size - 1)
    high = low + (low < size - 1)
    weight = np.clip(at - low.astype(kind), 0, 1)
    return [(low, 1 - weight), (high, weight)]


def cubic_weights(t: Array, a: float) -> list[Array]:
    """Keys' cubic convolution at distances 1 + t, t, 1 - t, 2 - t."""

    def near(x: Array) -> Array:
        return ((a + 2) * x - (a + 3)) * x * x + 1

    def far(x: Array) -> Array:
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a

    return [far(t + 1), near(t), near(1 - t), far(2 - t)]


def cubic_taps(size: int, out: int, align: bool, scale: float | None, kind: Any) -> Taps:
    at = _source(_step(size, out, align, scale, kind), out, align, kind)
    low = np.floor(at).astype(np.int64)
    weights = cubic_weights(at - low.astype(kind), -0.75)
    return [(np.clip(low + i - 1, 0, size - 1), w.astype(kind)) for i, w in enumerate(weights)]


# ---- antialiased: the filter is widened when shrinking ------------------------------------------


def _triangle(x: Array) -> Any:
    return np.maximum(1 - np.abs(x), 0)


def _cubic(x: Array) -> Array:
    x, a = np.abs(x), -0.5
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = (((x - 5) * x + 8) * x - 4) * a
    return np.where(x < 1, near, np.where(x < 2, far, 0))


def _lanczos(x: Array) -> Array:
    return np.where(np.abs(x) < 3, np.sinc(x) * np.sinc(x / 3), 0)


def _antialiased(window: Callable[[Array], Array], width: int) -> Any:
    def taps(size: int, out: int, align: bool, scale: float | None, kind: Any) -> Taps:
        step = _step(size, out, align, scale, kind)
        wide = step if step >= 1 else kind(1)
        support = kind(width * 0.5) * wide
        centre = step * (np.arange(out, dtype=kind) + kind(0.5))
        low = np.maximum((centre - support + kind(0.5)).astype(np.int64), 0)
        high = np.minimum((centre + support + kind(0.5)).astype(np.int64), size)
        count = max(int((high - low).max()), 1)
        at = low[None] + np.arange(count)[:, None]
        weights = window((at - centre + kind(0.5)) / wide).astype(kind)
        weights = np.where(at < high, weights, 0)
        total = weights.sum(0)
        weights = (weights / np.where(total == 0, 1, total)).astype(kind)
        return [(np.minimum(i, size - 1), w) for i, w in zip(at, weights, strict=True)]

    return taps


_MODES: dict[str, Any] = {
    "nearest": nearest_taps,
    "nearest-exact": nearest_exact_taps,
    "linear": linear_taps,
    "cubic": cubic_taps,
    "linear-aa": _antialiased(_triangle, 2),
    "cubic-aa": _antialiased(_cubic, 4),
    "lanczos-aa": _antialiased(_lanczos, 6),
}


def _along(x: Tensor, dim: int, taps: Taps) -> Tensor:
    """The weighted sum of taps along one dimension."""
    total = None
    for index, weight in taps:
        part = x.index_select(dim, x.new_tensor(index.tolist(), dtype=dt.int64))
        if weight is not None:
            tail = (1,) * (x.ndim - dim - 1)
            part = part * x.new_tensor(weight.tolist()).reshape(-1, *tail)
        total = part if total is None else total + part
    return total


def _along_back(g: Tensor, dim: int, taps: Taps, size: int) -> Tensor:
    """The transpose of `_along`: each output goes back to its taps, by their weights."""
    total = g.new_zeros((*g.shape[:dim], size, *g.shape[dim + 1 :]))
    for index, weight in taps:
        part = g
        if weight is not None:
            part = g * g.new_tensor(weight.tolist()).reshape(-1, *(1,) * (g.ndim - dim - 1))
        total = total.index_add(dim, g.new_tensor(index.tolist(), dtype=dt.int64), part)
    return total


def axis_taps(
    meta: TensorMeta, size: Any, mode: str, align_corners: bool, scales: Any
) -> list[Taps]:
    """The taps of each spatial dimension."""
    kind = np.float64 if meta.dtype is dt.float64 else np.float32
    return [
        _MODES[mode](n, out, align_corners, scale, kind)
        for n, out, scale in zip(meta.shape[2:], size, scales, strict=True)
    ]


def _resample_meta(
    input: TensorMeta, size: Any, mode: str, align_corners: bool, scales: Any
) -> TensorMeta:
    shape = (*input.shape[:2], *size)
    strides = sh.format_strides(shape, sh.suggested_format(input.shape, input.strides))
    return make_meta(input.dtype, shape, strides, input.device)


def _resample_vjp(
    g: Tensor, input_meta: TensorMeta, size: Any, mode: str, align_corners: bool, scales: Any
) -> Tensor:
    taps = axis_taps(input_meta, size, mode, align_corners, scales)
    x = g if mode.startswith("nearest") else _computing(g)
    for d in reversed(range(len(taps))):
        x = _along_back(x, 2 + d, taps[d], input_meta.shape[2 + d])
    return x.to(g.dtype)


@composite(
    internal=True,
    name="resample",
    out=False,
    meta=_resample_meta,
    vjp={
        "input": lambda g, input_meta, size, mode, align_corners, scales: _resample_vjp(
            g, input_meta, size, mode, align_corners, scales
        )
    },
)
def resample(input: Tensor, size: Any, mode: str, align_corners: bool, scales: Any) -> Tensor:
    """(N, C, n...) brought to `size` by a mode of the table above."""
    layout = sh.suggested_format(input.shape, input.stride())
    kept = mode.startswith("nearest")
    x = input if kept else _computing(input)
    for d, taps in enumerate(axis_taps(input._meta, size, mode, align_corners, scales)):
        x = _along(x, 2 + d, taps)
    if input.dtype.category < dt.FLOAT and not kept:
        x = x.round().clamp(0, 255)
    x = x if x.dtype is input.dtype else x.to(input.dtype)
    return x.contiguous(memory_format=layout)


def _computing(x: Tensor) -> Tensor:
    if x.dtype.category < dt.FLOAT:
        return x.to(dt.float32)
    return x if x.dtype.compute is x.dtype else x.to(x.dtype.compute)


# ---- the public function ----------------------------------------------------------------------

_FORMATS = ("output size in (o1, o2, ...,oK)", "scale_factor in (s1, s2, ...,sK)")
_SPATIAL = {"linear": 1, "bilinear": 2, "trilinear": 3, "bicubic": 2, "lanczos": 2}


def _wanted_size(input: Tensor, size: Any, scale_factor: Any) -> tuple[Any, Any]:
    """Sizes and scale factors as lists; exactly one of them is not None."""
    n = input.ndim - 2
    if size is not None and scale_factor is not None:
        raise ValueError("only one of size or scale_factor should be defined")
    if size is None and scale_factor is None:
        raise ValueError("either size or scale_factor should be defined")
    given = size if size is not None else scale_factor
    if not isinstance(given, (list, tuple)):
        given = [given] * n
    elif len(given) != n:
        what = "output size of" if size is not None else "scale_factor of shape"
        who = "output" if size is not None else "scale_factor"
        raise ValueError(
            f"Input and {who} must have the same number of spatial dimensions, but got input with "
            f"spatial dimensions of {list(input.shape[2:])} and {what} {given}. Please provide "
            "input "
            "tensor in (N, C, d1, d2, ...,dK) format and "
            ""
            f"{_FORMATS[size is None]}"
            " format."
        )
    if size is None:
        return None, [float(s) for s in given]
    if any(isinstance(v, float) for v in given):
        raise TypeError(
            "expected size to be one of int or Tuple[int] or Tuple[int, int] or Tuple[int, int, "
            f"int], but got size with types {[type(v) for v in given]}"
        )
    return [int(v) for v in given], None


def _check_mode(input: Tensor, mode: str, antialias: bool) -> None:
    if antialias and not (mode in ("bilinear", "bicubic", "lanczos") and input.ndim == 4):
        raise ValueError(
            "Anti-alias option is restricted to bilinear, bicubic, and lanczos modes and requires "
            "a "
            "4-D tensor as input"
        )
    known = mode in ("nearest", "nearest-exact", "area") or mode in _SPATIAL
    if (
        not known
        or input.ndim not in (3, 4, 5)
        or (mode in ("bicubic", "lanczos") and input.ndim != 4)
    ):
        raise NotImplementedError(
            f"Input Error: Only 3D, 4D and 5D input Tensors supported (got {input.ndim}D) for the "
            "modes: nearest | linear | bilinear | bicubic | trilinear | lanczos | area | "
            f"nearest-exact (got {mode})"
        )
    if mode in _SPATIAL and input.ndim != _SPATIAL[mode] + 2:
        raise NotImplementedError(
            f"Got {input.ndim}D input, but {mode} mode needs {_SPATIAL[mode] + 2}D input"
        )


def check_sizes(input: Tensor, size: Any) -> None:
    if min(size) <= 0 or 0 in tuple(input.shape[2:]):
        shown = [f"({', '.join(map(str, s))})" for s in (input.shape[2:], size)]
        raise RuntimeError(
            "Input and output sizes should be greater than 0, but got input "
            f"{shown[0]} output {shown[1]}"
        )
    if 0 in tuple(input.shape[1:]):
        raise RuntimeError(
            f"Non-empty {input.ndim}D data tensor expected but got a tensor with sizes "
            f"{list(input.shape)}"
        )


@front(namespace="nn.functional")
def interpolate(
    input: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """Resize (N, C, ...) to `size`, or by `scale_factor`.

    >>> import lucerne as torch
    >>> x = torch.tensor([[[0.0, 2.0]]])
    >>> torch.nn.functional.interpolate(x, size=3, mode="linear", align_corners=True)
    tensor([[[0., 1., 2.]]])
    """
    if mode in ("nearest", "area", "nearest-exact") and align_corners is not None:
        raise ValueError(
            "align_corners option can only be set with the interpolating modes: linear | bilinear "
            "| "
            "bicubic | trilinear"
        )
    sizes, scales = _wanted_size(input, size, scale_factor)
    if recompute_scale_factor and size is not None:
        raise ValueError("recompute_scale_factor is not meaningful with an explicit size.")
    if sizes is None:
        sizes = [int(n * s) for n, s in zip(input.shape[2:], scales, strict=True)]
        scales = None if recompute_scale_factor or mode == "area" else scales
    _check_mode(input, mode, antialias)
    if mode == "area":
        return (adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d)[input.ndim - 3](
            input, sizes
        )
    check_sizes(input, sizes)
    _check_type(input, mode)
    kernel = _kernel_of(mode, align_corners, antialias)
    factors = tuple(scales) if scales is not None else (None,) * len(sizes)
    return resample(input, tuple(sizes), kernel, bool(align_corners), factors)


def _check_type(input: Tensor, mode: str) -> None:
    flat = mode.startswith("nearest") or mode in ("bilinear", "bicubic", "lanczos")
    if input.dtype.category < dt.FLOAT and not (flat and input.dtype is dt.uint8):
        kind = {"linear": "upsample_linear1d", "trilinear": "upsample_trilinear3d"}.get(
            mode, f"upsample_{mode}{input.ndim - 2}d"
        )
        raise NotImplementedError(f"\"{kind}\" not implemented for '{dt.cxx_name(input.dtype)}'")


def _kernel_of(mode: str, align_corners: bool | None, antialias: bool) -> str:
    """The entry of the table that a public mode means."""
    if mode == "lanczos":
        if align_corners:
            raise ValueError("Lanczos mode does not support align_corners=True")
        if not antialias:
            raise ValueError("Lanczos mode requires antialias=True")
        return "lanczos-aa"
    name = "cubic" if mode == "bicubic" else "linear" if mode in _SPATIAL else mode
    return f"{name}-aa" if antialias else name


@front(namespace="ops.aten")
def _upsample_bilinear2d_aa(
    input: Tensor,
    output_size: Any,
    align_corners: bool,
    scales_h: Any = None,
    scales_w: float | None = None,
    *,
    scale_factors: Any = None,
) -> Tensor:
    """Bilinear resizing with a filter that widens when shrinking."""
    scales = scale_factors or (
        scales_h if isinstance(scales_h, (list, tuple)) else (scales_h, scales_w)
    )
    sizes = output_size
    if sizes is None:
        sizes = [math.floor(n * s) for n, s in zip(input.shape[2:], scales, strict=True)]
    check_sizes(input, sizes)
    return resample(input, tuple(sizes), "linear-aa", align_corners, tuple(scales))


def _warn(name: str) -> None:
    notices.warn(
        f"`nn.functional.{name}` is deprecated. Use `nn.functional.interpolate` instead.",
        stacklevel=3,
    )


@front(namespace="nn.functional")
def upsample(
    input: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Tensor:
    """Old name of `interpolate`."""
    _warn("upsample")
    return interpolate(input, size, scale_factor, mode, align_corners)


@front(namespace="nn.functional")
def upsample_nearest(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """`interpolate` with mode "nearest"."""
    _warn("upsample_nearest")
    return interpolate(input, size, scale_factor, mode="nearest")


@front(namespace="nn.functional")
def upsample_bilinear(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """`interpolate` with mode "bilinear" and aligned corners."""
    _warn("upsample_bilinear")
    return interpolate(input, size, scale_factor, mode="bilinear", align_corners=True)
