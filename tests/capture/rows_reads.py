"""Functions with things that they read and things that they don't: rows for `test_reads`.

Each row makes a world of its own and gives a function of one tensor, changes of things the function
never looks at, and changes of things it does look at.
"""

from __future__ import annotations

import functools
import types
from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import lucerne as torch
from lucerne import nn

Change = Callable[[], Any]
ROWS: dict[str, Callable[[], Row]] = {}


class Row(NamedTuple):
    fn: Callable[[Any], Any]
    unread: dict[str, Change]
    read: dict[str, Change]
    not_in_parts: frozenset[str] = frozenset()
    """Unread changes that make another version of a part: it compares the whole container."""


def row(make: Callable[[], Row]) -> Callable[[], Row]:
    ROWS[make.__name__] = make
    return make


class Config:
    kind = "mean"
    scale = 2.0

    def __init__(self) -> None:
        self.k, self.seen, self.names = 3.0, 0, ["a", "b"]

    def apply(self, x: Any) -> Any:
        return x * self.k

    @property
    def twice(self) -> float:
        return self.k * 2


def fresh_class() -> Any:
    return type("Options", (Config,), {"scale": 2.0, "other": 1})


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.spare = nn.Linear(3, 3)
        self.scale, self.count, self.config = 2.0, 0, Config()
        self.history: list[float] = []
        self.register_buffer("shift", torch.ones(3))
        self.register_buffer("unused", torch.ones(3))

    def forward(self, x: Any) -> Any:
        return self.layer(x) * self.scale + self.shift


@row
def module() -> Row:
    net = Net()
    return Row(
        lambda x: net(x),
        {
            "a counter": lambda: setattr(net, "count", net.count + 1),
            "a list that grows": lambda: net.history.append(1.0),
            "another list": lambda: setattr(net, "history", [2.0]),
            "a new attribute": lambda: setattr(net, "more", 3),
            "a module that is not called": lambda: setattr(net, "spare", nn.Linear(2, 2)),
            "a buffer": lambda: setattr(net, "unused", torch.zeros(2)),
            "an object": lambda: setattr(net.config, "k", 7.0),
            "training": lambda: setattr(net, "training", False),
        },
        {
            "a number": lambda: setattr(net, "scale", 5.0),
            "an integer for a float": lambda: setattr(net, "scale", 2),
            "the layer": lambda: setattr(net, "layer", nn.Linear(3, 3)),
            "its weight": lambda: setattr(net.layer, "weight", nn.Parameter(torch.zeros(3, 3))),
            "the buffer": lambda: setattr(net, "shift", torch.zeros(3)),
            "an attribute before the method": lambda: setattr(net, "forward", lambda x: x),
            "a hook": lambda: net.register_forward_hook(lambda m, i, o: o + 1),
        },
    )  # fmt: skip


@row
def module_with_an_object() -> Row:
    class Uses(Net):
        def forward(self, x: Any) -> Any:
            return self.config.apply(x)

    net = Uses()
    return Row(
        lambda x: net(x),
        {"another attribute": lambda: setattr(net.config, "seen", 1)},
        {
            "the attribute": lambda: setattr(net.config, "k", 9.0),
            "the object": lambda: setattr(net, "config", types.SimpleNamespace(apply=abs)),
        },
    )


@row
def dropout_in_training() -> Row:
    net = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.0))
    return Row(lambda x: net(x), {}, {"training": lambda: net.eval(), "p": lambda: drop(net)})


def drop(net: Any) -> None:
    net[1].p = 1.0


@row
def layers_in_a_list() -> Row:
    layers = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])
    counts = [0, 0]

    def fn(x: Any) -> Any:
        for layer in layers:
            x = layer(x)
        return x

    return Row(
        fn,
        {"a list beside it": lambda: counts.append(1)},
        {"one more layer": lambda: layers.append(nn.Linear(3, 3))},
    )


@row
def dictionary() -> Row:
    options: dict[str, Any] = {"scale": 2.0, "name": "x", "inner": {"k": 1.0, "j": 2.0}}
    return Row(
        lambda x: x * options["scale"] + options["inner"]["k"],
        {
            "another value": lambda: options.update(name="y"),
            "a new key": lambda: options.update(more=1),
            "a key that goes": lambda: options.pop("name"),
            "another value inside": lambda: options["inner"].update(j=5.0),
        },
        {
            "the value": lambda: options.update(scale=3.0),
            "the kind of the value": lambda: options.update(scale=2),
            "the value inside": lambda: options["inner"].update(k=4.0),
            "the dict inside": lambda: options.update(inner={"k": 7.0}),
        },
    )


@row
def dictionary_with_defaults() -> Row:
    options: dict[str, Any] = {"scale": 2.0, "name": "x"}
    return Row(
        lambda x: x * options.get("scale", 1.0) + options.get("late", 0.0),
        {"another value": lambda: options.update(name="y")},
        {
            "the value": lambda: options.update(scale=3.0),
            "one that was not there": lambda: options.update(late=4.0),
            "one that goes": lambda: options.pop("scale"),
        },
        frozenset(("another value",)),
    )


@row
def containers_of_the_user() -> Row:
    class Items(list[float]):
        def __init__(self, items: Any) -> None:
            super().__init__(items)
            self.k = 2.0

    class Recent(deque[float]):
        pass

    items, recent = Items([1.0, 2.0]), Recent([3.0])
    return Row(
        lambda x: x * sum(items) * items.k + len(recent),
        {},
        {
            "an item": lambda: items.append(3.0),
            "an attribute": lambda: setattr(items, "k", 5.0),
            "of the deque": lambda: recent.append(1.0),
        },
    )


@row
def dictionary_as_a_whole() -> Row:
    options = {"a": 1.0, "b": 2.0}
    return Row(
        lambda x: x * sum(options.values()),
        {},
        {"one value": lambda: options.update(b=5.0), "one more": lambda: options.update(c=1.0)},
    )


@row
def keys() -> Row:
    options, other = {"a": 1.0}, {"a": 1.0}
    return Row(
        lambda x: x * 2 if "b" in options else x,
        {"another dict": lambda: other.update(b=1.0)},
        {"the key": lambda: options.update(b=1.0)},
    )


@row
def merged() -> Row:
    options, other = {"alpha": 2}, {"alpha": 2}
    return Row(
        lambda x: torch.add(x, x, **options),
        {"another dict": lambda: other.update(alpha=1)},
        {"a keyword": lambda: options.update(alpha=5)},
    )


@row
def length() -> Row:
    items, other = [1, 2], [1, 2]
    return Row(
        lambda x: x * len(items),
        {"another list": lambda: other.append(1)},
        {"one more": lambda: items.append(3)},
    )


@row
def items_of_a_list() -> Row:
    items = [1.0, 2.0, 3.0]
    return Row(
        lambda x: x * items[0],
        {
            "the last": lambda: items.__setitem__(2, 9.0),
            "one more": lambda: items.append(4.0),
        },
        {"the first": lambda: items.__setitem__(0, 5.0), "none left": lambda: items.insert(0, 8.0)},
    )


@row
def last_of_a_list() -> Row:
    items = [1.0, 2.0, 3.0]
    return Row(
        lambda x: x * items[-1],
        {"the first": lambda: items.__setitem__(0, 9.0)},
        {"one more": lambda: items.append(4.0)},
    )


@row
def loop_over_a_list() -> Row:
    items, other = [1.0, 2.0], [1.0]

    def fn(x: Any) -> Any:
        for k in items:
            x = x * k
        return x

    return Row(
        fn,
        {"another list": lambda: other.append(2.0)},
        {"an item": lambda: items.__setitem__(1, 5.0), "one more": lambda: items.append(3.0)},
    )


@row
def many_items() -> Row:
    items = list(range(2000))
    return Row(lambda x: x * sum(items), {}, {"one of them": lambda: items.__setitem__(7, 0)})


@row
def unpacked() -> Row:
    pair: list[float] = [1.0, 2.0]

    def fn(x: Any) -> Any:
        a, b = pair
        return x * a + b

    return Row(fn, {}, {"an item": lambda: pair.__setitem__(0, 4.0)})


@row
def compared() -> Row:
    left, right = [1, [2]], [1, [2]]
    return Row(
        lambda x: x * 2 if left == right else x,
        {},
        {"deep inside": lambda: right[1].append(3)},  # type: ignore[attr-defined]
    )


@row
def object_attributes() -> Row:
    config = Config()
    return Row(
        lambda x: config.apply(x) + config.twice,
        {
            "a counter": lambda: setattr(config, "seen", 5),
            "a list inside": lambda: config.names.append("c"),
            "a new attribute": lambda: setattr(config, "more", 1),
        },
        {
            "a number": lambda: setattr(config, "k", 5.0),
            "minus zero": lambda: setattr(config, "k", -0.0),
            "a method": lambda: setattr(config, "apply", lambda x: x - 1),
        },
    )


@row
def class_attributes() -> Row:
    kind = fresh_class()
    return Row(
        lambda x: x * kind.scale,
        {"another one": lambda: setattr(kind, "other", 2)},
        {"a number": lambda: setattr(kind, "scale", 3.0)},
    )


@row
def class_attributes_by_an_object() -> Row:
    kind = fresh_class()
    config = kind()
    return Row(
        lambda x: x * config.scale,
        {"another one": lambda: setattr(kind, "other", 2)},
        {
            "of the class": lambda: setattr(kind, "scale", 3.0),
            "of the object": lambda: setattr(config, "scale", 4.0),
        },
    )


@row
def attributes_of_a_base() -> Row:
    base = fresh_class()

    class Derived(base):  # type: ignore[misc]
        def value(self) -> Any:
            return super().scale

    config = Derived()
    return Row(
        lambda x: x * config.value(),
        {"another one": lambda: setattr(base, "other", 2)},
        {"a number": lambda: setattr(base, "scale", 3.0)},
    )


@row
def slots() -> Row:
    class Slotted:
        __slots__ = ("k", "seen")

    config = Slotted()
    config.k, config.seen = 2.0, 0
    return Row(
        lambda x: x * config.k,
        {"another slot": lambda: setattr(config, "seen", 1)},
        {"the slot": lambda: setattr(config, "k", 3.0)},
    )


@row
def missing_attribute() -> Row:
    config = Config()
    return Row(
        lambda x: x * getattr(config, "late", 2.0),
        {},
        {"it comes": lambda: setattr(config, "late", 5.0)},
    )


@row
def asked_for() -> Row:
    config = Config()
    return Row(
        lambda x: x * 2 if hasattr(config, "late") else x,
        {},
        {"it comes": lambda: setattr(config, "late", 5.0)},
    )


@row
def tried() -> Row:
    config = Config()

    def fn(x: Any) -> Any:
        try:
            return x * config.late  # type: ignore[attr-defined]
        except AttributeError:
            return x

    return Row(fn, {}, {"it comes": lambda: setattr(config, "late", 5.0)})


@row
def tried_key() -> Row:
    options: dict[str, float] = {}

    def fn(x: Any) -> Any:
        try:
            return x * options["late"]
        except KeyError:
            return x

    return Row(fn, {}, {"it comes": lambda: options.update(late=5.0)})


@row
def own_dict() -> Row:
    config = Config()
    return Row(
        lambda x: x * config.__dict__["k"],
        {},
        {"the attribute": lambda: setattr(config, "k", 5.0)},
    )


@row
def kinds() -> Row:
    config = Config()
    return Row(
        lambda x: x * 2 if isinstance(config, Config) else x,
        {"an attribute": lambda: setattr(config, "k", 5.0)},
        {},
    )


@row
def formatted() -> Row:
    config = Config()
    return Row(
        lambda x: x * len(f"{config.names}"),
        {"an attribute": lambda: setattr(config, "seen", 1)},
        {"a name": lambda: config.names.append("long name")},
    )


@row
def closure() -> Row:
    scale, other = 2.0, 1

    def fn(x: Any) -> Any:
        return x * scale if other is not fn else x * other

    def change(name: str, value: Any) -> None:
        cells = dict(zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True))
        cells[name].cell_contents = value

    return Row(fn, {}, {"scale": lambda: change("scale", 3.0)})


@row
def branch_not_taken() -> Row:
    state = {"fast": True, "a": 2.0, "b": 3.0}

    def fn(x: Any) -> Any:
        return x * state["a"] if state["fast"] else x * state["b"]

    return Row(
        fn,
        {"of the other branch": lambda: state.update(b=7.0)},
        {"which": lambda: state.update(fast=False), "of this branch": lambda: state.update(a=5.0)},
    )


MODULE = types.ModuleType("reads_module")
MODULE.__dict__.update(SCALE=2.0, OTHER=1, NAMES=["a"], WEIGHT=torch.ones(3))
exec(
    "def of_globals(x): return x * SCALE\ndef of_tensor(x): return x * WEIGHT\n"
    "def of_both(x): return x * SCALE if len(NAMES) < 3 else x * OTHER\n",
    MODULE.__dict__,
)


def in_module(**change: Any) -> Change:
    return lambda: vars(MODULE).update(change)


@row
def global_variables() -> Row:
    MODULE.__dict__.update(SCALE=2.0, OTHER=1, NAMES=["a"])
    return Row(
        MODULE.of_both,
        {"of a branch": in_module(OTHER=3), "one that is not named": in_module(MORE=3)},
        {
            "a number": in_module(SCALE=4.0),
            "a list": lambda: MODULE.NAMES.extend("xyz"),
        },
    )


@row
def variables_of_a_module() -> Row:
    MODULE.__dict__.update(SCALE=2.0, OTHER=1, NAMES=["a"])
    return Row(
        lambda x: x * MODULE.SCALE,
        {"another": in_module(OTHER=3)},
        {"the number": in_module(SCALE=4.0)},
    )


@row
def global_tensor() -> Row:
    MODULE.__dict__.update(WEIGHT=torch.ones(3), OTHER=1)
    return Row(
        MODULE.of_tensor,
        {"another": in_module(OTHER=3), "its values": lambda: MODULE.WEIGHT.add_(1)},
        {"its dtype": in_module(WEIGHT=torch.ones(3, dtype=torch.float64))},
    )


@row
def default_values() -> Row:
    def helper(x: Any, *, k: float = 2.0, names: Any = ("a",)) -> Any:
        return x * k

    return Row(
        lambda x: helper(x),
        {},
        {"a keyword": lambda: helper.__kwdefaults__.update(k=4.0)},
    )


@row
def function_in_a_dict() -> Row:
    table = {"f": torch.relu, "g": torch.abs}
    return Row(
        lambda x: table["f"](x),
        {"another": lambda: table.update(g=torch.neg)},
        {"the function": lambda: table.update(f=torch.neg)},
    )


@row
def partial() -> Row:
    config = Config()

    def scaled(options: Any, x: Any) -> Any:
        return x * options.k

    return Row(
        functools.partial(scaled, config),
        {"another attribute": lambda: setattr(config, "seen", 1)},
        {"the attribute": lambda: setattr(config, "k", 1.0)},
    )


@row
def optimizer_options() -> Row:
    p = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([p], lr=0.5)
    group = optimizer.param_groups[0]
    return Row(
        lambda x: x * optimizer.param_groups[0]["lr"],
        {"another option": lambda: group.update(note="x")},
        {"the learning rate": lambda: group.update(lr=0.25)},
        frozenset(("another option",)),
    )


@row
def other_containers() -> Row:
    counts, order = defaultdict(float, a=1.0, b=2.0), OrderedDict(a=1.0, b=2.0)
    recent = deque([1.0, 2.0])
    return Row(
        lambda x: x * counts["a"] + order["a"] + recent[0],
        {
            "a value": lambda: counts.update(b=5.0),
            "one of the other": lambda: order.update(b=5.0),
        },
        {
            "the value": lambda: counts.update(a=5.0),
            "of the other": lambda: order.update(a=5.0),
            "of the deque": lambda: recent.appendleft(7.0),
        },
    )


@row
def member_of_a_set() -> Row:
    names, other = {"a"}, {"a"}
    return Row(
        lambda x: x * 2 if "b" in names else x,
        {"another set": lambda: other.add("b")},
        {"one more": lambda: names.add("b")},
    )


Pair = namedtuple("Pair", "a b")


@row
def tuples() -> Row:
    state = {"pair": Pair(2.0, 3.0), "sizes": (1, 2)}
    return Row(
        lambda x: x * state["pair"].a * state["sizes"][0],
        {"an equal tuple": lambda: state.update(sizes=tuple(range(1, 3)))},  # type: ignore[arg-type]
        {"a tuple": lambda: state.update(sizes=(3, 2)), "named": lambda: named(state)},
    )


def named(state: Any) -> None:
    state["pair"] = Pair(4.0, 3.0)


@row
def called_back() -> Row:
    config = Config()

    def inner(x: Any) -> Any:
        return x * config.k

    return Row(
        lambda x: torch.vmap(inner)(x),
        {},
        {"what it reads": lambda: setattr(config, "k", 5.0)},
    )


@row
def own_derivative() -> Row:
    config = Config()

    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * config.k

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad * config.k

    return Row(lambda x: Scaled.apply(x), {}, {"what it reads": lambda: setattr(config, "k", 5.0)})


@row
def sorted_by_the_user() -> Row:
    weights = {"a": 2.0, "b": 1.0}
    names = ["a", "b"]
    return Row(
        lambda x: x * len(sorted(names, key=lambda n: weights[n])[0]) * weights["a"],
        {},
        {"a weight": lambda: weights.update(a=0.5)},
    )


@row
def returned() -> Row:
    names, config = ["a"], Config()
    return Row(
        lambda x: (x * 2, names, config.k),
        {
            "another attribute": lambda: setattr(config, "seen", 3),
            "inside of what is returned as it is": lambda: names.append("b"),
        },
        {"a number": lambda: set_k(config)},
    )


def set_k(config: Any) -> None:
    config.k = 11.0


@dataclass
class Batch:
    x: Any
    scale: float
    note: str = ""


@row
def method_of_an_object() -> Row:
    class Trainer:
        def __init__(self) -> None:
            self.net, self.steps, self.log = Net(), 0, []

        def run(self, x: Any) -> Any:
            return self.net(x)

    trainer = Trainer()
    return Row(
        trainer.run,
        {
            "a counter": lambda: setattr(trainer, "steps", 1),
            "a log": lambda: trainer.log.append(1),
            "a counter of its module": lambda: setattr(trainer.net, "count", 1),
        },
        {"the module": lambda: setattr(trainer, "net", Net())},
    )


@row
def method_of_a_class() -> Row:
    kind = type("Scaled", (), {"go": lambda self, x: x * 2, "rest": lambda self, x: x})
    made = kind()
    return Row(
        lambda x: made.go(x),
        {"another method": lambda: setattr(kind, "rest", abs)},
        {"the method": lambda: setattr(kind, "go", lambda self, x: x * 3)},
    )


@row
def defaults_of_a_function() -> Row:
    def helper(x: Any, k: float = 2.0) -> Any:
        return x * k

    return Row(lambda x: helper(x), {}, {"k": lambda: setattr(helper, "__defaults__", (5.0,))})


@row
def keywords_of_a_partial() -> Row:
    scaled = functools.partial(lambda x, k: x * k, k=2.0)
    return Row(lambda x: scaled(x), {}, {"k": lambda: scaled.keywords.update(k=3.0)})


@row
def missing_key() -> Row:
    class Falls(dict[str, float]):
        def __missing__(self, key: str) -> float:
            return self["base"]

    options = Falls(base=2.0)
    return Row(
        lambda x: x * options["scale"],
        {},
        {
            "the base": lambda: options.update(base=3.0),
            "it comes": lambda: options.update(scale=9.0),
        },
    )


@row
def metaclass() -> Row:
    class Meta(type):
        @property
        def twice(cls) -> float:
            return cls.scale * 2  # type: ignore[attr-defined,no-any-return]

    class Options(metaclass=Meta):
        scale = 3.0

    return Row(lambda x: x * Options.twice, {}, {"scale": lambda: setattr(Options, "scale", 8.0)})
