"""Exercise 2: a reduction: the largest value along dimensions, and who gets the gradient."""

from __future__ import annotations

from collections.abc import Callable

import lucerne as torch
from lucerne._src.ir.convert import IntList
from lucerne._src.ir.define import reduction
from lucerne._src.ir.op import Tensor
from lucerne._src.ops.reduce.folds import restore

TOLD = r"AssertionError: of \[\[1, 5\], \[3, 2\]\] along 1 came \[6, 5\]"


def start() -> object:
    @reduction(name="exercise_peak_start", internal=True, reduce="add")
    def peak(input: Tensor, dim: IntList = (), keepdim: bool = False) -> Tensor:
        """The largest value over dimensions."""

    return peak


def solution() -> object:
    def to_the_largest(g: Tensor, y: Tensor, input: Tensor, dim: IntList, keepdim: bool) -> Tensor:
        top = restore(y, dim, keepdim, input._meta)
        chosen = (input == top).to(g.dtype)
        return restore(g, dim, keepdim, input._meta) * chosen / chosen.sum(dim or None, True)

    @reduction(name="exercise_peak", internal=True, reduce="max", vjp={"input": to_the_largest})
    def peak(input: Tensor, dim: IntList = (), keepdim: bool = False) -> Tensor:
        """The largest value over dimensions."""

    return peak


def check(peak: Callable) -> None:
    x = torch.tensor([[1, 5], [3, 2]])
    got = peak(x, 1).tolist()
    assert got == [5, 3], f"of {x.tolist()} along 1 came {got}: which `reduce` folds by maximum?"
    assert peak(x, 1, True).shape == (2, 1)
    for dim, keepdim in (((), False), ((0,), False), ((1,), True), ((0, 1), True)):
        y = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
        case = f"the derivative is wrong for dim={dim}, keepdim={keepdim}"
        assert torch.autograd.gradcheck(lambda t, d=dim, k=keepdim: peak(t, d, k), (y,)), case
    ties = torch.tensor([2.0, 2.0, 1.0], requires_grad=True)
    peak(ties).backward()
    assert ties.grad.tolist() == [0.5, 0.5, 0.0], f"two largest share: {ties.grad.tolist()}"
