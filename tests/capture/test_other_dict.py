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
