"""What a module has read, told by its parts, so that it can be noted of another module like it.

An event is refused (`NotRepeatedError`) where it could be another one for the other module: one
of its parts was found in something outside, or native code got hold of an object outside and could
have found one.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any, NamedTuple

from lucerne._src.base.homes import own_home
from lucerne._src.base.raw import is_a
from lucerne._src.capture.effects.objects import is_plain
from lucerne._src.capture.guards.reachable import is_module
from lucerne._src.capture.guards.read_log import inside
from lucerne._src.capture.guards.sources import CallSource, Source
from lucerne._src.capture.trace.fake import is_fake
from lucerne._src.tensor.base import TensorBase

OWN, GIVEN, MADE = 0, 1, 2


class Part(NamedTuple):
    """A thing by its part in what a module does: held by it (OWN), given to it, or the result of
    one of its ops."""

    kind: int
    at: int
    result: int = 0


At = dict[int, Part]
"""By id: the part that something has."""


class NotRepeatedError(Exception):
    """Something can't be told by parts."""


class ToldEvent(NamedTuple):
    """Something to note of `part`."""

    kind: str
    part: Any
    key: Any = None
    name: str = ""


def _of_place(note: Callable[..., None], store: Any, event: ToldEvent) -> None:
    note(store, event.key, Source(store, event.key, None).now(), event.name)


AGAIN: dict[str, Callable[[Any, Any, ToldEvent], None]] = {
    "place": lambda log, x, event: _of_place(log.note, x, event),
    "fact": lambda log, x, event: _of_place(log.facts.note, x, event),
    "module": lambda log, x, event: log.note_module(x, event.key),
    "all": lambda log, x, event: log.all_of(x),
    "find": lambda log, x, event: log.looked.find(x),
    "touch": lambda log, x, event: log.looked.touch(x),
    "attribute": lambda log, x, event: log.looked.attribute(x, event.key),
}
"""How an event is noted in a `ReadLog`."""


class Telling:
    """Events as they were noted, told by parts."""

    def __init__(self, at: At, is_new: Callable[[Any], bool]) -> None:
        self.at, self.is_new = at, is_new
        self.found: dict[Any, ToldEvent] = {}

    def tell(self, kind: str, *event: Any) -> None:
        getattr(self, f"_{kind}")(*event)

    def _add(self, kind: str, x: Any, key: Any = None, name: str = "") -> None:
        part = self.at[id(x)]
        self.found.setdefault((kind, part, key), ToldEvent(kind, part, key, name))

    def _is_own(self, x: Any) -> bool:
        """Whether it is a part, or a method of one."""
        if id(x) in self.at:
            return True
        return is_a(x, types.MethodType) and id(x.__self__) in self.at

    def _noted(self, kind: str, store: Any, key: Any, value: Any, name: str) -> None:
        if id(store) in self.at:
            self._add(kind, store, key, name)
            return
        asked = store.args if type(store) is CallSource else ()
        if self._is_own(value) or any(map(self._is_own, asked)):
            raise NotRepeatedError

    def _place(self, store: Any, key: Any, value: Any, name: str) -> None:
        self._noted("place", store, key, value, name)

    def _fact(self, store: Any, key: Any, value: Any, name: str) -> None:
        self._noted("fact", store, key, value, name)

    def _module(self, module: Any, key: str) -> None:
        if id(module) in self.at:
            self._add("module", module, key)
        elif self.is_new(module):
            raise NotRepeatedError

    def _all(self, x: Any) -> None:
        """All of something was read: what is no part of the module may hold one."""
        if is_plain(x) or is_a(x, _CLOSED) or _is_ours(x):
            return
        if id(x) in self.at:
            self._add("all", x)
        elif is_a(x, TensorBase):
            self._of_tensor("touch", x)
        elif is_a(x, (types.MethodType, types.BuiltinFunctionType)):
            self._all(x.__self__)
        elif self.is_new(x):
            for part in inside(x):
                self._all(part)
        elif not (is_a(x, dict) and not dict.__len__(x)):  # (tables of hooks for all modules)
            raise NotRepeatedError

    def _of_tensor(self, kind: str, t: Any, key: Any = None) -> None:
        part = self.at.get(id(t))
        if part is None and not is_fake(t):
            raise NotRepeatedError
        if part is not None and part.kind != MADE:  # (of what was made since nothing is noted)
            self._add(kind, t, key)

    def _find(self, t: Any) -> None:
        self._of_tensor("find", t)

    def _touch(self, t: Any) -> None:
        self._of_tensor("touch", t)

    def _attribute(self, t: Any, key: str) -> None:
        self._of_tensor("attribute", t, key)

    def _layer(self, module: Any) -> None:
        """A module of ours was called: it works with what it holds."""
        if id(module) not in self.at:
            raise NotRepeatedError

    def _read(self, container: Any, value: Any) -> None:
        """A value was found in something."""
        known = id(container) in self.at or type(container) is super or self.is_new(container)
        if self._is_own(value) and not known:
            raise NotRepeatedError

    def _called(self, fn: Any, args: Any, value: Any) -> None:
        """A native call has given a value. A part may only come from another one."""
        owner = getattr(fn, "__self__", None)
        own = [id(x) in self.at for x in (fn, owner, *args) if not is_plain(x)]
        if self._is_own(value) and not (any(own) and all(own[1:] if own else ())):
            raise NotRepeatedError

    def _refused(self) -> None:
        raise NotRepeatedError


_CLOSED = (type, types.ModuleType, types.CodeType, types.FunctionType)
_VALUES = ("lucerne._src.base", "lucerne._src.ops", "lucerne._src.ir", "lucerne._src.capture")


def _is_ours(x: Any) -> bool:
    """Whether it is a public function, or a value of ours: it holds nothing of the user's."""
    home = own_home(str(type(x).__module__))
    return home == "lucerne" or home.startswith(_VALUES)


# ---- native calls -------------------------------------------------------------------------------

_ASKS = frozenset(
    map(id, (
        len, isinstance, issubclass, callable, abs, round, divmod, getattr, hasattr, min, max, sum,
        all, any, sorted, type, int, float, bool, str, tuple, list, dict, set, range, zip,
        enumerate, reversed, slice, super,
    ))
)  # fmt: skip
"""Builtins that do nothing but answer."""
ATTRIBUTES = frozenset(("shape", "dtype", "device", "ndim", "T", "mT", "H", "mH", "requires_grad"))
"""What may be read of tensors (and methods): all that the kind of a tensor says."""
_OF_TENSORS = ATTRIBUTES | frozenset(
    (
        "size", "dim", "numel", "stride", "is_contiguous", "is_floating_point", "element_size",
        "nelement", "ndimension", "detach",
    )
)  # fmt: skip
_OF_CONTAINERS = frozenset(("get", "items", "keys", "values", "index", "count", "copy"))
_OPS = ("lucerne._src.ops", "lucerne._src.tensor.methods")
"""Where public functions and operators are made."""


def does_no_more(fn: Any, kwargs: Any) -> bool:
    """Whether a native call is made of ops, or does nothing but answer, so that there is nothing
    to repeat but the ops. (A module of ours is one: it is called with what it holds.)

    >>> import math, time
    >>> from lucerne._src.capture.repeats.told import does_no_more
    >>> [does_no_more(f, {}) for f in (math.sqrt, len, time.time, print, {}.get, [].append)]
    [True, True, False, False, True, False]
    """
    owner, name = getattr(fn, "__self__", None), getattr(fn, "__name__", "")
    if type(fn) is types.BuiltinFunctionType and is_a(owner, types.ModuleType):
        return id(fn) in _ASKS or vars(owner).get("__name__") == "math"
    if type(fn) is types.BuiltinFunctionType:
        return name in _OF_CONTAINERS or type(owner) is str
    if is_a(fn, type):
        return id(fn) in _ASKS
    home = own_home(str(getattr(fn, "__module__", "")))
    if home.startswith("lucerne._src.tensor.") and name in _OF_TENSORS:
        return True
    in_place = name[-1:] == "_" and name[-2:] != "__"
    if in_place or "out" in kwargs or "requires_grad" in kwargs:
        return False
    return home.startswith(_OPS) or is_layer(fn)


def is_layer(fn: Any) -> bool:
    """Whether it is a module of ours, whose call does what it does with what it holds."""
    return is_module(fn) and own_home(str(type(fn).__module__)).startswith("lucerne.nn.modules")


EACH_TIME = frozenset(
    (
        "BEFORE_WITH", "LOAD_SPECIAL", "BEFORE_ASYNC_WITH", "IMPORT_NAME", "IMPORT_FROM",
        "IMPORT_STAR", "LOAD_BUILD_CLASS", "STORE_GLOBAL", "DELETE_GLOBAL", "STORE_NAME",
        "DELETE_NAME", "PUSH_EXC_INFO", "RAISE_VARARGS", "RERAISE", "SETUP_ANNOTATIONS",
        "LOAD_LOCALS",
    )
)  # fmt: skip
"""Instructions that do something besides giving a value. (Of writes to what was there before it is
told when they happen; what is made inside may be written to.)"""
