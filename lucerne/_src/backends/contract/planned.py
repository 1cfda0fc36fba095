"""What a backend tells of programs that it compiled for devices which are not here.

These are data: a backend reads them out of its programs (`Backend.plan`), and `lucerne plan` works
out of them what a step needs and how long it takes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

from lucerne._src.backends.contract.placement import MeshShape


@dataclass(frozen=True)
class ChipLink:
    """What a device sends at once, in bytes a second, and what the first byte takes."""

    bandwidth: float
    latency: float


@dataclass(frozen=True)
class Chip:
    """The figures of a device that need not be here."""

    name: str
    platform: str
    memory: int
    """Bytes that a program may take."""
    flops: float
    """Operations a second of products of 16-bit floats, at best."""
    bandwidth: float
    """Bytes a second from and to its memory."""
    near: ChipLink
    """To devices of the same host (or pod)."""
    far: ChipLink
    """To all others."""
    together: int
    """How many devices `near` joins."""
    count: int
    """The most that can be planned."""
    reached: float = 0.5
    """The share of `flops` that programs reach: the pessimistic end of times."""
    note: str = ""


@dataclass(frozen=True)
class Collective:
    """What devices send each other at one place of a program."""

    kind: str
    nbytes: int
    """Of the whole: what is gathered, reduced or moved, the parts of a group together."""
    group: tuple[int, ...]
    """The devices of the first group, by their place in the mesh; empty: all."""
    times: int = 1
    """How often in one call."""
    where: str = ""
    """The user's line, where it is known."""
    axes: tuple[str, ...] = ()
    """The dimensions of the mesh that the group goes along."""
    pairs: tuple[tuple[int, int], ...] = ()
    """Who sends to whom, if it is no group."""
    op: str = ""
    """The op at that line that it was put in for."""


@dataclass(frozen=True)
class ProgramMemory:
    """Bytes on each device."""

    arguments: int = 0
    results: int = 0
    aliased: int = 0
    """Of results that take the place of arguments."""
    temporaries: int = 0
    code: int = 0
    elsewhere: int = 0
    """Of tensors that are alive beside the program."""

    @property
    def peak(self) -> int:
        """All of it: nothing is taken for given back before the program ends."""
        return (
            self.arguments + self.results - self.aliased + self.temporaries + self.code
            + self.elsewhere
        )  # fmt: skip


@dataclass(frozen=True)
class PlannedArgument:
    """A tensor that a program takes: `nbytes` of it on each device, `whole` in all."""

    what: str
    placements: str
    nbytes: int
    whole: int


@dataclass
class PlannedProgram:
    """A program as it was compiled."""

    name: str
    """The user's line that calls it."""
    calls: int
    mesh: MeshShape | None
    flops: float = 0.0
    """Of products, on each device."""
    nbytes: float = 0.0
    """That a device reads from and writes to its memory."""
    memory: ProgramMemory = field(default_factory=ProgramMemory)
    collectives: Sequence[Collective] = ()
    arguments: Sequence[PlannedArgument] = ()
    """The largest first."""
    seconds: float = 0.0
    """Of a processor: tracing and compiling it."""
    compiled: bool = True
    """Otherwise it was called but once, before another one took its place."""


class PlanComplete(BaseException):
    """All that was asked for has been planned. Raised through the script, which ends there."""


class PlanError(RuntimeError):
    """There is no plan, and the text says why."""

    is_for_caller = True
    """Also from inside of a compiled function: it is no fault of the compiler's."""


class Planner(ABC):
    """Planning under way: nothing is computed until it ends."""

    chip: Chip
    eager: Counter[str]
    """Calls outside of compiled functions, by the user's line: they are in no program."""
    looks: Counter[str]
    """Lines that looked at a number and were given a placeholder."""

    @abstractmethod
    def __enter__(self) -> Self: ...

    @abstractmethod
    def __exit__(self, *error: object) -> None: ...

    @abstractmethod
    def programs(self) -> list[PlannedProgram]:
        """Compile what has not been yet, and tell of all."""
