"""From all that a function can reach to what it was seen to read: guards compare the latter.

`ReachableState` finds everything before a function is traced; `ReadLog` collects what is read
meanwhile. If all reads were seen, whatever was not read is dropped from the guards, and what was
read in a place that `ReachableState` does not know is added.
"""

from __future__ import annotations

import functools
import types
from collections import deque
from collections.abc import Iterator
from typing import Any

from lucerne._src.base.homes import own_home
from lucerne._src.base.raw import is_a, own_dict
from lucerne._src.capture.effects.stores import ClosureVariable, StoreSnapshot
from lucerne._src.capture.guards.reachable import CLOSED, ReachableState, has_hooks, is_module
from lucerne._src.capture.guards.read_log import ReadLog, inside, slot_names
from lucerne._src.capture.guards.sources import ClassSource, Source, is_known_home
from lucerne._src.capture.trace.captured import Captured
from lucerne._src.capture.trace.input_sources import HELD
from lucerne._src.tensor.base import TensorBase

_LISTED = 32


def narrow(reach: ReachableState, captured: Captured) -> None:
    """Have guards over a reach compare what was read while it was captured, if that is known."""
    noted: ReadLog | None = reach.noted
    reach.noted = None  # it holds what was made while tracing
    if noted is None:
        reach.whole_because = "the function was not run by the bytecode machine"
        return
    reach.was_seen = True
    reach.engine = sorted(noted.engine.values())
    loose = _loose(reach)
    places = [p for p in noted.places.values() if p.at not in loose]
    places += _slotted(noted)
    places += noted.facts.places.values()
    places += _of_handlers(reach)
    _name(places, reach)
    held = [p for p in places if p.holds()]
    because = noted.everything
    if len(held) != len(places):
        because = because or "tracing changes what the function reads"
    if any(map(has_hooks, reach.tensors.values())):
        because = because or "a tensor that it reaches has hooks"
    if reach.handlers:
        because = because or "a class of tensors answers ops itself, and nobody sees what it reads"
    reach.places = held
    if not because and _unexplained(reach, noted, captured):
        because = "it uses a tensor from a place that was not seen"
    if because:
        reach.whole_because = because
        _only_new(reach)
        _more(reach, noted, {id(t.store) for t in reach.tables if t.watched})
        return
    _drop(reach, noted)
    if noted.arguments is not None:
        reach.leaves = set(noted.arguments.read)


def _loose(reach: ReachableState) -> set[tuple[int, Any]]:
    """Places whose tensors the function replaces at each call."""
    found: set[tuple[int, Any]] = set()
    for table in reach.tables:
        store, keys = table.store, reach.loose.get(id(table), frozenset())
        if not keys:
            continue
        if is_a(store, types.CellType):
            found.add((id(store), None))
        elif is_a(store, ClosureVariable):
            found.add((id(store.scope), store.name))
        else:
            found |= {(id(store), key) for key in keys}
    return found


def _slotted(noted: ReadLog) -> Iterator[Source]:
    """Attributes that objects which count as a whole keep in slots."""
    for x in noted.whole.values():
        if not own_home(type(x).__module__).startswith(CLOSED):
            for name in slot_names(type(x)):
                place = Source(x, name, None)
                place.value = place.now()
                yield place


def _of_handlers(reach: ReachableState) -> Iterator[Source]:
    """What classes hold that answer ops themselves: nobody sees what their code reads of it."""
    for kind in dict.fromkeys(reach.handlers):
        names = {
            n for base in kind.__mro__ if not is_known_home(base.__module__) for n in vars(base)
        }
        for name in sorted(names - _OF_EVERY_CLASS):
            store = ClassSource(kind)
            yield Source(store, name, store.find(name), f"{kind.__name__}.{name}")


_OF_EVERY_CLASS = frozenset(("__dict__", "__weakref__", "__module__", "__doc__"))


def _name(places: list[Source], reach: ReachableState) -> None:
    """Give places the names by which the user knows them."""
    tables = {id(t.store): t for t in reach.tables}
    for place in places:
        table = tables.get(id(place.store))
        if not place.name and table is not None and table.name:
            dot = table.is_attributes
            place.name = f"{table.name}.{place.key}" if dot else f"{table.name}[{place.key!r}]"


def _only_new(reach: ReachableState) -> None:
    """Everything is compared anyway: places that a link or a table has are left to those."""
    known = {id(t.store) for t in reach.tables if t.watched}
    variables = [t.store for t, _, _ in reach.links]
    cells = {id(s) for s in variables}
    names = {(id(s.scope), s.name) for s in variables if is_a(s, ClosureVariable)}
    reach.places = [
        p
        for p in reach.places
        if id(p.store) not in known and id(p.store) not in cells and p.at not in names
    ]


def _drop(reach: ReachableState, noted: ReadLog) -> None:
    """Leave out what was not read."""
    read = {p.at for p in reach.places}
    for link, _, _ in reach.links:
        store = link.store
        named = is_a(store, ClosureVariable)
        if ((id(store.scope), store.name) if named else (id(store), None)) not in read:
            reach.unread.append(link.name)
    reach.links = []
    stores = {id(store) for x in noted.whole.values() for store in _stores(x)}
    known: set[int] = set()
    for table in reach.tables:
        at = id(table.store)
        if not table.watched or at in reach.always:
            continue
        if at in stores:
            known.add(at)
        else:
            _unread_keys(reach, table, read)
            table.watched = False
    _more(reach, noted, known)
    _drop_modules(reach, noted)


def _more(reach: ReachableState, noted: ReadLog, known: set[int]) -> None:
    """Compare what was read as a whole and stands where `ReachableState` does not look: in an
    object that a module holds, for example. `known`: ids of what is compared anyway."""
    stores = {id(store): (x, store) for x in noted.whole.values() for store in _stores(x)}
    for at, (x, store) in stores.items():
        if at not in known:
            name = type(x).__name__
            reach.more.append(
                StoreSnapshot(name, store, is_attributes=store is not x, watched=True)
            )


def _unread_keys(reach: ReachableState, table: StoreSnapshot, read: set[tuple[int, Any]]) -> None:
    at = id(table.store)
    keys = table.keys or range(len(table.items))
    for key in list(keys)[:_LISTED]:
        if (at, key) not in read:
            named = f"{table.name}.{key}" if table.is_attributes else f"{table.name}[{key!r}]"
            reach.unread.append(named)


def _stores(x: Any) -> Iterator[Any]:
    """Where an object that counts as a whole keeps what it holds."""
    if is_a(x, (list, dict, set, deque, bytearray)):
        yield x
    if not own_home(type(x).__module__).startswith(CLOSED) and not is_a(x, functools.partial):
        own = own_dict(x)
        if is_a(own, dict):
            yield own


def _drop_modules(reach: ReachableState, noted: ReadLog) -> None:
    reach.read_modules = {}
    for at, (module, names) in noted.modules.items():
        reach.modules.setdefault(at, module)
        reach.read_modules[at] = None if names is None else frozenset(names)
    for at, module in list(reach.modules.items()):
        read = reach.read_modules.get(at, frozenset())
        if at not in reach.read_modules:
            reach.unread.append(reach.module_names.get(at, type(module).__name__))
            del reach.modules[at]
        elif read is not None:
            title = reach.module_names.get(at, type(module).__name__)
            shown = [k for k in module.__dict__ if not k.startswith("_") and k not in read]
            reach.unread += [f"{title}.{k}" for k in shown]
    for at in list(reach.optimizers):
        if at not in noted.optimizers:
            del reach.optimizers[at]
    reach.optimizers.update(noted.optimizers)


def _unexplained(reach: ReachableState, noted: ReadLog, captured: Captured) -> bool:
    """Whether a tensor that is taken to be the same object at each call comes from nowhere."""
    known: set[int] = set()
    values = [p.value for p in reach.places]
    values += [x for x in noted.whole.values() if not is_module(x)]
    if noted.arguments is not None:
        known |= {id(x) for x in noted.arguments.leaves}
    for module, names in noted.modules.values():
        for table in (module._parameters, module._buffers, module.__dict__):
            values += [v for k, v in table.items() if names is None or k in names]
    for optimizer in noted.optimizers.values():
        values += [p for g in optimizer.param_groups for p in g["params"]]
        values += list(optimizer.state.values())
    for x in values:
        if is_a(x, TensorBase):
            known.add(id(x))
        elif is_a(x, (tuple, list, dict, set)):
            known |= {id(v) for v in inside(x) if is_a(v, TensorBase)}
    sources = [s for s in captured.sources if s.kind == HELD]
    return any(id(s.thing) not in known for s in sources)


def also(reach: ReachableState, other: ReachableState) -> None:
    """Have guards over a reach compare what another capture of the same function has read, too."""
    if other.whole_because or reach.whole_because:
        if other.whole_because and not reach.whole_because:
            _take_all(reach, other)
        return
    known = {p.at for p in reach.places}
    reach.engine = sorted({*reach.engine, *other.engine})
    reach.places += [p for p in other.places if p.at not in known]
    stores = {id(t.store) for t, _ in reach.watched_tables}
    reach.more += [t for t, _ in other.watched_tables if id(t.store) not in stores]
    reach.optimizers.update(other.optimizers)
    assert reach.read_modules is not None
    assert other.read_modules is not None
    for at, names in other.read_modules.items():
        mine = reach.read_modules.get(at, frozenset())
        reach.read_modules[at] = None if mine is None or names is None else mine | names
        reach.modules.setdefault(at, other.modules[at])
    if reach.leaves is not None and other.leaves is not None:
        reach.leaves |= other.leaves
    else:
        reach.leaves = None
    reach.refresh()


def _take_all(reach: ReachableState, other: ReachableState) -> None:
    """Nobody knows what the other capture has read."""
    reach.whole_because, reach.leaves, reach.read_modules = other.whole_because, None, None
    reach.links = [*other.links]
    reach.places += [p for p in other.places if p.at not in {q.at for q in reach.places}]
    stores = {id(t.store) for t, _ in reach.watched_tables}
    reach.more += [t for t, _ in other.watched_tables if id(t.store) not in stores]
    reach.modules.update(other.modules)
    reach.optimizers.update(other.optimizers)
    reach.refresh()
