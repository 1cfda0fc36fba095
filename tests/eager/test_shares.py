"""The upper incomplete gamma function where it is small: no difference of numbers near 1."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import lucerne


def _exponential_integral(x: float) -> float:
    """E1(x) for x up to 2, by its series."""
    total, term = 0.0, 1.0
    for k in range(1, 60):
        term *= -x / k
        total -= term / k
    return -0.57721566490153286 - math.log(x) + total


@pytest.mark.parametrize("a", [1e-38, 1e-30, 1e-20, 1e-12])
@pytest.mark.parametrize("x", [1e-6, 1e-3, 0.1, 0.5, 0.99])
def test_of_a_small_order(a: float, x: float) -> None:
    """`gammaincc(a, x)` tends to `a E1(x)`."""
    a, x = float(np.float32(a)), float(np.float32(x))
    expected = a * _exponential_integral(x)
    found: Any = lucerne.special.gammaincc(lucerne.tensor(a), lucerne.tensor(x))
    assert float(found) == pytest.approx(expected, rel=1e-6)
    wide = [lucerne.tensor(v, dtype=lucerne.float64) for v in (a, x)]
    assert float(lucerne.special.gammaincc(*wide)) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("a", [0.0099, 0.0101, 0.3])
def test_both_shares_together_are_one(a: float) -> None:
    x = lucerne.linspace(0.01, 3, 50, dtype=lucerne.float64)
    order = lucerne.full_like(x, a)
    both = lucerne.special.gammainc(order, x) + lucerne.special.gammaincc(order, x)
    assert float((both - 1).abs().max()) < 1e-14
