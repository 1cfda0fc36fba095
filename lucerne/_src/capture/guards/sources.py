"""Sources: where a traced function has found something that was there before, and what it found.

A guard on a place compares that one thing: an item of a dict, an attribute, a variable. What lies
beside it may change as it likes.
"""

from __future__ import annotations

import sys
import types
from typing import Any

from lucerne._src.base.homes import own_home
from lucerne._src.base.raw import is_a, raw_attribute
from lucerne._src.capture.effects.stores import MISSING, alike

KNOWN_HOMES = frozenset(("lucerne", "builtins", "numpy", *sys.stdlib_module_names)) - {"__main__"}
"""Packages whose code is not the user's."""


def is_known_home(module: str) -> bool:
    """Whether a module is part of one of those."""
    return own_home(module).partition(".")[0] in KNOWN_HOMES


class ClassSource:
    """What a class and its bases hold, as it stands there: nothing is bound, nothing is called."""

    __slots__ = ("after", "kind")

    def __init__(self, kind: type, after: type | None = None) -> None:
        """`after`: only the bases that come after this one (`super`)."""
        self.kind, self.after = kind, after

    def find(self, key: str) -> Any:
        kinds = self.kind.__mro__
        if self.after is not None:
            kinds = kinds[kinds.index(self.after) + 1 :] if self.after in kinds else ()
        for kind in kinds:
            found = kind.__dict__.get(key, MISSING)
            if found is not MISSING:
                return found
        return MISSING


class CallSource:
    """The answer of a function that tells how something stands (`get_num_threads`)."""

    __slots__ = ("args", "fn")

    def __init__(self, fn: Any, args: tuple[Any, ...]) -> None:
        self.fn, self.args = fn, args

    def answer(self) -> Any:
        return self.fn(*self.args)


LATER: Any = type("Later", (), {"__repr__": lambda self: "not known yet"})()
"""The value of a place that is asked when the trace is over."""


class Source:
    """One thing that was read: `store[key]` was `value` (MISSING: there was nothing).

    A store is a cell, a dict (of an object's attributes or a module's variables, too), a list, an
    object that is asked by `getattr`, or an `ClassSource` or `CallSource`.

    >>> from lucerne._src.capture.guards.sources import Source
    >>> sizes = {"width": 3, "height": 4}
    >>> place = Source(sizes, "width", 3)
    >>> sizes["height"] = 5
    >>> place.holds()
    True
    >>> sizes["width"] = 5
    >>> place.holds(), str(place)
    (False, "['width']")
    """

    __slots__ = ("key", "name", "store", "value")

    def __init__(self, store: Any, key: Any, value: Any, name: str = "") -> None:
        self.store, self.key, self.value, self.name = store, key, value, name

    def __str__(self) -> str:
        if self.name or is_a(self.store, types.CellType):
            return self.name or str(self.key)
        if is_a(self.store, (dict, list)):
            return f"[{self.key!r}]"
        named = is_a(self.store, (type, types.FunctionType))
        return f"{self.store.__name__ if named else type(self.store).__name__}.{self.key}"

    @property
    def at(self) -> tuple[int, Any]:
        """What tells it from other places."""
        store = self.store
        if type(store) is ClassSource:
            return id(store.kind), ("class", self.key, id(store.after))
        if type(store) is CallSource:
            return id(store.fn), ("asked", *map(id, store.args))
        return id(self.store), None if is_a(self.store, types.CellType) else self.key

    def now(self) -> Any:
        store, key = self.store, self.key
        if is_a(store, types.CellType):  # (a method's own class is in a cell named `__class__`)
            return content(store)
        if key == "__class__" and type(store) not in (dict, ClassSource):
            return type(store)
        if is_a(store, dict):
            return dict.get(store, key, MISSING)
        if is_a(store, list):
            return list.__getitem__(store, key) if -len(store) <= key < len(store) else MISSING
        if type(store) is ClassSource:
            return store.find(key)
        if type(store) is CallSource:
            return store.answer()
        return raw_attribute(store, key, MISSING)

    def holds(self) -> bool:
        found = self.now()
        if self.value is LATER:
            self.value = found
            return found is not MISSING
        return found is self.value or alike(found, self.value)

    def difference(self) -> str:
        """What is not as it was, in words."""
        if is_a(self.store, types.CellType) or self.name == self.key:
            return f"{self.key!r} is another object than when the function was captured"
        return f"{self} changed"

    def quick(self, number: int, scope: dict[str, Any]) -> str | None:
        """An expression that is true if the very same thing is found there, which is mostly so;
        None: there is none that is faster than `line`. It may raise LookupError."""
        store, key, value = self.store, self.key, self.value
        if value is MISSING:
            return None
        if type(store) is dict and type(key) is str:
            scope[f"s{number}"], scope[f"p{number}"] = store, value
            return f"s{number}[{key!r}] is p{number}"
        if key == "__dict__" and not isinstance(store, (dict, list)):
            scope[f"s{number}"], scope[f"p{number}"] = store, value
            return f"s{number}.__dict__ is p{number}"
        return None

    def line(self, number: int, scope: dict[str, Any]) -> str:
        """The check as Python code; what it names is put into the scope."""
        store, key = f"s{number}", repr(self.key)
        kind = type(self.store)
        if kind is dict:
            text = f"{store}.get({key}, missing)"
        elif kind is types.CellType:
            text = f"content({store})"
        elif kind is CallSource or issubclass(kind, (dict, list)):
            return self._asked(number, scope)
        elif self.key == "__class__":
            text = f"type({store})"
        elif kind is types.FunctionType:
            text = f"{store}.{self.key}"
        else:
            text = f"raw_attribute({store}, {key}, missing)"
        scope[store], scope[f"p{number}"] = self.store, self.value
        return (
            f"if (x := {text}) is not p{number} and not alike(x, p{number}): return False  # {self}"
        )

    def _asked(self, number: int, scope: dict[str, Any]) -> str:
        scope[f"holds{number}"] = self.holds
        return f"if not holds{number}(): return False  # {self}"


def content(cell: Any) -> Any:
    """What is in a cell."""
    try:
        return cell.cell_contents
    except ValueError:
        return MISSING
