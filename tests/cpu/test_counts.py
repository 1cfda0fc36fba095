"""Histograms and unique values: laws against NumPy, and that nothing unasked is computed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lucerne as lu
from lucerne._src.ops.index import counting


@pytest.mark.parametrize("bins", [1, 7, 100])
@pytest.mark.parametrize("ends", [(0.0, 0.0), (-1.0, 2.0), (5.0, 6.0)])
def test_histc_counts_as_numpy_does(bins: int, ends: tuple[float, float]) -> None:
    x = np.random.default_rng(3).normal(size=999)
    low, high = ends if ends[0] < ends[1] else (x.min(), x.max())
    wanted, _ = np.histogram(x, bins, (low, high))
    found = lu.tensor(x).histc(bins, *ends)
    assert found.tolist() == wanted.tolist()


def test_histc_leaves_out_what_is_outside_and_nan() -> None:
    x = lu.tensor([0.0, 1.0, 3.0, 4.0, -1.0, float("nan")])
    assert x.histc(3, 0, 3).tolist() == [1.0, 1.0, 1.0]
    assert lu.empty(0).histc(2, 0, 1).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("dim", [None, 0, 1])
@pytest.mark.parametrize("asked", [(False, False), (True, False), (False, True), (True, True)])
def test_unique_gives_what_is_asked(dim: int | None, asked: tuple[bool, bool]) -> None:
    x = np.random.default_rng(1).integers(0, 3, (6, 2))
    wanted = np.unique(x, return_inverse=asked[0], return_counts=asked[1], axis=dim)
    found = lu.tensor(x).unique(return_inverse=asked[0], return_counts=asked[1], dim=dim)
    pairs = zip(wanted, found, strict=True) if any(asked) else [(wanted, found)]
    for want, got in pairs:
        assert np.array_equal(np.ravel(want), np.ravel(got.numpy()))


def test_unique_computes_no_inverse_and_no_counts_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    def unasked(self: Any) -> Any:
        raise AssertionError("computed without being asked for")

    monkeypatch.setattr(counting.EqualRuns, "numbers", unasked)
    monkeypatch.setattr(counting.EqualRuns, "counts", unasked)
    x = lu.tensor([3, 1, 3])
    assert x.unique().tolist() == [1, 3]
    assert x.unique_consecutive().tolist() == [3, 1, 3]
    with pytest.raises(AssertionError, match="asked"):
        x.unique(return_inverse=True)


def test_adaptive_maxima_alone_are_those_that_come_with_indices() -> None:
    pool = lu.nn.functional.adaptive_max_pool2d
    x = lu.randn(2, 3, 7, 9, requires_grad=True)
    alone, (both, at) = pool(x, (3, 4)), pool(x, (3, 4), return_indices=True)
    assert lu.equal(alone, both)
    assert lu.equal(x.flatten(2).gather(2, at.flatten(2)).reshape(at.shape), both)
    (one,), (two,) = (lu.autograd.grad(y.sum(), x) for y in (alone, both))
    assert lu.equal(one, two)
