"""Every graph of a compilation once more: as captured, after each pass, cut in two, and lowered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from lucerne._src.capture.aot.split import ForwardBackward, constants_of, halves_of
from lucerne._src.capture.road import road_of
from lucerne._src.capture.trace.captured import Captured
from lucerne._src.capture.trace.input_sources import KEY, TANGENT, InputSource
from lucerne._src.ir.graph import Graph, Value
from lucerne._src.ir.program import Program
from lucerne._src.loops.lower import Lowering
from lucerne._src.tensor.random.api import default_generator
from lucerne._src.transforms.rewrite import shell

CAPTURE, FUNCTIONALIZE, PARTITION = "capture", "functionalize", "partition"


@dataclass
class ShadowPart:
    """One program: the call, or the backward pass of it."""

    name: str
    stages: list[tuple[str, Graph]]
    """(what made it, graph), in order."""
    constants: dict[int, Any]
    """By number of an input: its tensor."""
    lowering: Lowering | None = None
    program: Program | None = None

    @property
    def graph(self) -> Graph:
        return self.stages[-1][1]


@dataclass
class Rebuilt:
    """The way from a captured call to its programs."""

    sources: list[InputSource]
    captured: Graph
    """With writes; random numbers counted as the programs count them."""
    stages: list[tuple[str, Graph]]
    """Up to where the parts begin."""
    parts: list[ShadowPart] = field(default_factory=list)
    halves: ForwardBackward | None = None
    primals: list[int] = field(default_factory=list)


def rebuilt(captured: Captured, options: Any, *, key: bool) -> Rebuilt:
    """All graphs of a captured call. `key`: whether its random numbers are counted."""
    recorded = _with_outputs(captured.graph, captured.roots)
    road = road_of(options)
    functional = road.functional(captured.graph, captured.roots, captured.fresh)
    sources = list(captured.sources)
    if key:  # on both sides, so that both draw the same numbers
        recorded = road.counted(recorded, default_generator)[0]
        functional, drawn = road.counted(functional, default_generator)
        sources.append(InputSource(KEY, thing=None if drawn is None else drawn.meta.device))
    stages = [(FUNCTIONALIZE, functional)]
    made = Rebuilt(sources, recorded, stages)
    if captured.gradients:
        _cut(made, captured, options)
    else:
        made.parts = [_part("the call", functional, constants_of(sources), options)]
    return made


def _with_outputs(graph: Graph, roots: Sequence[Value]) -> Graph:
    made = shell(graph)
    made.nodes = list(graph.nodes)
    made.outputs, made.writes = tuple(roots), []
    return made


def _cut(made: Rebuilt, captured: Captured, options: Any) -> None:
    """The joint graph, and its halves."""
    stages = made.stages
    road = road_of(options, saw=lambda step, graph, _: stages.append((step.name, graph)))
    joint = road.improved(stages[-1][1])
    halves = halves_of(road_of(options), joint, captured, made.sources, options.budget)
    made.halves = halves
    made.primals = [k for k, s in enumerate(made.sources) if s.kind != TANGENT]
    made.parts = [
        _part("the call", halves.forward, halves.constants, options),
        _part("its backward pass", halves.backward, halves.saved_constants, options),
    ]


def _part(name: str, graph: Graph, constants: dict[int, Any], options: Any) -> ShadowPart:
    part = ShadowPart(name, [("", graph)], constants)
    road = road_of(options, saw=lambda step, after, _: part.stages.append((step.name, after)))
    road.improved(graph)
    if road.backend is not None:
        part.lowering = road.lowered(part.graph, constants)
        part.program = part.lowering.program()
    return part
