"""A runner for finding errors: every value on pages of its own, between inaccessible ones.

Arguments are copied in, and out again if the program writes them; an argument that is changed
without being among `program.written` is reported. A value of the arena, or of a result (which may
hold others until it is made), gets its memory when it is written first and loses it after its last
use, so that reading or writing outside of it, or later, ends the process at that instruction. Calls
alternate between blocks that end at the forbidden page
and blocks that begin at one.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any

from lucerne._src.backends.contract.backend import Executable, Runner, TensorState
from lucerne._src.backends.contract.step_runner import inputs_of, over
from lucerne._src.backends.contract.tensor_view import Spot
from lucerne._src.backends.cpu.program.host import Window
from lucerne._src.backends.cpu.runtime import guards, memory
from lucerne._src.backends.cpu.runtime.kernel import address_of
from lucerne._src.ir.checks.lifetimes import ArenaValue, bytes_of, check_places, scratch_values
from lucerne._src.ir.program import ARGUMENT, CONSTANT, RESULT, Place, Program, places


@cache
def _allocator(alignment: int) -> memory.Allocator:
    return memory.make_allocator(alignment)


class _Room:
    """One value's memory, on pages of its own."""

    def __init__(self, nbytes: int, alignment: int) -> None:
        self.nbytes, self._from = nbytes, _allocator(alignment)
        self.address = self._from.take(nbytes)

    def free(self) -> None:
        self._from.free(self.address, self.nbytes)


class GuardedRunner(Runner):
    """Runs the steps one by one, in memory that catches mistakes."""

    def __init__(self, program: Program, executables: Sequence[Executable]) -> None:
        check_places(program)
        self.program = program
        self._steps = list(zip(program.steps, executables, strict=True))
        self._values = scratch_values(program)
        self._value_of: dict[tuple[int, Place, bool], ArenaValue] = {
            key: value for value in self._values for key in value.places
        }
        self._alignment = guards.SMALLEST_ALIGNMENT

    def launch(self, *arguments: Any) -> None:
        """None: `__call__` knows the way."""

    def __call__(
        self,
        arguments: Sequence[TensorState],
        numbers: Sequence[float],
        results: Sequence[TensorState],
    ) -> None:
        self._alignment = -self._alignment
        outside = [_Room(bytes_of(t._meta), self._alignment) for t in arguments]
        for t, room in zip(arguments, outside, strict=True):
            ctypes.memmove(room.address, address_of(t), room.nbytes)
        self._run(outside, results, tuple(numbers))
        for i, (t, room) in enumerate(zip(arguments, outside, strict=True)):
            if i in self.program.written:
                ctypes.memmove(address_of(t), room.address, room.nbytes)
            elif _bytes(room.address, room.nbytes) != _bytes(address_of(t), room.nbytes):
                raise AssertionError(f"argument {i} was changed, and is not among those written")
            room.free()

    def _run(
        self, arguments: list[_Room], results: Sequence[TensorState], numbers: tuple[Any, ...]
    ) -> None:
        rooms: dict[ArenaValue, _Room] = {}

        def spot(number: int, place: Place, written: bool) -> Spot:
            if place.kind == CONSTANT:
                return over(self.program.constants[place.index], place)
            if place.kind == ARGUMENT:
                return _spot(place, arguments[place.index].address + place.offset)
            if not place.meta.numel:
                return _spot(place, 0)
            value = self._value_of[number, place, written]
            if value not in rooms:
                rooms[value] = _Room(value.stop - value.start, self._alignment)
            return _spot(place, rooms[value].address + place.offset - value.start)

        for number, (step, execute) in enumerate(self._steps):
            read = {place: spot(number, place, False) for place in places(step.inputs)}
            outputs = [spot(number, place, True) for place in step.outputs]
            execute(inputs_of(step, read.__getitem__, numbers), outputs)
            for value in [v for v in rooms if v.last <= number]:
                rooms.pop(value).free()
        for k, t in enumerate(results):
            made = spot(len(self._steps), Place(RESULT, k, 0, self.program.results[k]), False)
            ctypes.memmove(address_of(t), address_of(made), bytes_of(t._meta))
        for room in rooms.values():
            room.free()


def _spot(place: Place, address: int) -> Spot:
    window = Window(bytes_of(place.meta))
    window.move(address)
    return Spot(place.meta, window, 0)


def _bytes(address: int, nbytes: int) -> bytes:
    return ctypes.string_at(address, nbytes)
