"""Numbers outside the arguments that change at each call: a few programs for all values, always the
result of eager, bit for bit."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lucerne as torch
from lucerne import nn

STEPS = 100
MOST = 3
ROWS: dict[str, Callable[[], Any]] = {}
"""Each makes a world of its own: (function, what happens before call k, what is left behind)."""


def row(make: Callable[[], Any]) -> Callable[[], Any]:
    ROWS[make.__name__] = make
    return make


def nothing(k: int) -> None:
    """Between two calls."""


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.step, self.rate, self.seen = nn.Linear(3, 3), 0, 1.0, 0

    def forward(self, x: Any) -> Any:
        self.step += 1
        self.rate *= 0.99
        return self.layer(x) * 0.9 ** (self.step // 10) + self.step * self.rate


@row
def attributes_of_a_module() -> Any:
    torch.manual_seed(0)
    net = Net()
    return lambda x: net(x), nothing, lambda: (net.step, net.rate)


@row
def attribute_of_an_object() -> Any:
    class Trainer:
        def __init__(self) -> None:
            self.step = 0

        def run(self, x: Any) -> Any:
            self.step += 1
            return x * (min(1.0, self.step / 10) * 0.1)

    trainer = Trainer()
    return trainer.run, nothing, lambda: trainer.step


@row
def item_of_a_dict() -> Any:
    state = {"n": 0, "names": ["a"]}

    def fn(x: Any) -> Any:
        state["n"] += 1  # type: ignore[operator]
        return x * state["n"]

    return fn, nothing, lambda: state


@row
def item_of_a_list() -> Any:
    counts = [5, 0.5]

    def fn(x: Any) -> Any:
        counts[0] += 2
        counts[-1] = counts[-1] / 2 + 1
        return x * counts[0] + counts[1]

    return fn, nothing, lambda: counts


@row
def variable_of_a_closure() -> Any:
    n = 0

    def fn(x: Any) -> Any:
        nonlocal n
        n += 1
        return x * n

    return fn, nothing, lambda: n


SCOPE: dict[str, Any] = {"N": 0}
exec("def count(x):\n  global N\n  N += 1\n  return x * N\ndef look(x): return x * N", SCOPE)


@row
def global_variable() -> Any:
    SCOPE["N"] = 0
    return SCOPE["count"], nothing, lambda: SCOPE["N"]


@row
def global_that_others_change() -> Any:
    SCOPE["N"] = 0
    return SCOPE["look"], lambda k: SCOPE.update(N=k * 3), lambda: SCOPE["N"]


@row
def rate_in_a_dict() -> Any:
    state = {"lr": 0.1}
    return lambda x: x * state["lr"], lambda k: state.update(lr=0.1 / (k + 1)), lambda: state


@row
def schedule_of_a_module() -> Any:
    torch.manual_seed(0)
    net = Net()
    net.forward = lambda x: net.layer(x) * 0.9 ** (net.step // 10) * net.rate  # type: ignore[method-assign]

    def between(k: int) -> None:
        net.step, net.rate, net.seen = k, 1.0 / (k + 1), -k

    return lambda x: net(x), between, lambda: net.step


@row
def cell_that_others_change() -> Any:
    n = 0

    def between(k: int) -> None:
        nonlocal n
        n = k * k

    return lambda x: x * n + n, between, lambda: n


@row
def decided_by() -> Any:
    state = SimpleNamespace(step=0)

    def fn(x: Any) -> Any:
        state.step += 1
        return x * state.step if state.step % 10 == 0 else x + state.step

    return fn, nothing, lambda: state.step


@row
def counted_and_set_back_from_outside() -> Any:
    state = SimpleNamespace(step=0)

    def fn(x: Any) -> Any:
        state.step = state.step * 2 + 1
        return x * state.step

    return fn, lambda k: setattr(state, "step", k % 7), lambda: state.step


@row
def training_loop() -> Any:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 3))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    state = SimpleNamespace(step=0, loss=0.0)

    def fn(x: Any) -> Any:
        state.step += 1
        loss = (net(x) - x).square().mean() * min(1.0, state.step / 20)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return fn, nothing, lambda: (state.step, *(p.detach().clone() for p in net.parameters()))


def same(a: Any, b: Any) -> bool:
    if isinstance(b, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(torch.equal(a, b)) if isinstance(b, torch.Tensor) else repr(a) == repr(b)


def results(make: Callable[[], Any], compile: bool) -> tuple[list[Any], Any]:
    fn, between, left = make()
    run = torch.compile(fn, mode="bitwise", fullgraph=True) if compile else fn
    x = torch.linspace(-1, 1, 6).reshape(2, 3)
    found = []
    for k in range(STEPS):
        between(k)
        found.append((run(x).detach().clone(), repr(left()) if k % 9 == 0 else ""))
    return [*found, left()], run


def test_a_difference_is_seen() -> None:
    one = torch.ones(2)
    assert not same((one, 1), (one, 2))
    assert not same((one, 1), (one + 1, 1))
    assert not same((1,), (1, 2))
    assert same((one, 1), (one, 1))


@pytest.mark.parametrize("name", ROWS)
def test_a_few_programs_for_all_values(name: str) -> None:
    wanted, _ = results(ROWS[name], compile=False)
    found, compiled = results(ROWS[name], compile=True)
    for k, (a, b) in enumerate(zip(found, wanted, strict=True)):
        assert same(a, b), k
    assert compiled.given_up is None
    assert len(compiled.entries) <= MOST
    assert compiled.segmented is None


def test_what_needs_the_value_itself_runs_in_parts() -> None:
    """A counter that is an index: as before, by value."""
    state = {"n": 0}

    def fn(x: Any) -> Any:
        state["n"] += 1
        return x[state["n"] % 2] + 1

    compiled = torch.compile(fn)
    x = torch.arange(4.0).reshape(2, 2)
    for k in range(4):
        assert torch.equal(compiled(x), x[(k + 1) % 2] + 1)
    assert state["n"] == 4


@pytest.mark.parametrize(
    "other", [2.5, True, 2**60, None, torch.ones(2)], ids=lambda x: str(type(x))
)
def test_another_kind_of_value_in_the_place(other: Any) -> None:
    state: dict[str, Any] = {"n": 1}

    def fn(x: Any) -> Any:
        return x if state["n"] is None else x * state["n"]

    compiled = torch.compile(fn)
    x = torch.ones(2)
    for value in (1, 2, 3, other, 4):
        state["n"] = value
        assert torch.equal(compiled(x), fn(x))


def test_two_functions_count_together() -> None:
    state = SimpleNamespace(n=0)

    def count(x: Any) -> Any:
        state.n += 1
        return x * state.n

    one, two = torch.compile(count), torch.compile(lambda x: count(x) + state.n)
    x = torch.ones(2)
    for k in range(0, 10, 2):
        assert torch.equal(one(x), x * (k + 1))
        assert torch.equal(two(x), x * (k + 2) + (k + 2))
    assert state.n == 10


@settings(max_examples=15)
@given(st.data())
def test_random_counters(data: Any) -> None:
    """Functions that read and write two numbers in random ways, with changes between the calls."""
    steps = {
        "up": lambda s: setattr(s, "n", s.n + 1),
        "twice": lambda s: setattr(s, "n", s.n * 2 - 3),
        "rate": lambda s: setattr(s, "r", s.r * 0.5 + s.n),
        "third": lambda s: setattr(s, "r", s.r / 3),
        "set": lambda s: setattr(s, "n", 4),
    }
    names = data.draw(st.lists(st.sampled_from(sorted(steps)), max_size=3))
    changes = data.draw(st.lists(st.sampled_from((None, 0, 7, -2)), min_size=5, max_size=5))
    found = []
    for compile in (False, True):
        state = SimpleNamespace(n=1, r=0.5)

        def fn(x: Any, state: Any = state) -> Any:
            y = x * state.n
            for name in names:
                steps[name](state)
                y = y + state.r if state.n < 10 else y - state.n
            return y

        run: Any = torch.compile(fn, mode="bitwise") if compile else fn
        out = []
        for change in changes:
            if change is not None:
                state.n = change
            out.append((run(torch.linspace(-1, 1, 3)), state.n, state.r))
        found.append(out)
    for a, b in itertools.zip_longest(*found):
        assert same(a, b)
