"""A function in parts is timed both ways, and the faster way stays."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import lucerne as torch
from lucerne._src.base.config import config
from lucerne._src.capture import ledger
from lucerne._src.capture.compiled import Compiled
from lucerne._src.capture.payoff import parts

ENOUGH = 4 * 5
"""Calls after which every trial is over: the first ones compile."""


class Clock:
    """Time that passes as fast as a test says, for each way of a call."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **costs: float) -> None:
        self.now, self.ways = 0.0, []
        monkeypatch.setattr(parts.time, "perf_counter", lambda: self.now)
        for name, cost in costs.items():
            monkeypatch.setattr(parts.Payoff, name, self._timed(name, cost))

    def _timed(self, name: str, cost: float) -> Callable[..., Any]:
        run = getattr(parts.Payoff, name)

        def timed(*given: Any) -> Any:
            self.now += cost
            self.ways.append(name)
            return run(*given)

        return timed


def talks(x: Any) -> Any:
    y = x * 2
    time.time()
    return y + 1


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(config, "payoff_calls", 5)
    ledger.clear()
    yield
    config.break_budget = -1


def _called(fn: Any, *args: Any, times: int = ENOUGH) -> list[str]:
    """Make so many calls, all of them right; what was warned of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for k in range(times):
            x = torch.full((3,), float(k))
            assert fn(x, *args).tolist() == [2.0 * k + 1] * 3
    return [str(w.message) for w in caught]


def test_what_does_not_pay_runs_as_it_is_and_says_so_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, in_parts=2.0, _as_it_is=1.0)
    fn: Compiled = torch.compile(talks)
    (told,) = _called(fn)
    assert fn.given_up is not None
    assert "talks runs uncompiled: it takes 2e+03 ms a call in parts, 1e+03 ms as it is" in told
    assert "clock" in told
    assert "test_payoff.py" in told
    assert "Fix: " in told
    assert clock.ways.count("_as_it_is") == config.payoff_calls
    row = torch.compiler.ledger()[-1]
    assert (row.kind, row.function, row.breaks) == (ledger.NOT_PAID, "talks", 1)
    assert "runs uncompiled" in str(torch.compiler.ledger())


@pytest.mark.parametrize(("eager", "rounds"), [(3.0, 1), (1.5, 2)])
def test_what_pays_stays_in_parts(
    monkeypatch: pytest.MonkeyPatch, eager: float, rounds: int
) -> None:
    clock = Clock(monkeypatch, in_parts=1.0, _as_it_is=eager)
    fn = torch.compile(talks)
    assert _called(fn, times=2 * ENOUGH) == []
    assert fn.given_up is None
    assert clock.ways[-5:] == ["in_parts"] * 5
    assert clock.ways.count("_as_it_is") == rounds * config.payoff_calls


def test_what_hardly_pays_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    Clock(monkeypatch, in_parts=0.95, _as_it_is=1.0)
    fn = torch.compile(talks)
    (told,) = _called(fn, times=2 * ENOUGH)
    assert "950 ms a call in parts" in told


def test_it_is_timed_anew_when_more_was_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, in_parts=1.0, _as_it_is=1.5)
    fn = torch.compile(talks)
    _called(fn)
    before = clock.ways.count("_as_it_is")
    for _ in range(3):
        fn(torch.ones(3, dtype=torch.float64))
    for _ in range(ENOUGH):
        fn(torch.ones(3))
    assert clock.ways.count("_as_it_is") > before


def test_a_function_that_compiles_at_every_call_is_left() -> None:
    numbers = iter(range(1000))

    def fn(x: Any) -> Any:
        k = next(numbers)
        return (x * 2 + 1).reshape(3) if k < 0 else x * 2 + k * 0 + 1

    made = torch.compile(fn)
    _called(made, times=60)
    count = len(torch.compiler.ledger())
    _called(made)
    assert len(torch.compiler.ledger()) == count, "it still compiles"


@pytest.mark.parametrize("reason", ["deterministic", "off", "shadow"])
def test_where_nothing_is_timed(monkeypatch: pytest.MonkeyPatch, reason: str) -> None:
    clock = Clock(monkeypatch, in_parts=2.0, _as_it_is=1.0)
    options = {"shadow": 2} if reason == "shadow" else {}
    if reason == "off":
        monkeypatch.setattr(config, "payoff_calls", 0)
    torch.use_deterministic_algorithms(reason == "deterministic")
    try:
        _called(torch.compile(talks, options=options))
    finally:
        torch.use_deterministic_algorithms(False)
    assert "_as_it_is" not in clock.ways


@pytest.mark.filterwarnings("ignore:.*runs uncompiled")
def test_a_checkpoint_computes_again_the_same_way(monkeypatch: pytest.MonkeyPatch) -> None:
    Clock(monkeypatch, in_parts=2.0, _as_it_is=1.0)
    fn = torch.compile(lambda x: talks(x.sin()).exp())
    for _ in range(ENOUGH):
        x = torch.ones(3, requires_grad=True)
        torch.utils.checkpoint.checkpoint(fn, x, use_reentrant=False).sum().backward()
        wanted = torch.ones(3, requires_grad=True)
        talks(wanted.sin()).exp().sum().backward()
        assert torch.allclose(x.grad, wanted.grad)


@pytest.mark.filterwarnings("ignore:.*runs uncompiled")
def test_a_seed_gives_the_same_numbers_either_way(monkeypatch: pytest.MonkeyPatch) -> None:
    Clock(monkeypatch, in_parts=2.0, _as_it_is=1.0)

    def draws(x: Any) -> Any:
        y = torch.nn.functional.dropout(x, 0.5)
        time.time()
        return y * torch.rand(8)

    def run(fn: Any) -> list[Any]:
        torch.manual_seed(3)
        return [fn(torch.ones(8)).tolist() for _ in range(ENOUGH)]

    assert run(torch.compile(draws)) == run(draws)


def test_breaks_have_a_budget() -> None:
    with torch.compiler.budget(breaks=1):
        torch.compile(talks)(torch.ones(2))

    def twice(x: Any) -> Any:
        return talks(talks(x) + float(x.sum()))

    with (
        torch.compiler.budget(breaks=1) as spent,
        pytest.raises(
            torch.compiler.CompileBudgetError, match=r"break 2 where the budget allows 1"
        ),
    ):
        torch.compile(twice)(torch.ones(2))
    assert len(spent.broken) == 2
    assert "Fix: " in spent.broken[0]
    config.break_budget = 0
    with pytest.raises(torch.compiler.CompileBudgetError, match="is not one graph"):
        torch.compile(lambda x: talks(x) - 1)(torch.ones(2))


def test_compiled_twenty_times_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "often_compiled", 20)

    def fn(x: Any) -> Any:
        return x + 1

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for n in range(3, 60):
            torch.compile(fn, dynamic=False)(torch.ones(n))
    told = [str(w.message) for w in caught if "compiled for the 20th time" in str(w.message)]
    assert len(told) == 1
    assert "compiler.ledger()" in told[0]
