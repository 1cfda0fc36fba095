"""Exercise 7: an interpreter that counts multiply-adds of matrix products, backward included."""

from __future__ import annotations

from collections.abc import Callable

import lucerne as torch
from lucerne._src.ir.dispatch import Interpreter

TOLD = r"AssertionError: forward: 0 multiply-adds were counted, 24 were done"


def start() -> object:
    class Products(Interpreter):
        level = "call"
        total = 0

        def run(self, op, args, out, proceed):
            result = proceed(op, args, out)
            if op.name == "batch_matmul":
                self.total += result.numel() * args[0].shape[-1]
            return result

    return Products


def solution() -> object:
    class Products(Interpreter):
        level = "kernel"
        total = 0

        def run(self, op, args, out, proceed):
            result = proceed(op, args, out)
            if op.name == "batch_matmul":
                self.total += result.numel() * args[0].shape[-1]
            return result

    return Products


def check(products: Callable) -> None:
    a = torch.ones(2, 3, requires_grad=True)
    b = torch.ones(3, 4, requires_grad=True)
    with products() as forward:
        y = (a @ b).sum()
    assert forward.total == 24, (
        f"forward: {forward.total} multiply-adds were counted, 24 were done; "
        "at which level is a product the primitive that runs?"
    )
    with products() as backward:
        y.backward()
    assert backward.total == 48, f"backward: {backward.total} were counted, 48 were done"
    with products() as none:
        (a.detach() * 2).sum()
    assert none.total == 0, "a product of elements is none of matrices"
    assert a.grad.tolist() == [[4.0] * 3] * 2
