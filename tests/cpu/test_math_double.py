"""Exponentials and logarithms of float64 by lanes, and complex powers; the truth is long double."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucerne
from lucerne._src.backends.cpu.math.table import FLOAT64

Wide = np.longdouble
needs_long_double = pytest.mark.skipif(
    np.finfo(np.longdouble).nmant < 60, reason="this machine's long double is a double"
)


def _sigmoid(x: Any) -> Any:
    small = np.exp(-np.abs(x))
    return np.where(x < 0, small, Wide(1)) / (1 + small)


TRUTHS: dict[str, tuple[Callable[[Any], Any], float]] = {
    "exp": (np.exp, 1.0),
    "exp2": (np.exp2, 1.2),
    "expm1": (np.expm1, 2.0),
    "sigmoid": (_sigmoid, 2.5),
    "tanh": (np.tanh, 2.5),
    "log": (np.log, 1.0),
    "log1p": (np.log1p, 1.2),
    "log2": (np.log2, 2.0),
}
"""The function on long doubles, and the error allowed in units of the last place."""
EDGES = np.array([
    0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 709.78, 709.79, 710.0, -708.3, -740.0, -745.1,
    -745.2, -746.0, 1023.9, 1024.0, -1022.5, -1074.0, -1076.0, 5e-324, -5e-324, 1e-310, 2.0**-1022,
    8.0, 0.5, 1e308, -40.0, 22.0, 0.34, -0.35,
])  # fmt: skip


def inputs() -> Any:
    rng = np.random.default_rng(0)
    spread = np.exp(rng.uniform(-700, 700, 3000)) * rng.choice([-1, 1], 3000)
    near = [rng.uniform(-a, a, 3000) for a in (0.5, 3, 40, 720)]
    return np.concatenate([EDGES, spread, *near, 1 + rng.uniform(-1e-2, 1e-2, 2000)])


def units(got: Any, truth: Any) -> Any:
    """Errors in units of the last place of the truth; special values must be the same."""
    with np.errstate(all="ignore"):
        rounded = truth.astype(np.float64)
        step = np.maximum(np.spacing(np.abs(rounded)), 5e-324).astype(Wide)
        off = np.abs(got.astype(Wide) - truth) / step
    same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
    return np.where(np.isfinite(rounded) & np.isfinite(got), off, np.where(same, 0, np.inf))


@needs_long_double
@pytest.mark.parametrize("name", TRUTHS)
def test_errors_are_within_the_bound(name: str) -> None:
    truth, bound = TRUTHS[name]
    x = inputs()
    with np.errstate(all="ignore"):
        want = truth(x.astype(Wide))
    for count in (len(x), len(x) - 3):  # whole vectors, and a rest
        got = getattr(lucerne, name)(lucerne.from_numpy(x[:count])).numpy()
        off = units(got, want[:count])
        worst = int(np.argmax(off))
        assert off[worst] <= bound, f"{off[worst]} units at {x[worst]!r}"


@pytest.mark.parametrize("name", ["expm1", "tanh", "log1p"])
def test_zeros_keep_their_sign(name: str) -> None:
    got = getattr(lucerne, name)(lucerne.tensor([0.0, -0.0], dtype=lucerne.float64)).numpy()
    assert np.signbit(got).tolist() == [False, True]


def test_the_measure_sees_errors() -> None:
    truth = np.array([1.0, 2.0, np.inf], Wide)
    assert units(np.array([1.0, 2.0, np.inf]), truth).tolist() == [0, 0, 0]
    assert units(np.array([1 + 3 * 2.0**-52, 2.0, 1.0]), truth).tolist() == [3, 0, np.inf]


def test_powers_of_two_have_exact_logarithms() -> None:
    powers = np.arange(-1074, 1024)
    got = lucerne.log2(lucerne.from_numpy(np.ldexp(1.0, powers))).numpy()
    np.testing.assert_array_equal(got, powers)


def test_all_written_functions_are_tested() -> None:
    assert set(FLOAT64) == set(TRUTHS)


@pytest.mark.parametrize("exponent", [2, 3, 2.0, 3.0, -1, 2.5, 1 + 1j])
def test_complex_powers(exponent: Any) -> None:
    rng = np.random.default_rng(1)
    for dtype, allowed in ((np.complex64, 1e-5), (np.complex128, 1e-13)):
        z = (rng.standard_normal(37) + 1j * rng.standard_normal(37)).astype(dtype)
        got = (lucerne.from_numpy(z) ** exponent).numpy()
        np.testing.assert_allclose(got, z.astype(np.complex128) ** exponent, allowed, allowed)


def test_trigamma_keeps_to_its_recurrence() -> None:
    """psi'(x) - psi'(x + 1) = 1 / x ** 2, and its value at one half."""
    x = np.concatenate([np.linspace(-4.9, 30, 700), [1e-3, 1e5]])
    x = x[(x > 0) | (np.abs(x - np.round(x)) > 0.05)]  # at the poles all digits cancel
    value = lambda v: lucerne.polygamma(1, lucerne.from_numpy(v)).numpy()  # noqa: E731
    np.testing.assert_allclose(value(x) - value(x + 1), x**-2.0, 1e-8, 1e-11)
    half = lucerne.polygamma(1, lucerne.tensor(0.5, dtype=lucerne.float64)).item()
    assert abs(half - np.pi**2 / 2) < 1e-14
    single = lucerne.polygamma(1, lucerne.tensor([0.5, float("inf"), 0.0]))
    np.testing.assert_allclose(single.numpy(), [np.pi**2 / 2, 0, np.inf], 1e-6)
