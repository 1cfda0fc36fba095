"""Objects that get another `__dict__` after a function was compiled."""

from __future__ import annotations

from typing import Any

import pytest

import lucerne as torch


class Held:
    def __init__(self, a: float) -> None:
        self.a = a


held = Held(2.0)


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.config = held

    def forward(self, x: Any) -> Any:
        return x * self.config.a


def _closure() -> Any:
    own = held
    return lambda x: x * own.a


def _in_a_dict() -> Any:
    table = {"one": held}
    return lambda x: x * table["one"].a


FUNCTIONS = {
    "a variable": lambda: lambda x: x * held.a,
    "of a module": Net,
    "a closure": _closure,
    "in a dict": _in_a_dict,
    "by hasattr": lambda: lambda x: x * (3.0 if hasattr(held, "b") else held.a),
}


@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_dict_of_now_is_read(name: str, fullgraph: bool) -> None:
    held.__dict__ = {"a": 2.0}
    compiled = torch.compile(FUNCTIONS[name](), fullgraph=fullgraph)
    x = torch.ones(2)
    for _ in range(2):
        assert compiled(x).tolist() == [2.0, 2.0]
    held.__dict__ = {"a": 5.0}
    assert compiled(x).tolist() == [5.0, 5.0]
    held.a = 7.0
    assert compiled(x).tolist() == [7.0, 7.0]
    held.__dict__ = {"a": 7.0, "b": 1}
    assert compiled(x).tolist() == [3.0 if name == "by hasattr" else 7.0] * 2


def _counting() -> Any:
    def fn(x: Any) -> Any:
        held.a = held.a + 1.0
        return x * held.a

    return fn


class OwnNumber(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = 2.0

    def forward(self, x: Any) -> Any:
        return x * self.a


@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize("name", [*FUNCTIONS, "counting", "own number"])
def test_a_number_that_changes_is_read_from_the_dict_of_now(name: str, fullgraph: bool) -> None:
    """After its first change a number is given at each call, and no longer compared."""
    makers = {**FUNCTIONS, "counting": _counting, "own number": OwnNumber}
    held.__dict__ = {"a": 2.0}
    fn = makers[name]()
    owner = fn if name == "own number" else held
    compiled = torch.compile(fn, fullgraph=fullgraph)
    x = torch.ones(2)

    def check(number: float) -> None:
        expected = [number + (name == "counting")] * 2
        assert compiled(x).tolist() == expected
        assert owner.a == expected[0]

    check(2.0)
    for number in (3.0, 4.0, 5.0):
        owner.a = number
        check(number)
    for number in (6.0, 7.0, 8.0):
        owner.__dict__ = {**owner.__dict__, "a": number}
        check(number)
        owner.a = number + 0.5
        check(number + 0.5)
