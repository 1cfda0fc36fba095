"""Pooling and resampling of the CPU engine against the reference backend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import lucerne
from lucerne._src.base import dtype as dt
from lucerne._src.ops.spatial.adaptive import adaptive_avg_pool
from lucerne._src.ops.spatial.pool import _row_counts, avg_pool, pooled_size
from lucerne._src.ops.spatial.taps import resample
from tests.cpu.calls import Array, check, guest, numbers, outcome

FLOATS = (dt.float32, dt.float64, dt.float16, dt.bfloat16)
LAYOUTS = ("plain", "channels last", "sliced")

# shape, kernel, stride, padding, dilation
WINDOWS: tuple[tuple[tuple[int, ...], ...], ...] = (
    ((2, 3, 40), (3,), (2,), (1,), (1,)),
    ((1, 20, 9, 33), (3, 3), (2, 2), (1, 1), (1, 1)),
    ((2, 3, 8, 50), (2, 3), (1, 1), (1, 0), (2, 1)),
    ((2, 3, 8, 9), (2, 2), (3, 3), (0, 1), (1, 2)),
    ((1, 2, 4, 7, 6), (2, 3, 2), (2, 1, 2), (1, 1, 0), (1, 1, 2)),
    ((2, 1, 5, 70), (5, 60), (5, 3), (0, 0), (1, 1)),
    ((3, 5, 4, 5), (4, 5), (4, 5), (0, 0), (1, 1)),
)


def _size(shape: Sequence[int], *settings: Sequence[int], ceil: bool) -> tuple[int, ...]:
    rows = zip(shape[2:], *settings, strict=True)
    return tuple(pooled_size(n, k, s, p, d, ceil) for n, k, s, p, d in rows)


@pytest.mark.parametrize("dtype", [*FLOATS, dt.int64, dt.uint8], ids=lambda t: t.name)
def test_max_pool_gives_maxima_and_their_places(dtype: dt.dtype) -> None:
    rng = np.random.default_rng(1)
    for k, (shape, *rest) in enumerate(WINDOWS):
        values = numbers(rng, dtype, shape)
        if dtype.category == dt.FLOAT:
            odd = np.array([np.nan, -np.inf])[rng.integers(0, 2, shape)]
            values = np.where(rng.random(shape) < 0.4, odd, values)
        for layout in LAYOUTS:
            size = _size(shape, *rest, ceil=bool(k % 2))
            check("max_pool", [guest(values, dtype, layout), *rest, size])


def _on_reference(op: Any, values: Array, dtype: dt.dtype, *rest: Any) -> Array:
    x = lucerne.tensor(values.tolist(), dtype=dtype, device="reference")
    return np.array(op(x, *rest).to(dt.float64).tolist()).reshape(op(x, *rest).shape)


def _close(found: Array, wanted: Array, dtype: dt.dtype) -> None:
    tolerance = {24: 1e-5, 53: 1e-12}.get(dtype.digits, 2e-2)
    np.testing.assert_allclose(found.astype(np.float64), wanted, tolerance, tolerance)


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda t: t.name)
def test_means_over_windows(dtype: dt.dtype) -> None:
    rng = np.random.default_rng(2)
    for k, (shape, kernel, stride, padding, _) in enumerate(WINDOWS):
        values = numbers(rng, dtype, shape)
        size = _size(shape, kernel, stride, padding, (1,) * len(kernel), ceil=bool(k % 2))
        rows = zip(size, shape[2:], kernel, stride, padding, strict=True)
        counts = tuple(tuple(_row_counts(*row, bool(k % 3))) for row in rows)
        for layout in LAYOUTS:
            for divisor in (None, 5):
                rest = (kernel, stride, padding, counts, divisor)
                x = guest(values, dtype, layout)
                (found,) = outcome("avg_pool", [x, *rest], engine=True)
                _close(found, _on_reference(avg_pool, values, dtype, *rest), dtype)


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda t: t.name)
def test_means_over_windows_of_uneven_size(dtype: dt.dtype) -> None:
    rng = np.random.default_rng(3)
    for shape, size in (
        ((2, 3, 10), (4,)),
        ((1, 20, 9, 33), (2, 5)),
        ((2, 3, 4, 5, 6), (3, 7, 1)),
        ((3, 5, 4, 5), (1, 1)),
    ):
        values = numbers(rng, dtype, shape)
        for layout in LAYOUTS:
            x = guest(values, dtype, layout)
            (found,) = outcome("adaptive_avg_pool", [x, size], engine=True)
            _close(found, _on_reference(adaptive_avg_pool, values, dtype, size), dtype)


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "linear", "cubic", "linear-aa"])
@pytest.mark.parametrize("dtype", [dt.float32, dt.float64, dt.bfloat16], ids=lambda t: t.name)
def test_resampling(dtype: dt.dtype, mode: str) -> None:
    rng = np.random.default_rng(4)
    flat = mode in ("cubic", "linear-aa")
    for shape, size in (
        ((2, 3, 9), (14,)),
        ((1, 20, 6, 33), (9, 20)),
        ((1, 2, 3, 4, 5), (2, 7, 5)),
    ):
        if flat and len(shape) != 4:
            continue
        values = numbers(rng, dtype, shape)
        for layout in LAYOUTS:
            rest = (size, mode, False, (None,) * len(size))
            (found,) = outcome("resample", [guest(values, dtype, layout), *rest], engine=True)
            _close(found, _on_reference(resample, values, dtype, *rest), dtype)


GRADIENTS: tuple[tuple[Any, tuple[int, ...], tuple[Any, ...]], ...] = (
    (adaptive_avg_pool, (1, 2, 5, 7), ((2, 3),)),
    (avg_pool, (1, 2, 4, 6), ((2, 3), (2, 3), (0, 0), ((2, 2), (3, 3)), None)),
    (resample, (1, 2, 4, 5), ((7, 3), "linear", False, (None, None))),
    (resample, (1, 2, 4, 5), ((2, 9), "nearest", False, (None, None))),
)


@pytest.mark.parametrize(
    ("op", "shape", "rest"), GRADIENTS, ids=lambda v: getattr(v, "__name__", str(v))
)
def test_written_derivatives_are_the_transposes(op: Any, shape: Any, rest: Any) -> None:
    """For a linear map A: <A x, y> = <x, A^T y>."""
    rng = np.random.default_rng(5)
    x = lucerne.tensor(rng.standard_normal(shape).tolist(), dtype=dt.float64, requires_grad=True)
    out = op(x, *rest)
    y = lucerne.tensor(rng.standard_normal(out.shape).tolist(), dtype=dt.float64)
    out.backward(y)
    assert float((out * y).sum()) == pytest.approx(float((x * x.grad).sum()))
