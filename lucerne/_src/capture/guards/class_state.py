"""Classes as they were: everything that a function has looked up in one class, as one comparison.

What an attribute is, its class decides first: a property over it counts more than what the object
holds. So every read of an attribute is a read of a class too, mostly of its not having something.
Python numbers the states of a class (`base.process.class_version`); only when the number has moved
are the names themselves compared, and if they are as they were the new number stands from then on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lucerne._src.base.process.class_version import numbered, renewed
from lucerne._src.capture.guards.sources import ClassSource, Source

_NONE = -1
"""No number of a class."""


class ClassState:
    """The places in one class that a function has read."""

    def __init__(self, kind: type) -> None:
        self.kind, self.places = kind, list[Source]()
        self.number = numbered(kind)
        self._scope: dict[str, Any] = {}
        self._seen = ""

    def line(self, k: int, scope: dict[str, Any]) -> str:
        """The check as Python code; what it names is put into the scope."""
        self._scope, self._seen = scope, f"seen{k}"
        scope[f"version{k}"], scope[f"class{k}"], scope[self._seen] = self.number, self.holds, _NONE
        self.holds()
        names = ", ".join(map(str, self.places))
        return f"if version{k}.value != seen{k} and not class{k}(): return False  # {names}"

    def holds(self) -> bool:
        """Whether the class has what it had under all of the names."""
        number = renewed(self.kind, self.number)  # before they are looked up
        if not all(p.holds() for p in self.places):
            return False
        self._scope[self._seen] = number or _NONE
        return True


def by_class(places: Sequence[Source]) -> tuple[list[ClassState], list[Source]]:
    """The states of the classes among some places, and the other places."""
    states: dict[int, ClassState] = {}  # (a metaclass may hash classes in its own way)
    others = []
    for place in places:
        if type(place.store) is ClassSource:
            kind = place.store.kind
            if id(kind) not in states:
                states[id(kind)] = ClassState(kind)
            states[id(kind)].places.append(place)
        else:
            others.append(place)
    return list(states.values()), others
