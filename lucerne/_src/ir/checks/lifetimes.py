"""Which bytes of the arena a program's steps mean, found by following its steps.

The arena is used again and again, so one offset stands for many values. A value begins with a step
that writes it; a read belongs to whoever wrote its bytes last. Parts that are written apart and
read together are one value.

    for value in arena_values(program):     # raises if something is read that nobody wrote
        print(value.start, value.stop, value.first, value.last)
"""

from __future__ import annotations

from dataclasses import dataclass, field

from lucerne._src.ir.meta import TensorMeta
from lucerne._src.ir.program import ARENA, ARGUMENT, CONSTANT, RESULT, Place, Program, Step, places


class ProgramError(ValueError):
    """A program whose places can't be right."""


@dataclass(eq=False)
class ArenaValue:
    """Bytes start..stop of a buffer from step `first`, which writes them, to `last`."""

    start: int
    stop: int
    first: int
    last: int
    places: list[tuple[int, Place, bool]] = field(default_factory=list)
    """(step, place, whether it is written) of all that use it."""

    def join(self, other: ArenaValue) -> None:
        self.start, self.stop = min(self.start, other.start), max(self.stop, other.stop)
        self.first, self.last = min(self.first, other.first), max(self.last, other.last)
        self.places += other.places


def bytes_of(meta: TensorMeta) -> int:
    """From the first to one past the last, in memory."""
    return meta.span * meta.dtype.itemsize


class _Map:
    """Who wrote each byte last: disjoint runs (start, stop, value), in order."""

    def __init__(self) -> None:
        self.runs: list[tuple[int, int, ArenaValue]] = []

    def inside(self, start: int, stop: int) -> list[tuple[int, int, ArenaValue]]:
        return [(max(a, start), min(b, stop), v) for a, b, v in self.runs if a < stop and b > start]

    def put(self, start: int, stop: int, value: ArenaValue) -> None:
        kept = []
        for a, b, v in self.runs:
            kept += [(x, y, v) for x, y in ((a, min(b, start)), (max(a, stop), b)) if x < y]
        self.runs = sorted([*kept, (start, stop, value)], key=lambda run: run[0])

    def rename(self, old: ArenaValue, new: ArenaValue) -> None:
        self.runs = [(a, b, new if v is old else v) for a, b, v in self.runs]


def arena_values(program: Program) -> list[ArenaValue]:
    """All values in the arena, in the order in which they begin."""
    return _Values((ARENA,)).of(program)


def scratch_values(program: Program) -> list[ArenaValue]:
    """All values in the arena and in the results, which hold others until they are made.

    The caller reads the results at the end: as it were, in one more step. What is read and nobody
    wrote (`torch.empty` makes such values) begins where it is read.
    """
    values = _Values((ARENA, RESULT), strict=False)
    found = values.of(program)
    for k, meta in enumerate(program.results):
        if meta.numel:
            values.read(len(program.steps), "the caller", Place(RESULT, k, 0, meta))
    return found


class _Values:
    """Follows the steps of a program through buffers of some kinds."""

    def __init__(self, kinds: tuple[str, ...], *, strict: bool = True) -> None:
        """`strict`: what is read must have been written."""
        self.kinds, self.strict = kinds, strict
        self.found: list[ArenaValue] = []
        self.maps: dict[tuple[str, int], _Map] = {}

    def of(self, program: Program) -> list[ArenaValue]:
        for number, step in enumerate(program.steps):
            overwritten = _overwritten(step)
            for place in places(step.inputs):
                if self._counts(place) and place is not overwritten:
                    self.read(number, step.name, place)
            for place in step.outputs:
                if self._counts(place):
                    self._write(number, place, into=overwritten is not None)
                    if overwritten is not None:
                        self._at(place)[0][2].places.append((number, place, False))
        return self.found

    def _counts(self, place: Place) -> bool:
        return place.kind in self.kinds and bool(place.meta.numel)

    def _at(self, place: Place) -> list[tuple[int, int, ArenaValue]]:
        """The runs under a place."""
        written = self.maps.setdefault((place.kind, place.index), _Map())
        return written.inside(place.offset, place.offset + bytes_of(place.meta))

    def read(self, number: int, name: str, place: Place) -> None:
        runs, size = self._at(place), bytes_of(place.meta)
        if not runs and not self.strict:
            self._write(number, place, into=False)
            runs = self._at(place)
        if not runs:
            raise ProgramError(
                f"step {number} ({name}) reads {place} ({size} bytes), of which 0 were written "
                "before"
            )
        value = self._joined(place, runs)
        value.start, value.stop = (
            min(value.start, place.offset),
            max(value.stop, place.offset + size),
        )
        value.last = max(value.last, number)
        value.places.append((number, place, False))

    def _joined(self, place: Place, runs: list[tuple[int, int, ArenaValue]]) -> ArenaValue:
        first = runs[0][2]
        for other in {id(v): v for _, _, v in runs}.values():
            if other is not first:
                first.join(other)
                self.maps[place.kind, place.index].rename(other, first)
                self.found.remove(other)
        return first

    def _write(self, number: int, place: Place, *, into: bool) -> None:
        """A new value, or (`into`, with gaps that keep what they hold) a part of what is there."""
        start, stop = place.offset, place.offset + bytes_of(place.meta)
        value = ArenaValue(start, stop, number, number, [(number, place, True)])
        self.found.append(value)
        runs = self._at(place)
        self.maps[place.kind, place.index].put(start, stop, value)
        if into and runs and place.meta.numel < place.meta.span:
            self._joined(place, [*runs, (start, stop, value)])


def _overwritten(step: Step) -> Place | None:
    """The operand of a step that copies into it, whose contents it does not read."""
    nodes = step.graph.nodes
    if len(nodes) != 1 or nodes[0].op.qualified != "copy" or not step.outputs:
        return None
    target = step.inputs[0]
    return target if type(target) is Place and target == step.outputs[0] else None


def most_in_use(program: Program) -> int:
    """Bytes of the arena that hold something at the worst moment: it can't be smaller."""
    starts: dict[int, list[ArenaValue]] = {}
    for value in arena_values(program):
        starts.setdefault(value.first, []).append(value)
    alive: list[ArenaValue] = []
    most = 0
    for number in range(len(program.steps)):
        alive = [v for v in alive if v.last >= number] + starts.get(number, [])
        used, reached = 0, 0
        for v in sorted(alive, key=lambda v: v.start):
            used += max(0, v.stop - max(v.start, reached))
            reached = max(reached, v.stop)
        most = max(most, used)
    return most


def check_places(program: Program) -> None:
    """Every place lies in its buffer, is aligned, and no step writes over what it reads.

    A step may write a value exactly where it reads one of the same size: kernels that go through
    both in one order allow that, and who makes programs knows which do.
    """
    sizes = {
        ARGUMENT: [bytes_of(m) for m in program.arguments],
        RESULT: [bytes_of(m) for m in program.results],
        CONSTANT: [bytes_of(c._meta) for c in program.constants],
        ARENA: [program.arena],
    }
    for number, step in enumerate(program.steps):
        who = f"step {number} ({step.name})"
        there: dict[tuple[str, int], list[tuple[int, int, Place, bool]]] = {}
        for place in places(step.inputs):
            start, stop = _extent(sizes, who, place)
            there.setdefault((place.kind, place.index), []).append((start, stop, place, False))
        for out in step.outputs:
            if out.kind == CONSTANT or (out.kind == ARGUMENT and out.index not in program.written):
                raise ProgramError(f"{who} writes {out}, which is read-only")
            start, stop = _extent(sizes, who, out)
            listed = there.setdefault((out.kind, out.index), [])
            for first, last, other, is_written in listed:
                if first >= stop or start >= last or start == stop or first == last:
                    continue
                if is_written:
                    raise ProgramError(f"{who} writes {out} and {other}")
                if (first, last) != (start, stop):
                    raise ProgramError(f"{who} writes {out} over {other}")
            listed.append((start, stop, out, True))


def _extent(sizes: dict[str, list[int]], who: str, place: Place) -> tuple[int, int]:
    """Where a place begins and ends in its buffer, in bytes."""
    listed = sizes[place.kind]
    if place.index >= len(listed):
        raise ProgramError(f"{who}: there is no {place}")
    size, nbytes = listed[place.index], bytes_of(place.meta)
    if place.offset < 0 or (nbytes and place.offset + nbytes > size):
        raise ProgramError(
            f"{who}: {place} with {nbytes} bytes lies outside of its buffer of {size}"
        )
    return place.offset, place.offset + nbytes
