"""Exercise 4: a NumPy function as an operator that `compile` and autograd know."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import lucerne as torch

TOLD = r"the operator has no derivative: .*exercise4"


def start() -> object:
    @torch.library.custom_op("exercise4::hypot_start", mutates_args=())
    def hypot(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(np.hypot(x.numpy(), y.numpy()))

    return hypot


def solution() -> object:
    @torch.library.custom_op("exercise4::hypot", mutates_args=())
    def hypot(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(np.hypot(x.numpy(), y.numpy()))

    @hypot.register_fake
    def _(x, y):
        return torch.empty_like(x)

    def setup(ctx, inputs, output):
        ctx.save_for_backward(*inputs, output)

    def backward(ctx, grad):
        x, y, length = ctx.saved_tensors
        return grad * x / length, grad * y / length

    hypot.register_autograd(backward, setup_context=setup)
    return hypot


def check(hypot: Callable) -> None:
    x = torch.tensor([3.0, 1.0], dtype=torch.float64, requires_grad=True)
    y = torch.tensor([4.0, 2.0], dtype=torch.float64, requires_grad=True)
    assert hypot(x.detach(), y.detach())[0].item() == 5
    try:
        hypot(x, y).sum().backward()
    except RuntimeError as error:
        raise AssertionError(f"the operator has no derivative: {error}") from None
    assert torch.autograd.gradcheck(hypot, (x, y)), "register_autograd has another derivative"
    whole = torch.compile(lambda a, b: hypot(a * 2, b).sum(), fullgraph=True)
    assert torch.allclose(whole(x, y), hypot(x * 2, y).sum()), "compiled differs"
    told = torch.library.opcheck(hypot, (x, y))
    assert set(told.values()) == {"SUCCESS"}, told
