"""Convolutions, pools, norms, resizing."""

from __future__ import annotations

import math
from typing import Any

from lucerne._src.tensor import api as lu
from lucerne.export.onnx.errors import OnnxImportError
from lucerne.export.onnx.reading.step import Step
from lucerne.export.onnx.reading.table import operator
from lucerne.nn import functional as F

_CONV = (F.conv1d, F.conv2d, F.conv3d)
_CONV_TRANSPOSE = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)
_MAX_POOL = (F.max_pool1d, F.max_pool2d, F.max_pool3d)


def padding_of(
    x: Any, kernel: Any, strides: Any, dilations: Any, pads: Any, auto: str
) -> list[int]:
    """(first, ..., last, ...) for each dimension, as `auto_pad` or `pads` say."""
    k = len(kernel)
    if auto in ("NOTSET", ""):
        return list(pads or [0] * 2 * k)
    if auto == "VALID":
        return [0] * 2 * k
    low, high = [], []
    for n, w, s, d in zip(x.shape[2:], kernel, strides, dilations, strict=True):
        room = max(0, (-(-n // s) - 1) * s + (w - 1) * d + 1 - n)
        small, large = room // 2, room - room // 2
        low.append(small if auto == "SAME_UPPER" else large)
        high.append(large if auto == "SAME_UPPER" else small)
    return low + high


def padded(x: Any, pads: list[int], value: float) -> Any:
    """`x` with pads in ONNX's order: all beginnings, then all ends."""
    k = len(pads) // 2
    return F.pad(x, [p for d in range(k - 1, -1, -1) for p in (pads[d], pads[d + k])], value=value)


@operator("Conv")
def conv(n: Step, x: Any, w: Any, b: Any = None, *, strides: Any = None, pads: Any = None,
         dilations: Any = None, group: int = 1, auto_pad: str = "NOTSET",
         kernel_shape: Any = None) -> Any:  # fmt: skip
    k = x.ndim - 2
    if not 1 <= k <= 3:
        raise OnnxImportError(f"{n.where()}: of {k} dimensions")
    strides, dilations = strides or [1] * k, dilations or [1] * k
    pads = padding_of(x, w.shape[2:], strides, dilations, pads, auto_pad)
    if pads[:k] != pads[k:]:
        x, pads = padded(x, pads, 0.0), [0] * 2 * k
    return _CONV[k - 1](x, w, b, strides, pads[:k], dilations, group)


@operator("ConvTranspose")
def conv_transpose(n: Step, x: Any, w: Any, b: Any = None, *, strides: Any = None, pads: Any = None,
                   dilations: Any = None, group: int = 1, auto_pad: str = "NOTSET",
                   output_padding: Any = None, output_shape: Any = None,
                   kernel_shape: Any = None) -> Any:  # fmt: skip
    k = x.ndim - 2
    strides, dilations = strides or [1] * k, dilations or [1] * k
    more = list(output_padding or [0] * k)
    full = [(m - 1) * s + (w_ - 1) * d + 1 + o for m, s, w_, d, o in
            zip(x.shape[2:], strides, w.shape[2:], dilations, more, strict=True)]  # fmt: skip
    if output_shape is not None or auto_pad.startswith("SAME"):
        want = output_shape or [m * s for m, s in zip(x.shape[2:], strides, strict=True)]
        room = [f - m for f, m in zip(full, want, strict=True)]
        small, large = [r // 2 for r in room], [r - r // 2 for r in room]
        pads = large + small if auto_pad == "SAME_LOWER" else small + large
        if output_shape is not None and auto_pad != "SAME_UPPER":
            pads = large + small
    pads = list(pads or [0] * 2 * k)
    made = _CONV_TRANSPOSE[k - 1](x, w, None, strides, 0, 0, group, dilations)
    ends = [f - m for f, m in zip(full, made.shape[2:], strict=True)]
    cut = [-p for p in pads[:k]] + [e - p for e, p in zip(ends, pads[k:], strict=True)]
    made = padded(made, cut, 0.0)
    return made if b is None else made + b.reshape(-1, *[1] * k)


@operator("MaxPool")
def max_pool(n: Step, x: Any, *, kernel_shape: Any, strides: Any = None, pads: Any = None,
             dilations: Any = None, ceil_mode: int = 0, auto_pad: str = "NOTSET",
             storage_order: int = 0) -> Any:  # fmt: skip
    k = x.ndim - 2
    kind = x.dtype
    strides, dilations = strides or [1] * k, dilations or [1] * k
    pads = padding_of(x, kernel_shape, strides, dilations, pads, auto_pad)
    same = pads[:k] == pads[k:] and all(
        2 * p <= w for p, w in zip(pads, kernel_shape, strict=False)
    )
    wide = x if x.is_floating_point() else x.to(lu.float32)
    if not same:
        wide, inner = padded(wide, pads, -math.inf), [0] * k
    else:
        inner = pads[:k]
    made, at = _MAX_POOL[k - 1](
        wide, kernel_shape, strides, inner, dilations, bool(ceil_mode), return_indices=True
    )
    made = made.to(kind)
    if n.count == 1:
        return made
    return made, _numbered(at, x, None if same else (pads, wide.shape[2:]), storage_order)


def _numbered(at: Any, x: Any, pads: Any, by_columns: int) -> Any:
    """Positions in the plane as positions in the whole tensor."""
    sizes = list(x.shape[2:])
    if pads is not None:
        lows, wide = pads[0][: len(sizes)], list(pads[1])
        parts = []
        for s, low in zip(reversed(wide), reversed(lows), strict=True):
            parts.append(at % s - low)
            at = at // s
        at = lu.zeros_like(at)
        for part, s in zip(reversed(parts), sizes, strict=True):
            at = at * s + part
    if by_columns:
        parts, rest = [], at
        for s in reversed(sizes):
            parts.append(rest % s)
            rest = rest // s
        at = lu.zeros_like(at)
        for part, s in zip(parts, reversed(sizes), strict=True):
            at = at * s + part
    planes = lu.arange(x.shape[0] * x.shape[1]).reshape(*x.shape[:2], *[1] * len(sizes))
    return at + planes * math.prod(sizes)


@operator("AveragePool", "LpPool")
def average_pool(n: Step, x: Any, *, kernel_shape: Any, strides: Any = None, pads: Any = None,
                 dilations: Any = None, ceil_mode: int = 0, count_include_pad: int = 0,
                 auto_pad: str = "NOTSET", p: int = 2) -> Any:  # fmt: skip
    k = x.ndim - 2
    strides, dilations = strides or [1] * k, dilations or [1] * k
    pads = padding_of(x, kernel_shape, strides, dilations, pads, auto_pad)
    ends = []
    for d, (size, w, s, gap) in enumerate(
        zip(x.shape[2:], kernel_shape, strides, dilations, strict=True)
    ):
        wide = size + pads[d] + pads[d + k] - (w - 1) * gap - 1
        count = (-(-wide // s) if ceil_mode else wide // s) + 1
        if ceil_mode and (count - 1) * s >= size + pads[d]:
            count -= 1
        ends.append(max(0, (count - 1) * s + (w - 1) * gap + 1 - size - pads[d] - pads[d + k]))
    hanging = [0] * k + ends
    if n.kind == "LpPool":
        windows = _windows(
            padded(padded(x, pads, 0.0), hanging, 0.0), kernel_shape, strides, dilations
        )
        return windows.abs().pow(p).sum(-1).pow(1 / p)
    ones = lu.ones_like(x)
    counted = padded(padded(ones, pads, float(count_include_pad)), hanging, 0.0)
    values = padded(padded(x, pads, 0.0), hanging, 0.0)
    total, number = (
        _windows(t, kernel_shape, strides, dilations).sum(-1) for t in (values, counted)
    )
    return total / number


def _windows(x: Any, kernel: Any, strides: Any, dilations: Any) -> Any:
    """(N, C, m..., elements of a window)."""
    k = len(kernel)
    for d, (w, s, gap) in enumerate(zip(kernel, strides, dilations, strict=True)):
        x = x.unfold(2 + d, (w - 1) * gap + 1, s)
        x = x[..., ::gap]
    return x.flatten(-k) if k > 1 else x


@operator("GlobalAveragePool")
def global_average_pool(n: Step, x: Any) -> Any:
    return x.mean(tuple(range(2, x.ndim)), keepdim=True)


@operator("GlobalMaxPool")
def global_max_pool(n: Step, x: Any) -> Any:
    return x.amax(tuple(range(2, x.ndim)), keepdim=True)


@operator("MaxUnpool", numbers=(2,))
def max_unpool(n: Step, x: Any, at: Any, size: Any = None, *, kernel_shape: Any,
               strides: Any = None, pads: Any = None) -> Any:  # fmt: skip
    k = x.ndim - 2
    strides, pads = strides or [1] * k, pads or [0] * 2 * k
    usual = [(m - 1) * s + w - pads[d] - pads[d + k] for d, (m, s, w) in
             enumerate(zip(x.shape[2:], strides, kernel_shape, strict=True))]  # fmt: skip
    shape = [*x.shape[:2], *usual]
    flat = lu.zeros(math.prod(shape), dtype=x.dtype).scatter(0, at.reshape(-1), x.reshape(-1))
    made = flat.reshape(shape)
    if size is None:
        return made
    want = n.ints(size)
    return padded(made, [0] * k + [a - b for a, b in zip(want[2:], usual, strict=True)], 0.0)


# ---- norms -----------------------------------------------------------------------------------


@operator("BatchNormalization")
def batch_norm(n: Step, x: Any, w: Any, b: Any, mean: Any, var: Any, *, epsilon: float = 1e-5,
               momentum: float = 0.9, training_mode: int = 0, **old: Any) -> Any:  # fmt: skip
    if not training_mode:
        return F.batch_norm(x, mean, var, w, b, False, 0.0, epsilon)
    dims = (0, *range(2, x.ndim))
    now, spread = x.mean(dims), x.var(dims, correction=0)
    made = F.batch_norm(x, now, spread, w, b, False, 0.0, epsilon)
    return made, mean * momentum + now * (1 - momentum), var * momentum + spread * (1 - momentum)


@operator("LayerNormalization")
def layer_norm(n: Step, x: Any, w: Any, b: Any = None, *, axis: int = -1, epsilon: float = 1e-5,
               stash_type: int = 1) -> Any:  # fmt: skip
    d = axis % x.ndim
    shape = tuple(x.shape[d:])
    made = F.layer_norm(
        x, shape, w.reshape(shape), None if b is None else b.reshape(shape), epsilon
    )
    if n.count == 1:
        return made
    dims = tuple(range(d, x.ndim))
    mean = x.mean(dims, keepdim=True)
    spread = (x - mean).square().mean(dims, keepdim=True)
    return made, mean, lu.rsqrt(spread + epsilon)


@operator("InstanceNormalization")
def instance_norm(n: Step, x: Any, w: Any, b: Any, *, epsilon: float = 1e-5) -> Any:
    return F.instance_norm(x, None, None, w, b, True, 0.0, epsilon)


@operator("LRN")
def local_response_norm(n: Step, x: Any, *, size: int, alpha: float = 1e-4, beta: float = 0.75,
                        bias: float = 1.0) -> Any:  # fmt: skip
    low, high = (size - 1) // 2, size // 2
    squares = F.pad((x * x).transpose(1, -1), [low, high]).unfold(-1, size, 1).sum(-1)
    return x / (bias + alpha / size * squares.transpose(1, -1)) ** beta


@operator("LpNormalization")
def lp_norm(n: Step, x: Any, *, axis: int = -1, p: int = 2) -> Any:
    length = x.abs().sum(axis, keepdim=True) if p == 1 else (x * x).sum(axis, keepdim=True).sqrt()
    return lu.where(length == 0, lu.zeros_like(x), x / length)


@operator("GridSample")
def grid_sample(n: Step, x: Any, grid: Any, *, mode: str = "linear", padding_mode: str = "zeros",
                align_corners: int = 0) -> Any:  # fmt: skip
    kind = {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode)
    return F.grid_sample(x, grid, kind, padding_mode, bool(align_corners))


@operator("AffineGrid", numbers=(1,))
def affine_grid(n: Step, theta: Any, size: Any, *, align_corners: int = 0) -> Any:
    return F.affine_grid(theta, n.ints(size), bool(align_corners))


@operator("Col2Im", numbers=(1, 2))
def col2im(n: Step, x: Any, image: Any, block: Any, *, dilations: Any = None, pads: Any = None,
           strides: Any = None) -> Any:  # fmt: skip
    size, kernel = n.ints(image), n.ints(block)
    k = len(size)
    dilations, strides, pads = dilations or [1] * k, strides or [1] * k, pads or [0] * 2 * k
    wide = [s + pads[d] + pads[d + k] for d, s in enumerate(size)]
    counts = [(m - (w - 1) * g - 1) // s + 1 for m, w, g, s in
              zip(wide, kernel, dilations, strides, strict=True)]  # fmt: skip
    planes = x.reshape(x.shape[0], -1, *kernel, *counts)
    at = lu.zeros((), dtype=lu.int64)
    for d in range(k):
        rows = lu.arange(kernel[d])[:, None] * dilations[d] + lu.arange(counts[d]) * strides[d]
        shape = [rows.shape[0] if j == d else rows.shape[1] if j == d + k else 1
                 for j in range(2 * k)]  # fmt: skip
        at = at * wide[d] + rows.reshape(shape)
    flat = lu.zeros((*planes.shape[:2], math.prod(wide)), dtype=x.dtype)
    index = at.reshape(-1).expand(*planes.shape[:2], -1)
    made = flat.scatter_add(2, index, planes.reshape(*planes.shape[:2], -1))
    return padded(made.reshape(*planes.shape[:2], *wide), [-p for p in pads], 0.0)
