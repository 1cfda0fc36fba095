"""Reductions and scans of the CPU engine against the reference, over dtypes and layouts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lucerne as lucerne  # fills the table of ops
from lucerne._src.backends.cpu.runtime import pool
from lucerne._src.base import dtype as dt
from tests.cpu.both import Both, Tensor, check_same, tensor

REAL = (dt.float32, dt.float64, dt.bfloat16, dt.float16, dt.int64, dt.int32, dt.uint8, dt.bool_)
COMPLEX = (dt.complex64, dt.complex128)
LAYOUTS = ("plain", "turned", "sliced", "expanded", "shifted")
SHAPES: tuple[tuple[int, ...], ...] = (
    (), (1,), (5,), (70,), (3, 0), (9, 40), (40, 3), (3, 5, 4, 9), (2, 300, 17),
)  # fmt: skip
FOLDS = ("sum", "prod_dim", "amax", "amin", "any_dims", "all_dims", "argmax", "argmin")
ONE_DIM = ("prod_dim", "argmax", "argmin")
ORDERED = ("amax", "amin", "argmax", "argmin")


def dims_of(ndim: int, name: str) -> list[Any]:
    found: list[Any] = [None, *range(ndim)]
    if name in ONE_DIM:
        return found
    found = [() if d is None else (d,) for d in found]
    return found + ([(0, ndim - 1)] if ndim > 1 else []) + ([(1, 2)] if ndim > 2 else [])


def fold(name: str, x: Tensor, dim: Any, keepdim: bool) -> Both:
    rest = (None,) if name in ("sum", "prod_dim") else ()
    return Both(name, (x, dim, keepdim, *rest))


@pytest.mark.parametrize("name", FOLDS)
def test_folds_over_all_dims_and_layouts(name: str) -> None:
    rng = np.random.default_rng(len(name))
    for shape in SHAPES:
        if 0 in shape and name in ORDERED:
            continue
        for k, dim in enumerate(dims_of(len(shape), name)):
            dtype = REAL[int(rng.integers(len(REAL)))]
            layout = LAYOUTS[int(rng.integers(len(LAYOUTS)))]
            call = fold(name, tensor(rng, dtype, shape, layout), dim, bool(k % 2))
            check_same(call)
            assert not call.fell_back, (name, dtype, shape, dim, layout)


@pytest.mark.parametrize("name", FOLDS)
def test_folds_of_every_dtype(name: str) -> None:
    rng = np.random.default_rng(7)
    for dtype in REAL if name in ORDERED else (*REAL, *COMPLEX):
        for dim in (0, 1):
            x = tensor(rng, dtype, (11, 35))
            check_same(fold(name, x, dim if name in ONE_DIM else (dim,), False))


@pytest.mark.parametrize("shape", [(100000,), (3, 40000), (40000, 3), (1, 70000, 1)])
@pytest.mark.parametrize("name", ["sum", "amax", "argmin", "any_dims"])
def test_long_folds_are_split_and_combined(name: str, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(3)
    x = tensor(rng, dt.float64, shape)
    long = int(np.argmax(shape))
    check_same(fold(name, x, long if name in ONE_DIM else (long,), False))
    check_same(fold(name, x, None if name in ONE_DIM else (), False))


def test_long_sums_of_float32_stay_accurate() -> None:
    rng = np.random.default_rng(1)
    x = tensor(rng, dt.float32, (1 << 20,))
    x.values[...] = rng.random(1 << 20, np.float32)
    _, found = fold("sum", x, (), False).run()
    exact = x.values.astype(np.float64).sum()
    assert abs(float(found.values) - exact) <= 4e-7 * exact


@pytest.mark.parametrize("position", [0, 1, 37, 69])
@pytest.mark.parametrize("name", ORDERED)
def test_a_nan_wins_and_the_first_one_is_found(name: str, position: int) -> None:
    x = tensor(np.random.default_rng(2), dt.float32, (70,))
    x.values[[position, -1]] = np.nan
    check_same(fold(name, x, None if name in ONE_DIM else (), False))


def test_the_first_of_equal_extremes_is_found() -> None:
    for n in (1, 16, 17, 64, 200, 70000):
        x = tensor(np.random.default_rng(2), dt.float32, (n,))
        for fill in (0.0, -np.inf, np.inf):
            x.values[...] = fill
            for name in ("argmax", "argmin"):
                _, found = fold(name, x, None, False).run()
                assert int(found.values) == 0


@pytest.mark.parametrize("shape", [(1 << 17,), (300, 700), (700, 300)])
def test_results_do_not_depend_on_the_number_of_threads(shape: tuple[int, ...]) -> None:
    x = tensor(np.random.default_rng(4), dt.float32, shape)
    before, results = pool.threads(), []
    try:
        for threads in (1, 2, 3):
            pool.set_threads(threads)
            results.append([fold("sum", x, d, False).run()[1].values for d in ((), (0,), (-1,))])
    finally:
        pool.set_threads(before)
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(a, b)


# ---- scans --------------------------------------------------------------------------------------


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("mode", ["add", "mul", "logaddexp", "argmax", "argmin"])
def test_scans(mode: str, reverse: bool) -> None:
    rng = np.random.default_rng(5)
    dtypes = (dt.float32, dt.float64, dt.bfloat16)
    if mode != "logaddexp":
        dtypes += (dt.int64, dt.uint8)
    for shape in ((), (1,), (7,), (100,), (6, 33), (3, 20, 9)):
        for dim in range(max(1, len(shape))):
            for layout in ("plain", "turned", "sliced"):
                dtype = dtypes[int(rng.integers(len(dtypes)))]
                x = tensor(rng, dtype, shape, layout)
                call = Both("scan", (x, dim, mode, reverse, None))
                assert not call.fell_back
                check_same(call)


@pytest.mark.parametrize("reverse", [False, True])
def test_linear_scans(reverse: bool) -> None:
    rng = np.random.default_rng(6)
    for dtype in (dt.float32, dt.float64, dt.complex64):
        for dim in (0, 1, 2):
            x = tensor(rng, dtype, (5, 7, 20), "turned")
            decay = tensor(rng, dtype, (5, 7, 20))
            decay.values[...] *= 0.2
            check_same(Both("linear_scan", (decay, x, dim, reverse)))


def test_long_running_sums_stay_accurate() -> None:
    rng = np.random.default_rng(1)
    x = tensor(rng, dt.float32, (1 << 17,))
    x.values[...] = rng.random(1 << 17, np.float32)
    _, found = Both("scan", (x, 0, "add", False, None)).run()
    exact = np.cumsum(x.values.astype(np.float64))
    np.testing.assert_allclose(found.values, exact, 2e-7)
