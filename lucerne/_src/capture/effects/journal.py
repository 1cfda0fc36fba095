"""Journal: what a traced part of a function writes to objects that live outside of it.

While it is traced the writes really happen, with tensors that have no values. So each object is
noted down before its first change (`Journal`), gets its content back afterwards, and every call
repeats the writes in their order with the real values (`replay`).
"""

from __future__ import annotations

import types
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lucerne._src.base.homes import own_home
from lucerne._src.base.raw import is_a, own_dict
from lucerne._src.capture.bytecode.calls import users_method
from lucerne._src.capture.bytecode.hooks import NOTHING, Access
from lucerne._src.capture.effects.deferred_calls import DeferredCall
from lucerne._src.capture.effects.rebuild import Node, ObjectBuilder, ObjectWriter
from lucerne._src.capture.guards.reachable import is_module
from lucerne._src.capture.trace.fake import CaptureError

_CONTAINERS = (list, dict, set, deque, bytearray)


@dataclass(frozen=True)
class Effect:
    """One write: where, by which name, and what."""

    how: Access
    target: Any
    key: Any
    new: Any
    """NOTHING: it is deleted. Of METHOD and CALL: (arguments, named arguments)."""


class Journal:
    """Writes in their order, and how to take them back."""

    def __init__(self) -> None:
        self.effects: list[Effect] = []
        self._before: dict[int, tuple[Any, Callable[[], None]]] = {}

    def note(self, how: Access, target: Any, key: Any, new: Any) -> None:
        """A write is about to happen."""
        if id(target) not in self._before:
            self._before[id(target)] = target, _way_back(target)
        self.effects.append(Effect(how, target, key, new))

    def note_call(self, call: DeferredCall) -> None:
        """A call that is made at its place among the writes."""
        self.effects.append(Effect(Access.CALL, call.fn, None, (call.args, call.kwargs)))

    def undo(self) -> None:
        """Everything as it was."""
        for _, back in reversed(self._before.values()):
            back()
        self._before.clear()


def _way_back(target: Any) -> Callable[[], None]:
    """How to give an object the content that it has now."""
    if is_a(target, types.CellType):
        return _cell_back(target)
    if is_a(target, type):
        own = dict(target.__dict__)
        return lambda: _class_back(target, own)
    items_back = _items_back(target) if is_a(target, _CONTAINERS) else None
    stores = [own_dict(target)]
    if is_module(target):
        stores += [target._parameters, target._buffers, target._modules]
    stores_back = [_items_back(s) for s in stores if is_a(s, dict)]
    slots = [
        (member, raw_slot(member, target))
        for kind in type(target).__mro__
        for member in kind.__dict__.values()
        if type(member) is types.MemberDescriptorType and not _is_library(kind)
    ]

    def back() -> None:
        if items_back is not None:
            items_back()
        for store_back in stores_back:
            store_back()
        for member, x in slots:
            if raw_slot(member, target) is not x:
                member.__delete__(target) if x is NOTHING else member.__set__(target, x)

    return back


def raw_slot(member: Any, owner: Any) -> Any:
    """What is in a slot of an object, NOTHING if it is empty."""
    try:
        return member.__get__(owner)
    except AttributeError:
        return NOTHING


def _is_library(kind: type) -> bool:
    """Whether a class is Python's or ours."""
    home = own_home(str(kind.__module__))
    return home in ("builtins", "collections") or home.partition(".")[0] == "lucerne"


def _items_back(store: Any) -> Callable[[], None]:
    """The same for what a container holds, by the methods of the class that holds it: those of a
    subclass of the user's may do something else, or refuse."""
    kind: Any = next(k for k in type(store).__mro__ if _is_library(k))
    if is_a(store, (list, bytearray)):
        items = kind.__getitem__(store, slice(None))
        return lambda: kind.__setitem__(store, slice(None), items)
    members = dict(kind.items(store)) if is_a(store, dict) else list(kind.__iter__(store))
    fill = kind.extend if is_a(store, deque) else kind.update

    def back() -> None:
        kind.clear(store)
        fill(store, members)

    return back


def _cell_back(cell: types.CellType) -> Callable[[], None]:
    try:
        old = cell.cell_contents
    except ValueError:
        return lambda: delattr(cell, "cell_contents")
    return lambda: setattr(cell, "cell_contents", old)


def _class_back(kind: type, own: dict[str, Any]) -> None:
    for name in [n for n in kind.__dict__ if n not in own]:
        delattr(kind, name)
    for name, x in own.items():
        if kind.__dict__.get(name) is not x:
            setattr(kind, name, x)


# ---- once for each call -------------------------------------------------------------------------

Written = tuple[Access, Node, Any, Any]
"""An effect with nodes in place of values."""


def written(effect: Effect, writer: ObjectWriter) -> Written:
    """An effect as it is kept."""
    target = writer.value(effect.target)
    if effect.how is Access.METHOD or effect.how is Access.CALL:
        args, kwargs = effect.new
        given = tuple([writer.value(x) for x in args])
        named = tuple([(k, writer.value(x)) for k, x in kwargs.items()])
        return effect.how, target, effect.key, (given, named)
    if effect.how is Access.GENERATOR:
        raise CaptureError("a generator that lives outside is advanced")
    new = None if effect.new is NOTHING else writer.value(effect.new)
    key = writer.value(effect.key) if effect.how is Access.ITEM else effect.key
    return effect.how, target, key, new


def _native_method(target: Any, name: str) -> Any:
    """A method of a container as its own class has it. One of the user's class has run in the
    machine, and what is repeated is the call that it ended in (`super().append(x)`)."""
    for kind in type(target).__mro__:
        if _is_library(kind) and name in kind.__dict__:
            return kind.__dict__[name].__get__(target)
    return getattr(target, name)


def replay(found: Written, builder: ObjectBuilder) -> None:
    """Do once more what was written."""
    how, node, key, new = found
    target = builder.value(node)
    if how is Access.METHOD or how is Access.CALL:
        given, named = new
        kwargs = {k: builder.value(x) for k, x in named}
        called = target if how is Access.CALL else _native_method(target, key)
        called(*builder.all(given), **kwargs)
    elif how is Access.ATTRIBUTE:
        own = users_method(type(target), "__setattr__" if new is not None else "__delattr__")
        # A method of the user's has run in the machine: what is repeated is what it did in the end.
        if new is None:
            (object.__delattr__ if own else delattr)(target, key)
        else:
            (object.__setattr__ if own else setattr)(target, key, builder.value(new))
    elif how is Access.CELL:
        if new is None:
            del target.cell_contents
        else:
            target.cell_contents = builder.value(new)
    else:
        at = builder.value(key) if how is Access.ITEM else key
        if new is None:
            del target[at]
        else:
            target[at] = builder.value(new)
