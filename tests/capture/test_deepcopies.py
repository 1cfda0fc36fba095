"""`copy.deepcopy` of objects whose class has a `__getattribute__` of its own: the copy is new at
each call, has what the object has now, and their code runs as often as eager runs it."""

from __future__ import annotations

import copy
import copyreg
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

import lucerne as torch

asked: list[str] = []
"""What was asked of objects that tell."""


class Config:
    """As configurations of transformers: names are looked up through a map of the class."""

    attribute_map: ClassVar[dict[str, str]] = {"hidden": "width"}

    def __init__(self) -> None:
        self.width, self.sizes, self.old = 3, [1, {"a": 2}], 5

    def __setattr__(self, key: str, value: Any) -> None:
        super().__setattr__(super().__getattribute__("attribute_map").get(key, key), value)

    def __getattribute__(self, key: str) -> Any:
        if key != "attribute_map" and key in super().__getattribute__("attribute_map"):
            key = super().__getattribute__("attribute_map")[key]
        return super().__getattribute__(key)


class Tells(Config):
    def __getattribute__(self, key: str) -> Any:
        asked.append(key)
        return super().__getattribute__(key)


class CopiesItself(Config):
    def __deepcopy__(self, memo: Any) -> Any:
        made = type(self)()
        made.width = self.width * 10
        return made


class SaysHow(Config):
    """`__reduce_ex__` is answered for the object, not by its class."""

    def __getattribute__(self, key: str) -> Any:
        if key == "__reduce_ex__":
            return lambda protocol: (Other, (protocol,))
        return super().__getattribute__(key)


class Other(Config):
    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.width = width


class SaysNothing(Config):
    def __getattribute__(self, key: str) -> Any:
        if key == "__reduce_ex__":
            raise AttributeError(key)
        if key == "__reduce__":
            return lambda: "a name"
        return super().__getattribute__(key)


class HasState(Config):
    """`__getstate__` is answered for the object."""

    def __getattribute__(self, key: str) -> Any:
        if key == "__getstate__":
            return lambda: {"width": 7, "sizes": [8, {"a": 4}], "old": 9}
        return super().__getattribute__(key)


class TakesState(Config):
    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.width = state["width"] + 100


class OtherDict(Config):
    """Says that its attributes are elsewhere."""

    def __getattribute__(self, key: str) -> Any:
        if key == "__dict__" and not object.__getattribute__(self, "__dict__"):
            return elsewhere
        return super().__getattribute__(key)


elsewhere: dict[str, Any] = {}


class InClass(Config):
    def __reduce__(self) -> Any:
        return Other, (6,)


class Registered(Config):
    pass


class Slotted(Config):
    __slots__ = ("extra",)

    def __init__(self) -> None:
        super().__init__()
        self.extra = 11


copyreg.pickle(Registered, lambda x: (Other, (x.width * 2,)))  # type: ignore[arg-type]

KINDS = [
    Config, Tells, CopiesItself, SaysHow, SaysNothing, HasState, TakesState, InClass, Registered,
    Slotted,
]  # fmt: skip


def use(c: Any, x: Any) -> Any:
    made = copy.deepcopy(c)
    made.sizes[1]["a"] += 1
    made.hidden = made.hidden + 1
    del made.old
    return x * made.width + made.sizes[1]["a"] + len(c.sizes) + (made is c)


@pytest.mark.parametrize("kind", KINDS)
def test_as_eager(kind: Callable[[], Any]) -> None:
    x = torch.randn(3)
    ours, theirs = kind(), kind()
    compiled = torch.compile(use)
    for change in (
        lambda c: None,
        lambda c: None,
        lambda c: setattr(c, "width", 8),
        lambda c: c.sizes[1].update(a=6),
        lambda c: c.sizes.append(1),
    ):
        change(ours)
        change(theirs)
        asked.clear()
        try:
            wanted: Any = use(theirs, x)
        except AttributeError as error:
            wanted = str(error)
        told = list(asked)
        asked.clear()
        try:
            found: Any = compiled(ours, x)
        except AttributeError as error:
            found = str(error)
        if isinstance(wanted, str):
            assert found == wanted
        else:
            torch.testing.assert_close(found, wanted)
        assert asked == told
        assert vars(ours) == vars(theirs)


def test_an_answer_for_the_dict_of_the_copy() -> None:
    def fn(x: Any) -> Any:
        copy.deepcopy(held)
        return x + elsewhere["width"]

    held, x = OtherDict(), torch.randn(3)
    elsewhere.clear()
    wanted = fn(x)
    assert "width" in elsewhere
    for width in (3, 4):
        held.width = width
        elsewhere.clear()
        torch.testing.assert_close(torch.compile(fn)(x), x + width)
    torch.testing.assert_close(wanted, x + 3)


def test_one_graph() -> None:
    config, x = Config(), torch.randn(3)
    compiled = torch.compile(use, fullgraph=True)
    for _ in range(3):
        torch.testing.assert_close(compiled(config, x), x * 4 + 3 + 2)
    assert len(compiled.entries) == 1
    config.sizes[1]["a"] = 9
    torch.testing.assert_close(compiled(config, x), x * 4 + 10 + 2)


def test_a_copy_that_is_returned_is_new() -> None:
    def fn(x: Any) -> Any:
        made = copy.deepcopy(config)
        made.value = x * 2
        return made

    config, x = Config(), torch.randn(3)
    compiled = torch.compile(fn, fullgraph=True)
    first, second = compiled(x), compiled(x)
    assert first is not second
    assert first.sizes is not second.sizes
    assert first.sizes is not config.sizes
    assert first.sizes[1] is not second.sizes[1]
    assert type(first) is Config
    torch.testing.assert_close(second.value, x * 2)
    assert not hasattr(config, "value")
