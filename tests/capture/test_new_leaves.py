"""Tensors that a function makes itself and that need a gradient leave it with the one they have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import lucerne as torch


def assigned(x: Any) -> Any:
    p = x.detach().clone().requires_grad_()
    p.grad = x * 3
    return p


def backward(x: Any) -> Any:
    p = x.detach().clone().requires_grad_()
    (p * 2).sum().backward()
    return p


def in_the_next_part(x: Any) -> Any:
    p = x.detach().clone().requires_grad_()
    (p * x).sum().backward()
    y = float(x.sum())
    return p, p.grad * y


def added_to_behind_a_break(x: Any) -> Any:
    p = x.detach().clone().requires_grad_()
    (p * 2).sum().backward()
    y = float(x.sum())
    (p * y).sum().backward()
    return p


def several(x: Any) -> Any:
    p, q = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    p.grad = x * 10
    q.grad = x * 5
    return [p.grad, q.grad], p * 2 + q, p, q


def attack(x: Any) -> Any:
    d = torch.zeros(3, requires_grad=True)
    best = 0.0
    for _ in range(3):
        loss = ((x + d) ** 2).sum()
        loss.backward()
        best = max(best, float(loss))
        with torch.no_grad():
            d += 0.1 * d.grad.sign()
        d.grad.zero_()
    return d, best


def the_argument(x: Any) -> Any:
    p = x.detach().clone().requires_grad_()
    p.grad = x
    return p


def in_its_memory(x: Any) -> Any:
    p = x.detach().requires_grad_()
    p.grad = x * 2
    return p


def optimized(x: Any) -> Any:
    d = torch.zeros(3, requires_grad=True)
    o = torch.optim.SGD([d], 0.1)
    for _ in range(3):
        o.zero_grad()
        ((x + d) ** 2).sum().backward()
        o.step()
    return d


FUNCTIONS: list[Callable[[Any], Any]] = [
    assigned, backward, in_the_next_part, added_to_behind_a_break, several, attack, the_argument,
    in_its_memory, optimized,
]  # fmt: skip


def _told(x: Any) -> Any:
    if isinstance(x, (list, tuple)):
        return [_told(v) for v in x]
    if not isinstance(x, torch.Tensor):
        return x
    grad = x.grad if x.is_leaf else None
    return x.tolist(), x.requires_grad, x.is_leaf, None if grad is None else grad.tolist()


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_gradients_are_left_on_new_leaves(function: Callable[[Any], Any]) -> None:
    compiled = torch.compile(function)
    for start in (1.0, 1.0, 2.0):
        x = torch.tensor([start, 2.0, -3.0])
        assert _told(compiled(x)) == _told(function(x))


def test_a_gradient_that_is_the_argument_is_that_object() -> None:
    x = torch.ones(3)
    compiled = torch.compile(the_argument)
    assert compiled(x).grad is x
    assert compiled(x).grad is x


class _Asks(torch.autograd.Function):
    """Its backward pass looks at values."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_tensors
        return g * 2 if bool((x > 0).all()) else g


def _singular_values(z: Any) -> Any:
    return torch.linalg.svd(z + torch.eye(4))[1].sum()


def _vectors(z: Any) -> Any:
    u, s, _ = torch.linalg.svd(z + torch.eye(4))
    return (u.abs() * s).sum()


def _asking(z: Any) -> Any:
    return _Asks.apply(z.abs()).sum()


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("function", [_singular_values, _vectors, _asking])
def test_a_backward_pass_that_looks_at_values_runs_as_it_is(function: Any, inside: bool) -> None:
    def step(z: Any) -> Any:
        loss = function(z)
        if inside:
            loss.backward()
        return loss

    grads = []
    for run in (step, torch.compile(step)):
        z = torch.eye(4, dtype=torch.complex64).mul_(torch.arange(1.0, 5.0)).requires_grad_()
        loss = run(z)
        if not inside:
            loss.backward()
        grads.append(z.grad)
    torch.testing.assert_close(grads[1], grads[0])
