"""The objects that a part of a function works with: which were there before, which are new.

A part of a function that becomes a program (`breaks.resume`) begins with frames that hold Python
objects, and ends with frames that hold some of the same objects and some new ones. `Roots` finds
what can be reached from the frames, `Swap` puts stand-ins in the place of tensors there while the
part is traced, and `Birth` tells what was made meanwhile (`rebuild` makes that again).
"""

from __future__ import annotations

import functools
import types
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from lucerne._src.base.device import device
from lucerne._src.base.dtype import dtype
from lucerne._src.base.homes import own_home
from lucerne._src.base.layout import layout, memory_format
from lucerne._src.base.numeric import finfo, iinfo
from lucerne._src.base.qscheme import qscheme
from lucerne._src.base.raw import is_a, own_dict
from lucerne._src.capture.bytecode.frame import UNSET, PythonFrame
from lucerne._src.capture.effects.stores import PLAIN
from lucerne._src.capture.guards.reachable import is_module, is_optimizer
from lucerne._src.ir.symbolic.numbers import SymFloat, SymInt
from lucerne._src.tensor.base import TensorBase

_HOLDERS = (list, tuple, dict, set, frozenset, deque)
MOST = 4096
"""Of larger containers nothing is looked at."""
_DEEPEST = 12
_CLOSED = ("lucerne.", "numpy.", "builtins.")
_FLAT = (*PLAIN, SymInt, SymFloat, type(Ellipsis), type(NotImplemented), range)


def is_plain(x: Any) -> bool:
    """Whether a value is nothing but its value."""
    return type(x) in _FLAT


_VALUES = (
    dtype, device, layout, memory_format, qscheme, finfo, iinfo, np.generic, np.dtype, complex,
    types.ModuleType, types.CodeType,
)  # fmt: skip


def is_value(x: Any) -> bool:
    """Whether nobody can tell it from another one that is equal: it never changes, and there is
    nothing to it but what it says."""
    if type(x) is slice:
        return all(map(is_plain, (x.start, x.stop, x.step)))
    return is_a(x, _VALUES)


WINDOWS: tuple[type, ...] = (
    types.MappingProxyType,
    *map(type, ({}.keys(), {}.values(), {}.items())),
)
"""Kinds of objects through which a dict is seen."""


def is_iterator(x: Any) -> bool:
    """Whether it is something that goes on from where it was left."""
    return hasattr(type(x), "__next__")


def holds_old_iterator(given: Iterable[Any], is_new: Callable[[Any], bool]) -> bool:
    """Whether a call could advance an iterator that was there before: it is given one, or plain
    containers with one inside. A trace can't put it back."""
    todo, seen = list(given), set()
    while todo:
        x = todo.pop()
        if is_plain(x) or id(x) in seen:
            continue
        if is_iterator(x):
            if not is_new(x):
                return True
        elif type(x) in _HOLDERS and len(x) <= MOST:
            seen.add(id(x))
            todo += x.values() if is_a(x, dict) else x
    return False


def is_fixed(x: Any) -> bool:
    """Whether it is compared by identity and never looked into: classes, modules, our own
    objects."""
    kind = type(x)
    if is_a(x, (type, types.ModuleType, types.BuiltinFunctionType, types.CodeType)):
        return (
            not is_a(x, types.BuiltinFunctionType)
            or x.__self__ is None
            or is_a(x.__self__, types.ModuleType)
        )
    if is_module(x) or is_optimizer(x):
        return True
    if kind in (list, tuple, dict, set, frozenset, deque, types.FunctionType, types.MethodType):
        return False
    if is_iterator(x) or kind is types.CellType or kind is types.BuiltinFunctionType:
        return False
    home = own_home(kind.__module__) + "."
    return home.startswith(_CLOSED) and not is_a(x, (tuple, list, dict, BaseException))


# ---- what is there before -----------------------------------------------------------------------


def values_of(frame: PythonFrame) -> list[Any]:
    """Every value in a frame: variables, cells, the stack, what its link holds."""
    return frame.listing().values


class Roots:
    """What can be reached from frames without going through anything that the function finds by
    name (`stable`: ids of those things)."""

    def __init__(self, frames: Sequence[PythonFrame], stable: set[int]) -> None:
        self.stable = stable
        self.seen: dict[int, Any] = {}
        self.tensors: list[Any] = []
        self.fixed: list[Any] = []
        """Modules, optimizers and other objects of ours."""
        for frame in frames:
            self._visit(frame.fn, 0)
            for x in values_of(frame):
                self._visit(x, 0)

    def _visit(self, x: Any, depth: int) -> None:
        if is_plain(x) or id(x) in self.seen or x is UNSET:
            return
        if is_a(x, TensorBase):
            self.seen[id(x)] = x
            self.tensors.append(x)
            return
        if id(x) in self.stable:
            return
        self.seen[id(x)] = x
        if is_fixed(x):
            self.fixed.append(x)
        elif depth < _DEEPEST:
            for part in parts_of(x):
                self._visit(part, depth + 1)


def parts_of(x: Any) -> Iterable[Any]:
    """The objects that an object holds, as far as they can be put there by name or number."""
    if is_a(x, (list, tuple, set, frozenset, deque)):
        return list(x)[:MOST] if len(x) <= MOST else ()
    if is_a(x, dict):
        return [*x.values(), *_attributes(x)] if len(x) <= MOST else ()
    if type(x) is types.CellType:
        return content_of(x)
    if type(x) is types.FunctionType:
        return [*(x.__closure__ or ()), *(x.__defaults__ or ()), *(x.__kwdefaults__ or {}).values()]
    if type(x) is types.MethodType:
        return x.__func__, x.__self__
    if type(x) is types.BuiltinFunctionType:
        return (x.__self__,)
    if type(x) is functools.partial:
        return [x.func, *x.args, *x.keywords.values()]
    return _attributes(x)


def _attributes(x: Any) -> list[Any]:
    own = own_dict(x)
    return list(own.values()) if is_a(own, dict) else []


def content_of(cell: Any) -> tuple[Any, ...]:
    try:
        return (cell.cell_contents,)
    except ValueError:
        return ()


# ---- stand-ins for tensors ----------------------------------------------------------------------


class Swap:
    """Puts other tensors in the place of some, wherever frames reach them; and back again."""

    def __init__(self, new: dict[int, Any]) -> None:
        self.new = new
        self._undo: list[Callable[[], None]] = []
        self._seen: dict[int, Any] = {}

    def frame(self, frame: PythonFrame) -> None:
        """Of a frame that is ours to change."""
        frame.slots[:] = [self.value(x) for x in frame.slots]
        frame.stack[:] = [self.value(x) for x in frame.stack]

    def value(self, x: Any) -> Any:
        """What stands for a value: another one for a tensor or a tuple with some, else itself,
        changed inside."""
        if is_plain(x):
            return x
        if is_a(x, TensorBase):
            return self.new.get(id(x), x)
        if id(x) in self._seen:
            return self._seen[id(x)]
        self._seen[id(x)] = x
        if is_a(x, tuple):
            found = [self.value(v) for v in x]
            if any(a is not b for a, b in zip(found, x, strict=True)):
                kind: Any = type(x)
                named = hasattr(kind, "_make")
                self._seen[id(x)] = kind._make(found) if named else kind(found)
            return self._seen[id(x)]
        if type(x) is types.MethodType:
            owner = self.value(x.__self__)
            if owner is not x.__self__:
                self._seen[id(x)] = types.MethodType(x.__func__, owner)
            return self._seen[id(x)]
        if not is_fixed(x) and x is not UNSET:
            self._inside(x)
        return x

    def _inside(self, x: Any) -> None:
        if is_a(x, (list, deque)):
            self._items(x, enumerate(list(x)) if len(x) <= MOST else ())
        elif is_a(x, dict):
            self._items(x, list(x.items()) if len(x) <= MOST else ())
        elif type(x) is types.CellType:
            for old in content_of(x):
                new = self.value(old)
                if new is not old:
                    x.cell_contents = new
                    self._undo.append(functools.partial(setattr, x, "cell_contents", old))
        elif type(x) in (types.FunctionType, types.BuiltinFunctionType):
            for part in parts_of(x):
                self.value(part)
            return
        own = own_dict(x)
        if type(own) is dict and not is_a(x, types.FunctionType):
            self._items(own, list(own.items()))

    def _items(self, store: Any, items: Iterable[tuple[Any, Any]]) -> None:
        for key, old in items:
            new = self.value(old)
            if new is not old:
                store[key] = new
                self._undo.append(functools.partial(store.__setitem__, key, old))

    def undo(self) -> None:
        """Everything as it was."""
        for put in reversed(self._undo):
            put()
        self._undo.clear()
