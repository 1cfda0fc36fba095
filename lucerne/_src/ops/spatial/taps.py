"""Weighted sums of a few taps along each dimension, and their transposes.

Interpolation to another size is such a sum, and so are means over even windows; the derivative is
the transpose.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lucerne._src.base import dtype as dt
from lucerne._src.base import shape as sh
from lucerne._src.ir.define import composite
from lucerne._src.ir.meta import TensorMeta, make_meta
from lucerne._src.ir.op import Tensor
from lucerne._src.ops.checks import computing, need

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


def cubic_weights(t: Any, a: float) -> list[Any]:
    """Keys' cubic convolution at distances 1 + t, t, 1 - t, 2 - t, of arrays or tensors."""

    def near(x: Any) -> Any:
        return ((a + 2) * x - (a + 3)) * x * x + 1

    def far(x: Any) -> Any:
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a

    return [far(t + 1), near(t), near(1 - t), far(2 - t)]


def cubic_taps(size: int, out: int, align: bool, scale: float | None, kind: Any) -> Taps:
    at = _source(_step(size, out, align, scale, kind), out, align, kind)
    low = np.floor(at).astype(np.int64)
    weights = cubic_weights(at - low.astype(kind), -0.75)
    return [(np.clip(low + i - 1, 0, size - 1), w.astype(kind)) for i, w in enumerate(weights)]


def area_taps(size: int, out: int, align: bool, scale: float | None, kind: Any) -> Taps:
    """Windows as even as they can be: the mean over each."""
    at = np.arange(out)
    low, high = at * size // out, -(-(at + 1) * size // out)
    wide = int((high - low).max(initial=1))
    share = (1.0 / (high - low)).astype(kind)
    return [
        (np.minimum(low + j, high - 1), np.where(low + j < high, share, 0)) for j in range(wide)
    ]


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
    "area": area_taps,
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


def _check_resample(input: TensorMeta, size: Any, mode: str, scales: Any) -> None:
    spatial = input.ndim - 2
    need(
        mode in _MODES and len(size) == len(scales) == spatial,
        lambda: f"resampling {list(input.shape)} to {list(size)} by {mode!r}, scales {scales}",
    )


def _resample_meta(
    input: TensorMeta, size: Any, mode: str, align_corners: bool, scales: Any
) -> TensorMeta:
    _check_resample(input, size, mode, scales)
    shape = (*input.shape[:2], *size)
    strides = sh.format_strides(shape, sh.suggested_format(input.shape, input.strides))
    return make_meta(input.dtype, shape, strides, input.device)


def _back_meta(
    input: TensorMeta, size: Any, mode: str, align_corners: bool, scales: Any
) -> TensorMeta:
    _check_resample(input, size, mode, scales)
    return make_meta(input.dtype, (*input.shape[:2], *size), None, input.device)


@composite(
    internal=True,
    name="resample_back",
    out=False,
    meta=_back_meta,
    vjp={
        "input": lambda g, input_meta, size, mode, align_corners, scales: resample(
            g, tuple(input_meta.shape[2:]), mode, align_corners, scales
        )
    },
    linear=True,
)
def resample_back(input: Tensor, size: Any, mode: str, align_corners: bool, scales: Any) -> Tensor:
    """The transpose of `resample` from `size`: each element goes back to its taps, by weight."""
    source = make_meta(input.dtype, (*input.shape[:2], *size), None, input.device)
    taps = axis_taps(source, tuple(input.shape[2:]), mode, align_corners, scales)
    x = input if mode.startswith("nearest") else computing(input)
    for d in reversed(range(len(taps))):
        x = _along_back(x, 2 + d, taps[d], size[d])
    return x.to(input.dtype)


def transposed(taps: Taps, size: int) -> Taps:
    """Taps of the transpose, which has `size` positions: a weight of 0 stands for no tap."""
    source = np.concatenate([index for index, _ in taps])
    number = len(taps[0][0])
    target = np.tile(np.arange(number), len(taps))
    ones = np.ones(number)
    weights = np.concatenate([ones if w is None else w for _, w in taps])
    kept = weights != 0
    source, target, weights = source[kept], target[kept], weights[kept]
    order = np.argsort(source, kind="stable")
    source, target, weights = source[order], target[order], weights[order]
    counts = np.bincount(source, minlength=size)
    rank = np.arange(len(source)) - np.repeat(np.cumsum(counts) - counts, counts)
    wide = max(int(counts.max(initial=0)), 1)
    index = np.zeros((wide, size), dtype=np.int64)
    weight = np.zeros((wide, size))
    index[rank, source], weight[rank, source] = target, weights
    return list(zip(index, weight, strict=True))


@composite(
    internal=True,
    name="resample",
    out=False,
    meta=_resample_meta,
    vjp={
        "input": lambda g, input_meta, size, mode, align_corners, scales: resample_back(
            g, tuple(input_meta.shape[2:]), mode, align_corners, scales
        )
    },
    linear=True,
)
def resample(input: Tensor, size: Any, mode: str, align_corners: bool, scales: Any) -> Tensor:
    """(N, C, n...) brought to `size` by a mode of the table above."""
    layout = sh.suggested_format(input.shape, input.stride())
    kept = mode.startswith("nearest")
    if input.dtype.category < dt.FLOAT and not kept:
        return _of_bytes(input, size, mode, align_corners, scales).clone(memory_format=layout)
    x = input if kept else computing(input)
    for d, taps in enumerate(axis_taps(input._meta, size, mode, align_corners, scales)):
        x = _along(x, 2 + d, taps)
    x = x if x.dtype is input.dtype else x.to(input.dtype)
    return x.contiguous(memory_format=layout)


def _of_bytes(input: Tensor, size: Any, mode: str, align_corners: bool, scales: Any) -> Tensor:
    """Images of bytes: whole-numbered weights, last dimension first, bytes again in between."""
    x = input
    for d in reversed(range(len(size))):
        n = input.shape[2 + d]
        if n == size[d]:
            continue
        taps, bits = whole_taps(_MODES[mode](n, size[d], align_corners, scales[d], np.float64))
        total = _along(x.to(dt.int32), 2 + d, taps) + (1 << bits - 1)
        x = (total >> bits).clamp(0, 255).to(input.dtype)
    return x


def whole_taps(taps: Taps) -> tuple[Taps, int]:
    """Taps whose weights are whole numbers of 16 bits, in units of 2 ** -bits; and these bits.

    As many bits as the largest weight leaves room for. Taps beyond a border, which read the same
    element, are one tap before they are rounded.
    """
    merged: list[tuple[Array, Array]] = []
    for index, weight in taps:
        rest = np.ones(len(index)) if weight is None else weight
        for seen, sums in merged:
            same = seen == index
            sums += np.where(same, rest, 0)
            rest = np.where(same, 0, rest)
        merged.append((index, np.array(rest)))
    largest = max(float(w.max()) for _, w in merged)
    bits = next(b for b in range(23) if b == 22 or int(0.5 + largest * (2 << b)) >= 1 << 15)
    scaled = [(index, w * (1 << bits)) for index, w in merged]
    return [(i, np.trunc(w + np.where(w < 0, -0.5, 0.5)).astype(np.int32)) for i, w in scaled], bits
