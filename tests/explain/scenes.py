"""Functions that the tests of this folder explain."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import lucerne as torch
from lucerne import nn


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(16, 64), nn.Linear(64, 16)

    def forward(self, x: Any) -> Any:
        h = nn.functional.gelu(self.up(x))  # line: up
        return x + self.down(h)  # line: down


class Training:
    """A model with its optimizer: `step` is what is compiled."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(Block(), nn.LayerNorm(16), Block())
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)

    def step(self, x: Any, y: Any) -> Any:
        self.optimizer.zero_grad()
        loss = (self.model(x) - y).square().mean()  # line: loss
        loss.backward()  # line: backward
        self.optimizer.step()  # line: update
        return loss

    def parameters(self) -> list[Any]:
        return [p.detach().numpy().copy() for p in self.model.parameters()]


def batch() -> tuple[Any, Any]:
    torch.manual_seed(1)
    return torch.randn(8, 16), torch.randn(8, 16)


def line_of(mark: str, fn: Callable[..., Any] = Block.forward) -> int:
    """The number of the line of a function that ends with the comment `line: mark`."""
    lines, first = inspect.getsourcelines(fn)
    [found] = [k for k, text in enumerate(lines, first) if text.rstrip().endswith(f"line: {mark}")]
    return found


def norms(x: Any) -> Any:
    centred = x - x.mean(1, keepdim=True)
    return centred / (centred.square().mean(1, keepdim=True) + 1e-5).sqrt()


def broken(x: Any, scale: float) -> Any:
    y = (x @ x).relu() * scale
    print("sum", y.sum().item())  # line: item
    return y.softmax(1) + 1
