"""Rounding to a grid of integers and back, with a gradient that passes through: for training models
that will be quantized."""

from __future__ import annotations

from typing import Any

import numpy as np

from lucerne._src.base import dtype as dt
from lucerne._src.ir.define import composite
from lucerne._src.ir.op import Tensor


def _codes(input: Tensor, scale: Any, zero_point: Any) -> Any:
    wide = input.to(dt.float32) if input.dtype in (dt.float16, dt.bfloat16) else input
    return (wide / scale).round() + zero_point


def _fake(input: Tensor, scale: Any, zero_point: Any, low: int, high: int) -> Tensor:
    if low > high:
        raise RuntimeError("`quant_min` should be less than or equal to `quant_max`.")
    if not input.is_floating_point():
        raise RuntimeError(
            f"fake_quantize: expected a tensor of floating point numbers, got {input.dtype}"
        )
    codes = _codes(input, scale, zero_point).clamp(low, high)
    return ((codes - zero_point) * scale).to(input.dtype)


def _inside(g: Tensor, codes: Any, low: int, high: int) -> Tensor:
    return g * ((codes >= low) & (codes <= high)).to(g.dtype)


@composite(
    out=False,
    vjp={
        "input": lambda g, input, scale, zero_point, quant_min, quant_max: _inside(
            g, _codes(input, scale, zero_point), quant_min, quant_max
        )
    },
    oracle=lambda input, scale, zero_point, low, high: (
        (np.clip(np.round(input / scale) + zero_point, low, high) - zero_point) * scale
    ).astype(input.dtype),
    samples=[((3, 4), 0.25, 2, -8, 7)],
)
def fake_quantize_per_tensor_affine(
    input: Tensor, scale: Tensor, zero_point: Tensor, quant_min: int, quant_max: int
) -> Tensor:
    """Each element rounded to the nearest multiple of `scale` that has a code.

    >>> import lucerne
    >>> lucerne.fake_quantize_per_tensor_affine(lucerne.tensor([0.12, 9.0]), 0.1, 0, -8, 7)
    tensor([0.1000, 0.7000])
    """
    return _fake(input, scale, zero_point, quant_min, quant_max)


def _along(t: Any, axis: int, ndim: int) -> Any:
    return t.reshape([-1 if d == axis % ndim else 1 for d in range(ndim)])


@composite(
    out=False,
    vjp={
        "input": lambda g, input, scale, zero_point, axis, quant_min, quant_max: _inside(
            g,
            _codes(input, *(_along(t, axis, input.ndim) for t in (scale, zero_point))),
            quant_min,
            quant_max,
        )
    },
)
def fake_quantize_per_channel_affine(
    input: Tensor, scale: Tensor, zero_point: Tensor, axis: int, quant_min: int, quant_max: int
) -> Tensor:
    """The same with a scale and a zero point for each place of a dimension."""
    if scale.ndim != 1 or zero_point.ndim != 1 or scale.shape != zero_point.shape:
        raise RuntimeError("scale and zero-point need to have the same dimensions")
    if scale.shape[0] != input.shape[axis]:
        raise RuntimeError(
            "dimensions of scale and zero-point are not consistent with input tensor"
        )
    spread = [_along(t, axis, input.ndim) for t in (scale, zero_point)]
    return _fake(input, spread[0], spread[1], quant_min, quant_max)
