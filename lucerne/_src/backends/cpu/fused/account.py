"""Account: what a program's loops go through, for who checks them (`ir/checks/index_maps.py`)."""

from __future__ import annotations

from collections.abc import Sequence

from lucerne._src.backends.cpu.fused.program import Axis, FusedProgram, Load
from lucerne._src.ir.checks.index_maps import LoopAccess, LoopWalk
from lucerne._src.ir.graph import Value


class Account:
    """Says of each operand which of the steps of a loop are its own; `walk` then has it all."""

    def __init__(self, program: FusedProgram) -> None:
        self.program = program
        self.axes: dict[Axis, int] = {}
        self.dims = {
            v: tuple(None if a is None else self._number(a) for a in seen.dims)
            for v, seen in program.seen.items()
        }
        self._accesses: list[LoopAccess] = []
        self._places: list[int] = []

    def _number(self, axis: Axis) -> int:
        return self.axes.setdefault(axis.root, len(self.axes))

    def store(self, v: Value, offset: int, place: int) -> None:
        """An output, whose steps stand at `place` among those of each loop."""
        self._accesses.append(LoopAccess(v.index, offset, is_store=True))
        self._places.append(place)

    def load(self, load: Load, place: int) -> None:
        """Likewise all values that are read by this load."""
        for v, seen in self.program.seen.items():
            if seen.expr is load and v in self.program.read_from_memory:
                self._accesses.append(LoopAccess(v, load.memory.offset))
                self._places.append(place)

    def walk(
        self, loops: Sequence[tuple[int, Sequence[int]]], orders: Sequence[Sequence[Axis]] = ()
    ) -> LoopWalk:
        """`loops`: of each one the size, and the bytes it goes on in every operand."""
        cut = tuple(tuple(self._number(a) for a in order) for order in orders)
        return LoopWalk(
            tuple(a.size for a in self.axes),
            self.dims,
            tuple(self._accesses),
            tuple((n, tuple(steps[k] for k in self._places)) for n, steps in loops),
            cut if len(cut) > 1 else (),
        )
