"""Segments folded all at once, with torch's shares of a gradient."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import lucerne

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

NAN, INF = float("nan"), float("inf")
DATA: list[list[float]] = [
    [3.0, 0.5, 1.25], [2.0, 2.0, 1.0], [3.0, 0.0, 0.0], [NAN, 2.0, NAN], [0.0, NAN, 2.0],
    [INF, INF, 1.0], [-INF, 3.0, 3.0],
]  # fmt: skip
ROWS = list(
    itertools.product(
        ("sum", "mean", "prod", "max", "min"),
        (None, 2.0, NAN),
        ([2, 0, 1], [0, 3, 0], [1, 1, 1]),
        DATA,
    )
)


def found(lib: Any, reduce: str, initial: Any, lengths: list[int], data: list[float]) -> Any:
    x = lib.tensor(data, requires_grad=True)
    y = lib.segment_reduce(x, reduce, lengths=lib.tensor(lengths), initial=initial)
    y.sum().backward()  # (of equal extremes torch divides positive gradients only)
    return repr((y.tolist(), x.grad.tolist()))


def test_values_and_gradients() -> None:
    differ = [row for row in ROWS if found(lucerne, *row) != found(torch, *row)]
    assert not differ


def test_no_rows() -> None:
    x = lucerne.zeros(0, 3, 5, requires_grad=True)
    y = lucerne.segment_reduce(x, "max", offsets=lucerne.zeros(0, 5, dtype=lucerne.int64), axis=1)
    assert y.shape == (0, 4, 5)
    y.sum().backward()
    assert x.grad.shape == x.shape


@pytest.mark.parametrize("order", [0, 0.0])
def test_a_count_has_no_gradient(order: float) -> None:
    x = lucerne.tensor([1.0, 0.0, 2.0], requires_grad=True)
    lucerne.linalg.vector_norm(x, order).backward()
    assert x.grad is None
