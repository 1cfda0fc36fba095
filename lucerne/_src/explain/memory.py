"""The memory plan of a program, by line and by module."""

from __future__ import annotations

from typing import Any

from lucerne._src.base.process.source_location import Origin
from lucerne._src.explain.report import MemoryReport, OwnerReport
from lucerne._src.ir.checks.lifetimes import ArenaValue, arena_values, bytes_of
from lucerne._src.ir.program import Place, Program, Step


def memory_of(program: Program) -> MemoryReport:
    """Who owns the bytes of the arena, and when."""
    try:
        values = arena_values(program)
    except ValueError:  # values that nobody writes (torch.empty) have no beginning
        values = []
    count = len(program.steps)
    in_use = [_covered([v for v in values if v.first <= k <= v.last]) for k in range(count)]
    at = max(range(count), key=in_use.__getitem__, default=0)
    alive = [v for v in values if v.first <= at <= v.last]
    # A value that is written over another one stands for both.
    alive = [v for v in alive if not any(w.first > v.first and _same(v, w) for w in alive)]
    owners = [_owner(program, v) for v in alive]
    return MemoryReport(
        program.arena,
        in_use[at] if in_use else 0,
        at,
        in_use,
        sorted(owners, key=lambda o: -o.nbytes),
        sum(map(bytes_of, program.arguments)),
        sum(map(bytes_of, program.results)),
    )


def _same(v: ArenaValue, w: ArenaValue) -> bool:
    return (v.start, v.stop) == (w.start, w.stop)


def _covered(values: list[ArenaValue]) -> int:
    """Bytes that hold something: where one value is written over another, they count once."""
    used = reached = 0
    for v in sorted(values, key=lambda v: v.start):
        used += max(0, v.stop - max(v.start, reached))
        reached = max(reached, v.stop)
    return used


def _owner(program: Program, value: ArenaValue) -> OwnerReport:
    step = program.steps[value.first]
    place = next((p for n, p, written in value.places if n == value.first and written), None)
    origin = maker_of(step, place)
    label = "made by the compiler" if origin is None else line_of(origin)
    module = "" if origin is None else origin.module
    return OwnerReport(label, value.stop - value.start, value.first, module)


def maker_of(step: Step, place: Place | None) -> Origin | None:
    """The line of the op that makes what a step writes to a place."""
    for out, value in zip(step.outputs, step.graph.outputs, strict=False):
        if out is place:
            for node in step.graph.nodes:
                if value in node.outputs and node.place is not None:
                    return node.place
    return step.origins[-1] if step.origins else None


def line_of(origin: Origin) -> str:
    """`file:line`, without folders."""
    before = "backward of " if origin.backward else ""
    return f"{before}{short(origin.file)}:{origin.line}"


def short(file: str) -> str:
    """The name of a file without its folders."""
    return file.replace("\\", "/").rpartition("/")[2]


def size(nbytes: Any) -> str:
    """A number of bytes for people.

    >>> size(512), size(1 << 20), size(5_500_000)
    ('512 B', '1.0 MB', '5.5 MB')
    """
    if nbytes < 1000:
        return f"{int(nbytes)} B"
    for unit, scale in (("KB", 1e3), ("MB", 1e6), ("GB", 1e9)):
        if nbytes < 1000 * scale or unit == "GB":
            return f"{nbytes / scale:.1f} {unit}"
    raise AssertionError("every size has a unit")
