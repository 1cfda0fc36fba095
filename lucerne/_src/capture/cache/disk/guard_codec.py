"""What a captured function was seen to read, in words that another process understands.

A stored program is guarded like one that was captured here: by what was read, not by all that the
function can reach (see `guards.prune`). Objects are named by their numbers in the world.
"""

from __future__ import annotations

import sys
import types
from typing import Any

from lucerne._src.capture.cache.disk.capture_codec import class_named
from lucerne._src.capture.cache.disk.key import CacheKey, UnstorableError
from lucerne._src.capture.cache.disk.program_codec import ProgramWriter, Reader, StaleError
from lucerne._src.capture.effects.stores import PLAIN, StoreSnapshot, alike
from lucerne._src.capture.guards.reachable import ReachableState
from lucerne._src.capture.guards.sources import CallSource, ClassSource, Source, is_known_home
from lucerne._src.ir import results


def written(reach: ReachableState, world: CacheKey, writer: ProgramWriter) -> Any:
    """Data of what the guards over a reach compare."""
    stores = _Stores(world)
    if any(expected.is_tied for expected in reach.expected):
        raise UnstorableError("it asks whether two places hold one tensor, and replaces one")
    modules = None
    if reach.read_modules is not None:
        modules = [
            [_number(reach.modules[at], world), None if names is None else sorted(names)]
            for at, names in reach.read_modules.items()
        ]
    return {
        "because": reach.whole_because,
        "unread": reach.unread,
        "places": [
            [stores.name(p.store), writer.pack(p.key), p.name, _value(p.value, writer)]
            for p in reach.places
        ],
        "tables": [k for k, t in enumerate(reach.tables) if t.watched],
        "more": [[stores.name(t.store), t.name, t.is_attributes] for t in reach.more],
        "modules": modules,
        "optimizers": [_number(o, world) for o in reach.optimizers.values()],
        "engine": reach.engine,
        "leaves": None if reach.leaves is None else sorted(reach.leaves),
    }


def restore(data: Any, reach: ReachableState, world: CacheKey, reader: Reader) -> None:
    """Have guards over a reach compare the same in this process."""
    reach.whole_because, reach.unread = data["because"], list(data["unread"])
    for store, key, name, told in data["places"]:
        place = Source(_store(store, world), reader.unpack(key), None, name)
        place.value = place.now()
        if told is not None and not alike(place.value, reader.unpack(told[0])):
            raise StaleError(f"{place} has another value")
        reach.places.append(place)
    reach.engine = [(home, name) for home, name in data["engine"]]
    if not all(hasattr(sys.modules.get(home), name) for home, name in reach.engine):
        raise StaleError("there are other hooks for all modules")
    reach.more = [
        StoreSnapshot(name, _store(store, world), is_attributes=dot, watched=True)
        for store, name, dot in data["more"]
    ]
    watched = frozenset(data["tables"])
    for k, table in enumerate(reach.tables):
        table.watched = k in watched
    reach.leaves = None if data["leaves"] is None else set(data["leaves"])
    if data["modules"] is None:
        return
    reach.links = []
    found = [(world.things[k], names) for k, names in data["modules"]]
    reach.modules = {id(m): m for m, _ in found}
    reach.read_modules = {id(m): None if n is None else frozenset(n) for m, n in found}
    optimizers = [world.things[k] for k in data["optimizers"]]
    reach.optimizers = {id(o): o for o in optimizers}


def _number(x: Any, world: CacheKey) -> int:
    found = world.number_of(x)
    if found is None:
        raise UnstorableError(f"it reads a {type(x).__name__} that has no name")
    return found


def _value(x: Any, writer: ProgramWriter) -> Any:
    """A plain value is compared with what was found; other things are what they are."""
    plain = type(x) in PLAIN or (type(x) is tuple and all(type(v) in PLAIN for v in x))
    return [writer.pack(x)] if plain else None


class _Stores:
    """Names of dicts, cells and objects."""

    def __init__(self, world: CacheKey) -> None:
        self.world = world
        self.cells = {
            id(cell): ["cell", number, k]
            for number, f in enumerate(world.things)
            if isinstance(f, types.FunctionType)
            for k, cell in enumerate(f.__closure__ or ())
        }
        self.scopes = {
            id(f.__globals__): ["globals", number]
            for number, f in enumerate(world.things)
            if isinstance(f, types.FunctionType)
        }
        """Of functions that are in no module (`__new__` of a named tuple)."""

    def name(self, store: Any) -> list[Any]:
        if type(store) is ClassSource:
            home, named = store.kind.__module__, store.kind.__qualname__
            known = is_known_home(home) and class_named(home, named) is store.kind
            if known and store.after is None:  # (else it was made: a parametrised layer's class)
                return ["library", home, named]
            if results.types().get(store.kind.__name__) is store.kind and store.after is None:
                return ["library", "results", store.kind.__name__]
            after = None if store.after is None else _number(store.after, self.world)
            return ["class", _number(store.kind, self.world), after]
        if type(store) is CallSource:
            if store.args:
                raise UnstorableError(f"it asks {store.fn.__name__}() of an object")
            if not hasattr(store.fn, "__name__"):
                raise UnstorableError("it asks a function what it has cached")
            return ["asked", store.fn.__module__, store.fn.__name__]
        if isinstance(store, types.CellType) and id(store) in self.cells:
            return self.cells[id(store)]
        number = self.world.attributes.get(id(store))
        if number is not None:
            return ["attributes", number]
        if id(store) in self.world.members:
            return ["members", *self.world.members[id(store)]]
        if isinstance(store, dict) and isinstance(store.get("__name__"), str):
            module = sys.modules.get(store["__name__"])
            if module is not None and module.__dict__ is store:
                return ["scope", store["__name__"]]
        return self.scopes.get(id(store)) or ["thing", _number(store, self.world)]


def _store(name: list[Any], world: CacheKey) -> Any:
    kind, at, *more = name
    if kind == "scope":
        if at not in sys.modules:
            raise StaleError(f"{at} is not loaded")
        return sys.modules[at].__dict__
    if kind == "asked":
        if not hasattr(sys.modules.get(at), more[0]):
            raise StaleError(f"{at} is not loaded")
        return CallSource(getattr(sys.modules[at], more[0]), ())
    if kind == "library":
        found = class_named(at, more[0])
        if found is None:
            raise StaleError(f"{at}.{more[0]} is not there")
        return ClassSource(found)
    thing = world.things[at]
    if kind == "globals":
        return thing.__globals__
    if kind == "class":
        return ClassSource(thing, None if more[0] is None else world.things[more[0]])
    if kind == "cell":
        return thing.__closure__[more[0]]
    if kind == "members":
        return thing.__dict__[more[0]]
    return thing.__dict__ if kind == "attributes" else thing
