"""From a program to something that runs: the backend's own way if it has one, else step by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import perf_counter_ns
from typing import Any

from lucerne._src.backends.contract.backend import Backend, Runner, TensorState
from lucerne._src.backends.contract.step_runner import StepRunner
from lucerne._src.base.process.profiler_hook import PROGRAM, Watch
from lucerne._src.ir.graph import Graph
from lucerne._src.ir.program import Program, program_of_one_step


def make_runner(program: Program, backend: Backend) -> Runner:
    """`runner(arguments, numbers, results)` runs the program; results are allocated already."""
    return backend.assemble(program) or StepRunner(program, backend)


class TakenRunner(Runner):
    """A graph that the backend took whole. Who watches a program sees one step."""

    def __init__(self, inner: Runner, program: Program, backend: Backend) -> None:
        self.inner, self.program, self.backend = inner, program, backend

    def __call__(
        self,
        arguments: Sequence[TensorState],
        numbers: Sequence[float],
        results: Sequence[TensorState],
    ) -> None:
        watcher = Watch.current
        if watcher is None:
            self.inner(arguments, numbers, results)
            return
        span = watcher.begin("", PROGRAM, self.program)
        began = perf_counter_ns()
        try:
            self.inner(arguments, numbers, results)
            self.backend.synchronize()  # else only the time until it is queued is seen
        finally:
            ended = perf_counter_ns()
            watcher.end(span)
            watcher.steps(span, self.program, [began, ended])


def taken(graph: Graph, constants: Mapping[int, Any], backend: Backend) -> TakenRunner | None:
    """A whole graph as the backend runs it; None: it goes on to fusion."""
    inner = backend.take(graph, constants)
    if inner is None:
        return None
    return TakenRunner(inner, program_of_one_step(graph, constants), backend)
