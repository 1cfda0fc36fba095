"""Copies of objects that differ in a few attributes."""

from __future__ import annotations

from typing import Any, TypeVar

T = TypeVar("T")


def changed(x: T, **attributes: Any) -> T:
    """A shallow copy with these attributes: `dataclasses.replace` for any object that keeps them in
    a dictionary, without `__init__` (and in a tenth of the time).

    >>> class Pair:
    ...     def __init__(self, a, b):
    ...         self.a, self.b = a, b
    >>> vars(changed(Pair(1, 2), b=3))
    {'a': 1, 'b': 3}
    """
    made = object.__new__(type(x))
    vars(made).update(vars(x), **attributes)
    return made
