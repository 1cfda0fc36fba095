"""Backward passes from some of the results of a compiled function: as eager has them.

What does not arrive is not nought: nothing is added, gradients that nothing reaches stay None, and
an infinite derivative that nobody asked for makes no NaN.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

import lucerne
from lucerne._src.capture.aot import pruned_backward
from lucerne._src.transforms import absent


def _heads(x: Any, w: Any) -> Any:
    h = (x @ w).tanh()
    a, b = h.chunk(2, 1)
    return h.exp(), (a * b).sum() + h.sum(), w.sqrt()


def _only_noughts(x: Any, w: Any) -> Any:
    """`round` and `sign` don't look at what arrives."""
    y = x * 2
    return y * y, lucerne.round(y), lucerne.sign(w)


def _statistics(x: Any, w: Any) -> Any:
    """One op of several results."""
    values = x.sort(1).values
    deviation, mean = lucerne.std_mean(w, 1)
    return values[:, 0], mean, deviation * values[:, :1].sum()


def _views(x: Any, w: Any) -> Any:
    """Views of arguments among what is computed of them."""
    a = x.reshape(-1)
    b = (x * x).sum()
    return a, b * w.sum(), a.view(2, -1), x.t()


def _laid_otherwise(x: Any, w: Any) -> Any:
    """Without the first result, what arrives at a sum is a broadcast gradient."""
    y = (x @ w).softmax(0)
    return y * 2, y.sum(1), y.mean(0, keepdim=True).t()


def _normed(x: Any, w: Any) -> Any:
    """A whole composite at whose result one gradient is broadcast."""
    y = lucerne.nn.functional.layer_norm(x, (4,), w[0, :4])
    return y.sum(), y * x, w.exp()


FUNCTIONS = {
    f.__name__: f for f in (_heads, _only_noughts, _statistics, _views, _laid_otherwise, _normed)
}
MODES = ("default", "bitwise")


def _arguments() -> tuple[Any, Any]:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(4, 4)).astype(np.float32)
    w = np.abs(rng.normal(size=(4, 6))).astype(np.float32)
    x[0], w[1] = -0.0, 0.0
    made = lucerne.from_numpy(x), lucerne.from_numpy(w)
    return made[0].requires_grad_(), made[1].requires_grad_()


def _gradients(fn: Any, which: tuple[int, ...]) -> list[Any]:
    given = _arguments()
    out = fn(*given)
    ends = [out[k] for k in which]
    grads = []
    for k, e in zip(which, ends, strict=True):
        a = np.random.default_rng(k).integers(-2, 3, tuple(e.shape)).astype(np.float32)
        grads.append(lucerne.empty_like(e.detach()).copy_(lucerne.from_numpy(np.array(a))))
    lucerne.autograd.backward(ends, grads)
    return [t.grad for t in given]


def _same(got: Any, want: Any, mode: str) -> bool:
    if got is None or want is None:
        return got is want
    a, b = got.numpy(), want.numpy()
    if mode == "bitwise":
        nan = np.isnan(a) & np.isnan(b)
        return bool(((a.view(np.uint32) == b.view(np.uint32)) | nan).all())
    return np.allclose(a, b, 1e-5, 1e-6, equal_nan=True)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_from_some_results(name: str, mode: str) -> None:
    fn = FUNCTIONS[name]
    compiled = lucerne.compile(lambda x, w: fn(x, w), mode=mode, fullgraph=True)
    count = len(fn(*_arguments()))
    for size in range(1, count + 1):
        for which in itertools.combinations(range(count), size):
            want, got = _gradients(fn, which), _gradients(compiled, which)
            for a, b in zip(got, want, strict=True):
                assert _same(a, b, mode), f"from {which}: {a}, wanted {b}"


def test_comparison_finds() -> None:
    zero = lucerne.zeros(1)
    assert not _same(None, zero, "default")
    assert not _same(zero, -zero, "bitwise")
    assert _same(zero, -zero, "default")
    assert not _same(zero, zero + math.nan, "default")


def test_no_nan_from_what_is_not_asked_for() -> None:
    def fn(x: Any) -> Any:
        return x.sqrt(), (x * 3).sum()

    x = lucerne.zeros(3).requires_grad_()
    lucerne.compile(fn)(x)[1].backward()
    assert x.grad.tolist() == [3.0, 3.0, 3.0]


def test_head_that_is_not_used_is_not_trained() -> None:
    """Its gradient stays None, so that no optimizer decays its weights."""
    model = lucerne.nn.ModuleDict({k: lucerne.nn.Linear(3, 2) for k in "ab"})

    def heads(x: Any) -> Any:
        return model["a"](x).sum(), model["b"](x).sum()

    optimizer = lucerne.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
    before = model["b"].weight.detach().clone()
    first, _ = lucerne.compile(heads)(lucerne.ones(4, 3))
    first.backward()
    optimizer.step()
    assert model["b"].weight.grad is None
    assert lucerne.equal(model["b"].weight, before)


def test_each_pass_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def counted(*given: Any) -> Any:
        made.append(given)
        return absent.without(*given)

    monkeypatch.setattr(pruned_backward, "without", counted)
    compiled = lucerne.compile(lambda x, w: _heads(x, w))
    for which in ((1,), (1,), (0, 1, 2), (1,), (0,)):
        _gradients(compiled, which)
    assert len(made) == 2


def test_order_of_sums_with_a_returned_view() -> None:
    """A view of an argument is a part of the compiled pass: what it brings is added where eager
    adds it, between the others."""

    def fn(x: Any) -> Any:
        return x.expand(3, 4, 4), x.exp().sum(), x

    def found(fn: Any) -> Any:
        x = _arguments()[0]
        out = fn(x)
        grads = [lucerne.full(tuple(o.shape), 0.1 + k / 7) for k, o in enumerate(out)]
        lucerne.autograd.backward(out, grads)
        return x.grad

    assert _same(found(lucerne.compile(fn, mode="bitwise")), found(fn), "bitwise")


def test_returned_view_is_a_view() -> None:
    """It still knows its base: a write to it is a write to the argument's history."""

    def fn(x: Any) -> Any:
        return x[1:], (x * x).sum()

    def found(fn: Any) -> Any:
        leaf = _arguments()[0]
        x = leaf * 1
        part = fn(x)[0]
        part.mul_(3)
        (x.sum() + part.sum()).backward()
        return leaf.grad, part._is_view()

    (got, is_view), (want, _) = found(lucerne.compile(fn, mode="bitwise")), found(fn)
    assert is_view
    assert _same(got, want, "bitwise")
