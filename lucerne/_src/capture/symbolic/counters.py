"""Numbers outside the arguments that change from call to call: `self.step += 1`, a learning rate
that a schedule keeps in a dict.

Such a number is no part of the program. While the function is captured it is one that knows where
it comes from (`GivenInt`, `GivenFloat`), each call reads it anew, and what the function writes to
its place is computed again at each call, too. Where Python decides by the number (`if step > 2`)
that is a condition of the version.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Sequence
from typing import Any

from lucerne._src.base.raw import is_a, own_store
from lucerne._src.base.unspecialized import GivenFloat
from lucerne._src.base.unspecialized_ints import GivenInt
from lucerne._src.capture.bytecode.hooks import Access
from lucerne._src.capture.effects.stores import Slot
from lucerne._src.capture.guards.reachable import ReachableState
from lucerne._src.capture.guards.sources import Source
from lucerne._src.capture.symbolic.scalars import Holder
from lucerne._src.capture.trace.fake import CaptureError

GIVEN = (GivenInt, GivenFloat)
_NUMBERS = (int, float)
MOST_COUNTERS = 8
"""A function that counts more than so many things runs in parts."""
MOST_VERSIONS = 4
"""With so many versions there are, one that counts is not made: parts know about sizes."""


class CounterError(CaptureError):
    """The function changes a number outside; it can be captured if that is given at each call."""

    def __init__(self, place: Source, shown: str) -> None:
        super().__init__(f"the function changes {shown}")
        self.place, self.shown = place, shown


class CounterSource(Source):
    """A place that holds a number, of which only the kind counts: `holds` takes the number."""

    __slots__ = ("given", "holder", "kind", "label")

    def __init__(self, place: Source, holder: Holder, label: str) -> None:
        """`place.value` is the number that the function is captured with."""
        super().__init__(place.store, place.key, place.value, place.name)
        self.holder, self.label, self.kind = holder, label, type(place.value)
        holder[label] = place.value
        made = GivenInt if self.kind is int else GivenFloat
        self.given: Any = made(place.value, (holder, label))

    def holds(self) -> bool:
        found = self.now()
        if type(found) is not self.kind:
            return False
        self.holder[self.label] = found
        return True

    def line(self, number: int, scope: dict[str, Any]) -> str:
        scope[f"number{number}"] = self.holds
        return f"if not number{number}(): return False  # {self}"


def counted(
    places: Sequence[Source], holder: Holder, values: Sequence[Any]
) -> dict[Any, CounterSource]:
    """By `Source.at`: places whose numbers are given at each call; `values`: these, for now."""
    found = {}
    for k, (place, value) in enumerate(zip(places, values, strict=True)):
        asked = Source(place.store, place.key, value, place.name or str(place))
        found[place.at] = CounterSource(asked, holder, f"number {k}")
    return found


def _index(container: Any, key: Any) -> Any:
    """Of an item; one that counts from the end of a list is told from its beginning."""
    if type(key) is int and is_a(container, list) and -len(container) <= key < 0:
        return key + len(container)
    return key


def at_of(container: Any, key: Any, how: Access) -> tuple[int, Any]:
    """What tells the place of a read or a write from others (`Source.at`)."""
    if how is Access.ITEM:
        return id(container), _index(container, key)
    if how is Access.CELL:
        return id(container), None
    if how is Access.ATTRIBUTE and not is_a(container, type):
        return id(own_store(container)), key
    return id(container), key


def written(store: Any, key: Any, new: Any, shown: str) -> CounterError | None:
    """What to stop a capture with that comes to a number being changed; None: it is none."""
    if is_a(store, types.CellType):
        key = shown
    place = Source(store, _index(store, key) if is_a(store, list) else key, None, shown)
    place.value = place.now()
    if type(place.value) not in _NUMBERS or type(new) not in (*_NUMBERS, *GIVEN):
        return None
    return CounterError(place, shown)


def changed(entries: Sequence[Any], shape: Any, refused: set[Any]) -> tuple[Any, list[Source]]:
    """A version that would do if some numbers that it has read were the same, and where they are.

    `refused`: places whose numbers decide what is done.
    """
    for entry in reversed(entries):
        guards = entry.guards
        if guards.shape != shape or guards.reach.whole_because:
            continue
        reach: ReachableState = guards.reach
        found = [*_places(reach), *_attributes(reach)]
        if found and not any(p.at in refused for p in found):
            return entry, [*found, *reach.numbers]
    return None, []


def _places(reach: ReachableState) -> Iterator[Source]:
    for place in reach.places:
        number = type(place.value) in _NUMBERS and type(place.now()) is type(place.value)
        if number and not place.holds():
            yield place


def _attributes(reach: ReachableState) -> Iterator[Source]:
    """Numbers that modules have as attributes."""
    for module, told in zip(reach.modules.values(), reach.structure, strict=False):
        for fact in told:
            if type(fact) is tuple and len(fact) == 3 and fact[1] in _NUMBERS:
                name, kind, value = fact
                now = module.__dict__.get(name)
                if type(now) is kind and (repr(now) if kind is float else now) != value:
                    was = float(value) if kind is float else value
                    yield Source(module.__dict__, name, was, f"{type(module).__name__}.{name}")


def check_free(reach: ReachableState, numbers: Sequence[CounterSource]) -> None:
    """Raise if guards compare such a number all the same: somebody has looked at everything."""
    stores = {id(p.store) for p in numbers}
    watched = any(id(table.store) in stores for table, _ in reach.watched_tables)
    whole = reach.whole_because or any(
        id(m.__dict__) in stores and (reach.read_modules or {}).get(at, ()) is None
        for at, m in reach.modules.items()
    )
    if watched or whole:
        raise CaptureError("all of the object that holds the number is compared")


def others(now: Sequence[Any], holder: Holder, uses: Sequence[Any]) -> list[Any] | None:
    """Other numbers for which a capture is good, to see whether its graph depends on them; None:
    none are found. `uses`: what it took for granted."""
    for step in _STEPS:
        found = [v + step if type(v) is int else v + v * step / 1024 + step / 65536 for v in now]
        with holder.with_values({f"number {k}": v for k, v in enumerate(found)}):
            if all(use.holds() for use in uses):
                return found
    return None


_STEPS = (*range(1, 33), 60, 64, 100, 128, 1000, 1024, 10000, -1, -2)


def same_counts(one: Sequence[tuple[Slot, Any]], two: Sequence[tuple[Slot, Any]]) -> bool:
    """Whether two captures write the same numbers, with those of the second given to both."""
    return len(one) == len(two) and all(
        type(a) is type(b) and a.now() == b.now() for (_, a), (_, b) in zip(one, two, strict=True)
    )
