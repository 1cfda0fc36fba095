"""Second derivatives of functions made of straight pieces: zeros, where torch gives zeros."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import lucerne as lu  # noqa: E402

pytestmark = pytest.mark.torch

ACTIVATIONS = {
    "relu": lambda t: t.nn.functional.relu,
    "relu, in place": lambda t: lambda x: t.nn.functional.relu(x * 1, inplace=True),
    "leaky_relu": lambda t: t.nn.functional.leaky_relu,
    "hardtanh": lambda t: t.nn.functional.hardtanh,
    "relu6": lambda t: t.nn.functional.relu6,
    "tanh": lambda t: t.tanh,
}


def _told(x: Any) -> Any:
    return None if x is None else x.tolist()


def _second(t: Any, name: str) -> Any:
    """Of the function itself, with nothing around it."""
    x = t.tensor([-1.0, 0.25, 2.0], requires_grad=True)
    (g,) = t.autograd.grad(ACTIVATIONS[name](t)(x).sum(), x, create_graph=True)
    (h,) = t.autograd.grad(g.sum(), x)
    return g.requires_grad, _told(h)


def _penalty(t: Any, name: str) -> Any:
    """`.grad` after a penalty of gradients: nothing else reaches the biases."""
    w = t.tensor([[0.5, -1.0], [2.0, 0.25]], requires_grad=True)
    b = t.tensor([0.1, 0.2], requires_grad=True)
    last = t.tensor([0.3], requires_grad=True)
    x = t.tensor([[1.0, -2.0], [0.5, 3.0]], requires_grad=True)
    y = (ACTIVATIONS[name](t)(x @ w + b) * 2).sum() + last.sum()
    (g,) = t.autograd.grad(y, x, create_graph=True)
    (g * g).sum().backward()
    return [_told(p.grad) for p in (w, b, last, x)]


def _kept(t: Any, name: str) -> Any:
    """A gradient that is there stays, and what nothing leads to is None."""
    x, k = (t.tensor([1.0, -2.0], requires_grad=True) for _ in range(2))
    x.grad = t.tensor([5.0, 6.0])
    (g,) = t.autograd.grad(ACTIVATIONS[name](t)(x).sum() * k.sum(), x, create_graph=True)
    found = t.autograd.grad(g.sum(), (k, x), allow_unused=True, retain_graph=True)
    g.sum().backward()
    return [_told(v) for v in (*found, x.grad, k.grad)]


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("case", [_second, _penalty, _kept])
def test_as_in_torch(case: Any, name: str) -> None:
    assert _close(case(lu, name), case(torch, name))


def _close(mine: Any, theirs: Any) -> bool:
    if mine is None or theirs is None:
        return mine is theirs
    if isinstance(theirs, (list, tuple)):
        pairs = zip(mine, theirs, strict=True)
        return len(mine) == len(theirs) and all(_close(a, b) for a, b in pairs)
    return bool(mine == pytest.approx(theirs, rel=1e-4, abs=1e-7))


def test_none_is_not_zero() -> None:
    assert not _close([None], [[0.0]])
    assert not _close([[0.0]], [None])
    assert _close([None, [0.0]], [None, [1e-13]])


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_compiled_as_eager(name: str) -> None:
    def step(w: Any, b: Any, x: Any) -> None:
        (g,) = lu.autograd.grad(ACTIVATIONS[name](lu)(x @ w + b).sum(), x, create_graph=True)
        (g * g).sum().backward()

    grads = []
    for run in (step, lu.compile(step)):
        w, b, x = (lu.full(s, 0.5, requires_grad=True) for s in ((2, 2), (2,), (3, 2)))
        run(w, b, x)
        grads.append([_told(p.grad) for p in (w, b, x)])
    assert _close(grads[1], grads[0])
