"""Whether two modules hold the same, but for the tensors and containers that are their own.

A module is walked through its modules, dicts, lists, tuples and sets. What is found is written down
as a row that can be compared: constants as they are, tensors by their kind, anything else by which
object it is. Something that is met again is written as the number of its first place. So if two
modules have equal rows, their parts stand in pairs: what code does with the one it does with the
other, as long as it comes to the parts through the module.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from lucerne._src.base.exact import exact
from lucerne._src.base.process.structure_version import CountsChanges
from lucerne._src.base.raw import own_dict
from lucerne._src.capture.guards.reachable import is_module
from lucerne._src.capture.guards.read_log import slot_names
from lucerne._src.tensor.base import plain_types

_PLAIN = frozenset((int, float, bool, complex, str, bytes, type(None)))
_MOST = 20_000
"""So many things in one module are looked at."""


class Likeness:
    """What a module holds: `row` can be compared, `parts` are its own things in the same order."""

    __slots__ = ("ids", "memories", "parts", "row")

    def __init__(self) -> None:
        self.row: tuple[Any, ...] = ()
        self.parts: list[Any] = []
        self.ids: dict[int, int] = {}
        """The number of a part, by its id."""
        self.memories: dict[int, int] = {}
        """By id of a memory: the first tensor that lies in it."""

    @staticmethod
    def of(module: Any) -> Likeness | None:
        """None: it holds too much, or something that hides what it holds."""
        made = Likeness()
        row: list[Any] = []
        made._walk(module, row)
        if len(row) > _MOST:
            return None
        made.row = tuple(row)
        return made

    def module_called(self, path: str, names: dict[int, str]) -> int:
        """The number of the module with this path; -1: it is none of the parts."""
        found = (k for k, x in enumerate(self.parts) if names.get(id(x)) == path)
        return next(found, -1)

    def meets(self, given: list[Any]) -> bool:
        """Whether one of these tensors is a part, or lies in the memory of one."""
        return any(id(t) in self.ids or id(t._storage.buffer) in self.memories for t in given)

    def _walk(self, x: Any, row: list[Any]) -> None:
        kind = type(x)
        if kind in _PLAIN:
            row.append(exact(x))
            return
        at = self.ids.get(id(x))
        if at is not None:
            row.append(("again", at))
            return
        if kind in plain_types:
            self._part(x)
            row.append(self._tensor(x))
        elif kind is dict or kind is OrderedDict or issubclass(kind, CountsChanges):
            self._part(x)
            row.append((kind, len(x), own_dict(x) is None or not own_dict(x)))
            for key, value in dict.items(x):
                self._walk(key, row)
                self._walk(value, row)
        elif kind is tuple and all(type(v) in _PLAIN for v in x):
            row.append(exact(x))
        elif kind is list or kind is tuple:
            self._part(x)
            row.append((kind, len(x)))
            for value in x:
                self._walk(value, row)
        elif kind is set and all(type(v) in _PLAIN for v in x):
            self._part(x)
            row.append((kind, frozenset(map(exact, x))))
        elif is_module(x) and not slot_names(kind):
            self._part(x)
            row.append(kind)
            self._walk(own_dict(x), row)
        else:
            row.append(("is", id(x)))

    def _part(self, x: Any) -> None:
        self.ids[id(x)] = len(self.parts)
        self.parts.append(x)

    def _tensor(self, t: Any) -> tuple[Any, ...]:
        memory = self.memories.setdefault(id(t._storage.buffer), len(self.parts))
        own = own_dict(t)
        hung = tuple((name, id(value)) for name, value in own.items()) if own else ()
        return type(t), t._meta, t._offset, bool(t._needs_grad), memory, hung


def given_alike(tree: Any, leaves: list[Any]) -> Any:
    """What can be told of arguments, as a key; tensors go to `leaves`. None: there is more."""
    kind = type(tree)
    if kind in _PLAIN:
        return exact(tree)
    if kind in plain_types:
        same = [k for k, x in enumerate(leaves) if x is tree]
        memory = id(tree._storage.buffer)
        shares = [k for k, x in enumerate(leaves) if id(x._storage.buffer) == memory]
        leaves.append(tree)
        if own_dict(tree):
            return None
        told = kind, tree._meta, tree._offset, bool(tree._needs_grad), tree._view is None
        return (*told, *same, "shares", *shares)
    if kind is tuple:
        found = tuple(given_alike(x, leaves) for x in tree)
        plain = all(f is not None or x is None for f, x in zip(found, tree, strict=True))
        return (kind, found) if plain else None
    return None
