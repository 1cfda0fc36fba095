"""Sorting, the first few and searching of the CPU engine against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lucerne._src.backends.cpu.runtime import pool
from lucerne._src.backends.cpu.sort.long import LONG
from lucerne._src.backends.cpu.sort.rows import INSERTED
from lucerne._src.backends.cpu.sort.top import FEW
from lucerne._src.base import dtype as dt
from tests.cpu.calls import LAYOUTS, Array, check, guest, numbers, outcome

DTYPES = (
    dt.float32, dt.float64, dt.float16, dt.bfloat16, dt.int64, dt.int32, dt.int16, dt.int8,
    dt.uint8, dt.bool_,
)  # fmt: skip
SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40])


def _values(rng: np.random.Generator, dtype: dt.dtype, shape: tuple[int, ...]) -> Array:
    """Few different values, among them the special ones."""
    values = numbers(rng, dtype, shape)
    if dtype.category != dt.FLOAT:
        return values
    odd = SPECIAL[rng.integers(0, len(SPECIAL), shape)]
    return np.where(rng.random(shape) < 0.3, odd, values)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda t: t.name)
def test_sort_is_stable_with_nan_largest(dtype: dt.dtype, descending: bool) -> None:
    rng = np.random.default_rng(1)
    for shape in ((), (0,), (1,), (INSERTED,), (INSERTED + 1,), (3, 200), (5, 2, 50)):
        for dim in range(max(1, len(shape))):
            for layout in LAYOUTS[: 1 if len(shape) < 2 else 3]:
                x = guest(_values(rng, dtype, shape), dtype, layout)
                check("sort_along", [x, dim, descending, True])


@pytest.mark.parametrize("dtype", [dt.float32, dt.int64, dt.bfloat16], ids=lambda t: t.name)
def test_a_long_row_is_sorted_alike_by_any_number_of_threads(dtype: dt.dtype) -> None:
    rng = np.random.default_rng(2)
    values = rng.standard_normal(LONG + 77) * 1000
    x = guest(values if dtype.category == dt.FLOAT else values.astype(np.int64), dtype)
    before = pool.threads()
    try:
        for threads in (1, 3):
            pool.set_threads(threads)
            check("sort_along", [x, 0, False, True])
    finally:
        pool.set_threads(before)


@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda t: t.name)
def test_top_positions_are_the_first_of_the_sorted(dtype: dt.dtype, largest: bool) -> None:
    rng = np.random.default_rng(3)
    for shape, dim in (((), 0), ((1,), 0), ((300,), 0), ((4, 150), 1), ((150, 4), 0)):
        values = _values(rng, dtype, shape)
        size = shape[dim] if shape else 1
        for layout in LAYOUTS:
            x = guest(values, dtype, layout)
            _, order = outcome("sort_along", [x, dim, largest, True], engine=True)
            for k in {1, min(size, 7), min(size, FEW + 3), size}:
                (found,) = outcome("top_positions", [x, k, dim, largest], engine=True)
                wanted = order.take(range(k), dim) if shape else order
                np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda t: t.name)
def test_binary_search_finds_where_values_belong(dtype: dt.dtype, right: bool) -> None:
    rng = np.random.default_rng(4)
    for size in (0, 1, 2, 9, 64):
        row = np.sort(_values(rng, dtype, (size,)))
        for layout in LAYOUTS:
            wanted = guest(_values(rng, dtype, (5, 9)), dtype, layout)
            check("binary_search", [guest(row, dtype, LAYOUTS[2]), wanted, right])
            rows = np.sort(_values(rng, dtype, (5, size)))
            check("binary_search", [guest(rows, dtype, LAYOUTS[0]), wanted, right])


@given(st.lists(st.floats(width=32), max_size=200), st.booleans())
@settings(max_examples=40)
def test_sorting_any_floats(values: list[float], descending: bool) -> None:
    x: Any = guest(np.array(values, np.float32), dt.float32)
    check("sort_along", [x, 0, descending, True])
