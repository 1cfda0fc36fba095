"""What a memory plan must not do, found by following the units: every read finds its value.

Memory is used again and again: other values take the place of those that nobody reads any more,
results hold scratch until they are made, inputs are written over. Here each byte is known by the
value that was written there last, and whoever reads a value must find it whole.
"""

from __future__ import annotations

import bisect
from typing import Any

from lucerne._src.ir.checks.lifetimes import ProgramError, bytes_of
from lucerne._src.ir.graph import Value
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.ir.program import ARENA, RESULT

Home = tuple[str, int, int]
"""Kind, index, offset in bytes (see `program.Place`)."""


class Contents:
    """Whose bytes lie in a buffer: disjoint runs, in order."""

    __slots__ = ("owners", "starts", "stops")

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.stops: list[int] = []
        self.owners: list[Any] = []

    def put(self, start: int, stop: int, owner: Any) -> None:
        first, last = bisect.bisect_right(self.stops, start), bisect.bisect_left(self.starts, stop)
        runs = [(start, stop, owner)]
        if first < last and self.starts[first] < start:
            runs.insert(0, (self.starts[first], start, self.owners[first]))
        if first < last and self.stops[last - 1] > stop:
            runs.append((stop, self.stops[last - 1], self.owners[last - 1]))
        for listed, part in ((self.starts, 0), (self.stops, 1), (self.owners, 2)):
            listed[first:last] = [run[part] for run in runs]

    def other_than(self, start: int, stop: int, owner: Any) -> str:
        """What lies there besides `owner`, in words; "": nothing."""
        first, last = bisect.bisect_right(self.stops, start), bisect.bisect_left(self.starts, stop)
        at = start
        for k in range(first, last):
            if self.starts[k] > at:
                return f"nothing was written at {at}"
            if self.owners[k] != owner:
                return f"{self.owners[k]} lies at {at}"
            at = self.stops[k]
        return "" if at >= stop else f"nothing was written at {at}"


class CheckedMemory:
    """All buffers of a program, as its units go on."""

    def __init__(self) -> None:
        self.buffers: dict[tuple[str, int], Contents] = {}

    def write(self, home: Home, meta: TensorMeta, owner: Any) -> None:
        nbytes = bytes_of(meta)
        if nbytes:
            buffer = self.buffers.setdefault(home[:2], Contents())
            buffer.put(home[2], home[2] + nbytes, owner)

    def read(self, home: Home, meta: TensorMeta, owner: Any, what: str) -> None:
        nbytes = bytes_of(meta)
        if not nbytes:
            return
        buffer = self.buffers.setdefault(home[:2], Contents())
        found = buffer.other_than(home[2], home[2] + nbytes, owner)
        if found:
            where = home[0] if home[0] == ARENA else f"{home[0]}{home[1]}"
            text = f"{what} needs {owner} in {where}+{home[2]}, and {found}"
            raise ProgramError(f"the memory plan is wrong: {text}")


def check_values(placing: Any, updated: set[Value], saved: dict[Value, Home]) -> None:
    """Follow the units of a `_Placing` whose homes are given; ProgramError if a value is lost.

    `updated`: inputs whose new values are made in their own place. `saved`: where values wait that
    are written back at the end, and lie in what is written over.
    """
    low, home, memory = placing.low, placing.home, CheckedMemory()
    for v in (*placing.arguments, *low.constants):
        memory.write(home[v], v.meta, v)
    for at, unit in enumerate(low.units):
        for v in unit.reads:
            base = low._base(v)
            if isinstance(base.meta, TensorMeta):
                memory.read(home[base], base.meta, base, f"unit {at} ({unit.nodes[0].op.name})")
        for v in unit.outputs:
            memory.write(home[v], v.meta, v)
    _check_end(placing, memory, updated, saved)


def _check_end(
    placing: Any, memory: CheckedMemory, updated: set[Value], saved: dict[Value, Home]
) -> None:
    """What `_finish` does: saves, results, inputs."""
    low, home = placing.low, placing.home

    def whole(v: Value, what: str) -> None:
        base = low._base(v)
        memory.read(home[base], base.meta, base, what)

    for v, place in saved.items():
        whole(v, "the end")
        memory.write(place, v.meta, place)
    for k, v in enumerate(low.graph.outputs):
        whole(v, f"result {k}")
        if home.get(v) != (RESULT, k, 0) or v in low.base:
            memory.write((RESULT, k, 0), v.meta, (RESULT, k))
    for target, v in low.graph.writes:
        if v in saved:
            memory.read(saved[v], v.meta, saved[v], f"the new value of {target}")
        else:
            whole(v, f"the new value of {target}")
        if target not in updated and v is not target:
            memory.write(home[target], target.meta, ("new", target))
    for k, v in enumerate(low.graph.outputs):
        own = home.get(v) == (RESULT, k, 0) and v not in low.base
        memory.read((RESULT, k, 0), v.meta, v if own else (RESULT, k), f"result {k}")
