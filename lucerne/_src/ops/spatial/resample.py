"""Interpolation to another size."""

from __future__ import annotations

import math
from typing import Any

from lucerne._src.base import dtype as dt
from lucerne._src.base.process import notices
from lucerne._src.ir.define import front
from lucerne._src.ir.op import Tensor
from lucerne._src.ir.symbolic.numbers import to_float, to_int
from lucerne._src.ops.spatial.adaptive import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_avg_pool3d,
)
from lucerne._src.ops.spatial.taps import resample

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
        return None, [to_float(s) for s in given]
    if any(isinstance(v, float) for v in given):
        raise TypeError(
            "expected size to be one of int or Tuple[int] or Tuple[int, int] or Tuple[int, int, "
            f"int], but got size with types {[type(v) for v in given]}"
        )
    return [to_int(v) for v in given], None


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


@front(namespace="nn.functional", torch=None)
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
        sizes = [to_int(n * s) for n, s in zip(input.shape[2:], scales, strict=True)]
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


@front(namespace="nn.functional", torch=None)
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


@front(namespace="nn.functional", torch=None)
def upsample_nearest(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """`interpolate` with mode "nearest"."""
    _warn("upsample_nearest")
    return interpolate(input, size, scale_factor, mode="nearest")


@front(namespace="nn.functional", torch=None)
def upsample_bilinear(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """`interpolate` with mode "bilinear" and aligned corners."""
    _warn("upsample_bilinear")
    return interpolate(input, size, scale_factor, mode="bilinear", align_corners=True)
