"""Things that users exchange between two calls of a compiled function: rows for `test_changes`.

Each row makes a world of its own: a function of one tensor, and changes of what it looks at. After
a change the compiled function must give what the function itself gives.
"""

from __future__ import annotations

import abc
import enum
import functools
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import lucerne as torch

Change = Callable[[], Any]
ROWS: dict[str, Callable[[], Row]] = {}


class Row(NamedTuple):
    fn: Callable[[Any], Any]
    changes: dict[str, Change]
    undo: Change = lambda: None
    """For changes of what is everybody's."""


def row(make: Callable[[], Row]) -> Callable[[], Row]:
    ROWS[make.__name__] = make
    return make


def cell_of(fn: Any, name: str) -> Any:
    return fn.__closure__[fn.__code__.co_freevars.index(name)]


# ---- functions ---------------------------------------------------------------------------------


@row
def helper_function() -> Row:
    k = 2.0

    def helper(x: Any, a: float = 2.0, *, b: float = 3.0) -> Any:
        return x * a + b + k

    def other(x: Any, a: float = 2.0, *, b: float = 3.0) -> Any:
        return x - a - b - k

    return Row(
        lambda x: helper(x),
        {
            "its code": lambda: setattr(helper, "__code__", other.__code__),
            "its defaults": lambda: setattr(helper, "__defaults__", (7.0,)),
            "its keyword default": lambda: helper.__kwdefaults__.update(b=7.0),
            "its keyword defaults": lambda: setattr(helper, "__kwdefaults__", {"b": 8.0}),
            "its closure": lambda: setattr(cell_of(helper, "k"), "cell_contents", 9.0),
        },
    )


@row
def function_itself() -> Row:
    k = 2.0

    def fn(x: Any, a: float = 2.0, *, b: float = 3.0) -> Any:
        return x * a + b + k

    def other(x: Any, a: float = 2.0, *, b: float = 3.0) -> Any:
        return x - a - b - k

    return Row(
        fn,
        {
            "its code": lambda: setattr(fn, "__code__", other.__code__),
            "its defaults": lambda: setattr(fn, "__defaults__", (7.0,)),
            "its keyword default": lambda: fn.__kwdefaults__.update(b=7.0),
            "its keyword defaults": lambda: setattr(fn, "__kwdefaults__", {"b": 8.0}),
            "its closure": lambda: setattr(cell_of(fn, "k"), "cell_contents", 9.0),
        },
    )


@row
def defaults_come_and_go() -> Row:
    def helper(x: Any, k: float = 2.0) -> Any:
        return x * k

    def none(x: Any, *, k: Any = None) -> Any:
        return x if k is None else x * k

    return Row(
        lambda x: none(helper(x)),
        {
            "a tensor as default": lambda: setattr(helper, "__defaults__", (torch.ones(3) * 5,)),
            "another keyword default": lambda: setattr(none, "__kwdefaults__", {"k": 4.0}),
        },
    )


@row
def function_with_an_attribute() -> Row:
    def helper(x: Any) -> Any:
        return x * helper.k  # type: ignore[attr-defined]

    helper.k = 2.0  # type: ignore[attr-defined]
    return Row(
        lambda x: helper(x),
        {"the attribute": lambda: setattr(helper, "k", 5.0)},
    )


@row
def decorated() -> Row:
    state = {"on": True}

    def doubling(f: Any) -> Any:
        @functools.wraps(f)
        def inner(*args: Any, **kwargs: Any) -> Any:
            return f(*args, **kwargs) * (2 if state["on"] else 3)

        return inner

    @doubling
    def helper(x: Any) -> Any:
        return x + 1

    return Row(
        lambda x: helper(x),
        {
            "what the decorator reads": lambda: state.update(on=False),
            "what is inside": lambda: setattr(
                cell_of(helper, "f"), "cell_contents", lambda x: x - 5
            ),
            "the code inside": lambda: setattr(
                helper.__wrapped__, "__code__", (lambda x: x * 9).__code__
            ),
        },
    )


@row
def cached_function() -> Row:
    state = {"k": 2.0}

    @functools.lru_cache
    def factor(name: str) -> float:
        return state[name]

    return Row(
        lambda x: x * factor("k"),
        {
            "what was cached is cleared": lambda: (state.update(k=7.0), factor.cache_clear()),
            "not cleared": lambda: state.update(k=7.0),
        },
    )


@row
def recursive() -> Row:
    table = {"depth": 2, "k": 2.0}

    def walk(x: Any, depth: int) -> Any:
        return x if depth == 0 else walk(x * table["k"], depth - 1)

    return Row(
        lambda x: walk(x, int(table["depth"])),
        {
            "how deep": lambda: table.update(depth=3),
            "the number": lambda: table.update(k=3.0),
            "its code": lambda: setattr(walk, "__code__", swapped_walk(table).__code__),
        },
    )


def swapped_walk(table: Any) -> Any:
    def walk(x: Any, depth: int) -> Any:
        return x - table["k"] if depth == 0 else walk(x, depth - 1)

    return walk


@row
def bound_by_hand() -> Row:
    class Holder:
        def __init__(self) -> None:
            self.k = 2.0

        def go(self, x: Any) -> Any:
            return x * self.k

    first, second = Holder(), Holder()
    second.k = 5.0
    state = {"go": first.go}
    return Row(
        lambda x: state["go"](x),
        {
            "another object": lambda: state.update(go=second.go),
            "an attribute": lambda: setattr(first, "k", 7.0),
            "another function": lambda: state.update(
                go=types.MethodType(lambda self, x: x - self.k, first)
            ),
            "the code of the method": lambda: setattr(
                Holder.go, "__code__", (lambda self, x: x + 11).__code__
            ),
        },
    )


# ---- classes -----------------------------------------------------------------------------------


def kinds_of_methods() -> Any:
    class Kind:
        scale = 2.0

        def plain(self, x: Any) -> Any:
            return x * 2

        @staticmethod
        def fixed(x: Any) -> Any:
            return x * 3

        @classmethod
        def made(cls, x: Any) -> Any:
            return x * cls.scale

        @property
        def value(self) -> float:
            return 4.0

        @functools.cached_property
        def kept(self) -> float:
            return 5.0

        def __call__(self, x: Any) -> Any:
            return x + 1

        def __getitem__(self, k: int) -> Any:
            return k + 2.0

        def __len__(self) -> int:
            return 3

        def __add__(self, x: Any) -> Any:
            return x + 6

        def __bool__(self) -> bool:
            return True

        def __iter__(self) -> Iterator[float]:
            return iter((1.0, 2.0))

        def __contains__(self, x: Any) -> bool:
            return x == 1

        def __enter__(self) -> float:
            return 2.0

        def __exit__(self, *error: object) -> None:
            self.left = True

        def __eq__(self, other: object) -> bool:
            return other == 1

        def __hash__(self) -> int:
            return 1

        def __neg__(self) -> float:
            return 8.0

        def __lt__(self, other: Any) -> bool:
            return True

        def __int__(self) -> int:
            return 5

        def __format__(self, spec: str) -> str:
            return "three"

        def __setattr__(self, name: str, value: Any) -> None:
            object.__setattr__(self, name, value)

    return Kind


@row
def methods_by_an_object() -> Row:
    kind = kinds_of_methods()
    made = kind()

    def fn(x: Any) -> Any:
        return made.made(made.fixed(made.plain(x))) * made.value

    return Row(
        fn,
        {
            "a method": lambda: setattr(kind, "plain", lambda self, x: x - 1),
            "a method by a static one": lambda: setattr(
                kind, "plain", staticmethod(lambda x: x - 1)
            ),
            "a static method": lambda: setattr(kind, "fixed", staticmethod(lambda x: x - 1)),
            "a static method by a plain one": lambda: setattr(kind, "fixed", lambda self, x: x - 2),
            "a class method": lambda: setattr(kind, "made", classmethod(lambda cls, x: x - 1)),
            "what the class method reads": lambda: setattr(kind, "scale", 9.0),
            "a property": lambda: setattr(kind, "value", property(lambda self: 9.0)),
            "a property by a number": lambda: setattr(kind, "value", 9.0),
            "the code of a property": lambda: setattr(
                kind.__dict__["value"].fget, "__code__", (lambda self: 11.0).__code__
            ),
            "the code of a static method": lambda: setattr(
                kind.__dict__["fixed"].__func__, "__code__", (lambda x: x + 11.0).__code__
            ),
            "the object gets its own": lambda: object.__setattr__(made, "plain", lambda x: x * 5),
            "the object gets its own static": lambda: object.__setattr__(
                made, "fixed", lambda x: x * 5
            ),
        },
    )


@row
def methods_by_the_class() -> Row:
    kind = kinds_of_methods()

    def fn(x: Any) -> Any:
        return kind.made(kind.fixed(x))

    return Row(
        fn,
        {
            "a static method": lambda: setattr(kind, "fixed", staticmethod(lambda x: x - 1)),
            "a class method": lambda: setattr(kind, "made", classmethod(lambda cls, x: x - 1)),
            "what the class method reads": lambda: setattr(kind, "scale", 9.0),
        },
    )


@row
def special_methods() -> Row:
    kind = kinds_of_methods()
    made = kind()

    def fn(x: Any) -> Any:
        with made as k:
            x = x * k
        y = made(x) * made[1] + len(made)
        y = made + y
        y = y * 2 if made else y
        for item in made:
            y = y * item
        y = y + 1 if 1 in made else y
        y = y + 2 if made == 1 else y
        y = y + 3 if made < 1 else y
        return y * (-made) + int(made) + len(f"{made}")

    changes: dict[str, Any] = {
        "__call__": lambda self, x: x * 7,
        "__getitem__": lambda self, k: k + 20.0,
        "__len__": lambda self: 17,
        "__add__": lambda self, x: x - 1,
        "__bool__": lambda self: False,
        "__iter__": lambda self: iter((5.0,)),
        "__contains__": lambda self, x: False,
        "__enter__": lambda self: 7.0,
        "__eq__": lambda self, other: False,
        "__neg__": lambda self: 9.0,
        "__lt__": lambda self, other: False,
        "__int__": lambda self: 77,
        "__format__": lambda self, spec: "longer",
    }
    return Row(fn, {k: functools.partial(setattr, kind, k, f) for k, f in changes.items()})


@row
def of_a_base() -> Row:
    class Base:
        scale = 2.0

        def go(self, x: Any) -> Any:
            return x * self.scale

        @staticmethod
        def fixed(x: Any) -> Any:
            return x + 1

    class Middle(Base):
        depth = 1

    class Derived(Middle):
        def go(self, x: Any) -> Any:
            return self.fixed(super().go(x))

    class Other(Base):
        scale = 7.0

        def go(self, x: Any) -> Any:
            return x - 1

    made = Derived()
    return Row(
        lambda x: made.go(x),
        {
            "a method of the base": lambda: setattr(Base, "go", lambda self, x: x - 3),
            "one in between": lambda: setattr(Middle, "go", lambda self, x: x - 4),
            "a value in between": lambda: setattr(Middle, "scale", 4.0),
            "a static method of the base": lambda: setattr(
                Base, "fixed", staticmethod(lambda x: x - 1)
            ),
            "a static method in between": lambda: setattr(
                Middle, "fixed", staticmethod(lambda x: x - 1)
            ),
            "the bases": lambda: setattr(Middle, "__bases__", (Other,)),
            "the class of the object": lambda: setattr(made, "__class__", Other),
            "the method goes": lambda: delattr(Derived, "go"),
        },
    )


@row
def class_of_a_class() -> Row:
    class Meta(type):
        bonus = 3.0

        @property
        def twice(cls) -> float:
            return float(cls.scale * 2)  # type: ignore[attr-defined]

        def __getattr__(cls, name: str) -> float:
            return 4.0

        def __call__(cls) -> Any:
            return type.__call__(cls)

    class Options(metaclass=Meta):
        scale = 3.0

    return Row(
        lambda x: x * Options.twice + Options.bonus + Options.unknown,  # type: ignore[attr-defined]
        {
            "a property": lambda: setattr(Meta, "twice", property(lambda cls: 9.0)),
            "what the property reads": lambda: setattr(Options, "scale", 8.0),
            "an attribute": lambda: setattr(Meta, "bonus", 8.0),
            "the class gets its own": lambda: setattr(Options, "bonus", 9.0),
            "__getattr__": lambda: setattr(Meta, "__getattr__", lambda cls, name: 11.0),
            "what was unknown": lambda: setattr(Options, "unknown", 6.0),
        },
    )


@row
def computed_attributes() -> Row:
    class Lazy:
        def __init__(self) -> None:
            self.values = {"k": 2.0}

        def __getattr__(self, name: str) -> Any:
            return self.values[name]

    lazy = Lazy()
    return Row(
        lambda x: x * lazy.k,
        {
            "what it reads": lambda: lazy.values.update(k=3.0),
            "a real one": lambda: setattr(lazy, "k", 4.0),
            "of the class": lambda: setattr(Lazy, "k", 5.0),
            "the method": lambda: setattr(Lazy, "__getattr__", lambda self, name: 6.0),
        },
    )


@row
def every_attribute() -> Row:
    class Watched:
        k = 1.0

        def __getattribute__(self, name: str) -> Any:
            return object.__getattribute__(self, name) * 2

    watched = Watched()
    return Row(
        lambda x: x * watched.k,
        {
            "the attribute": lambda: setattr(Watched, "k", 3.0),
            "of the object": lambda: setattr(watched, "k", 4.0),
            "the method": lambda: setattr(Watched, "__getattribute__", object.__getattribute__),
        },
    )


@row
def descriptors() -> Row:
    class Field:
        def __init__(self, k: float) -> None:
            self.k = k

        def __get__(self, owner: Any, kind: Any = None) -> float:
            return self.k

    class Uses:
        scale = Field(2.0)

    uses = Uses()
    return Row(
        lambda x: x * uses.scale,
        {
            "what it holds": lambda: setattr(vars(Uses)["scale"], "k", 3.0),
            "another one": lambda: setattr(Uses, "scale", Field(4.0)),
            "its method": lambda: setattr(Field, "__get__", lambda self, owner, kind=None: 5.0),
            "an attribute before it": lambda: uses.__dict__.update(scale=6.0),
        },
    )


@dataclass
class Settings:
    scale: float = 2.0
    names: list[str] = field(default_factory=lambda: ["a"])
    inner: Any = None


@row
def dataclass_fields() -> Row:
    settings = Settings(inner=Settings())
    holder = {"settings": settings}
    return Row(
        lambda x: (
            x * holder["settings"].scale * len(settings.names) + holder["settings"].inner.scale
        ),
        {
            "a field": lambda: setattr(settings, "scale", 3.0),
            "a field inside": lambda: setattr(settings.inner, "scale", 3.0),
            "a list": lambda: settings.names.append("b"),
            "another one": lambda: holder.update(settings=Settings(9.0, inner=Settings())),
        },
    )


@row
def enum_values() -> Row:
    class Mode(enum.Enum):
        FAST = 2.0
        SLOW = 3.0

        def apply(self, x: Any) -> Any:
            return x * self.value

    state = {"mode": Mode.FAST}
    return Row(
        lambda x: state["mode"].apply(x) if state["mode"] is not Mode.SLOW else x,
        {
            "another member": lambda: state.update(mode=Mode.SLOW),
            "its value": lambda: setattr(Mode.FAST, "_value_", 7.0),
            "its method": lambda: setattr(Mode, "apply", lambda self, x: x - 1),
        },
    )


@row
def abstract_class() -> Row:
    class Shape(abc.ABC):
        @abc.abstractmethod
        def area(self) -> float: ...

    class Square(Shape):
        def area(self) -> float:
            return 4.0

    class Stranger:
        pass

    square, stranger = Square(), Stranger()

    def fn(x: Any) -> Any:
        return x * square.area() + (1 if isinstance(stranger, Shape) else 2)

    return Row(
        fn,
        {
            "the method": lambda: setattr(Square, "area", lambda self: 9.0),
            "who belongs to it": lambda: Shape.register(Stranger),
        },
    )


@row
def attribute_deleted() -> Row:
    class Base:
        k = 2.0

    made = Base()
    made.k = 5.0
    return Row(
        lambda x: x * made.k,
        {"it goes": lambda: delattr(made, "k")},
    )
