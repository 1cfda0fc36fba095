"""A small whole graph is timed both ways, with its backward pass, and leaves no trace of it."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import lucerne as torch
from lucerne import nn
from lucerne._src.base.config import config
from lucerne._src.capture import compiled as compiled_
from lucerne._src.capture import ledger
from lucerne._src.capture.payoff import whole

CALLS = 6


class Trials:
    """Each trial makes its calls, and finds what a test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made, self.found = 0, [2.0, 1.0]
        monkeypatch.setattr(whole, "_best_of", self._best_of)

    def _best_of(self, calls: Any) -> list[float]:
        self.made += 1
        for call in calls:
            call()
            call()
        return self.found


@pytest.fixture
def trials(monkeypatch: pytest.MonkeyPatch) -> Trials:
    monkeypatch.setattr(config, "payoff_calls", 5)
    monkeypatch.setattr(compiled_, "_SMALL", 1e3)  # on a busy machine too
    ledger.clear()
    return Trials(monkeypatch)


def _net(*between: Any) -> Any:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), *between, nn.Linear(8, 2))


def _trained(net: Any, model: Any, rows: int = 6) -> tuple[list[Any], list[str]]:
    """A few steps: all tensors of the model afterwards with their gradients, and what was told."""
    torch.manual_seed(1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(CALLS):
            x = torch.randn(rows, 4, requires_grad=True)
            (model(x * 2) ** 2).mean().backward()
    tensors = [*net.parameters(), *[p.grad for p in net.parameters()], *net.buffers(), x.grad]
    return tensors, [str(w.message) for w in caught]


def _norm() -> Any:
    return _net(nn.BatchNorm1d(8))


@pytest.mark.parametrize("found", [[2.0, 1.0], [1.0, 2.0]])
@pytest.mark.parametrize("make", [_net, _norm])
def test_a_trial_leaves_nothing_behind(
    make: Callable[[], Any],
    found: list[float],
    trials: Trials,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trials.found = found
    net, untried = make(), make()
    tensors, _ = _trained(net, torch.compile(net))
    assert trials.made == 1
    monkeypatch.setattr(config, "payoff_calls", 0)
    expected, _ = _trained(untried, torch.compile(untried))
    for t, e in zip(tensors, expected, strict=True):
        torch.testing.assert_close(t, e)
    assert [t._version for t in net.buffers()] == [t._version for t in untried.buffers()]


def test_what_does_not_pay_is_left_and_said_once(trials: Trials) -> None:
    net = _net()
    compiled = torch.compile(net)
    _, (told,) = _trained(net, compiled)
    assert "Sequential runs uncompiled: it takes 2e+03 ms compiled, 1e+03 ms as it is" in told
    assert "whole step" in told
    row = torch.compiler.ledger()[-1]
    assert (row.kind, row.function) == (ledger.NOT_PAID, "Sequential")
    before = compiled.forward.entries[0].calls
    net(torch.ones(6, 4))
    compiled(torch.ones(6, 4))
    assert compiled.forward.entries[0].calls == before
    trials.found = [1.0, 2.0]
    compiled(torch.ones(600, 4))  # larger: it is compiled, and tried again
    compiled(torch.ones(600, 4))
    assert (trials.made, compiled.forward.left, compiled.forward.pays) == (2, {}, {True})


def test_what_is_as_fast_either_way_is_left_without_a_warning(trials: Trials) -> None:
    trials.found = [0.95, 1.0]
    net = _net()
    compiled = torch.compile(net)
    _, told = _trained(net, compiled)
    assert not told
    assert torch.compiler.ledger()[-1].kind == ledger.NOT_PAID
    assert list(compiled.forward.left) == [True]


def test_modes_are_judged_apart(trials: Trials) -> None:
    net = _net()
    compiled = torch.compile(net)
    _trained(net, compiled)
    trials.found = [1.0, 2.0]
    for _ in range(4):
        with torch.no_grad():
            torch.testing.assert_close(compiled(torch.ones(6, 4)), net(torch.ones(6, 4)))
    assert compiled.forward.pays == {False}
    assert list(compiled.forward.left) == [True]


def _hooked() -> Any:
    net = _net()
    net[0].weight.register_hook(lambda g: g)
    return net


def _counting() -> Any:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.calls = _net(), 0

        def forward(self, x: Any) -> Any:
            self.calls += 1
            return self.inner(x)

    return Counting()


@pytest.mark.parametrize("make", [lambda: _net(nn.Dropout()), _hooked, _counting])
def test_calls_that_cannot_be_repeated_are_not_tried(
    make: Callable[[], Any], trials: Trials
) -> None:
    net = make()
    _trained(net, torch.compile(net))
    assert trials.made == 0
    assert getattr(net, "calls", CALLS) == CALLS


@pytest.mark.parametrize("asked", ["shadow", "deterministic", "thread", "off"])
def test_who_asks_for_one_way_gets_it(
    asked: str, trials: Trials, monkeypatch: pytest.MonkeyPatch
) -> None:
    net, over = _net(), threading.Event()
    if asked == "off":
        monkeypatch.setattr(config, "payoff_calls", 0)
    if asked == "thread":  # gradients are set aside, to which it may add
        threading.Thread(target=over.wait, daemon=True).start()
    compiled = torch.compile(net, options={"shadow": 2} if asked == "shadow" else None)
    torch.use_deterministic_algorithms(asked == "deterministic")
    try:
        _trained(net, compiled)
    finally:
        torch.use_deterministic_algorithms(False)
        over.set()
    assert trials.made == 0


def test_a_call_that_raises_in_a_trial_costs_the_trial(
    trials: Trials, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(calls: Any) -> Any:
        raise RuntimeError("not now")

    monkeypatch.setattr(whole, "_best_of", fails)
    net = _net()
    compiled = torch.compile(net)
    _trained(net, compiled)
    assert not compiled.forward.left
    assert all(p.grad is not None for p in net.parameters())
