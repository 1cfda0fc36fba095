"""Laws of weighted sums over taps: transposes are transposes, and both backends agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lucerne
from lucerne._src.ops.spatial.tap_sums import tap_gather, tap_products, tap_scatter
from lucerne._src.ops.spatial.taps import resample, resample_back, transposed

MODES = ("nearest", "nearest-exact", "linear", "cubic", "area", "linear-aa", "cubic-aa")


def _numbers(seed: int, *shape: int, device: str = "cpu") -> Any:
    drawn = np.random.default_rng(seed).standard_normal(shape)
    return lucerne.tensor(drawn.tolist(), dtype=lucerne.float64, device=device).reshape(shape)


def _dot(a: Any, b: Any) -> float:
    return float((a * b).sum())


@given(
    st.sampled_from(MODES), st.booleans(),
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=3),
)  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_going_back_is_the_transpose(mode: str, align: bool, sizes: list[tuple[int, int]]) -> None:
    before, after = ((2, 3, *side) for side in zip(*sizes, strict=True))
    x, g = _numbers(1, *before), _numbers(2, *after)
    rest = (mode, align, (None,) * len(sizes))
    there = resample(x, tuple(after[2:]), *rest)
    back = resample_back(g, tuple(before[2:]), *rest)
    assert abs(_dot(there, g) - _dot(x, back)) < 1e-9 * (1 + abs(_dot(x, back)))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("layout", ["plain", "channels last"])
def test_both_backends_go_back_alike(mode: str, layout: str) -> None:
    rest = ((7, 4), mode, False, (None, None))
    g = _numbers(3, 2, 5, 4, 9)
    g = g.contiguous(memory_format=lucerne.channels_last) if layout != "plain" else g
    found = resample_back(g, *rest)
    wanted = resample_back(_numbers(3, 2, 5, 4, 9, device="reference"), *rest)
    np.testing.assert_allclose(found.tolist(), wanted.tolist(), 1e-6, 1e-6)


def test_a_transpose_of_taps_has_their_weights() -> None:
    taps = [(np.array([0, 1, 2]), np.array([1.0, 0.25, 0.0])), (np.array([1, 1, 0]), None)]
    back = transposed(taps, 4)
    dense = np.zeros((3, 4))
    for index, weight in taps:
        dense[np.arange(3), index] += 1.0 if weight is None else weight
    other = np.zeros((4, 3))
    for index, weight in back:
        assert weight is not None
        other[np.arange(4), index] += weight
    np.testing.assert_allclose(other.T, dense)


# ---- places and weights that are tensors ------------------------------------------------------

shapes = st.tuples(*[st.integers(1, 4)] * 4, st.integers(1, 21))


def _case(shape: tuple[int, ...], seed: int) -> tuple[Any, ...]:
    n, c, s, taps, points = shape
    index = np.random.default_rng(seed).integers(-1, s, (n, taps, points))
    return (
        _numbers(seed, n, c, s), lucerne.tensor(index.tolist()),
        _numbers(seed + 1, n, taps, points), _numbers(seed + 2, n, c, points),
    )  # fmt: skip


@given(shapes, st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_the_three_sums_are_one_product(shape: tuple[int, ...], seed: int) -> None:
    planes, index, weight, g = _case(shape, seed)
    whole = _dot(tap_gather(planes, index, weight), g)
    assert abs(whole - _dot(planes, tap_scatter(g, index, weight, planes.shape[2]))) < 1e-9
    assert abs(whole - _dot(weight, tap_products(g, planes, index))) < 1e-9


@pytest.mark.parametrize("points", [1, 7, 8, 300])
@pytest.mark.parametrize("dtype", [lucerne.float32, lucerne.float64], ids=["float32", "float64"])
def test_both_backends_sum_alike(points: int, dtype: Any) -> None:
    here = _case((2, 3, 5, 4, points), 5)
    there = [t.to("reference") for t in here]
    for call in (
        lambda x, i, w, g: tap_gather(x.to(dtype), i, w.to(dtype)),
        lambda x, i, w, g: tap_scatter(g.to(dtype), i, w.to(dtype), 5),
        lambda x, i, w, g: tap_products(g.to(dtype), x.to(dtype), i),
    ):
        found, wanted = call(*here), call(*there)
        assert found.dtype is wanted.dtype is dtype
        np.testing.assert_allclose(found.tolist(), wanted.tolist(), 1e-5, 1e-5)


def test_what_is_no_tap_is_not_read() -> None:
    planes = lucerne.tensor([[[float("nan"), 2.0]]])
    index, weight = lucerne.tensor([[[-1, 1, 1]]]), lucerne.tensor([[[5.0, 3.0, 0.5]]])
    assert tap_gather(planes, index, weight).tolist() == [[[0.0, 6.0, 1.0]]]


def test_derivatives_of_a_sampled_image() -> None:
    """Against finite differences, twice."""
    x = _numbers(1, 1, 1, 3, 3).requires_grad_()
    grid = (_numbers(2, 1, 1, 2, 2) * 0.4).requires_grad_()
    for mode in ("bilinear", "bicubic"):

        def run(a: Any, b: Any, mode: str = mode) -> Any:
            return lucerne.nn.functional.grid_sample(a, b, mode, align_corners=False)

        assert lucerne.autograd.gradcheck(run, (x, grid))
        assert mode == "bicubic" or lucerne.autograd.gradgradcheck(run, (x, grid))
