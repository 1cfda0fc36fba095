"""A weight that is not finite reaches what it is multiplied with, and no further."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import lucerne

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch
PAIR = (lucerne, torch)

SETTINGS = {  # size, channels, outputs, groups, kernel, stride, padding, dilation
    "one channel": (5, 1, 1, 1, 3, 1, 1, 1),
    "no padding": (5, 1, 1, 1, 3, 1, 0, 1),
    "zeros between": (5, 1, 1, 1, 3, 2, 1, 1),
    "few channels": (7, 4, 6, 1, 3, 1, 2, 2),
    "a stride": (16, 4, 6, 1, 4, 2, 1, 1),
    "depthwise": (16, 4, 4, 4, 3, 2, 1, 1),
    "many channels": (16, 64, 64, 1, 3, 1, 1, 1),
    "many channels, a stride": (15, 64, 64, 1, 3, 2, 1, 1),
}


def _ones(t: Any, shape: Any, dtype: str) -> Any:
    values = np.random.default_rng(len(shape)).integers(1, 4, shape)
    return t.tensor(values.tolist(), dtype=getattr(t, dtype))


def _spoiled(t: Any, shape: Any, dtype: str, value: float, tap: int) -> Any:
    w = _ones(t, shape, dtype)
    w[(0, 0, *[tap] * (len(shape) - 2))] = value
    return w


def _found(t: Any, n: int, dtype: str, setting: Any, value: float, tap: int) -> list[Any]:
    """The gradient of a convolution's input, and a transposed convolution."""
    size, c, o, groups, k, *rest = setting
    given = dict(zip(("stride", "padding", "dilation"), rest, strict=True), groups=groups)
    w = _spoiled(t, (o, c // groups, *[k] * n), dtype, value, tap)
    x = t.zeros((2, c, *[size] * n), dtype=getattr(t, dtype), requires_grad=True)
    y = getattr(t.nn.functional, f"conv{n}d")(x, w, **given)
    y.backward(_ones(t, tuple(y.shape), dtype))
    f = getattr(t.nn.functional, f"conv_transpose{n}d")
    back = f(_ones(t, (2, o, *[size] * n), dtype), w, **given)
    return [str(v.float().tolist()) for v in (x.grad, back)]


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("n", [1, 2])
def test_one_weight(n: int, name: str, value: float) -> None:
    for tap in (0, 1, -1):
        found, exact = (_found(t, n, "float32", SETTINGS[name], value, tap) for t in PAIR)
        assert found == exact, tap


@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
@pytest.mark.parametrize("name", SETTINGS)
def test_types(name: str, dtype: str) -> None:
    """As float32 has it: with matrix tiles for bfloat16, torch's own spreads nan further there."""
    found = _nans(lucerne, 2, dtype, SETTINGS[name])
    assert found == _nans(torch, 2, "float32", SETTINGS[name])


def _nans(t: Any, n: int, dtype: str, setting: Any) -> list[Any]:
    return [v.count("nan") for v in _found(t, n, dtype, setting, math.nan, 0)]


def test_three_dimensions() -> None:
    for name in ("one channel", "zeros between", "few channels"):
        found, exact = (_nans(t, 3, "float32", SETTINGS[name]) for t in PAIR)
        assert found == exact, name


def test_a_bias_is_added_once() -> None:
    def row(t: Any) -> Any:
        w = t.tensor([[[math.inf, 1.0]]])
        return str(t.conv_transpose1d(t.ones(1, 1, 3), w, t.tensor([2.0]), stride=2).tolist())

    assert row(lucerne) == row(torch)
