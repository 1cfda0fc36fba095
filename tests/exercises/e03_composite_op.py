"""Exercise 3: a composite: rows to mean 0, written with other ops, and no derivative at all."""

from __future__ import annotations

from collections.abc import Callable

import lucerne as torch
from lucerne._src.ir.define import composite
from lucerne._src.ir.op import Tensor

TOLD = r"AssertionError: a row of the result has mean -?\d"


def start() -> object:
    @composite(name="exercise_centred_start", internal=True)
    def centred(input: Tensor, dim: int) -> Tensor:
        """The input less its mean along a dimension."""
        return input - input.mean().item()

    return centred


def solution() -> object:
    @composite(name="exercise_centred", internal=True)
    def centred(input: Tensor, dim: int) -> Tensor:
        """The input less its mean along a dimension."""
        return input - input.mean(dim, keepdim=True)

    return centred


def check(centred: Callable) -> None:
    x = torch.arange(12.0, dtype=torch.float64).reshape(3, 4).requires_grad_()
    means = centred(x, 1).mean(1).tolist()
    assert all(abs(m) < 1e-9 for m in means), (
        f"a row of the result has mean {means[0]}: take it along `dim`, and keep the dimension"
    )
    assert centred(x, 0).shape == (3, 4)
    assert torch.autograd.gradcheck(lambda t: centred(t, 1), (x,)), "differentiate its body"
    each = torch.func.vmap(lambda row: centred(row, 0))(x)
    assert torch.allclose(each, centred(x, 1)), "row by row it differs"
    compiled = torch.compile(lambda t: centred(t, 1), fullgraph=True)
    assert torch.allclose(compiled(x), centred(x, 1)), "compiled differs (.item() reads a value)"
