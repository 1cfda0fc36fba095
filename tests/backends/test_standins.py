"""Stand-ins for SciPy's functions agree with SciPy where it is installed."""

from __future__ import annotations

import numpy as np
import pytest

from lucerne.backends.reference.standins import STANDINS

special = pytest.importorskip("scipy.special", reason="SciPy is what the stand-ins are held to")
RANGES = {
    "digamma": np.concatenate([np.linspace(-9.7, 30, 997), [0.0, 1e-9, 1e8, -3.0, np.inf]]),
    "erfinv": np.concatenate([np.linspace(-1.2, 1.2, 999), [1e-12, 0.999999999999, np.nan]]),
    "i0": np.linspace(-40, 40, 999),
}


@pytest.mark.parametrize("name", STANDINS)
def test_standin_agrees_with_scipy(name: str) -> None:
    x = RANGES[name]
    with np.errstate(all="ignore"):
        got, expected = STANDINS[name](x), getattr(special, name)(x)
    np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-9)
    assert STANDINS[name](np.float32(0.5)).dtype == np.float32
