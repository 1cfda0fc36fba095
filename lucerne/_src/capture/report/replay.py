"""A compiled version's way through the compiler once more, with everything written down.

Compiling keeps no texts: that would cost every user what few look at. The captured graph is kept,
and the way from there on is always the same, so whoever wants to look goes it again. No kernel is
compiled: the process has them all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lucerne._src.capture.aot.split import constants_of, halves_of
from lucerne._src.capture.road import road_of
from lucerne._src.capture.trace.input_sources import KEY, InputSource
from lucerne._src.ir.graph import Graph
from lucerne._src.ir.program import Program
from lucerne._src.loops.notes import KeptApart, Notes, neighbours
from lucerne._src.pipeline.passes import PARTITION, RoadStep
from lucerne._src.pipeline.road import Road
from lucerne._src.tensor.random.api import default_generator

CALL, FORWARD, BACKWARD = "call", "forward", "backward"


@dataclass
class Stage:
    """The graph after one stage."""

    name: str
    why: str
    graph: Graph
    seconds: float


@dataclass
class ReplayedPart:
    """One program of a compiled version and how it came to be."""

    name: str
    """CALL, or FORWARD and BACKWARD where the caller may run the backward pass later."""
    stages: list[Stage] = field(default_factory=list)
    program: Program | None = None
    apart: list[KeptApart] = field(default_factory=list)
    runner: Any = None

    def saw(self, step: RoadStep, graph: Graph, seconds: float) -> None:
        self.stages.append(Stage(step.name, step.why, graph, seconds))


def replay(entry: Any, options: Any) -> list[ReplayedPart]:
    """The programs of an entry with all stages."""
    captured = entry.captured
    first = ReplayedPart(FORWARD if captured.gradients else CALL)
    first.stages.append(Stage("capture", "what the function did with tensors", captured.graph, 0.0))
    road = road_of(options, saw=first.saw)
    graph = road.functional(captured.graph, captured.roots, captured.fresh)
    sources = list(captured.sources)
    if options.counts_draws:
        graph, key = road.counted(graph, default_generator)
        if key is not None:
            sources.append(InputSource(KEY))
    if not captured.gradients:
        _lowered(first, road, graph, constants_of(sources))
        first.runner = entry.runner
        return [first]
    halves = halves_of(road, road.improved(graph), captured, sources, options.budget)
    _lowered(first, road, halves.forward, halves.constants)
    first.runner = entry.runner
    second = ReplayedPart(BACKWARD)
    second.stages.append(Stage(PARTITION.name, "the half that may run later", halves.backward, 0.0))
    later = road_of(options, saw=second.saw)
    _lowered(second, later, halves.backward, halves.saved_constants)
    second.runner = entry.joint.runner if entry.joint is not None else None
    return [first, second]


def _lowered(part: ReplayedPart, road: Road, graph: Graph, constants: Mapping[int, Any]) -> None:
    graph = road.improved(graph)
    if road.backend is None:
        return
    notes = Notes()
    part.program = road.lowered(graph, constants, notes).program()
    part.apart = list(neighbours(notes))
