"""The executables of a program's steps: equal ones made once, different ones on all cores."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

from lucerne._src.backends.contract.backend import Executable
from lucerne._src.backends.contract.step_runner import check_step, executable_of, shape_of
from lucerne._src.backends.cpu.rules.fused import is_short
from lucerne._src.backends.cpu.runtime.code import on_all_cores
from lucerne._src.base.process import forks
from lucerne._src.ir.graph import Graph
from lucerne._src.ir.program import Step

SILENT_SECONDS, EVERY_SECONDS = 2.0, 1.0


def executables(steps: Sequence[Step], backend: Any) -> list[Executable]:
    """One executable for each step."""
    keys = []
    distinct: dict[Any, Graph] = {}
    for step in steps:
        check_step(step)
        keys.append(shape_of(step.graph))
        distinct.setdefault(keys[-1], step.graph)
    progress = CompileProgress("compiling kernels", len(distinct))

    def make(graph: Graph) -> Executable:
        made = executable_of(graph, backend)
        progress.advance()
        return made

    distinct = dict(sorted(distinct.items(), key=lambda x: is_short(x[1])))
    made = dict(zip(distinct, on_all_cores(make, list(distinct.values())), strict=True))
    progress.end()
    return [made[key] for key in keys]


class CompileProgress:
    """A line on stderr about what takes more than two seconds."""

    def __init__(self, what: str, total: int) -> None:
        self.what, self.total, self.done = what, total, 0
        self._lock = forks.lock()
        self._started = time.monotonic()
        self._next = self._started + SILENT_SECONDS
        self._shown = False

    def advance(self) -> None:
        with self._lock:
            self.done += 1
            now = time.monotonic()
            if now >= self._next:
                self._next = now + EVERY_SECONDS
                self._show(f"{self.what}: {self.done} of {self.total}")

    def end(self) -> None:
        if self._shown:
            seconds = time.monotonic() - self._started
            self._show(f"{self.what}: {self.done} of {self.total}, {seconds:.1f} s", end="\n")

    def _show(self, text: str, end: str = "") -> None:
        terminal = sys.stderr.isatty()
        sys.stderr.write(f"\rlucerne: {text}{end}" if terminal else f"lucerne: {text}\n")
        sys.stderr.flush()
        self._shown = True
