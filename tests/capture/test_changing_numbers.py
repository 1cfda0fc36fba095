"""Numbers outside of a function, changed in every way Python has: the number of now is used.

A number that a function reads is compared at first, and given at each call after its first change.
Either way the object, the container and the class it is found by may be others meanwhile.
"""

from __future__ import annotations

import random
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

import lucerne as torch
from lucerne._src.capture.breaks.reasons import BreakError

Place = tuple[Callable[[Any], Any], list[Callable[[float], Any]]]
"""A function that reads a number, and ways to put another one there."""
VALUES = (1.0, 2.0, 3.0, 4.0, 0.5)
STEPS = 14


class Plain:
    def __init__(self, a: float = 1.0) -> None:
        self.a = a


class Slotted:
    __slots__ = ("a",)

    def __init__(self, a: float = 1.0) -> None:
        self.a = a


@dataclass
class Data:
    a: float = 1.0


def attribute(kind: Callable[[float], Any], read: Callable[[Any], Any]) -> Callable[[], Place]:
    """An object's number, as `read` finds it."""

    def place() -> Place:
        at = types.SimpleNamespace(it=kind(1.0))
        held = at.it

        def other(v: float) -> None:
            at.it = kind(v)

        def other_dict(v: float) -> None:
            at.it.__dict__ = {**vars(at.it), "a": v}

        changes: list[Callable[[float], Any]] = [lambda v: setattr(at.it, "a", v), other]
        changes += [lambda v: setattr(held, "a", v)]
        if hasattr(held, "__dict__"):
            changes += [lambda v: vars(at.it).update(a=v)]
            if type(held) is not types.SimpleNamespace:
                changes.append(other_dict)
        return (lambda x: x * read(at.it)), changes

    return place


def item(kind: Callable[[float], Any], key: Any) -> Callable[[], Place]:
    """A container's number."""

    def place() -> Place:
        at = {"it": kind(1.0)}
        held = at["it"]

        def other(v: float) -> None:
            at["it"] = kind(v)

        changes = [lambda v: at["it"].__setitem__(key, v), other, lambda v: held.update({key: v})]
        if not hasattr(held, "update"):
            changes = [*changes[:2], lambda v: held.insert(0, v), lambda v: at["it"].append(v)]
        return (lambda x: x * at["it"][key]), changes

    return place


def cell() -> Place:
    number = 1.0

    def put(v: float) -> None:
        nonlocal number
        number = v

    return (lambda x: x * number), [put, lambda v: put(int(v))]


def inherited() -> Place:
    base = type("Base", (), {"a": 1.0})
    sub = type("Sub", (base,), {})
    it = sub()
    return (lambda x: x * it.a), [
        lambda v: setattr(base, "a", v),
        lambda v: setattr(sub, "a", v),
        lambda v: delattr(sub, "a") if "a" in vars(sub) else None,
        lambda v: setattr(it, "a", v),
        lambda v: vars(it).pop("a", None),
    ]


def looked_up() -> Place:
    class Table:
        def __init__(self) -> None:
            self.__dict__["table"] = {"a": 1.0}

        def __getattr__(self, name: str) -> Any:
            return self.__dict__["table"][name]

    it: Any = Table()
    return (lambda x: x * it.a), [
        lambda v: it.table.update(a=v),
        lambda v: vars(it).update(table={"a": v}),
        lambda v: vars(it).update(a=v),
        lambda v: vars(it).pop("a", None),
    ]


def nested() -> Place:
    it: dict[str, Any] = {"x": {"y": {"z": 1.0}}}
    return (lambda x: x * it["x"]["y"]["z"]), [
        lambda v: it["x"]["y"].update(z=v),
        lambda v: it["x"].update(y={"z": v}),
        lambda v: it.update(x={"y": {"z": v}}),
    ]


def module(a: float) -> torch.nn.Module:
    made = torch.nn.Identity()
    made.a = a
    return made


def summed() -> Place:
    numbers = [1.0, 2.0]
    return (lambda x: x * sum(numbers)), [
        lambda v: numbers.__setitem__(-1, v),
        lambda v: numbers.append(v),
        lambda v: numbers.pop() if len(numbers) > 1 else None,
    ]


class Doubled(Plain):
    @property
    def twice(self) -> float:
        return self.a * 2


MANY = "ignore:.*compiled 8 times already"

PLACES: dict[str, Callable[[], Place]] = {
    "attribute": attribute(Plain, lambda o: o.a),
    "getattr": attribute(Plain, lambda o: getattr(o, "a")),  # noqa: B009
    "of its dict": attribute(Plain, lambda o: vars(o)["a"]),
    "property": attribute(Doubled, lambda o: o.twice),
    "slot": attribute(Slotted, lambda o: o.a),
    "dataclass": attribute(Data, lambda o: o.a),
    "namespace": attribute(lambda v: types.SimpleNamespace(a=v), lambda o: o.a),
    "module": attribute(module, lambda o: o.a),
    "dict": item(lambda v: {"a": v}, "a"),
    "ordered dict": item(lambda v: OrderedDict(a=v), "a"),
    "default dict": item(lambda v: defaultdict(float, a=v), "a"),
    "list": item(lambda v: [v, 2.0], 0),
    "end of a list": item(lambda v: [2.0, v], -1),
    "deque": item(lambda v: deque([v]), 0),
    "cell": cell,
    "inherited": inherited,
    "looked up": looked_up,
    "nested": nested,
    "sum": summed,
}


def differences(fn: Any, compiled: Any, changes: list[Any], seed: int) -> list[str]:
    """Where a compiled function says something else, over some changes by chance."""
    x, chance, trail = torch.ones(2), random.Random(seed), ""
    for _ in range(STEPS):
        if compiled(x).tolist() != fn(x).tolist():
            return [f"seed {seed}, changes {trail}: {compiled(x)}, not {fn(x)}"]
        k = chance.randrange(len(changes))
        trail += f" {k}"
        changes[k](chance.choice(VALUES))
    return []


@pytest.mark.filterwarnings(MANY)
@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize("name", PLACES)
def test_the_number_of_now_is_used(name: str, fullgraph: bool) -> None:
    for seed in range(3):
        fn, changes = PLACES[name]()
        compiled = torch.compile(fn, fullgraph=fullgraph)
        try:
            assert differences(fn, compiled, changes, seed) == []
        except BreakError:
            assert fullgraph


@pytest.mark.nightly
@pytest.mark.filterwarnings(MANY)
@pytest.mark.parametrize("name", PLACES)
def test_over_many_changes(name: str) -> None:
    for seed in range(100):
        fn, changes = PLACES[name]()
        assert differences(fn, torch.compile(fn), changes, seed) == []


def test_an_old_number_is_seen() -> None:
    """The check can fail: a function that keeps its first result."""
    fn, changes = PLACES["dict"]()
    kept = fn(torch.ones(2))
    assert differences(fn, lambda x: kept, changes, 0) != []
