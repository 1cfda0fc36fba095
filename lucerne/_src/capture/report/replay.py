"""A compiled version's way through the compiler once more, with everything written down.

Compiling keeps no texts: that would cost every user what few look at. The captured graph is kept,
and the way from there on is always the same, so whoever wants to look goes it again. No kernel is
compiled: the process has them all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from lucerne._src import backends
from lucerne._src.capture.aot.split import constants_of, halves_of
from lucerne._src.capture.trace.input_sources import KEY, InputSource
from lucerne._src.ir.graph import Graph
from lucerne._src.ir.program import Program
from lucerne._src.loops.notes import KeptApart, Notes, neighbours
from lucerne._src.pipeline import PassSetting, improving, lowering
from lucerne._src.tensor.random.api import default_generator
from lucerne._src.transforms.functionalize import functionalize
from lucerne._src.transforms.random import count_draws

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


def setting_of(options: Any) -> PassSetting:
    """What passes are told, by what `compile` was told."""
    bitwise = options.mode == "bitwise"
    if options.maker is not None:
        return PassSetting(bitwise)
    return PassSetting.of(backends.get(options.backend), bitwise=bitwise)


def replay(entry: Any, options: Any) -> list[ReplayedPart]:
    """The programs of an entry with all stages."""
    captured = entry.captured
    first = ReplayedPart(FORWARD if captured.gradients else CALL)
    first.stages.append(Stage("capture", "what the function did with tensors", captured.graph, 0.0))
    began = perf_counter()
    graph = functionalize(captured.graph, captured.roots, captured.fresh)
    _note(first, "functionalize", "no mutation, so that passes may reorder", graph, began)
    sources = list(captured.sources)
    if options.counts_draws:
        began = perf_counter()
        graph, key = count_draws(graph, default_generator)
        if key is not None:
            sources.append(InputSource(KEY))
            _note(first, "count_draws", "random numbers follow from counters", graph, began)
    if not captured.gradients:
        _lowered(first, graph, constants_of(sources), options)
        first.runner = entry.runner
        return [first]
    graph = _improved(first, graph, options)
    halves = halves_of(graph, captured, sources, options.budget)
    _note(first, "split", "the backward pass may run later: what it needs is saved",
          halves.forward, perf_counter())  # fmt: skip
    _lowered(first, halves.forward, halves.constants, options)
    first.runner = entry.runner
    second = ReplayedPart(BACKWARD)
    _note(second, "split", "the half that may run later", halves.backward, perf_counter())
    _lowered(second, halves.backward, halves.saved_constants, options)
    second.runner = entry.joint.runner if entry.joint is not None else None
    return [first, second]


def _note(part: ReplayedPart, name: str, why: str, graph: Graph, began: float) -> None:
    part.stages.append(Stage(name, why, graph, perf_counter() - began))


def _improved(part: ReplayedPart, graph: Graph, options: Any) -> Graph:
    began = perf_counter()
    for p, after in improving(graph, options.disable, setting_of(options)):
        graph = after
        _note(part, p.name, p.why, graph, began)
        began = perf_counter()
    return graph


def _lowered(part: ReplayedPart, graph: Graph, constants: Mapping[int, Any], options: Any) -> None:
    graph = _improved(part, graph, options)
    if options.maker is not None:
        return
    backend = backends.get(options.backend)
    notes = Notes()
    given = graph, backend, constants, options.mode, options.disable, options.whole.graph_of
    part.program = lowering(*given, notes).program()
    part.apart = list(neighbours(notes))
