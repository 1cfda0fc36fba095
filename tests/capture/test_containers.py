"""Classes of the user's that extend dict, OrderedDict or list: made inside, they come out whole."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import pytest

import lucerne as torch


class Output(OrderedDict):
    """As libraries return them: an item for each attribute."""

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setitem__(name, value)
        super().__setattr__(name, value)


class Counted(dict):
    """Its own `__setitem__` and `__getitem__`."""

    reads = 0

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(f"<{key}>", value)

    def __getitem__(self, key: Any) -> Any:
        self.reads += 1
        return super().__getitem__(f"<{key}>")


class Stack(list):
    def push(self, x: Any) -> Any:
        self.append(x)
        self.top = x
        return self


@dataclass
class Pair(OrderedDict):
    """A dataclass that is a dict as well."""

    hidden: Any = None

    def __post_init__(self) -> None:
        self["hidden"] = self.hidden


def output(x: Any) -> Any:
    found = Output()
    found.hidden = x.exp()
    found.logits = found.hidden * 2
    return found


def counted(x: Any) -> Any:
    found = Counted()
    found["a"] = x + 1
    found["b"] = found["a"] * 2
    return found


def stack(x: Any) -> Any:
    return Stack().push(x * 2).push(x.sin())


def pair(x: Any) -> Any:
    return Pair(hidden=x * 3)


def _plain(x: Any) -> Any:
    """A container as plain data: its class, its items in order, its attributes."""
    if isinstance(x, torch.Tensor):
        return x.tolist()
    if not isinstance(x, (dict, list)):
        return x
    own = {k: _plain(v) for k, v in vars(x).items()}
    items = dict.items(x) if isinstance(x, dict) else enumerate(x)
    return type(x), [(k, _plain(v)) for k, v in items], own


@pytest.mark.parametrize("fn", [output, counted, stack, pair])
def test_they_come_out_whole(fn: Any) -> None:
    compiled = torch.compile(fn, fullgraph=fn is not pair)  # (`__post_init__` is called by C)
    for k in range(3):
        x = torch.arange(3.0) + k
        assert _plain(compiled(x)) == _plain(fn(x))


def test_what_is_two_names_of_one_tensor_stays_so() -> None:
    found = torch.compile(output)(torch.ones(2))
    assert found.hidden is found["hidden"]
    top = torch.compile(stack)(torch.ones(2))
    assert top.top is top[-1]


def test_gradients_flow_through_them() -> None:
    x, y = (torch.ones(3, requires_grad=True) for _ in range(2))
    torch.compile(output)(x).logits.sum().backward()
    output(y).logits.sum().backward()
    assert x.grad.tolist() == y.grad.tolist()
