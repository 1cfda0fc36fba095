"""Rules for pooling and resampling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple
from math import prod
from typing import Any

from lucerne._src.backends.cpu.math.storage import STORED
from lucerne._src.backends.cpu.pool.avg_pool import AvgForm, AvgPool, Window, table_words
from lucerne._src.backends.cpu.pool.frame import CHANNELS, COLUMNS, PoolGeometry, frame_words
from lucerne._src.backends.cpu.pool.max_pool import MaxForm, MaxPool
from lucerne._src.backends.cpu.pool.resample import Resample, ResampleForm
from lucerne._src.backends.cpu.pool.resample import table_words as resample_words
from lucerne._src.backends.cpu.rules.table import rule
from lucerne._src.backends.cpu.runtime.code import compiled
from lucerne._src.backends.cpu.runtime.kernel import NativeKernel
from lucerne._src.backends.cpu.runtime.pool import MAX_THREADS
from lucerne._src.base import dtype as dt
from lucerne._src.ir.graph import Node
from lucerne._src.ir.meta import TensorMeta, make_meta
from lucerne._src.ops.spatial.taps import axis_taps, transposed


def _poolable(meta: TensorMeta) -> bool:
    plain = meta.dtype in STORED and meta.dtype.category in (dt.FLOAT, dt.INTEGER)
    return plain and prod(meta.shape[2:]) < 1 << 31


def _by_columns(meta: TensorMeta, out: TensorMeta, stride: int) -> bool:
    """Whether rows of input and output lie together, and their columns are loaded as vectors."""
    return meta.strides[-1] == 1 and out.strides[-1] == 1 and stride in (1, 2)


@rule("max_pool")
def max_pool(node: Node) -> Any:
    source, kernel, stride, padding, dilation, _ = node.args
    meta, out = source.meta, node.outputs[0].meta
    if not _poolable(meta):
        return None
    at = PoolGeometry.of(kernel, stride, padding, dilation)
    together = meta.strides[1] == 1 and out.strides[1] == 1
    by_columns = _by_columns(meta, out, stride[-1]) and not (together and meta.shape[1] > 1)
    shape = COLUMNS if by_columns else CHANNELS
    form = MaxForm(shape, meta.dtype.name, stride[-1] if by_columns else 0, together)
    code = compiled(("max pool", *astuple(form)), lambda m: MaxPool(m, form).write())
    work = out.numel * prod(kernel) * 0.5
    return NativeKernel(code["entry"], 2, 1, extra=frame_words(meta, out, at, shape), work=work)


# ---- means ---------------------------------------------------------------------------------------


def _sliding(
    size: int, counts: Sequence[int], kernel: int, stride: int, padding: int
) -> list[Window]:
    """Begin, end and count of sliding windows, cut at the borders of the input."""
    starts = [i * stride - padding for i in range(len(counts))]
    return [
        (max(s, 0), max(0, min(s + kernel, size)), count)
        for s, count in zip(starts, counts, strict=True)
    ]


def _mean_kernel(
    meta: TensorMeta, out: TensorMeta, at: PoolGeometry, tables: list[list[Window]], stride: int
) -> Any:
    """`stride` of the columns when windows slide evenly, else 0."""
    if not _poolable(meta) or meta.dtype.category != dt.FLOAT:
        return None
    together = meta.strides[1] == 1 and out.strides[1] == 1 and meta.shape[1] > 1
    flat = meta.strides[-1] == 1 and out.strides[-1] == 1
    shape = COLUMNS if flat and not together else CHANNELS
    if at.kernel[-1] > 4 * stride or stride > 2:
        stride = 0  # wide windows: vectors along the window
    form = AvgForm(shape, meta.dtype.name, stride if shape == COLUMNS else 0, together)
    code = compiled(("avg pool", *astuple(form)), lambda m: AvgPool(m, form).write())
    words = frame_words(meta, out, at, shape)
    extra = [*words, *table_words(tables, len(words))]
    return NativeKernel(code["entry"], 1, 1, extra=extra, work=meta.numel * 0.5)


def _joined(meta: TensorMeta) -> TensorMeta:
    """Planes without gaps as one row each."""
    n, c, *space = meta.shape
    return make_meta(meta.dtype, (n, c, prod(space)), (*meta.strides[:2], 1), meta.device)


def _whole_mean(node: Node, count: int) -> Any:
    """The mean of whole planes that are stretches of memory: one window, one row."""
    source, out = node.args[0].meta, node.outputs[0].meta
    if not source.contiguous or not source.numel:
        return None
    size = prod(source.shape[2:])
    ones = (1, 1, 1)
    at = PoolGeometry.of(ones, ones, (0, 0, 0), ones)
    tables = [[(0, size, count)]]
    return _mean_kernel(_joined(source), _joined(out), at, tables, 0)


@rule("avg_pool")
def avg_pool(node: Node) -> Any:
    source, kernel, stride, padding, counts, divisor = node.args
    if tuple(kernel) == tuple(source.meta.shape[2:]) and not any(padding):
        whole = _whole_mean(node, divisor or prod(row[0] for row in counts))
        if whole is not None:
            return whole
    if divisor is not None:
        ones = [[1] * len(row) for row in counts]
        counts = [*ones[:-1], [divisor] * len(counts[-1])]
    tables = [
        _sliding(*row)
        for row in zip(source.meta.shape[2:], counts, kernel, stride, padding, strict=True)
    ]
    at = PoolGeometry.of(kernel, stride, padding, (1,) * len(kernel))
    return _mean_kernel(source.meta, node.outputs[0].meta, at, tables, stride[-1])


@rule("adaptive_avg_pool")
def adaptive_avg_pool(node: Node) -> Any:
    source, size = node.args
    whole = _whole_mean(node, prod(source.meta.shape[2:])) if set(size) == {1} else None
    if whole is not None:
        return whole
    tables = []
    for n, m in zip(source.meta.shape[2:], size, strict=True):
        bounds = [(i * n // m, -(-(i + 1) * n // m)) for i in range(m)]
        tables.append([(start, stop, stop - start) for start, stop in bounds])
    ones = (1,) * len(size)
    at = PoolGeometry.of(ones, ones, (0,) * len(size), ones)
    return _mean_kernel(source.meta, node.outputs[0].meta, at, tables, 0)


# ---- interpolation -------------------------------------------------------------------------------


@rule("resample")
def resample(node: Node) -> Any:
    source, size, mode, align, scales = node.args
    taps = axis_taps(source.meta, size, mode, align, scales)
    return _weighted(node, taps, moves=mode.startswith("nearest"), skips=False)


@rule("resample_back")
def resample_back(node: Node) -> Any:
    """The transpose is a sum over taps too: of the outputs that each input went to."""
    source, size, mode, align, scales = node.args
    taps = axis_taps(node.outputs[0].meta, source.meta.shape[2:], mode, align, scales)
    back = [transposed(axis, n) for axis, n in zip(taps, size, strict=True)]
    return _weighted(node, back, moves=False, skips=True)


def _weighted(node: Node, taps: list[Any], *, moves: bool, skips: bool) -> Any:
    """Sums over taps; `moves`: one tap of weight one each. `skips`: a weight of 0 is no tap."""
    meta, out = node.args[0].meta, node.outputs[0].meta
    if moves and meta.dtype.itemsize > 8:
        return None
    if not moves and (meta.dtype not in STORED or meta.dtype.category != dt.FLOAT):
        return None
    wide = meta.dtype is dt.float64
    together = meta.strides[1] == 1 and out.strides[1] == 1 and meta.shape[1] > 1
    flat = meta.strides[-1] == 1 and out.strides[-1] == 1
    shape = COLUMNS if flat and not together else CHANNELS
    name, item = ("", meta.dtype.itemsize) if moves else (meta.dtype.name, 0)
    form = ResampleForm(shape, name, item, together, skips)
    ones = (1,) * len(taps)
    words = frame_words(meta, out, PoolGeometry.of(ones, ones, (0,) * len(taps), ones), shape)
    scratch = 0 if moves else meta.shape[-1] * (8 if wide else 4) + 63 & -64
    code = compiled(("resample", *astuple(form)), lambda m: Resample(m, form).write())
    return NativeKernel(
        code["entry"], 1, 1, extra=[*words, *resample_words(taps, wide, scratch)],
        workspace=scratch * MAX_THREADS, work=out.numel * 1.0,
    )  # fmt: skip
