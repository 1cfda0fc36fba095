"""`erfinv` of float32 is computed in float32: how exact that is."""

from __future__ import annotations

import numpy as np

import lucerne as lu


def test_float32_is_within_three_units_of_the_last_place() -> None:
    near_one = 1 - 2.0 ** -np.arange(1, 25)
    x = np.concatenate([np.linspace(-1, 1, 20_001)[1:-1], near_one, -near_one, [1e-30, 1e-5]])
    x = x.astype(np.float32)
    wanted = lu.erfinv(lu.tensor(x).double()).numpy()
    found = lu.erfinv(lu.tensor(x)).numpy()
    away = np.abs(found - wanted) / np.spacing(np.abs(wanted).astype(np.float32))
    assert away.max() < 3.0


def test_float32_does_not_take_the_long_way() -> None:
    """The long way rounds float64 once: some results differ from it, by a unit or two."""
    x = lu.linspace(-0.99, 0.99, 4001)
    assert not lu.equal(lu.erfinv(x), lu.erfinv(x.double()).float())


def test_the_ends() -> None:
    x = lu.tensor([1.0, -1.0, 0.0, -0.0, 1.5, float("nan")])
    found = lu.erfinv(x).tolist()
    assert found[:2] == [float("inf"), -float("inf")]
    assert [str(v) for v in found[2:]] == ["0.0", "-0.0", "nan", "nan"]
