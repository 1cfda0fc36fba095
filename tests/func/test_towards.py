"""Gradients of chosen leaves without nodes: what the engine gives, to the last bit."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucerne
from lucerne._src.tensor.autograd import api, pending, records, towards
from lucerne.func import grad, vjp, vmap

F = lucerne.nn.functional


def given(*shape: int, seed: int = 0) -> Any:
    values = np.random.RandomState(seed).standard_normal(shape).astype(np.float32)
    return lucerne.tensor(values)


Row = tuple[str, Callable[[Any, Any], Any]]
ROWS: list[Row] = [
    ("chain", lambda x, w: (x.sin() * w).exp().sum()),
    ("used often", lambda x, w: (x * x + x * w + x).sum()),
    ("network", lambda x, w: F.relu(x @ w).softmax(-1).log().mean()),
    ("views", lambda x, w: (x.t()[1:] * w[0, :1]).sum()),
    ("several results", lambda x, w: x.sort(0)[0].sum() + w.max(1)[0].sum()),
    ("parts", lambda x, w: sum(p.sum() * k for k, p in enumerate(x.unbind(0)))),
    ("list", lambda x, w: lucerne.cat([x, w * 2, x]).square().sum()),
    ("unused", lambda x, w: x.sum() * 2),
    ("written", lambda x, w: (x.clone().mul_(2).add_(w) ** 2).sum()),
    ("numbers", lambda x, w: (x.double() * w).sum()),
]


@pytest.mark.parametrize("f", [r[1] for r in ROWS], ids=[r[0] for r in ROWS])
def test_gradients_are_those_of_the_engine(
    f: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def both() -> tuple[Any, ...]:
        x, w = (given(3, 3, seed=k).requires_grad_() for k in (0, 1))
        return lucerne.autograd.grad(f(x, w), (x, w), allow_unused=True, materialize_grads=True)

    short = both()
    monkeypatch.setattr(api, "gradients_towards", lambda *_: None)
    for a, b in zip(short, both(), strict=True):
        assert np.array_equal(a.numpy(), b.numpy())


def _no_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise AssertionError("a node was made")

    monkeypatch.setattr(pending, "_expanded", refuse)


needs_records = pytest.mark.skipif(
    pending.FAST is None, reason="without machine code there are no records"
)


@needs_records
def test_a_gradient_makes_no_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    _no_nodes(monkeypatch)
    x, w = given(3, 3), given(3, 3, seed=1)
    f = ROWS[0][1]
    grad(f)(x, w)
    vmap(grad(lambda x, w: (x * w).sin().sum()))(x, w)
    value, pull_back = vjp(lambda x: x.sin() * 2, x)
    pull_back(value)
    leaf = x.clone().requires_grad_()
    lucerne.autograd.grad(f(leaf, w), leaf)
    with pytest.raises(AssertionError, match="a node was made"):
        assert (leaf * 2).grad_fn is not None


@needs_records
def test_only_what_leads_to_the_wanted_leaf_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    recipe = records.recipe.__wrapped__

    def seen(op: Any, mask: int) -> Any:
        asked.append(mask)
        return recipe(op, mask)

    monkeypatch.setattr(towards, "recipe", seen)
    x, w = given(3).requires_grad_(), given(3, seed=1).requires_grad_()
    (got,) = lucerne.autograd.grad((w.exp().sin() * x).sum(), x)
    assert np.allclose(got.numpy(), np.sin(np.exp(w.detach().numpy())))
    assert asked == [1, 2]  # of the sum and of the product's second factor


def test_a_graph_is_used_up() -> None:
    x = given(3).requires_grad_()
    y = (x.exp() * x).sum()
    (first,) = lucerne.autograd.grad(y, x, retain_graph=True)
    (second,) = lucerne.autograd.grad(y, x)
    assert np.array_equal(first.numpy(), second.numpy())
    with pytest.raises(RuntimeError, match="Trying to backward through the graph a second time"):
        lucerne.autograd.grad(y, x)


def test_hooks_are_called() -> None:
    x = given(3).requires_grad_()
    seen: list[Any] = []
    x.register_hook(seen.append)
    middle = x * 2
    middle.register_hook(lambda g: g * 10)
    (got,) = lucerne.autograd.grad(middle.sum(), x)
    assert got.tolist() == [20.0] * 3
    assert len(seen) == 1


def test_a_stale_tensor_is_noticed() -> None:
    x = given(3).requires_grad_()
    middle = x.exp()
    y = middle.sin().sum()
    with lucerne.no_grad():
        middle.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation") as error:
        lucerne.autograd.grad(y, x)
    assert any("recorded at" in note for note in error.value.__notes__)


def test_the_same_leaf_twice() -> None:
    x = given(3).requires_grad_()
    a, b = lucerne.autograd.grad((x * x).sum(), (x, x))
    assert np.array_equal(a.numpy(), b.numpy())


def test_a_gradient_that_does_not_arrive() -> None:
    x, w = given(3).requires_grad_(), given(3, seed=1).requires_grad_()
    with pytest.raises(RuntimeError, match="appears to not have been used"):
        lucerne.autograd.grad(x.sum(), (x, w))
    with pytest.raises(RuntimeError, match="does not require grad"):
        lucerne.autograd.grad(given(1).sum(), x)


def test_the_value_of_grad_and_value_has_no_history_inside() -> None:
    x = given(3)
    gradient, value = lucerne.func.grad_and_value(lambda x: x.sin().sum())(x)
    assert not value.requires_grad
    assert not gradient.requires_grad
    leaf = x.clone().requires_grad_()
    gradient, value = lucerne.func.grad_and_value(lambda x: (x.sin() * leaf).sum())(x)
    assert value.requires_grad
    assert gradient.requires_grad
    assert np.allclose(lucerne.autograd.grad(gradient.sum(), leaf)[0].numpy(), np.cos(x.numpy()))
