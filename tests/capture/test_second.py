"""Second derivatives through a compiled function: those of the function itself, or an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucerne as torch
from lucerne import nn
from lucerne.autograd import functional

W = nn.Parameter(torch.linspace(-1, 1, 9).reshape(3, 3))
X = torch.tensor([0.7, -1.2, 2.3])


class Straight(torch.autograd.Function):
    """Rounds, and lets gradients pass: no op of its forward has this derivative."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x.round()

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g

    @staticmethod
    def jvp(ctx: Any, t: Any) -> Any:
        return t


def detached(x: Any) -> Any:
    with torch.no_grad():
        scale = x.abs().max()
    return (Straight.apply(x) ** 3 / scale + x * x.detach() ** 2).sum()


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "cube": lambda x: (x**3).sum(),
    "product": lambda x: (W @ x).tanh().pow(2).sum(),
    "softmax": lambda x: (x.softmax(0) * x).sum(),
    "norm": lambda x: x.norm() * x[0],
    "views": lambda x: (x[1:] * x[:2].flip(0)).sin().sum(),
    "in place": lambda x: x.clone().mul_(x).exp_().sum(),
    "layer norm": lambda x: nn.functional.layer_norm(x, (3,)).pow(3).sum(),
    "detached": detached,
    "linear": lambda x: (x * 3).sum(),
    "branch": lambda x: (x**4).sum() if x.shape[0] > 2 else x.sum(),
}


def twice(f: Any, x: Any) -> Any:
    x = x.clone().requires_grad_()
    (g,) = torch.autograd.grad(f(x), x, create_graph=True)
    return torch.autograd.grad((g * g).sum() + x.sum(), x)[0]


def by_backward(f: Any, x: Any) -> Any:
    x = x.clone().requires_grad_()
    f(x).backward(create_graph=True)
    first, x.grad = x.grad, None
    (first.sum() * 2 + x.sum()).backward()
    return x.grad


def three_times(f: Any, x: Any) -> Any:
    x = x.clone().requires_grad_()
    g = f(x)
    for _ in range(2):
        (g,) = torch.autograd.grad(g.sum() + (x**4).sum(), x, create_graph=True)
    return torch.autograd.grad(g.sum(), x)[0]


WAYS: dict[str, Callable[[Any, Any], Any]] = {
    "grad twice": twice,
    "backward": by_backward,
    "three times": three_times,
    "hessian": functional.hessian,
    "hvp": lambda f, x: functional.hvp(f, x, x)[1],
    "vhp": lambda f, x: functional.vhp(f, x, x)[1],
    "jvp": lambda f, x: functional.jvp(f, x, x)[1],
    "jacobian": functional.jacobian,
    "jacobian, vectorized": lambda f, x: functional.jacobian(f, x, vectorize=True),
    "jacobian, with graph": lambda f, x: functional.jacobian(f, x, create_graph=True).detach(),
    "func.hessian": lambda f, x: torch.func.hessian(f)(x),
    "func.jacrev": lambda f, x: torch.func.jacrev(f)(x),
    "func.jacrev of its slope": lambda f, x: torch.func.jacrev(torch.func.grad(f))(x),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_as_uncompiled(name: str, way: str) -> None:
    f = FUNCTIONS[name]
    compiled = torch.compile(f)
    compiled(X.clone().requires_grad_())
    want, have = WAYS[way](f, X), WAYS[way](compiled, X)
    np.testing.assert_allclose(have.detach(), want.detach(), rtol=1e-5, atol=1e-6)


def test_gradients_of_parameters_have_a_history() -> None:
    """A gradient penalty: the gradient of its square with respect to a weight."""

    def penalty(f: Any) -> Any:
        x = X.clone().requires_grad_()
        (g,) = torch.autograd.grad(f(x), x, create_graph=True)
        W.grad = None
        g.pow(2).sum().backward()
        return W.grad.clone()

    f = FUNCTIONS["product"]
    np.testing.assert_allclose(penalty(torch.compile(f)), penalty(f), rtol=1e-5, atol=1e-6)


def test_hooks_run_once() -> None:
    calls: list[int] = []
    handle = W.register_hook(lambda g: calls.append(1))
    try:
        for f in (FUNCTIONS["product"], torch.compile(FUNCTIONS["product"])):
            calls.clear()
            W.grad = None
            f(X.clone().requires_grad_()).backward(create_graph=True)
            assert len(calls) == 1
    finally:
        handle.remove()
        W.grad = None


# ---- where the function can't be run once more --------------------------------------------------

KEPT = torch.zeros(3)
POWER = 3


def draws(x: Any) -> Any:
    return ((x * torch.rand(3)) ** 3).sum()


def writes(x: Any) -> Any:
    KEPT.add_(1)
    return (x**3).sum()


def in_parts(x: Any) -> Any:
    y = (x**3).sum()
    print(end="")
    return y * 2


@pytest.mark.parametrize(
    ("f", "why"),
    [(draws, "random numbers"), (writes, "writes to"), (in_parts, "in parts")],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_raises_otherwise(f: Any, why: str) -> None:
    """Whichever way it is asked for: silent noughts are worse than an error."""
    x = X.clone().requires_grad_()
    (g,) = torch.autograd.grad(torch.compile(f)(x), x, create_graph=True)
    for ask in (
        lambda: torch.autograd.grad(g.sum() + x.sum(), x, retain_graph=True),
        lambda: torch.autograd.grad(g.sum() + x.sum(), x, allow_unused=True, retain_graph=True),
        lambda: (g.sum() + x.sum()).backward(retain_graph=True),
    ):
        with pytest.raises(RuntimeError, match=why):
            ask()


def test_what_it_reads_has_changed() -> None:
    global POWER
    f = torch.compile(lambda x: (x**POWER).sum())
    x = X.clone().requires_grad_()
    y = f(x)
    POWER = 2
    try:
        (g,) = torch.autograd.grad(y, x, create_graph=True)
    finally:
        POWER = 3
    with pytest.raises(RuntimeError, match="changed since"):
        g.sum().backward()


def test_an_argument_was_written_to() -> None:
    scale = torch.ones(3)
    f = torch.compile(lambda x, s: ((x * 2) ** 2 + s).sum())
    x = X.clone().requires_grad_()
    y = f(x, scale)
    scale.add_(1)
    (g,) = torch.autograd.grad(y, x, create_graph=True)
    np.testing.assert_allclose(g.detach(), 8 * X, rtol=1e-6)
    with pytest.raises(RuntimeError, match="written to since"):
        g.sum().backward()


def test_under_autocast() -> None:
    """The function runs again under the autocast of its call, wherever the pass runs."""

    def f(x: Any) -> Any:
        return (W @ x[:, None]).pow(3).sum()

    def slope(call: Any) -> Any:
        x = X.clone().requires_grad_()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = call(x)
        (g,) = torch.autograd.grad(y, x, create_graph=True)
        return torch.autograd.grad(g.float().sum(), x)[0]

    np.testing.assert_allclose(slope(torch.compile(f)), slope(f), rtol=2e-2, atol=1e-3)


def trained(way: Callable[[Any], Any]) -> tuple[list[float], Any]:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1))
    optimizer = torch.optim.Adam(net.parameters())

    @way
    def step(x: Any, t: Any, x0: Any) -> Any:
        x = x.requires_grad_(True)
        u = net(torch.cat([x, t], 1))
        (first,) = torch.autograd.grad(u, x, torch.ones_like(u), create_graph=True)
        (second,) = torch.autograd.grad(first, x, torch.ones_like(u), create_graph=True)
        start = net(torch.cat([x0, torch.zeros_like(x0)], 1))
        loss = (u + second).pow(2).mean() + start.pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return [
        step(torch.rand(4, 1), torch.rand(4, 1), torch.rand(3, 1)).item() for _ in range(12)
    ], step


def test_a_part_that_ends_earlier_than_its_trace_is_used_again() -> None:
    """Its plan asks of a list what the first plan of that trace asks, not that it is the same."""
    (eager, _), (compiled, step) = trained(lambda f: f), trained(torch.compile)
    assert np.allclose(eager, compiled, rtol=1e-5)
    assert step.traces <= 4
