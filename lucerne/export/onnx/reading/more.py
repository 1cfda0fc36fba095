"""Resizing, recurrent layers, quantized products, signals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lucerne import fft
from lucerne._src.base import dtype as dt
from lucerne._src.tensor import api as lu
from lucerne.export.onnx.errors import OnnxImportError
from lucerne.export.onnx.reading.layers import conv
from lucerne.export.onnx.reading.step import Step, tensor
from lucerne.export.onnx.reading.table import operator
from lucerne.export.onnx.types import DTYPES

# ---- Resize ----------------------------------------------------------------------------------


@operator("Resize", "Upsample", numbers=(1, 2, 3))
def resize(n: Step, x: Any, roi: Any = None, scales: Any = None, sizes: Any = None, *,
           mode: str = "nearest", coordinate_transformation_mode: str = "half_pixel",
           nearest_mode: str = "round_prefer_floor", cubic_coeff_a: float = -0.75,
           exclude_outside: int = 0, extrapolation_value: float = 0.0, antialias: int = 0,
           axes: Any = None, keep_aspect_ratio_policy: str = "stretch",
           **old: Any) -> Any:  # fmt: skip
    if n.kind == "Upsample":
        scales = old.get("scales") if roi is None else roi
        coordinate_transformation_mode, nearest_mode, roi = "asymmetric", "floor", None
    dims = [d % x.ndim for d in (axes if axes is not None else range(x.ndim))]
    by, out = _factors(n, x, dims, scales, sizes, keep_aspect_ratio_policy)
    corners = [] if roi is None else n.ints(roi)
    for k, d in enumerate(dims):
        size = x.shape[d]
        if by[k] == 1 and out[k] == size and coordinate_transformation_mode != "tf_crop_and_resize":
            continue
        ends = (corners[k], corners[k + len(dims)]) if corners else (0.0, 1.0)
        at = _coordinates(size, out[k], by[k], coordinate_transformation_mode, ends)
        index, weights = _taps(at, size, mode, nearest_mode, cubic_coeff_a, bool(exclude_outside),
                               by[k] if antialias else 1.0)  # fmt: skip
        made = _weighted(x, d, index, weights, mode)
        if coordinate_transformation_mode == "tf_crop_and_resize":
            outside = tensor((at < 0) | (at > size - 1))
            shape = [-1 if j == d else 1 for j in range(x.ndim)]
            made = lu.where(
                outside.reshape(shape), lu.tensor(extrapolation_value, dtype=made.dtype), made
            )
        x = made
    return x


def _factors(n: Step, x: Any, dims: list[int], scales: Any, sizes: Any, policy: str) -> Any:
    if sizes is None or not n.ints(sizes):
        by = [float(s) for s in n.ints(scales)]
        return by, [math.floor(x.shape[d] * s) for d, s in zip(dims, by, strict=True)]
    want = n.ints(sizes)
    by = [w / x.shape[d] for d, w in zip(dims, want, strict=True)]
    if policy == "stretch":
        return by, want
    one = min(by) if policy == "not_larger" else max(by)
    return [one] * len(by), [math.floor(x.shape[d] * one + 0.5) for d in dims]


def _coordinates(size: int, out: int, by: float, mode: str, ends: tuple[float, float]) -> Any:
    """Where each new element lies among the old ones."""
    i = np.arange(out, dtype=np.float64)
    if mode == "asymmetric":
        return i / by
    if mode == "align_corners":
        length = size * by
        return np.zeros(out) if length == 1 or out == 1 else i * (size - 1) / (length - 1)
    if mode == "tf_crop_and_resize":
        first, last = ends
        if out == 1:
            return np.full(1, 0.5 * (first + last) * (size - 1))
        return first * (size - 1) + i * (last - first) * (size - 1) / (out - 1)
    if mode == "pytorch_half_pixel" and out == 1:
        return np.zeros(1) - 0.5 + 0.5
    if mode == "half_pixel_symmetric":
        adjusted = out / (by * size)
        return size / 2 * (1 - adjusted) + (i + 0.5) / by - 0.5
    return (i + 0.5) / by - 0.5


def _taps(at: Any, size: int, mode: str, nearest: str, a: float, exclude: bool, by: float) -> Any:
    """For each new element: which old ones, and by what weights."""
    if mode == "nearest":
        rounded = {
            "floor": np.floor(at), "ceil": np.ceil(at),
            "round_prefer_floor": np.ceil(at - 0.5), "round_prefer_ceil": np.floor(at + 0.5),
        }[nearest]  # fmt: skip
        return np.clip(rounded, 0, size - 1).astype(np.int64)[None], None
    wide = min(by, 1.0)
    reach = (1 if mode == "linear" else 2) / wide
    count = 2 * math.ceil(reach)
    low = np.floor(at).astype(np.int64) - math.ceil(reach) + 1
    index = low[None] + np.arange(count)[:, None]
    distance = np.abs(at[None] - index) * wide
    weights = _kernel(distance, mode, a)
    if exclude:
        weights = np.where((index < 0) | (index >= size), 0.0, weights)
    if exclude or wide < 1:
        weights = weights / weights.sum(0)
    return np.clip(index, 0, size - 1), weights


def _kernel(x: Any, mode: str, a: float) -> Any:
    if mode == "linear":
        return np.maximum(0.0, 1 - x)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x < 1, near, np.where(x < 2, far, 0.0))


def _weighted(x: Any, d: int, index: Any, weights: Any, mode: str) -> Any:
    if weights is None:
        return x.index_select(d, lu.tensor(index[0]))
    shape = [-1 if j == d else 1 for j in range(x.ndim)]
    kind = x.dtype
    total: Any = None
    for row, w in zip(index, weights, strict=True):
        part = x.index_select(d, lu.tensor(row)).to(lu.float64) * lu.tensor(w).reshape(shape)
        total = part if total is None else total + part
    return total.to(kind) if kind.category == dt.FLOAT else total.round().to(kind)


# ---- recurrent layers --------------------------------------------------------------------------


def _activation(name: str, alpha: Any, beta: Any) -> Any:
    table = {
        "sigmoid": lu.sigmoid, "tanh": lu.tanh, "relu": lu.relu,
        "affine": lambda x: (alpha if alpha is not None else 1.0) * x + (beta or 0.0),
        "leakyrelu": lambda x: lu.where(x < 0, (alpha if alpha is not None else 0.01) * x, x),
        "hardsigmoid": lambda x: lu.clamp(
            x * (alpha if alpha is not None else 0.2) + (beta if beta is not None else 0.5), 0, 1
        ),
        "softsign": lambda x: x / (1 + x.abs()), "softplus": lambda x: lu.log1p(lu.exp(x)),
    }  # fmt: skip
    if name.lower() not in table:
        raise OnnxImportError(f"the activation {name!r} is not known here")
    return table[name.lower()]


def _recurrent(n: Step, x: Any, w: Any, r: Any, b: Any, lengths: Any, state: Any, options: Any,
               usual: list[str], cell: Any) -> tuple[Any, list[Any]]:  # fmt: skip
    """All directions of a layer: `cell(d)` gives the step of direction d."""
    layout = options.get("layout", 0)
    if layout:
        x = x.transpose(0, 1)
        state = [None if s is None else s.transpose(0, 1) for s in state]
    directions, hidden = w.shape[0], r.shape[-1]
    names = options.get("activations") or usual * directions
    alphas, betas = (
        list(options.get("activation_alpha", [])),
        list(options.get("activation_beta", [])),
    )
    t_max, batch = x.shape[0], x.shape[1]
    ys, lasts = [], []
    per = len(usual)
    for d in range(directions):
        acts = []
        for name in names[d * per : (d + 1) * per]:
            takes = name.lower() in ("affine", "leakyrelu", "hardsigmoid")
            acts.append(_activation(name, alphas.pop(0) if takes and alphas else None,
                                    betas.pop(0) if takes and betas else None))  # fmt: skip
        step = cell(d, acts)
        now = [lu.zeros((batch, hidden), dtype=x.dtype) if s is None else s[d] for s in state]
        back = options.get("direction") == "reverse" or d == 1
        rows: list[Any] = []
        for t in range(t_max - 1, -1, -1) if back else range(t_max):
            new = step(x[t], now)
            if lengths is not None:
                alive = (t < lengths).unsqueeze(1)
                new = [lu.where(alive, a, o) for a, o in zip(new, now, strict=True)]
                rows.append(lu.where(alive, new[0], lu.zeros_like(new[0])))
            else:
                rows.append(new[0])
            now = new
        ys.append(lu.stack(rows[::-1] if back else rows))
        lasts.append(now)
    y = lu.stack(ys, 1)
    ends = [lu.stack([last[k] for last in lasts]) for k in range(len(state))]
    if layout:
        y, ends = y.permute(2, 0, 1, 3), [e.transpose(0, 1) for e in ends]
    return y, ends


def _limited(options: Any) -> Any:
    bound = options.get("clip")
    return (lambda v: v) if bound is None else (lambda v: lu.clamp(v, -bound, bound))


@operator("RNN")
def rnn(n: Step, x: Any, w: Any, r: Any, b: Any = None, lengths: Any = None, h: Any = None,
        **options: Any) -> Any:  # fmt: skip
    size, clip = r.shape[-1], _limited(options)

    def cell(d: int, acts: Any) -> Any:
        bias = 0 if b is None else b[d, :size] + b[d, size:]
        return lambda v, s: [acts[0](clip(v @ w[d].t() + s[0] @ r[d].t() + bias))]

    y, ends = _recurrent(n, x, w, r, b, lengths, [h], options, ["Tanh"], cell)
    return [y, *ends]


@operator("GRU")
def gru(n: Step, x: Any, w: Any, r: Any, b: Any = None, lengths: Any = None, h: Any = None,
        *, linear_before_reset: int = 0, **options: Any) -> Any:  # fmt: skip
    size, clip = r.shape[-1], _limited(options)

    def cell(d: int, acts: Any) -> Any:
        f, g = acts
        wz, wr, wh = (w[d, k * size : (k + 1) * size].t() for k in range(3))
        rz, rr, rh = (r[d, k * size : (k + 1) * size].t() for k in range(3))
        parts = [0] * 6 if b is None else [b[d, k * size : (k + 1) * size] for k in range(6)]

        def step(v: Any, s: Any) -> Any:
            z = f(clip(v @ wz + s[0] @ rz + parts[0] + parts[3]))
            reset = f(clip(v @ wr + s[0] @ rr + parts[1] + parts[4]))
            if linear_before_reset:
                new = g(clip(v @ wh + reset * (s[0] @ rh + parts[5]) + parts[2]))
            else:
                new = g(clip(v @ wh + (reset * s[0]) @ rh + parts[5] + parts[2]))
            return [(1 - z) * new + z * s[0]]

        return step

    y, ends = _recurrent(n, x, w, r, b, lengths, [h], options, ["Sigmoid", "Tanh"], cell)
    return [y, *ends]


@operator("LSTM")
def lstm(n: Step, x: Any, w: Any, r: Any, b: Any = None, lengths: Any = None, h: Any = None,
         c: Any = None, peephole: Any = None, *, input_forget: int = 0,
         **options: Any) -> Any:  # fmt: skip
    size, clip = r.shape[-1], _limited(options)

    def cell(d: int, acts: Any) -> Any:
        f, g, last = acts
        bias = 0 if b is None else b[d, : 4 * size] + b[d, 4 * size :]
        holes = (
            [0] * 3
            if peephole is None
            else [peephole[d, k * size : (k + 1) * size] for k in range(3)]
        )

        def step(v: Any, s: Any) -> Any:
            before, memory = s
            gates = v @ w[d].t() + before @ r[d].t() + bias
            i, o, forget, new = (gates[:, k * size : (k + 1) * size] for k in range(4))
            i = f(clip(i + holes[0] * memory))
            forget = 1 - i if input_forget else f(clip(forget + holes[2] * memory))
            memory = forget * memory + i * g(clip(new))
            o = f(clip(o + holes[1] * memory))
            return [o * last(memory), memory]

        return step

    y, ends = _recurrent(n, x, w, r, b, lengths, [h, c], options, ["Sigmoid", "Tanh", "Tanh"], cell)
    return [y, *ends]


# ---- quantized -----------------------------------------------------------------------------------


def _spread(scale: Any, x: Any, axis: int, block: int) -> Any:
    """A scale for the whole, for each row along an axis, or for each block of one."""
    if scale.ndim == 0 or (scale.ndim == 1 and scale.shape[0] == 1 and x.ndim != 1):
        return scale.reshape(())
    if block:
        return scale.repeat_interleave(block, axis).narrow(axis, 0, x.shape[axis])
    return scale.reshape([-1 if d == axis % x.ndim else 1 for d in range(x.ndim)])


@operator("QuantizeLinear")
def quantize(n: Step, x: Any, scale: Any, zero: Any = None, *, axis: int = 1, block_size: int = 0,
             output_dtype: int = 0, precision: int = 0, saturate: int = 1) -> Any:  # fmt: skip
    kind = zero.dtype if zero is not None else DTYPES.get(output_dtype or 2)
    if kind is None or kind.category != dt.INTEGER:
        raise OnnxImportError(f"{n.where()}: to a type that is not quantized to here")
    by = _spread(scale, x, axis, block_size)
    plus = 0 if zero is None else _spread(zero, x, axis, block_size).to(lu.float32)
    limits = lu.iinfo(kind)
    return lu.clamp(lu.round(x / by) + plus, limits.min, limits.max).to(kind)


@operator("DequantizeLinear")
def dequantize(n: Step, x: Any, scale: Any, zero: Any = None, *, axis: int = 1, block_size: int = 0,
               output_dtype: int = 0) -> Any:  # fmt: skip
    by = _spread(scale, x, axis, block_size)
    wide = x.to(lu.float32)
    if zero is not None:
        wide = wide - _spread(zero, x, axis, block_size).to(lu.float32)
    return (wide * by.to(lu.float32)).to(DTYPES[output_dtype] if output_dtype else scale.dtype)


@operator("DynamicQuantizeLinear")
def dynamic_quantize(n: Step, x: Any) -> Any:
    low = lu.clamp(x.min(), max=0)
    high = lu.clamp(x.max(), min=0)
    scale = (high - low) / 255
    zero = lu.clamp(lu.round(-low / scale), 0, 255)
    made = lu.clamp(lu.round(x / scale) + zero, 0, 255)
    return made.to(lu.uint8), scale, zero.to(lu.uint8)


@operator("MatMulInteger")
def matmul_integer(n: Step, a: Any, b: Any, za: Any = None, zb: Any = None) -> Any:
    left, right = a.to(lu.int32), b.to(lu.int32)
    left = (
        left
        if za is None
        else left - (za.unsqueeze(-1) if za.ndim == 1 and za.shape[0] > 1 else za).to(lu.int32)
    )
    right = right if zb is None else right - zb.to(lu.int32)
    return left @ right


@operator("QLinearMatMul")
def qlinear_matmul(n: Step, a: Any, sa: Any, za: Any, b: Any, sb: Any, zb: Any, sy: Any,
                   zy: Any) -> Any:  # fmt: skip
    product = (a.to(lu.float32) - za.to(lu.float32)) @ (b.to(lu.float32) - zb.to(lu.float32))
    limits = lu.iinfo(zy.dtype)
    scale = sa.to(lu.float32) * sb.to(lu.float32) / sy.to(lu.float32)
    return lu.clamp(lu.round(product * scale) + zy.to(lu.float32), limits.min, limits.max).to(
        zy.dtype
    )


@operator("ConvInteger")
def conv_integer(n: Step, x: Any, w: Any, zx: Any = None, zw: Any = None, **options: Any) -> Any:
    wide = x.to(lu.float32) - (0 if zx is None else zx.to(lu.float32))
    by = w.to(lu.float32)
    if zw is not None:
        by = by - zw.to(lu.float32).reshape([-1, *[1] * (w.ndim - 1)] if zw.ndim else [])
    return conv(n, wide, by, None, **options).to(lu.int32)


@operator("QLinearConv")
def qlinear_conv(n: Step, x: Any, sx: Any, zx: Any, w: Any, sw: Any, zw: Any, sy: Any, zy: Any,
                 b: Any = None, **options: Any) -> Any:  # fmt: skip
    rows = [-1, *[1] * (w.ndim - 1)]
    by = w.to(lu.float32) - zw.to(lu.float32).reshape(rows if zw.ndim else [])
    bias = None if b is None else b.to(lu.float32)
    made = conv(n, x.to(lu.float32) - zx.to(lu.float32), by, bias, **options)
    scale = sx * sw / sy
    limits = lu.iinfo(zy.dtype)
    scale = scale.reshape([1, -1, *[1] * (w.ndim - 2)] if scale.ndim else [])
    return lu.clamp(lu.round(made * scale) + zy.to(lu.float32), limits.min, limits.max).to(zy.dtype)


# ---- signals -------------------------------------------------------------------------------------


@operator("DFT", numbers=(1, 2))
def dft(n: Step, x: Any, length: Any = None, axis: Any = None, *, inverse: int = 0,
        onesided: int = 0, **old: Any) -> Any:  # fmt: skip
    d = old.get("axis", 1) if n.opset < 20 else -2 if axis is None else n.number(axis)
    d = d % x.ndim
    size = None if length is None else n.number(length)
    z = lu.view_as_complex(x.contiguous()) if x.shape[-1] == 2 else x.squeeze(-1)
    if onesided and inverse:
        return fft.irfft(z, size, d).unsqueeze(-1)
    if onesided:
        made = fft.rfft(z.real if z.is_complex() else z, size, d)
    else:
        made = (fft.ifft if inverse else fft.fft)(z, size, d)
    return lu.view_as_real(made)


@operator("STFT", numbers=(1, 3))
def stft(n: Step, x: Any, step: Any, window: Any = None, length: Any = None, *,
         onesided: int = 1) -> Any:  # fmt: skip
    hop = n.number(step)
    size = window.shape[0] if window is not None else n.number(length)
    z = lu.view_as_complex(x.contiguous()) if x.shape[-1] == 2 else x.squeeze(-1)
    frames = z.unfold(1, size, hop)
    frames = frames if window is None else frames * window
    return lu.view_as_real(fft.rfft(frames) if onesided else fft.fft(frames))


@operator("HannWindow", "HammingWindow", "BlackmanWindow", numbers=(0,))
def window(n: Step, size: Any, *, output_datatype: int = 1, periodic: int = 1) -> Any:
    count = n.number(size)
    turn = np.arange(count) * 2 * np.pi / (count if periodic else count - 1)
    weights = {"HannWindow": (0.5, 0.5, 0.0), "HammingWindow": (25 / 46, 21 / 46, 0.0),
               "BlackmanWindow": (0.42, 0.5, 0.08)}[n.kind]  # fmt: skip
    a, b, c = weights
    return lu.tensor(a - b * np.cos(turn) + c * np.cos(2 * turn)).to(DTYPES[output_datatype])


@operator("MelWeightMatrix", numbers=(0, 1, 2, 3, 4))
def mel_weights(n: Step, bins: Any, length: Any, rate: Any, low: Any, high: Any, *,
                output_datatype: int = 1) -> Any:  # fmt: skip
    count, size = n.number(bins), n.number(length)
    ends = [2595 * math.log10(1 + n.number(v) / 700) for v in (low, high)]
    mel = np.arange(count + 2) * (ends[1] - ends[0]) / (count + 2) + ends[0]
    at = ((size + 1) * (700 * (10 ** (mel / 2595) - 1)) // n.number(rate)).astype(np.int64)
    made = np.zeros((size // 2 + 1, count))
    for k in range(count):
        first, centre, last = at[k : k + 3]
        if centre == first:
            made[centre, k] = 1
        else:
            made[first : centre + 1, k] = np.arange(centre - first + 1) / (centre - first)
        if last > centre:
            made[centre:last, k] = (last - np.arange(centre, last)) / (last - centre)
    return lu.tensor(made).to(DTYPES[output_datatype])


# ---- draws: other numbers than any other engine's ------------------------------------------------


@operator("RandomNormal", "RandomUniform")
def random(n: Step, *, shape: Any, dtype: int = 1, seed: Any = None, **options: Any) -> Any:
    return _drawn(n, shape, DTYPES[dtype], options)


@operator("RandomNormalLike", "RandomUniformLike")
def random_like(
    n: Step, x: Any, *, dtype: int | None = None, seed: Any = None, **options: Any
) -> Any:
    return _drawn(n, x.shape, x.dtype if dtype is None else DTYPES[dtype], options)


def _drawn(n: Step, shape: Any, kind: Any, options: Any) -> Any:
    if "Normal" in n.kind:
        return lu.randn(shape, dtype=kind) * options.get("scale", 1.0) + options.get("mean", 0.0)
    low, high = options.get("low", 0.0), options.get("high", 1.0)
    return lu.rand(shape, dtype=kind) * (high - low) + low
