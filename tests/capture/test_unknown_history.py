"""`autograd.grad` through what an earlier part of a function computed: never a silent None."""

from __future__ import annotations

from typing import Any

import pytest

import lucerne as torch


def after_a_break(a: Any, b: Any, unused: bool) -> Any:
    y = a * b
    print("a break")
    return torch.autograd.grad([y], [a, b], [torch.ones_like(y)], allow_unused=unused)


@pytest.mark.parametrize("unused", [False, True])
def test_gradients_go_through_a_break(unused: bool, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
    compiled = torch.compile(after_a_break)
    for _ in range(2):
        ga, gb = compiled(a, b, unused)
        assert torch.equal(ga, b.detach())
        assert torch.equal(gb, a.detach())
    assert capsys.readouterr().out == "a break\n" * 2


def test_history_of_an_argument_is_looked_into() -> None:
    """The argument was computed from `a` outside: only eager knows how."""
    a = torch.randn(3, requires_grad=True)
    y = a * 2

    def gradient(y: Any, a: Any) -> Any:
        return torch.autograd.grad(y.sum(), [a], allow_unused=True, retain_graph=True)[0]

    found = torch.compile(gradient)(y, a)
    assert torch.equal(found, torch.full((3,), 2.0))
