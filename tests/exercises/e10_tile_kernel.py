"""Exercise 10: the logarithm of a sum of exponentials of each row, as a kernel over tiles."""

from __future__ import annotations

from collections.abc import Callable

import lucerne as torch
from lucerne import tiles

TOLD = r"AssertionError: of a row of 1000s came inf"


def start() -> object:
    @tiles.kernel(out=lambda x: tiles.empty(x.shape[0]))
    def logsumexp_start(x: tiles.In, y: tiles.Out):
        row = tiles.program_id(0)
        a = tiles.load(x[row, :])
        tiles.store(y[row], tiles.log(tiles.sum(tiles.exp(a))))

    return logsumexp_start


def solution() -> object:
    @tiles.kernel(out=lambda x: tiles.empty(x.shape[0]))
    def logsumexp(x: tiles.In, y: tiles.Out):
        row = tiles.program_id(0)
        a = tiles.load(x[row, :])
        top = tiles.max(a)
        tiles.store(y[row], top + tiles.log(tiles.sum(tiles.exp(a - top))))

    @logsumexp.backward
    def _(grad, x, y):
        return (x - y.unsqueeze(1)).exp() * grad.unsqueeze(1)

    return logsumexp


def check(logsumexp: Callable) -> None:
    large = logsumexp(torch.full((2, 3), 1000.0))
    assert torch.allclose(large, torch.tensor(1001.0986)), (
        f"of a row of 1000s came {large[0].item()}: take the largest out before `exp`"
    )
    torch.manual_seed(0)
    for shape in ((1, 1), (5, 7), (33, 100)):
        x = torch.randn(shape, requires_grad=True)
        y = logsumexp(x)
        assert torch.allclose(y, x.logsumexp(1), atol=1e-5), f"{shape}: the values are wrong"
        (mine,) = torch.autograd.grad(y.sum(), x)
        assert torch.allclose(mine, x.detach().softmax(1), atol=1e-5), f"{shape}: the gradient"
