"""What a call of ours does to the modules and optimizers that it is given.

Functions and methods of this package are called as they are while a function is traced: the machine
does not follow them. Nearly all of them compute. Some change what they are given (a module is put
into a list, a parametrisation is registered, a scheduler sets rates): while it is traced that would
happen once, and never again at a call. Which ones do is not told from their names: the objects are
compared with what they were, get that back, and the call is a break.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from lucerne._src.base.process.structure_version import note_change
from lucerne._src.base.raw import is_a, own_dict
from lucerne._src.capture.guards.reachable import is_module, is_optimizer

_Content = tuple[Any, ...]


class LibraryWrites:
    """Modules and optimizers among what is given to a call, and all that they held before it."""

    __slots__ = ("before", "kinds")

    def __init__(self, given: Iterable[Any]) -> None:
        self.before: dict[int, tuple[Any, Any, _Content]] = {}
        """By id: the object that a container belongs to, the container, what is in it."""
        self.kinds: list[tuple[Any, type]] = []
        """Objects and their classes: parametrisations and lazy modules change those."""
        for x in given:
            for owner, store in _stores(x, self.before):
                self.before[id(store)] = owner, store, _content(store)
                if store is own_dict(owner):
                    self.kinds += [(t, type(t)) for t in (owner, *_tensors(owner))]

    def changed(self) -> Iterator[Any]:
        """The objects that hold something else now."""
        for owner, store, content in self.before.values():
            if _is_other(store, content):
                yield owner
        for owner, kind in self.kinds:
            if type(owner) is not kind:
                yield owner

    def undo(self) -> None:
        """Give every container what it held."""
        note_change()
        for owner, kind in self.kinds:
            if type(owner) is not kind:
                object.__setattr__(owner, "__class__", kind)
        for _, store, content in self.before.values():
            if not _is_other(store, content):
                continue
            if is_a(store, list):
                list.__setitem__(store, slice(None), content)
                continue
            table: Any = next(k for k in type(store).__mro__ if "clear" in vars(k))
            table.clear(store)
            table.update(store, zip(content[::2], content[1::2], strict=True))


def _tensors(owner: Any) -> tuple[Any, ...]:
    return tuple(dict.values(own_dict(owner).get("_parameters", {})))


def _is_other(store: Any, content: _Content) -> bool:
    """Whether a container holds something else than it did."""
    now = _content(store)
    return len(now) != len(content) or any(map(_differs, now, content))


def _differs(new: Any, old: Any) -> bool:
    plain = type(new) is type(old) and type(new) in (bool, int, float, str)
    return new is not old and not (plain and new == old)


def _content(store: Any) -> _Content:
    """What a list or a dict holds, keys before their values."""
    if is_a(store, list):
        return tuple(store)
    return tuple([x for pair in dict.items(store) for x in pair])


def _stores(x: Any, seen: dict[int, Any], depth: int = 0) -> Iterator[tuple[Any, Any]]:
    """The containers in which a module and its parts, or an optimizer, keep what they are; lists
    and dicts, and what is in them."""
    if type(x) in (list, tuple, dict):
        if type(x) is not tuple:
            yield x, x
        for part in (x.values() if type(x) is dict else x) if depth < _DEPTH else ():
            yield from _stores(part, seen, depth + 1)
        return
    own = own_dict(x)
    if own is None or id(own) in seen:
        return
    if is_module(x):
        yield x, own
        for name, table in list(own.items()):
            if name.startswith("_") and is_a(table, dict):
                yield x, table
        for part in list(dict.values(own["_modules"])):
            yield from _stores(part, seen)
    elif is_optimizer(x):
        yield x, own
        yield from _stores(own["param_groups"], seen)


_DEPTH = 2
"""How deep lists and dicts are looked into: an optimizer's groups hold lists of parameters."""
