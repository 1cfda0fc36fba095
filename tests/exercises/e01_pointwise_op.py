"""Exercise 1: an entry for `x / sqrt(1 + x * x)`: meaning, derivative, oracle, samples."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import lucerne as torch
from lucerne._src.ir.define import pointwise
from lucerne._src.ir.op import Tensor
from lucerne._src.ir.scalar.protocol import s

TOLD = r"AssertionError: squash\(3\) is 0\.3: "


def start() -> object:
    @pointwise(name="exercise_squash_start", internal=True, promote="float")
    def squash(input: Tensor) -> Tensor:
        """`x / sqrt(1 + x * x)`."""
        return input / (1 + input * input)

    return squash


def solution() -> object:
    @pointwise(
        name="exercise_squash",
        internal=True,
        promote="float",
        vjp={"input": lambda g, input: g * (1 + input * input) ** -1.5},
        oracle=lambda input: input / np.sqrt(1 + input * input),
        samples=[((2, 3),), ((),), ([0.0, -2.0, 30.0],)],
    )
    def squash(input: Tensor) -> Tensor:
        """`x / sqrt(1 + x * x)`."""
        return input / s.sqrt(1 + input * input)

    return squash


def check(squash: Callable) -> None:
    x = torch.tensor([3.0, 0.0, -0.5], dtype=torch.float64, requires_grad=True)
    wanted = x / (1 + x * x).sqrt()
    assert torch.allclose(squash(x), wanted), (
        f"squash(3) is {squash(x)[0].item():.6g}: the root is missing; see `s.sqrt`"
    )
    assert squash(torch.tensor([1])).dtype == torch.float32, "integers become floats: promote="
    assert torch.autograd.gradcheck(squash, (x,)), "the derivative is not that of the meaning"
    f32 = x.detach().float()
    assert torch.equal(torch.compile(lambda t: squash(t))(f32), squash(f32)), "compiled differs"
    assert squash.op.oracle is not None, "without an oracle conformance checks nothing"
    assert len(squash.op.samples or ()) >= 2, "give samples: a 0-dim one and large numbers too"
    assert np.allclose(squash.op.oracle(x.detach().numpy()), wanted.detach().numpy()), "oracle"
