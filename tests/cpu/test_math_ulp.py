"""Every function of float32 is as exact as it says, and right at the special values."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lucerne._src.base import dtype as dt
from tests.cpu import ulp
from tests.cpu.lanes import over_lanes

STEP = 4096
DTYPES = (dt.float32, dt.float16, dt.bfloat16)


def check(errors: ulp.Errors, bound: float) -> None:
    """Fail unless the largest error is within the bound and no special value is wrong."""
    assert errors.special == 0, f"{errors.special} special values wrong: {errors.first_special}"
    assert errors.worst <= bound, f"{errors.worst:.3f} ulp at {errors.where!r}"


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
@pytest.mark.parametrize("row", ulp.ROWS, ids=lambda r: r.name)
def test_errors_are_within_the_bound(row: ulp.Row, dtype: dt.dtype) -> None:
    check(ulp.sweep(row, dtype, STEP), ulp.bound_of(row, dtype))


@pytest.mark.parametrize("lanes", [1, 4, 8])
@pytest.mark.parametrize(
    "name", ["exp", "log", "log1p", "sin", "tan", "tanh", "gelu", "silu", "logit"]
)
def test_other_lane_counts_are_as_exact(name: str, lanes: int) -> None:
    row = next(r for r in ulp.ROWS if r.name == name)
    check(ulp.sweep(row, dt.float32, 1 << 16, lanes), row.bound)


@pytest.mark.parametrize("name", ["gelu", "gelu_tanh", "sin", "cos", "logit"])
def test_a_lane_does_not_depend_on_its_neighbours(name: str) -> None:
    """Vectors with a lane beyond the tables take another way: the other lanes stay the same."""
    row = next(r for r in ulp.ROWS if r.name == name)
    run = over_lanes(row.body, [dt.float32], dt.float32, ulp.LANES)
    x = np.linspace(-3.4, 3.4, 1 << 12, dtype=np.float32)
    far = np.where(np.arange(len(x)) % 5 == 0, np.float32(-5000.0), x)
    same = far == x
    assert same.any()
    np.testing.assert_array_equal(run(far)[same], run(x)[same])


def _errors(got: list[float], truth: list[float]) -> ulp.Errors:
    x = np.arange(len(got), dtype=np.float64)
    return ulp.measure(np.array(got, np.float64), np.array(truth), x, dt.float32)


STEP_OF_ONE = 2.0**-23


@pytest.mark.parametrize(
    ("got", "truth"),
    [
        ([1.0, 1.0 + 3 * STEP_OF_ONE], [1.0, 1.0]),  # three units
        ([2.0**-149 * 4], [2.0**-149]),  # three units of a denormal number
        ([0.0], [2.0**-120]),  # flushed to zero
        ([1.0], [math.inf]),
        ([math.nan], [1.0]),
        ([1.0], [math.nan]),
        ([-math.inf], [math.inf]),
        ([0.0], [-0.0]),
    ],
)
def test_the_check_fails_on_wrong_values(got: list[float], truth: list[float]) -> None:
    with pytest.raises(AssertionError):
        check(_errors(got, truth), 2.5)


def test_the_check_passes_right_values() -> None:
    values = [1.0, -0.0, math.inf, -math.inf, math.nan, 2.0**-149]
    check(_errors(values, values), 0.0)


def test_the_unit_is_that_of_the_truth() -> None:
    assert _errors([1.0 + STEP_OF_ONE], [1.0]).worst == 1.0
    assert _errors([2.0 + 2 * STEP_OF_ONE], [2.0]).worst == 1.0
