"""Windows added up, bags of rows, hashes and fused steps, against plain loops."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lucerne
from lucerne.nn import functional as F

pair = st.tuples(st.integers(1, 3), st.integers(1, 3))


@given(pair, pair, st.tuples(st.integers(0, 2), st.integers(0, 2)), pair)
@settings(max_examples=30, deadline=None)
def test_fold_is_the_transpose_of_unfold(kernel: Any, gap: Any, pad: Any, step: Any) -> None:
    rng = np.random.default_rng(0)
    x = lucerne.tensor(rng.standard_normal((2, 2, 9, 8)).tolist(), dtype=lucerne.float64)
    columns = F.unfold(x, kernel, gap, pad, step)
    drawn = rng.standard_normal(tuple(columns.shape))
    g = lucerne.tensor(drawn.tolist(), dtype=lucerne.float64)
    back = F.fold(g, (9, 8), kernel, gap, pad, step)
    assert abs(float((columns * g).sum()) - float((x * back).sum())) < 1e-9


def test_fold_of_single_pixels_is_a_copy() -> None:
    columns = lucerne.ones(1, 2, 6)
    F.fold(columns, (2, 3), 1).zero_()
    assert float(columns.sum()) == 12.0


@given(
    st.lists(st.lists(st.integers(0, 4), max_size=5), min_size=1, max_size=5),
    st.sampled_from(["sum", "mean", "max"]),
    st.none() | st.lists(st.integers(0, 4), max_size=3),
    st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_bags(bags: list[list[int]], mode: str, behind: list[int] | None, padded: bool) -> None:
    """`behind`: indices after the last offset, which says where the last bag ends; in no bag."""
    table = np.random.default_rng(1).standard_normal((5, 3)).astype(np.float32)
    fold: Any = {"sum": np.sum, "mean": np.mean, "max": np.max}[mode]
    folded = [[i for i in b if not (padded and i == 2)] for b in bags]
    wanted = [fold(table[b], axis=0) if b else np.zeros(3) for b in folded]
    starts = [0, *itertools.accumulate(map(len, bags))]
    index = lucerne.tensor([i for b in [*bags, behind or []] for i in b], dtype=lucerne.int64)
    weight = lucerne.tensor(table).requires_grad_()
    found = F.embedding_bag(
        index,
        weight,
        lucerne.tensor(starts[:-1] if behind is None else starts),
        mode=mode,
        padding_idx=2 if padded else None,
        include_last_offset=behind is not None,
    )
    np.testing.assert_allclose(found.tolist(), np.array(wanted), 1e-5, 1e-6)
    found.sum().backward()
    counted = sum(len(b) if mode == "sum" else bool(b) for b in folded)
    assert weight.grad is not None
    np.testing.assert_allclose(weight.grad.sum(0).tolist(), [counted] * 3, 1e-5)


def test_offsets_out_of_order_read_nothing_foreign() -> None:
    """Such bags mean nothing, but they must not reach beyond the indices."""
    table, index = lucerne.eye(4), lucerne.tensor([0, 1, 2])
    found = F.embedding_bag(index, table, lucerne.tensor([0, 3, 1]), mode="sum")
    assert tuple(found.shape) == (3, 4)
    assert float(found.sum()) == 3.0


@given(st.lists(st.integers(-(2**62), 2**62), min_size=1, max_size=40), st.randoms())
@settings(max_examples=30, deadline=None)
def test_hashes_do_not_see_order(values: list[int], random: Any) -> None:
    wanted = 0
    for v in values:
        wanted ^= v % 2**64
    mixed = list(values)
    random.shuffle(mixed)
    for order in (values, mixed):
        assert lucerne.hash_tensor(lucerne.tensor(order)).item() == wanted


@pytest.mark.parametrize("dtype", [lucerne.float32, lucerne.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("maximize", [False, True])
def test_fused_adagrad_is_the_formula(dtype: Any, maximize: bool) -> None:
    rng = np.random.default_rng(2)
    lists = [[rng.random(s).astype(np.float64) for s in ((3, 5), (33,))] for _ in range(3)]
    tensors = [[lucerne.tensor(x.tolist(), dtype=dtype) for x in row] for row in lists]
    steps = [lucerne.tensor(1.0), lucerne.tensor(4.0)]
    lucerne._fused_adagrad_(
        *tensors, steps, lr=0.1, lr_decay=0.5, weight_decay=0.2, eps=1e-6, maximize=maximize
    )
    for k, (p, g, total) in enumerate(zip(*lists, strict=True)):
        g = (-g if maximize else g) + 0.2 * p
        total = total + g * g
        rate = 0.1 / (1 + (float(steps[k]) - 1) * 0.5)
        found, sums = tensors[0][k], tensors[2][k]
        np.testing.assert_allclose(sums.tolist(), total, 1e-5)
        np.testing.assert_allclose(found.tolist(), p - rate * g / (total**0.5 + 1e-6), 1e-4, 1e-5)


def test_a_step_that_was_not_finite_is_left_out() -> None:
    p, state = lucerne.ones(3), lucerne.zeros(3)
    lucerne._fused_adagrad_(
        [p], [lucerne.ones(3)], [state], [lucerne.tensor(1.0)], lr=0.1, lr_decay=0.0,
        weight_decay=0.0, eps=1e-8, maximize=False, grad_scale=lucerne.tensor(2.0),
        found_inf=lucerne.tensor(1.0),
    )  # fmt: skip
    assert p.tolist() == [1.0] * 3
    assert state.tolist() == [0.0] * 3
