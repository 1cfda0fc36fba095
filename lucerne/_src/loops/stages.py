"""Stages: what a compilation did, where its time went, and what the program needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from lucerne._src.ir.checks.lifetimes import bytes_of, most_in_use
from lucerne._src.ir.graph import Graph
from lucerne._src.ir.program import Program

_SHOWN = 8
_LONGEST = 72


@dataclass
class Stages:
    """What happened on the way: for people who look.

    >>> stages = Stages()
    >>> with stages.timed("capture"):
    ...     found = sum(range(10))
    >>> list(stages.seconds)
    ['capture']
    """

    seconds: dict[str, float] = field(default_factory=dict)
    nodes: dict[str, int] = field(default_factory=dict)
    """How many there are after a stage; behind "lower" they are steps."""
    texts: dict[str, str] = field(default_factory=dict)
    program: Program | None = None
    keep_texts: bool = False
    kernels: Sequence[tuple[Any, float, bool]] = ()
    """Those that were new to the process: key, seconds, whether the disk had it."""

    def note(self, name: str, graph: Graph, began: float) -> None:
        self.seconds[name] = perf_counter() - began
        self.nodes[name] = len(graph.nodes)
        if self.keep_texts:
            self.texts[name] = str(graph)

    def timed(self, name: str) -> _Timed:
        """`with stages.timed(name)`: how long it takes, added to what it took before."""
        return _Timed(self, name)

    def __str__(self) -> str:
        lines = [f"{'stage':14s} {'ms':>8s} {'nodes':>7s}"]
        for name, seconds in self.seconds.items():
            lines.append(f"{name:14s} {1e3 * seconds:8.1f} {self.nodes.get(name, ''):>7}")
        lines.append(f"{'all':14s} {1e3 * sum(self.seconds.values()):8.1f}")
        return "\n".join([*lines, *self._kernel_lines(), *self._memory_lines()])

    def _kernel_lines(self) -> list[str]:
        compiled = sorted((-s, str(key)) for key, s, from_disk in self.kernels if not from_disk)
        loaded = [s for _, s, from_disk in self.kernels if from_disk]
        taken = 1e3 * -sum(s for s, _ in compiled)
        lines = [
            f"kernels: {len(compiled)} compiled ({taken:.0f} ms, side by side), "
            f"{len(loaded)} found on disk ({1e3 * sum(loaded):.0f} ms)"
        ]
        for seconds, key in compiled[:_SHOWN]:
            told = key if len(key) <= _LONGEST else key[: _LONGEST - 3] + "..."
            lines.append(f"  {-1e3 * seconds:6.1f} ms  {told}")
        if len(compiled) > _SHOWN:
            lines.append(f"  and {len(compiled) - _SHOWN} more")
        return lines

    def _memory_lines(self) -> list[str]:
        p = self.program
        if p is None:
            return []
        given, made = (sum(map(bytes_of, metas)) for metas in (p.arguments, p.results))
        return [
            f"memory: arena {_mb(p.arena)} (in use at the worst moment {_mb(most_in_use(p))}), "
            f"arguments {_mb(given)}, results {_mb(made)}",
        ]


class StagesAt(Stages):
    """Stages of a program for all sizes, at some of them: the program there is made when somebody
    looks at it."""

    _program: Program | None
    _make: Callable[[], Program] | None

    def __init__(self, stages: Stages, program: Callable[[], Program]) -> None:
        given = dict(stages.seconds), stages.nodes, stages.texts
        super().__init__(*given, keep_texts=stages.keep_texts, kernels=stages.kernels)
        self._make = program

    @property
    def program(self) -> Program | None:
        if self._program is None and self._make is not None:
            self._program = self._make()
        return self._program

    @program.setter
    def program(self, program: Program | None) -> None:
        self._program, self._make = program, None


def _mb(nbytes: int) -> str:
    return f"{nbytes / 1e6:.1f} MB"


class _Timed:
    def __init__(self, stages: Stages, name: str) -> None:
        self.stages, self.name = stages, name

    def __enter__(self) -> None:
        self.began = perf_counter()

    def __exit__(self, *problem: object) -> None:
        seconds = self.stages.seconds
        seconds[self.name] = seconds.get(self.name, 0.0) + perf_counter() - self.began
