"""What an explanation consists of: plain records, so that a page, a table and JSON say the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from lucerne._src.base.process.source_location import Origin
from lucerne._src.loops.notes import KeptApart

COMPUTE, MEMORY, OVERHEAD = "compute", "memory", "overhead"


@dataclass
class KernelReport:
    """One step of a program."""

    number: int
    name: str
    origins: list[Origin]
    """The user's lines it comes from."""
    text: str
    """What it computes, as a graph."""
    shape: str
    """Of its first result."""
    dtype: str
    seconds: float
    """At its best over some calls; 0: not measured."""
    nbytes: int
    """That must be read and written: each operand once."""
    flops: int
    verdict: str = OVERHEAD
    """What limits it: COMPUTE, MEMORY, or OVERHEAD (it has too little to do)."""
    shares: list[float] = field(default_factory=list)
    """Of its time, for each of its lines: by how much there is to compute for them."""
    least: float = 0.0
    """Seconds that the machine needs for this much at its measured best."""

    @property
    def fraction(self) -> float:
        """How near it comes to what the machine can do."""
        return min(self.least / self.seconds, 1.0) if self.seconds else 0.0

    def by_line(self) -> Iterator[tuple[Origin, float]]:
        """Each line with its seconds."""
        shares = self.shares or [1 / max(len(self.origins), 1)] * len(self.origins)
        for origin, share in zip(self.origins, shares, strict=True):
            yield origin, share * self.seconds


@dataclass
class PassReport:
    """One stage of the compiler."""

    name: str
    why: str
    before: int
    """Nodes."""
    after: int
    seconds: float
    diff: str
    """What changed in the text of the graph; of the first stage: all of it."""


@dataclass
class OwnerReport:
    """Who has bytes of the arena at the worst moment."""

    label: str
    nbytes: int
    kernel: int
    """The one that made them."""
    module: str = ""


@dataclass
class MemoryReport:
    """The memory plan of a program."""

    arena: int
    peak: int
    """Bytes of the arena in use at the worst moment."""
    at: int
    """The kernel that runs then."""
    in_use: list[int] = field(default_factory=list)
    """By kernel."""
    owners: list[OwnerReport] = field(default_factory=list)
    """At the worst moment, the largest first."""
    arguments: int = 0
    results: int = 0

    def by(self, key: str) -> list[tuple[str, int]]:
        """Bytes at the worst moment by "label" (the line) or "module", the most first."""
        found: dict[str, int] = {}
        for owner in self.owners:
            name = getattr(owner, key) or "(no module)"
            found[name] = found.get(name, 0) + owner.nbytes
        return sorted(found.items(), key=lambda x: -x[1])


@dataclass
class PartReport:
    """One program: all of a call, or its forward or backward half, or the part between breaks."""

    name: str
    function: str
    passes: list[PassReport] = field(default_factory=list)
    kernels: list[KernelReport] = field(default_factory=list)
    separate: list[KeptApart] = field(default_factory=list)
    memory: MemoryReport | None = None
    guards: list[str] = field(default_factory=list)
    stages: dict[str, float] = field(default_factory=dict)
    """Seconds of compiling."""

    @property
    def seconds(self) -> float:
        """Of all kernels."""
        return sum(k.seconds for k in self.kernels)


@dataclass
class StopReport:
    """A break: where a graph ended, why, and what to do."""

    number: int
    kind: str
    file: str
    line: int
    function: str
    reason: str
    fix: str
    nbytes: int = 0
    """Of what the program that ends here hands on, which goes through memory; 0: it is not known.
    """


@dataclass
class Outside:
    """Ops of a line that ran by themselves, outside of all programs."""

    file: str
    line: int
    function: str
    ops: list[str]


@dataclass
class Recompile:
    """A compile of the function, from the ledger."""

    kind: str
    why: str
    seconds: float


@dataclass
class SourceReport:
    """Some lines of a file."""

    file: str
    name: str
    first: int
    lines: list[str]


@dataclass
class Report:
    """Everything that is known about one call."""

    function: str
    file: str
    line: int
    parts: list[PartReport] = field(default_factory=list)
    breaks: list[StopReport] = field(default_factory=list)
    outside: list[Outside] = field(default_factory=list)
    bill: list[dict[str, Any]] = field(default_factory=list)
    """What left its device, as `lucerne.backends.bill().rows()` has it."""
    compiles: list[Recompile] = field(default_factory=list)
    sources: list[SourceReport] = field(default_factory=list)
    given_up: str = ""
    """Why it runs uncompiled, if it does."""
    call_seconds: float = 0.0
    """Of a whole call, guards and launch included, at its best; 0: not measured."""
    busy: str = ""
    """That the machine had other things to do while it was measured, in words."""
    limits: dict[str, Any] = field(default_factory=dict)
    threads: int = 1

    def kernels(self) -> Iterator[KernelReport]:
        """Of all parts."""
        for part in self.parts:
            yield from part.kernels

    @property
    def seconds(self) -> float:
        """Of all kernels."""
        return sum(p.seconds for p in self.parts)
