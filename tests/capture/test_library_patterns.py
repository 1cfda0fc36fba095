"""Patterns of large libraries' model code, each as a small program: one graph, guarded, with the
side effects that eager has."""

from __future__ import annotations

import collections
import functools
import logging
import os
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

import lucerne as torch


class Config:
    """As configurations of transformers: names are looked up through a map of the class."""

    attribute_map: ClassVar[dict[str, str]] = {"hidden": "width"}

    def __init__(self) -> None:
        self.width, self.eps, self.kinds = 3, 0.5, ["a", "bc"]

    def __getattribute__(self, key: str) -> Any:
        hidden = super().__getattribute__("__dict__").get("_hidden")
        if hidden is not None and key in hidden:
            raise AttributeError(key)
        if key != "attribute_map" and key in super().__getattribute__("attribute_map"):
            key = super().__getattribute__("attribute_map")[key]
        return super().__getattribute__(key)

    @property
    def twice(self) -> int:
        return self.width * 2

    def more(self, k: int) -> int:
        return self.hidden + k


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.config = Config()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        c = self.config
        y = self.layer(x) * c.hidden + c.eps + c.twice + c.more(2)
        if getattr(c, "absent", None) is not None:
            y = y * 3
        if hasattr(c, "other") or isinstance(c, list):
            y = y * 5
        for kind in c.kinds:
            y = y + len(kind)
        return y


def assert_same(compiled: Any, fn: Any, *args: Any) -> None:
    torch.testing.assert_close(compiled(*args), fn(*args))


def programs(compiled: Any) -> int:
    return len(compiled.entries)


def test_own_getattribute_is_followed_and_guarded() -> None:
    model = Model()
    compiled = torch.compile(model.forward, fullgraph=True)
    x = torch.randn(2, 4)
    assert_same(compiled, model, x)
    assert_same(compiled, model, x)
    assert programs(compiled) == 1
    model.config.unread = 1
    assert_same(compiled, model, x)
    assert programs(compiled) == 1
    for change in (
        lambda: setattr(model.config, "eps", 2.0),
        lambda: setattr(model.config, "width", 5),
        lambda: setattr(model.config, "other", 1),
        lambda: setattr(model.config, "absent", 1),
        lambda: model.config.kinds.append("d"),
        lambda: setattr(model.config, "_hidden", {"other"}),
        lambda: setattr(Config, "attribute_map", {"hidden": "eps"}),
    ):
        before = Config.attribute_map
        try:
            change()
            assert_same(compiled, model, x)
        finally:
            Config.attribute_map = before
    assert_same(compiled, model, x)


class Plain:
    def __init__(self) -> None:
        self.a, self.b = 1, 2


held = Plain()
OF_DICT = {
    "attribute": lambda x: x * held.a,
    "item": lambda x: x * held.__dict__["a"],
    "values": lambda x: x * sum(held.__dict__.values()),
    "length": lambda x: x * len(held.__dict__),
    "absent": lambda x: x * (5 if "q" in held.__dict__ else 2),
    "default": lambda x: x * held.__dict__.get("q", 3),
    "loop": lambda x: [x := x + len(name) for name in held.__dict__][-1],
    "whole": lambda x: x + len({**held.__dict__}) + (held.__dict__ == {"a": 1, "b": 2}),
}


@pytest.mark.parametrize("name", OF_DICT)
def test_what_is_read_of_an_objects_dict_is_guarded(name: str) -> None:
    fn, x = OF_DICT[name], torch.randn(3)
    changes: list[dict[str, int]] = [{"a": 9}, {"q": 4}, {"a": 7, "c": 2}]
    for change in changes:
        compiled = torch.compile(fn, fullgraph=True)
        assert_same(compiled, fn, x)
        held.__dict__.update(change)
        assert_same(compiled, fn, x)
        held.__dict__ = {"a": 1, "b": 2, **change}  # (another dict)
        assert_same(compiled, fn, x)
        held.__dict__ = {"a": 1, "b": 2}
        assert_same(compiled, fn, x)


class Claims:
    """Says that it is of another class."""

    kind: ClassVar[Any] = list

    def __getattribute__(self, key: str) -> Any:
        if key == "__class__" and type(self).kind is not None:
            return type(self).kind
        return super().__getattribute__(key)


def test_an_object_is_asked_for_its_class(monkeypatch: pytest.MonkeyPatch) -> None:
    it = Claims()

    def fn(x: Any) -> Any:
        if isinstance(it, list):
            x = x * 2
        if isinstance(it, Claims):
            x = x * 3
        return x + 5 if isinstance(it, dict) else x

    compiled = torch.compile(fn, fullgraph=True)
    for kind in (list, dict, collections.OrderedDict, 3, None, list):
        monkeypatch.setattr(Claims, "kind", kind)
        assert_same(compiled, fn, torch.randn(3))


class Hooked(torch.nn.Module):
    """A tensor's hook is code that nobody follows: all that can be reached counts."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.config = torch.nn.Parameter(torch.ones(3)), Registry()
        self.config.own = ["a", "bc"]
        self.weight.register_hook(lambda g: g * 2)

    def forward(self, x: Any) -> Any:
        return x * self.weight + sum(len(kind) for kind in self.config.own)


def test_what_was_read_counts_where_everything_does() -> None:
    model = Hooked()
    compiled = torch.compile(model.forward)
    x = torch.randn(3)
    assert_same(compiled, model, x)
    model.config.own.append("d")
    assert_same(compiled, model, x)


def test_nobody_asks_a_users_object_for_our_purposes() -> None:
    """The program that breaks it: a `__getattribute__` that counts."""

    class Counting:
        asked: ClassVar[collections.Counter[str]] = collections.Counter()
        width = 3

        def __getattribute__(self, key: str) -> Any:
            type(self).asked[key] += 1
            return super().__getattribute__(key)

    held = {"it": Counting()}

    def fn(x: Any) -> Any:
        y = x * held["it"].width
        if isinstance(held["it"], list):
            y = y + 1
        return y.sum() + held["it"].width

    compiled = torch.compile(fn)
    x = torch.ones(3)
    Counting.asked = collections.Counter()
    for _ in range(4):
        fn(x)
    wanted, Counting.asked = Counting.asked, collections.Counter()
    for _ in range(4):
        assert float(compiled(x)) == 12.0
    assert Counting.asked == wanted


class Interface(MutableMapping[str, Any]):
    """Methods of `collections.abc` that call the user's."""

    shared: ClassVar[dict[str, Any]] = {"double": lambda x: x * 2}

    def __init__(self) -> None:
        self.own: dict[str, Any] = {}

    def __getitem__(self, key: str) -> Any:
        return self.own[key] if key in self.own else self.shared[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self.own[key] = value

    def __delitem__(self, key: str) -> None:
        del self.own[key]

    def __iter__(self) -> Any:
        return iter({**self.shared, **self.own})

    def __len__(self) -> int:
        return len(self.shared)


class View(Sequence[int]):
    def __init__(self, *values: int) -> None:
        self.values = values

    def __getitem__(self, k: Any) -> Any:
        return self.values[k]

    def __len__(self) -> int:
        return len(self.values)


def test_methods_of_abstract_classes_are_entered() -> None:
    table, view = Interface(), View(2, 3)

    def fn(x: Any) -> Any:
        x = table.get("double", abs)(x)
        for k, v in zip([1, 10], view, strict=False):
            x = x + k * v
        for k, v in enumerate(view):
            x = x * (k + v)
        return x + sum(view) + any(view)

    compiled = torch.compile(fn, fullgraph=True)
    x = torch.randn(4)
    assert_same(compiled, fn, x)
    table["double"] = lambda x: x * 7
    assert_same(compiled, fn, x)
    view.values = (4, 5)
    assert_same(compiled, fn, x)


@dataclass
class Output(collections.OrderedDict):  # type: ignore[type-arg]
    """A dict and a dataclass at once, as results of transformers are."""

    loss: Any = None
    logits: Any = None

    def __post_init__(self) -> None:
        for name in ("loss", "logits"):
            if getattr(self, name) is not None:
                self[name] = getattr(self, name)

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value)
        super().__setattr__(key, value)


class Cache:
    def __init__(self) -> None:
        self.keys: list[Any] = []


def test_new_objects_are_results_of_one_graph() -> None:
    def fn(x: Any) -> Any:
        cache = Cache()
        cache.keys.append(x * 3)
        return Output(loss=x.sum(), logits=x + 1), cache

    compiled = torch.compile(fn, fullgraph=True)
    x = torch.randn(3)
    (first, _), (out, cache) = compiled(x), compiled(x + 1)
    assert type(out) is Output
    assert list(out) == ["loss", "logits"]
    assert out.logits is out["logits"]
    assert out is not first
    torch.testing.assert_close(out.logits, x + 2)
    torch.testing.assert_close(cache.keys[0], (x + 1) * 3)
    assert programs(compiled) == 1


def test_functions_under_no_grad_are_entered() -> None:
    class Rotary(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale, self.calls = torch.nn.Parameter(torch.ones(3)), {"n": 0}

        @torch.no_grad()
        def table(self, x: Any) -> Any:
            state = {"seen": x.shape[0]}
            state["more"] = state["seen"] + 1
            return self.scale * state["more"]

        def forward(self, x: Any) -> Any:
            return (x * self.table(x) * self.scale).sum()

    model = Rotary()
    compiled = torch.compile(model, fullgraph=True)
    x = torch.randn(4, 3)
    compiled(x).backward()
    got, model.scale.grad = model.scale.grad, None
    model(x).backward()
    torch.testing.assert_close(got, model.scale.grad)
    assert torch.is_grad_enabled()


class _Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.told: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.told.append(record.getMessage())


def test_what_is_logged_once_is_logged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    @functools.lru_cache(None)
    def warning_once(self: Any, *args: Any, **kwargs: Any) -> None:
        self.warning(*args, **kwargs)

    monkeypatch.setattr(logging.Logger, "warning_once", warning_once, raising=False)
    logger, kept = logging.getLogger("lucerne.tests.once"), _Kept()
    logger.addHandler(kept)
    logger.propagate = False

    def fn(x: Any) -> Any:
        logger.warning_once("deprecated")  # type: ignore[attr-defined]
        return x * 2

    compiled = torch.compile(fn, fullgraph=True)
    for _ in range(3):
        assert float(compiled(torch.ones(()))) == 2.0
    assert kept.told == ["deprecated"]
    warning_once.cache_clear()
    compiled(torch.ones(()))
    assert kept.told == ["deprecated"] * 2


def test_the_environment_is_read_and_guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LUCERNE_TEST_FACTOR", raising=False)

    def fn(x: Any) -> Any:
        if os.environ.get("LUCERNE_TEST_FACTOR", "0") == "1":
            return x * 10
        return x * int(os.getenv("LUCERNE_TEST_FACTOR", "2"))

    compiled = torch.compile(fn, fullgraph=True)
    x = torch.randn(3)
    assert_same(compiled, fn, x)
    monkeypatch.setenv("LUCERNE_TEST_OTHER", "1")
    assert_same(compiled, fn, x)
    assert programs(compiled) == 1
    for value in ("1", "5"):
        monkeypatch.setenv("LUCERNE_TEST_FACTOR", value)
        assert_same(compiled, fn, x)


class Registry:
    table: ClassVar[dict[str, list[int]]] = {"a": [1], "b": [2, 3]}
    names: ClassVar[dict[str, int]] = {"a": 1}
    own: list[str]


def test_containers_of_classes_are_compared_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Registry, "table", {"a": [1], "b": [2, 3]})
    monkeypatch.setattr(Registry, "names", {"a": 1})

    def fn(x: Any) -> Any:
        for name, values in Registry.table.items():
            x = x + len(name) * sum(values)
        if "q" in Registry.names:
            x = x * 3
        return Output(logits=x)

    compiled = torch.compile(fn, fullgraph=True)
    x = torch.randn(3)

    def check() -> None:
        torch.testing.assert_close(compiled(x).logits, fn(x).logits)

    check()
    Registry.names["unasked"] = 4
    check()
    assert programs(compiled) == 1
    Registry.names["q"] = 4
    check()
    Registry.table["b"].append(9)
    check()
    Registry.table["c"] = [11]
    check()
    Registry.table = {"zz": [5]}
    check()
