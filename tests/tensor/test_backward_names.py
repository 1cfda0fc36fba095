"""Backward nodes have torch's names: those of ops whose names torch writes in capitals or apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import lucerne  # noqa: E402

pytestmark = pytest.mark.torch

Call = Callable[[Any, Any], Any]
ROWS: dict[str, Call] = {
    "a letter after a digit": lambda lib, x: x.log1p(),
    "no letter after it": lambda lib, x: x.expm1(),
    "special's": lambda lib, x: lib.special.i0e(x),
    "fft's, real": lambda lib, x: lib.fft.rfft(x),
    "fft's, complex": lambda lib, x: lib.fft.ifft(lib.complex(x, x)),
    "columns": lambda lib, x: lib.nn.functional.unfold(x.reshape(1, 1, 4, 4), 2),
    "pooled in the mean": lambda lib, x: lib.nn.functional.adaptive_avg_pool2d(
        x.reshape(1, 1, 4, 4), 3
    ),
    "with positions": lambda lib, x: lib.nn.functional.max_pool2d(x.reshape(1, 1, 4, 4), 2),
    "two words": lambda lib, x: lib.nn.functional.logsigmoid(x),
    "a factorization": lambda lib, x: lib.linalg.qr(x)[0],
    "an overload by an argument": lambda lib, x: x.sum(1),
    "a number on the left": lambda lib, x: 2 - x,
    "a power of a number": lambda lib, x: 2.0**x,
    "ends of two tensors": lambda lib, x: x.clamp(x.detach(), x.detach() + 1),
    "ends of numbers": lambda lib, x: x.clamp(0.1, 0.7),
    "batched products": lambda lib, x: lib.bmm(x[None], x[None]),
    "products of matrices": lambda lib, x: x @ x,
    "a sum and a product": lambda lib, x: lib.addmm(x, x, x),
    "linear of a batch": lambda lib, x: lib.nn.functional.linear(x[None], x, x[0]),
    "linear without a bias": lambda lib, x: lib.nn.functional.linear(x, x),
    "a mean of squares": lambda lib, x: lib.nn.functional.mse_loss(x, x.detach() * 2),
    "a loss with weights": lambda lib, x: lib.nn.functional.mse_loss(
        x, x.detach() * 2, weight=x.detach()
    ),
    "the greatest k": lambda lib, x: x.topk(2)[0],
    "a root as a power": lambda lib, x: x**0.5,
}


@pytest.mark.parametrize("name", ROWS)
def test_backward_nodes_are_called_as_in_torch(name: str) -> None:
    numbers = [[0.1 + 0.05 * (4 * i + j) + (i == j) for j in range(4)] for i in range(4)]
    ours, theirs = (
        ROWS[name](lib, lib.tensor(numbers, requires_grad=True)).grad_fn.name()
        for lib in (lucerne, torch)
    )
    assert ours == theirs
