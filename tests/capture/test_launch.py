"""`launch` in Python turns down what machine code turns down, and does what that does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import lucerne as torch
from lucerne._src.backends.cpu.program.runner import NativeRunner
from lucerne._src.base.config import config
from lucerne._src.capture.cache.entry import MISSED, CacheEntry
from lucerne._src.capture.cache.launch import PythonLaunch
from lucerne._src.capture.compiled import Compiled


def _step(x: Any, y: Any) -> Any:
    x.add_(y)
    return x * 2


class Own(torch.Tensor):
    """A class that answers ops itself."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return super().__torch_function__(func, types, args, kwargs or {})


def _t() -> Any:
    return torch.arange(4.0)


def _overlapping() -> tuple[Any, Any]:
    base = torch.arange(6.0)
    return base[:4], base[1:5]


OTHERS: dict[str, Callable[[], tuple[Any, ...]]] = {
    "size": lambda: (torch.arange(5.0), torch.arange(5.0)),
    "dtype": lambda: (_t(), _t().double()),
    "strides": lambda: (_t(), torch.arange(8.0)[::2]),
    "requires_grad": lambda: (_t(), _t().requires_grad_()),
    "class": lambda: (_t(), _t().as_subclass(Own)),
    "parameter": lambda: (_t(), torch.nn.Parameter(_t(), requires_grad=False)),
    "number": lambda: (_t(), 2.0),
    "None": lambda: (_t(), None),
    "too few": lambda: (_t(),),
    "too many": lambda: (_t(), _t(), _t()),
    "memory that is written": _overlapping,
}


@pytest.fixture
def entry(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(config, "payoff_calls", 0)
    f = torch.compile(_step, fullgraph=True)
    f(_t(), _t())
    (found,) = f.entries
    return found


def _in_python(entry: Any) -> PythonLaunch:
    made = PythonLaunch(entry.runner, entry.stages.program)
    made.expect(entry.flags, kinds=[k for *_, k in entry.guards.tensors])
    return made


@pytest.mark.parametrize("name", OTHERS)
def test_what_it_was_not_made_for(entry: Any, name: str) -> None:
    given = OTHERS[name]()
    before = [x.tolist() if isinstance(x, torch.Tensor) else x for x in given]
    assert _in_python(entry).launch((), given, ()) is None
    assert [x.tolist() if isinstance(x, torch.Tensor) else x for x in given] == before
    if len(given) == 2 and entry.launch is not None:
        assert entry.launch((), given, ()) is None, "machine code takes it"


def test_what_it_does(entry: Any) -> None:
    launch = _in_python(entry).launch
    for _ in range(2):
        x, y = _t(), _t()
        version = x._version
        (found,) = launch((), (x, y), ())
        assert found.tolist() == [0.0, 4.0, 8.0, 12.0]
        assert (x.tolist(), x._version, y._version) == ([0.0, 2.0, 4.0, 6.0], version + 1, 0)


def test_apart_in_one_memory(entry: Any) -> None:
    base = torch.arange(8.0)
    (found,) = _in_python(entry).launch((), (base[:4], base[4:]), ())
    assert found.tolist() == [8.0, 12.0, 16.0, 20.0]
    together = _in_python(entry)
    together.expect(entry.flags, groups=[1, 1])
    assert together.launch((), (base[:4], base[2:6]), ()) is not None


def test_the_short_way_asks_it(entry: Any) -> None:
    entry.runner = _in_python(entry)
    entry.launch = entry.runner.launch
    assert entry.quick((_t(), _t())).tolist() == [0.0, 4.0, 8.0, 12.0]
    assert entry.quick(OTHERS["requires_grad"]()) is MISSED
    with torch.no_grad():
        assert entry.quick((_t(), _t())) is MISSED


@pytest.mark.parametrize(
    "function", [Compiled.__call__, CacheEntry.quick, CacheEntry.quick_adding, NativeRunner.launch]
)
def test_a_quick_call_keeps_nothing_in_cells(function: Any) -> None:
    """A variable that a lambda or a comprehension of a function reads lies in a cell, which each
    call makes, though it never comes to the lambda: they were a seventh of a small call."""
    assert function.__code__.co_cellvars == ()
