"""Places: where a traced function has found something that was there before, and what it found.

A guard on a place compares that one thing: an item of a dict, an attribute, a variable. What lies
beside it may change as it likes.
"""

from __future__ import annotations

import types
from typing import Any

from lucerne.capture.slots import MISSING, alike


class Place:
    """One thing that was read: `store[key]` was `value` (MISSING: there was nothing).

    A store is a cell, a dict (of an object's attributes or a module's variables, too), a list, or
    an object or class that is asked by `getattr`.

    >>> from lucerne.capture.places import Place
    >>> sizes = {"width": 3, "height": 4}
    >>> place = Place(sizes, "width", 3)
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
        if self.name or isinstance(self.store, types.CellType):
            return self.name or str(self.key)
        if isinstance(self.store, (dict, list)):
            return f"[{self.key!r}]"
        return f"{getattr(self.store, '__name__', type(self.store).__name__)}.{self.key}"

    @property
    def at(self) -> tuple[int, Any]:
        """What tells it from other places."""
        return id(self.store), None if isinstance(self.store, types.CellType) else self.key

    def now(self) -> Any:
        store, key = self.store, self.key
        if isinstance(store, dict):
            return dict.get(store, key, MISSING)
        if isinstance(store, list):
            return list.__getitem__(store, key) if -len(store) <= key < len(store) else MISSING
        if isinstance(store, types.CellType):
            try:
                return store.cell_contents
            except ValueError:
                return MISSING
        return getattr(store, key, MISSING)

    def holds(self) -> bool:
        found = self.now()
        return found is self.value or alike(found, self.value)

    def difference(self) -> str:
        """What is not as it was, in words."""
        if isinstance(self.store, types.CellType) or self.name == self.key:
            return f"{self.key!r} is another object than when the function was captured"
        return f"{self} changed"

    def line(self, number: int, scope: dict[str, Any]) -> str:
        """The check as Python code; what it names is put into the scope."""
        store, key = f"s{number}", repr(self.key)
        kind = type(self.store)
        if kind is dict:
            text = f"{store}.get({key}, missing)"
        elif kind is types.CellType:
            text = f"content({store})"
        elif issubclass(kind, (dict, list)):
            return self._asked(number, scope)
        else:
            text = f"getattr({store}, {key}, missing)"
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
