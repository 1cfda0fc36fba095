"""A result lies in the memory of an operand that ends there only if each element is read before the
turn that writes it. Through `t` of a value made in between it is read in another order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import lucerne as torch

TURNED: dict[str, Callable[[Any], Any]] = {
    "larger of both": lambda y: torch.maximum(y, y.t().contiguous()),
    "smaller of both": lambda y: torch.minimum(y, y.t()),
    "product": lambda y: (y * 2).t() * y + y,
    "chosen": lambda y: torch.where(y > y.t(), y * 3, y.t().exp()),
    "twice turned": lambda y: ((y + 1).t() * 2).t().sin() * y.t(),
    "turned blocks": lambda y: (y.view(2, 2, 2, 2) * 2).permute(2, 3, 0, 1).reshape(4, 4) * y,
    "flipped": lambda y: (y * 2).flip(0) * y,
    "cut anew": lambda y: ((y * 2).view(2, 8).sin() * 2).view(4, 4) * y,
}


@pytest.mark.parametrize("name", TURNED)
@pytest.mark.parametrize("product", [True, False])
def test_gradients_and_values(name: str, product: bool) -> None:
    torch.manual_seed(0)
    w = torch.randn(4, 4)

    def fn(x: Any) -> Any:
        y = x @ w if product else x * 1.5
        return TURNED[name]((y * y).relu())

    for seed in range(4):
        torch.manual_seed(seed)
        x = torch.randn(4, 4)
        found = []
        for call in (fn, torch.compile(fn, fullgraph=True)):
            leaf = x.clone().requires_grad_()
            y = call(leaf)
            (y * torch.arange(16.0).reshape(4, 4).sin()).sum().backward()
            with torch.no_grad():
                found.append((y.detach(), leaf.grad, call(x)))
        for eager, compiled in zip(*found, strict=True):
            torch.testing.assert_close(compiled, eager)
