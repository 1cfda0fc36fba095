"""Exercise 9: an activation that runs inside the kernel of the product before it (an epilogue)."""

from __future__ import annotations

from collections.abc import Callable

import lucerne as torch
from lucerne._src.ir.define import pointwise
from lucerne._src.ir.op import Tensor
from lucerne._src.ir.scalar.protocol import s

TOLD = r"AssertionError: the program has \d steps, and one is enough"


def start() -> object:
    @torch.library.custom_op("exercise9::bent", mutates_args=())
    def bent(x: torch.Tensor) -> torch.Tensor:
        return x / (1 + x.abs())

    bent.register_fake(torch.empty_like)
    return bent


def solution() -> object:
    @pointwise(name="exercise_bent", internal=True, promote="float")
    def bent(input: Tensor) -> Tensor:
        """`x / (1 + |x|)`: scalars say what it means, so the engine may put it anywhere."""
        return input / (1 + s.abs(input))

    return bent


def check(bent: Callable) -> None:
    torch.manual_seed(0)
    a, b = torch.randn(64, 64), torch.randn(64, 64)
    step = torch.compile(lambda a, b: bent(a @ b), fullgraph=True)
    wanted = (a @ b) / (1 + (a @ b).abs())
    assert torch.allclose(step(a, b), wanted, atol=1e-5), "the values are wrong"
    program = step.entries[0].stages.program
    steps = len(program.steps)
    assert steps == 1, (
        f"the program has {steps} steps, and one is enough: nobody can look inside of an operator "
        f"that is Python, so the product goes through memory\n{program}"
    )
    assert "batch_matmul+" in str(program), program
