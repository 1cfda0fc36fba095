"""Exercise 5: an `autograd.Function` whose derivative can be differentiated again."""

from __future__ import annotations

import lucerne as torch

TOLD = r"AssertionError: the second derivative"


def start() -> object:
    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.slope = 3 * x.detach() ** 2
            return x**3

        @staticmethod
        def backward(ctx, g):
            return g * ctx.slope

    return Cube


def solution() -> object:
    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * 3 * x**2

    return Cube


def check(cube: type[torch.autograd.Function]) -> None:
    x = torch.tensor([2.0, -1.0], dtype=torch.float64, requires_grad=True)
    y = cube.apply(x).sum()
    (slope,) = torch.autograd.grad(y, x, create_graph=True)
    assert slope.tolist() == [12.0, 3.0], f"the derivative of x**3 at 2 and -1: {slope.tolist()}"
    (bend,) = torch.autograd.grad((slope * x).sum(), x)
    assert bend.tolist() == [36.0, 9.0], (
        f"the second derivative: of 3 * x**3 at 2 and -1 came {bend.tolist()}, not [36, 9]; "
        "what backward reads must come from ctx.saved_tensors, which remember their history"
    )
    assert torch.autograd.gradgradcheck(cube.apply, (x,))
