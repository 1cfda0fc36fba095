"""Stores: where Python keeps things between calls, and what a captured function did to them.

A function may keep a tensor for its next call: `self.hidden = h`, `cache["k"] = k`, `nonlocal h`.
While it is captured that tensor is a fake, so the slot gets its old content back afterwards, the
new one becomes a result of the graph, and every call stores it there (`Captured.stored`). The next
call reads what it finds (`Source` SLOT), so another object is no reason to capture again.

Everything else that Python keeps (counters, growing lists) would happen once and never again: a
function that does it is not captured, with a message that names the place.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from lucerne._src.base.raw import is_a
from lucerne._src.base.unspecialized import GivenFloat
from lucerne._src.base.unspecialized_ints import GivenInt
from lucerne._src.capture.trace.fake import CaptureError, is_fake
from lucerne._src.capture.trace.pytree import flatten
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.tensor.base import TensorBase

PLAIN = (bool, int, float, complex, str, bytes, type(None))
MOST = 1 << 16
"""Of larger containers only the length is watched."""
MISSING: Any = type("Missing", (), {"__repr__": lambda self: "nothing"})()


class ClosureVariable:
    """A global variable, to be used like the cell of a closure."""

    __slots__ = ("name", "scope")

    def __init__(self, scope: dict[str, Any], name: str) -> None:
        self.scope, self.name = scope, name

    @property
    def cell_contents(self) -> Any:
        return self.scope.get(self.name, MISSING)

    @cell_contents.setter
    def cell_contents(self, x: Any) -> None:
        self.scope[self.name] = x


_ONE = (types.CellType, ClosureVariable)


class Slot:
    """One key of a table."""

    __slots__ = ("key", "table")

    def __init__(self, table: StoreSnapshot, key: Any) -> None:
        self.table, self.key = table, key

    def __str__(self) -> str:
        table = self.table
        if is_a(table.store, _ONE):
            return table.name
        name = table.name or "a container"
        return f"{name}.{self.key}" if table.is_attributes else f"{name}[{self.key!r}]"

    def is_in(self, keys: frozenset[Any]) -> bool:
        """Whether its key is one of these (all of a list is none)."""
        return type(self.key) is not slice and self.key in keys

    def get(self) -> Any:
        store = self.table.store
        if is_a(store, _ONE):
            return store.cell_contents
        return store.get(self.key, MISSING) if is_a(store, dict) else store[self.key]

    def set(self, x: Any) -> None:
        store = self.table.store
        if is_a(store, _ONE):
            store.cell_contents = x
        elif x is MISSING:
            store.pop(self.key, None)
        else:
            store[self.key] = x


class StoreSnapshot:
    """A dict, a list, the attributes of an object or a variable of a closure, as it was."""

    __slots__ = ("count", "ids", "is_attributes", "items", "keys", "name", "store", "watched")

    def __init__(self, name: str, store: Any, *, is_attributes: bool, watched: bool) -> None:
        self.name, self.store, self.is_attributes = name, store, is_attributes
        self.watched = watched
        """Whether guards look at it; modules are guarded in another way."""
        self.note()

    def note(self) -> None:
        """Take the content as it is now."""
        self.keys, self.items = self._now()
        self.ids = list(map(id, self.items))
        self.count = 1 if is_a(self.store, _ONE) else len(self.store)

    def _now(self) -> tuple[list[Any], list[Any]]:
        store = self.store
        if is_a(store, _ONE):
            try:
                return [self.name], [store.cell_contents]
            except ValueError:  # nothing in it now
                return [self.name], [MISSING]
        if len(store) > MOST:
            return [], [len(store)]
        if is_a(store, dict):
            return list(store), list(store.values())
        return [], list(store)

    def is_same(self, loose: frozenset[Any]) -> bool:
        """Whether it holds what it held; `loose` are keys whose content may be another."""
        store = self.store
        kind = type(store)
        if kind is dict or kind is list:
            if len(store) != self.count:
                return False
            if self.count > MOST:
                return True
            values = store.values() if kind is dict else store
            if list(map(id, values)) == self.ids and (kind is list or list(store) == self.keys):
                return True
        keys, items = self._now()
        if keys != self.keys or len(items) != len(self.items):
            return False
        for k, (old, new) in enumerate(zip(self.items, items, strict=True)):
            if not same(old, new) and (keys[k] if keys else k) not in loose:
                return False
        return True

    def changes(self) -> Iterator[tuple[Slot, Any, Any]]:
        """(slot, what it held, what it holds) for each that differs; MISSING: nothing."""
        keys, items = self._now()
        if not is_a(self.store, (dict, *_ONE)):
            if len(items) != len(self.items) or len(self.store) > MOST:
                if items != self.items:
                    yield Slot(self, slice(None)), self.items, items
                return
            keys = list(range(len(items)))
        old = dict(zip(self.keys or keys, self.items, strict=False))
        new = dict(zip(keys, items, strict=False))
        for key in [*old, *(k for k in new if k not in old)]:
            before, after = old.get(key, MISSING), new.get(key, MISSING)
            if not same(before, after):
                yield Slot(self, key), before, after


def same(a: Any, b: Any) -> bool:
    """The same object, or an equal plain value: 0.0 is not -0.0, 1 is not True, nan is nan."""
    if a is b:
        return True
    kind = type(a)
    if kind is not type(b) or kind not in PLAIN:
        return False
    return repr(a) == repr(b) if kind is float or kind is complex else bool(a == b)


def alike(a: Any, b: Any) -> bool:
    """The same, or a tuple of the same."""
    if type(a) is tuple and type(b) is tuple:
        return len(a) == len(b) and all(map(alike, a, b))
    return same(a, b)


def stored(tables: Sequence[StoreSnapshot]) -> list[tuple[Slot, Any, Any]]:
    """The slots into which a function put other tensors; a change of another kind is refused."""
    found = []
    for table in tables:
        for slot, old, new in table.changes():
            if type(new) in (GivenInt, GivenFloat):
                continue  # a counter, see `symbolic.counters`
            if type(slot.key) is slice or not is_tensors(new):
                raise CaptureError(
                    f"the function changes {_name(slot)} from {_short(old)} to {_short(new)}. What "
                    "Python keeps besides tensors is not part of a graph: it would change now and "
                    "never again. Do it outside of the compiled function (or keep it in a tensor "
                    "that is written in place)."
                )
            found.append((slot, old, new))
    return found


def counts_of(tables: Sequence[StoreSnapshot]) -> list[tuple[Slot, Any]]:
    """Numbers that are computed again at each call, and where a function has put them."""
    return [
        (slot, new)
        for table in tables
        for slot, _, new in table.changes()
        if type(slot.key) is not slice and type(new) in (GivenInt, GivenFloat)
    ]


def _name(slot: Slot) -> str:
    return slot.table.name or "a list" if type(slot.key) is slice else str(slot)


def is_tensors(x: Any) -> bool:
    """A tensor, or some in tuples, lists and dicts with nothing else but plain values."""
    leaves: list[Any] = []
    flatten(x, leaves)
    return any(is_a(v, TensorBase) for v in leaves) and all(
        is_a(v, TensorBase) or type(v) in PLAIN for v in leaves
    )


def put_back(tables: Sequence[StoreSnapshot]) -> None:
    """Give every table the content it had."""
    for table in tables:
        for slot, old, _ in list(table.changes()):
            if type(slot.key) is slice and len(table.store) <= MOST:
                table.store[:] = old
            elif type(slot.key) is not slice:
                try:
                    slot.set(old)
                except MemoryError:  # what a trace has left must not be met by the call
                    slot.set(old)


def _short(x: Any) -> str:
    if is_a(x, TensorBase):
        return f"a tensor of shape {list(x._meta.shape)}" + (" (new)" if is_fake(x) else "")
    text = f"{len(x)} items" if is_a(x, list) and len(x) > 3 else repr(_readable(x))
    return text if len(text) < 60 else text[:57] + "..."


def _readable(x: Any) -> Any:
    if is_a(x, list):
        return [f"tensor{list(v._meta.shape)}" if is_a(v, TensorBase) else v for v in x]
    return x


class Expected:
    """What slots must hold for a captured version that reads and replaces their tensors: tensors
    of the same kinds, and one object in two places only where it was so."""

    def __init__(
        self, contents: Sequence[tuple[Slot, Any]], given: Sequence[Any], same: Sequence[Any]
    ) -> None:
        """`same`: tensors of which it was asked, and true, that they are one with another."""
        self.slots = [slot for slot, _ in contents]
        inside: list[Any] = []
        flatten([content for _, content in contents], inside)
        tied = [t for t in same if any(t is x for x in inside)]
        self.is_tied = bool(tied)
        """Whether one of its tensors must be one that is somewhere else, too."""
        self.fixed = {id(x): x for x in (*given, *tied) if is_a(x, TensorBase)}
        self.told = self._told([content for _, content in contents])

    def _told(self, contents: Sequence[Any]) -> list[Any]:
        leaves: list[Any] = []
        told: list[Any] = [flatten(content, leaves) for content in contents]
        first: dict[int, int] = {}
        for k, x in enumerate(leaves):
            if not is_a(x, TensorBase):
                told.append((type(x), x))
                continue
            meta: TensorMeta = x._meta
            which = id(x) if id(x) in self.fixed else first.setdefault(id(x), k)
            told.append((type(x), meta, x._needs_grad, which))
        return told

    def holds(self) -> bool:
        return self._told([slot.get() for slot in self.slots]) == self.told


def tensor_in(slot: Slot, number: int) -> Any:
    """The leaf of that number of what a slot holds now."""
    leaves: list[Any] = []
    flatten(slot.get(), leaves)
    return leaves[number]


class OptimizerStates:
    """The states of optimizers as they are: a capture that does not come to its end may have begun
    some, or counted a step."""

    def __init__(self, optimizers: Iterable[Any]) -> None:
        self.kept = [
            (o.state, dict(o.state), [(s, dict(s)) for s in o.state.values() if type(s) is dict])
            for o in optimizers
        ]

    def put_back(self) -> None:
        for store, before, inside in self.kept:
            for state, content in inside:
                state.clear()
                state.update(content)
            store.clear()
            store.update(before)
