"""An argument that is written to after the call: backward runs where eager's would."""

from __future__ import annotations

from typing import Any

import pytest

import lucerne as torch


def squared(x: Any, w: Any) -> Any:
    return (x.square() * w).sum()


def written_inside(x: Any, w: Any) -> Any:
    y = x.square() * w
    x.add_(w, alpha=2)
    return y.sum()


@pytest.mark.parametrize("mode", [None, "bitwise"])
@pytest.mark.parametrize("fn", [squared, written_inside])
def test_what_eager_does_not_save_may_change(fn: Any, mode: str | None) -> None:
    """The derivative by `w` is `x.square()`, which eager keeps: `x` is free to change."""
    x, w = torch.tensor([3.0]), torch.tensor([2.0], requires_grad=True)
    loss = torch.compile(fn, mode=mode)(x, w)
    x.detach_().zero_()
    loss.backward()
    assert w.grad.item() == 9


def test_what_eager_saves_must_not_change() -> None:
    """The derivative by `w` is `x` itself."""
    x, w = torch.tensor([3.0]), torch.tensor([2.0], requires_grad=True)
    loss = torch.compile(lambda x, w: (x * w).sum())(x, w)
    x.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
