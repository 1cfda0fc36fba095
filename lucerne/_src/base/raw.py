"""Looking at an object without asking it.

`x.__dict__` and `isinstance(x, kind)` call the `__getattribute__` of a class that has one written
in Python: `isinstance` asks for `__class__` where the type alone says no. Code that looks at users'
objects for its own purposes must not run theirs: it may count, or print.
"""

from __future__ import annotations

import operator
from collections.abc import Collection
from types import FunctionType
from typing import Any


def is_a(x: Any, kinds: Any) -> bool:
    """`isinstance`, by the type alone.

    >>> is_a(True, int), is_a("x", (int, bytes))
    (True, False)
    """
    return issubclass(type(x), kinds)


def _finder(kind: Any) -> Any:
    """How objects of a class find attributes, before any Python code of it: mostly as `object`
    does, but a `threading.local` has another `__dict__` in each thread."""
    found = kind.__getattribute__
    if type(found) is not FunctionType:
        return found
    own = (base.__dict__.get("__getattribute__") for base in kind.__mro__)
    return next(f for f in own if f is not None and type(f) is not FunctionType)


def looks_plainly(x: Any) -> bool:
    """Whether an object finds its attributes as `object` does."""
    kind: Any = type(x)
    found: bool = kind.__getattribute__ is object.__getattribute__
    return found


def same_things(some: Collection[Any], others: Collection[Any]) -> bool:
    """Whether two collections hold the very same objects, in the same order.

    >>> same_things([1, None], (1, None)), same_things([[]], [[]])
    (True, False)
    """
    return len(some) == len(others) and all(map(operator.is_, some, others))


def raw_attribute(x: Any, name: str, default: Any) -> Any:
    """An attribute as native code finds it: in a slot, in the object, in its class."""
    if is_a(x, type):
        return getattr(x, name, default)
    try:
        return _finder(type(x))(x, name)
    except AttributeError:
        return default


_WITHOUT_DICT = frozenset(
    (int, float, complex, bool, str, bytes, tuple, list, dict, set, frozenset, slice, type(None))
)


def own_dict(x: Any) -> Any:
    """Where an object keeps its attributes, as `x.__dict__` tells; None: it has no such place."""
    kind = type(x)
    if kind in _WITHOUT_DICT:
        return None  # (asked for each value of a trace, most of which are of these)
    try:
        return _finder(kind)(x, "__dict__")
    except AttributeError:
        return None


def own_store(x: Any) -> Any:
    """Where an object keeps its attributes; itself, if that is in slots."""
    found = own_dict(x)
    return x if found is None else found
