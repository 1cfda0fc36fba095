"""Where values lie whose lives are known beforehand.

A value needs room from the step that makes it to the last that reads it (`Lifetime`). Rooms that
are never in use together may be the same bytes. `plan` gives every room a place: in memory that
waits for something else (`Spare`: a result that is made later), or in the arena.

    rooms = [Room(1 << 20, 0, 3), Room(1 << 20, 4, 6)]
    plan(rooms, [])                  # 1048576: one after the other in the same bytes
"""

from __future__ import annotations

import bisect
import operator
from collections.abc import Sequence
from dataclasses import dataclass, field

from lucerne._src.base.exact import exact
from lucerne._src.ir.symbolic.expressions import decide, expr
from lucerne._src.ir.symbolic.numbers import is_symbolic, most, plain

_ALIGN = 64
_WORTH = 1 << 12
"""Smaller rooms are not worth a search among the spare places."""
_MOST_TRIES = 64
_GOOD = 1.02
"""An arena this near to what is in use at the worst moment is not planned a second time."""
_MOST_ROOMS = 1500
"""More rooms than this are placed in one go: the second plan looks at all pairs."""


@dataclass(eq=False, slots=True)
class Lifetime:
    """Bytes in use from step `first` to step `last`."""

    nbytes: int
    first: int
    last: int
    home: tuple[int, int] = (-1, 0)
    """The number of a spare place (-1: the arena), and the offset there."""

    @property
    def need(self) -> int:
        return _rounded(self.nbytes)


@dataclass(eq=False, slots=True)
class Spare:
    """A buffer that is there for the whole call, but not written before step `until`."""

    nbytes: int
    until: int
    rooms: list[Lifetime] = field(default_factory=list)

    def offset_for(self, room: Lifetime) -> int | None:
        """Where a room fits beside those that are in use at the same time."""
        at = 0
        for other in sorted(_beside(room, self.rooms), key=lambda r: r.home[1]):
            if at + room.need <= other.home[1]:
                break
            at = max(at, other.home[1] + other.need)
        return at if at + room.nbytes <= self.nbytes else None


def _rounded(nbytes: int) -> int:
    if type(nbytes) is int:  # (asked for every pair of rooms)
        return max(_ALIGN, -(-nbytes // _ALIGN) * _ALIGN)
    found: int = most(_ALIGN, -(-nbytes // _ALIGN) * _ALIGN)
    return found


def _beside(room: Lifetime, others: Sequence[Lifetime]) -> list[Lifetime]:
    """Those that are in use at the same time as a room."""
    return [r for r in others if r.first <= room.last and room.first <= r.last]


def in_use(rooms: Sequence[Lifetime]) -> list[int]:
    """Bytes in use at each step: no arena can be smaller than the most of them."""
    changes = [0] * (max((r.last for r in rooms), default=-1) + 2)
    for r in rooms:
        changes[r.first] += r.need
        changes[r.last + 1] -= r.need
    found, now = [], 0
    for change in changes[:-1]:
        now += change
        found.append(now)
    return found


def plan(rooms: Sequence[Lifetime], spares: Sequence[Spare]) -> int:
    """Give every room its home. Returns the bytes of the arena."""
    if is_symbolic([r.nbytes for r in rooms]):
        return _in_slots(rooms, spares)
    left = _into_spares(rooms, spares)
    size = _in_order(left)
    if size > _GOOD * max(in_use(left), default=0) and len(left) <= _MOST_ROOMS:
        before = [r.home for r in left]
        again = _largest_first(left)
        if again < size:
            return again
        for r, home in zip(left, before, strict=True):
            r.home = home
    return size


def _into_spares(rooms: Sequence[Lifetime], spares: Sequence[Spare]) -> list[Lifetime]:
    """Put rooms into memory that waits for its own contents; those that are left over.

    Rooms of the worst moment come first, large before small; each takes the tightest place that is
    free for long enough.
    """
    usable = sorted(((s.nbytes, s.until, k) for k, s in enumerate(spares) if s.nbytes >= _WORTH))
    used = in_use(rooms)
    worst = used.index(max(used)) if used else 0

    def order(r: Lifetime) -> tuple[bool, int, int]:
        return not r.first <= worst <= r.last, -r.nbytes, -r.last

    placed = set()
    for room in sorted((r for r in rooms if r.nbytes >= _WORTH), key=order):
        begin = bisect.bisect_left(usable, (room.nbytes, room.last + 1, -1))
        for _, until, k in usable[begin : begin + _MOST_TRIES]:
            at = spares[k].offset_for(room) if room.last < until else None
            if at is not None:
                room.home = k, at
                spares[k].rooms.append(room)
                placed.add(room)
                break
    return [r for r in rooms if r not in placed]


def _in_order(rooms: Sequence[Lifetime]) -> int:
    """Place rooms as they come; the bytes that takes."""
    arena = Arena()
    ends: dict[int, list[Lifetime]] = {}
    now = 0
    for room in sorted(rooms, key=lambda r: r.first):
        while now < room.first:
            for done in ends.pop(now, ()):
                arena.free(done.home[1])
            now += 1
        room.home = -1, arena.take(room.nbytes)
        ends.setdefault(room.last, []).append(room)
    return arena.size


def _largest_first(rooms: Sequence[Lifetime]) -> int:
    """Place large rooms first, each as low as it fits; the bytes that takes."""
    done = Spare(1 << 62, 0)
    for room in sorted(rooms, key=lambda r: (-r.nbytes, r.first)):
        at = done.offset_for(room)
        assert at is not None
        room.home = -1, at
        done.rooms.append(room)
    return max((r.home[1] + r.need for r in rooms), default=0)


def _in_slots(rooms: Sequence[Lifetime], spares: Sequence[Spare]) -> int:
    """Homes that are right whatever the sizes are: rooms that are never in use together share a
    slot, which is as large as the largest of them turns out to be.

    Which rooms share one is chosen by the sizes at hand, large rooms first; only how good the
    choice is depends on them.
    """
    slots: list[list[Lifetime]] = []
    for room in sorted(rooms, key=lambda r: (-plain(r.nbytes), r.first)):
        if plain(room.nbytes) >= _WORTH and _in_spare(room, spares):
            continue
        slot = next((s for s in slots if not _beside(room, s)), None)
        if slot is None:
            slots.append([room])
        else:
            slot.append(room)
    size = 0
    for slot in slots:
        for room in slot:
            room.home = -1, size
        size = size + most(*{exact(r.need): r.need for r in slot}.values())
    return size


def _in_spare(room: Lifetime, spares: Sequence[Spare]) -> bool:
    """Put a room into memory that is large enough whatever the sizes are, and waits."""
    for k, spare in enumerate(spares):
        free = room.last < spare.until and not _beside(room, spare.rooms)
        if free and decide(operator.le, expr(room.nbytes), expr(spare.nbytes)):
            room.home = k, 0
            spare.rooms.append(room)
            return True
    return False


class Arena:
    """Hands out offsets; freed room is used again, the tightest fit first."""

    def __init__(self) -> None:
        self.size = 0
        self._free: list[tuple[int, int]] = []
        """(offset, bytes), by offset; neighbours are one."""
        self._taken: dict[int, int] = {}

    def take(self, nbytes: int) -> int:
        need = _rounded(nbytes)
        fits = [(n, at) for at, n in self._free if n >= need]
        if fits:
            room, at = min(fits)
            self._free.remove((at, room))
            if room > need:
                bisect.insort(self._free, (at + need, room - need))
        else:
            at = self._at_the_end(need)
        self._taken[at] = need
        return at

    def _at_the_end(self, need: int) -> int:
        """Grow, beginning with the free room at the end if there is some."""
        at = self.size
        if self._free and sum(self._free[-1]) == self.size:
            at = self._free.pop()[0]
        self.size = at + need
        return at

    def free(self, at: int) -> None:
        need = self._taken.pop(at)
        where = bisect.bisect_left(self._free, (at, 0))
        if where < len(self._free) and self._free[where][0] == at + need:
            need += self._free.pop(where)[1]
        if where and sum(self._free[where - 1]) == at:
            at, before = self._free.pop(where - 1)
            need += before
        bisect.insort(self._free, (at, need))
