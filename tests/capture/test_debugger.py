"""`breakpoint()` in compiled functions stops in the user's frame, with its variables."""

from __future__ import annotations

import pdb
import sys
import warnings
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

import lucerne as torch
from lucerne import nn
from lucerne._src.base.config import _read, config
from lucerne._src.capture.breaks import debugger
from lucerne._src.capture.breaks.reasons import BreakError

Stop = tuple[str, int, dict[str, Any], list[str]]
"""Function, line, variables, and the user's functions below it."""


@pytest.fixture
def stops(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Stop]]:
    """What a debugger would show at each stop; it goes on at once."""
    found: list[Stop] = []

    def interaction(self: pdb.Pdb, frame: FrameType, *rest: Any) -> None:
        variables = {k: _plain(v) for k, v in frame.f_locals.items() if not k.startswith("__")}
        found.append((frame.f_code.co_name, frame.f_lineno, variables, list(_below(frame))))
        self.set_continue()

    def set_trace() -> None:
        """As `pdb` has it: pytest puts one of its own there, which writes to the terminal."""
        pdb.Pdb().set_trace(sys._getframe(1))

    monkeypatch.setattr(pdb.Pdb, "interaction", interaction)
    monkeypatch.setattr(pdb, "set_trace", set_trace)
    monkeypatch.setattr(sys, "breakpointhook", lambda: pdb.Pdb().set_trace(sys._getframe(1)))
    before = sys.gettrace()
    yield found
    sys.settrace(before)


def _plain(x: Any) -> Any:
    return x.tolist() if isinstance(x, torch.Tensor) else type(x).__name__ if callable(x) else x


def _below(frame: FrameType | None) -> Iterator[str]:
    while frame is not None and frame.f_code.co_name != "called":
        if frame.f_code.co_filename == __file__:
            yield frame.f_code.co_name
        frame = frame.f_back


def called(fn: Any, x: Any) -> Any:
    return fn(x)


# ---- programs -----------------------------------------------------------------------------------


def plain(x: Any) -> Any:
    y = x * 2
    n = 3
    breakpoint()
    return y + n


def behind_a_break(x: Any) -> Any:
    y = x * 2
    print(end="")
    z = y + 1
    breakpoint()
    return y * z


def where_data_decides(x: Any) -> Any:
    total = x.sum()
    if total > 0:
        breakpoint()
    return x / total


def in_a_loop(x: Any) -> Any:
    for k in range(3):
        x = x + k
        breakpoint()
    return x


def by_pdb(x: Any) -> Any:
    y = x.exp()
    pdb.set_trace()
    return y


def _helper(a: Any, scale: float) -> Any:
    b = a * scale
    breakpoint()
    return b.sin()


def in_a_helper(x: Any) -> Any:
    y = x + 1
    return _helper(y, 0.5) * 2


def in_a_helper_behind_a_break(x: Any) -> Any:
    y = x + 1
    print(end="")
    return _helper(y, 0.5) * 2


def in_a_closure(x: Any) -> Any:
    scale = 3.0

    def inner(v: Any) -> Any:
        w = v * scale
        breakpoint()
        return w

    return inner(x + 1) - 1


def in_a_training_step(x: Any) -> Any:
    w = x.clone().requires_grad_()
    loss = (w * w).sum()
    loss.backward()
    g = w.grad
    breakpoint()
    return g


class Stops(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = 2.0

    def forward(self, x: Any) -> Any:
        y = x * self.scale
        breakpoint()
        return y


BREAKS_FIRST = {"in_a_helper_behind_a_break"}
"""What comes to a break before the helper that stops is known: in the first call the machine runs
the caller, of which the debugger sees nothing; the helper's own frame is there."""
PROGRAMS: dict[str, Callable[[], Any]] = {
    **{
        f.__name__: lambda f=f: f
        for f in (
            plain, behind_a_break, where_data_decides, in_a_loop, by_pdb, in_a_helper,
            in_a_helper_behind_a_break, in_a_closure, in_a_training_step,
        )
    },
    "a module": Stops,
    "a module inside": lambda: nn.Sequential(nn.ReLU(), Stops(), nn.Tanh()),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_stops_in_the_users_frame(name: str, stops: list[Stop]) -> None:
    fn, x = PROGRAMS[name](), torch.tensor([1.0, 2.0])
    want = called(fn, x).tolist()
    shown = list(stops)
    assert shown
    compiled = torch.compile(fn)
    for call in range(3):
        stops.clear()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert called(compiled, x).tolist() == want
        whole = call > 0 or name not in BREAKS_FIRST
        assert [s[: 4 if whole else 3] for s in stops] == [s[: 4 if whole else 3] for s in shown]


def test_it_says_so_and_where() -> None:
    compiled = torch.compile(plain)
    line = plain.__code__.co_firstlineno + 3
    with pytest.warns(UserWarning, match=rf"plain runs uncompiled.*debugger.*:{line} in plain"):
        _without_stopping(compiled)
    with pytest.raises(BreakError, match=r"breakpoint\(\) stops in the frame"):
        torch.compile(plain, fullgraph=True)(torch.ones(2))


def _without_stopping(fn: Any) -> None:
    before, sys.breakpointhook = sys.breakpointhook, lambda: None
    try:
        fn(torch.ones(2))
    finally:
        sys.breakpointhook = before


class Road:
    """Whose `breakpoint` and `set_trace` are no debugger's."""

    breakpoint = 0.5


def reads_an_attribute(x: Any) -> Any:
    return x * Road.breakpoint


def is_never_reached(x: Any) -> Any:
    if x.ndim > 3:
        breakpoint()
    return x * 2


@pytest.mark.parametrize("fn", [reads_an_attribute, is_never_reached])
def test_what_does_not_stop_is_compiled(fn: Any) -> None:
    compiled = torch.compile(fn, fullgraph=True)
    assert compiled(torch.ones(2)).tolist() == fn(torch.ones(2)).tolist()
    assert len(compiled.entries) == 1


def test_a_function_of_the_users_by_that_name() -> None:
    space: dict[str, Any] = {}
    exec("def breakpoint(): pass\ndef f(x):\n    breakpoint()\n    return x * 2", space)
    assert not debugger.stops_inside(space["f"])
    assert debugger.stops_inside(plain)


@pytest.mark.parametrize(
    ("environment", "is_off"),
    [
        ({}, False),
        ({"LUCERNE_COMPILE_DISABLE": "1"}, True),
        ({"TORCH_COMPILE_DISABLE": "1"}, True),
        ({"TORCHDYNAMO_DISABLE": "1"}, True),
        ({"TORCHDYNAMO_DISABLE": "0"}, False),
    ],
)
def test_a_variable_switches_compiling_off(
    environment: dict[str, str], is_off: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "compile_disable", _read(environment).compile_disable)
    assert (torch.compile(plain) is plain) is is_off
