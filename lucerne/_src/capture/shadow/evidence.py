"""The evidence for a bisection: one call, what eager made of it, and what should have come out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from lucerne._src.backends.contract.tensor_view import Spot
from lucerne._src.capture.cache.entry import CacheEntry, tensor_of
from lucerne._src.capture.shadow.graphs import alike, maker
from lucerne._src.capture.shadow.nearness import Array, Difference
from lucerne._src.capture.shadow.observe import ShadowObservation
from lucerne._src.capture.shadow.replay import Ran, held_copy, range_of, shaken
from lucerne._src.capture.shadow.report import Finding
from lucerne._src.capture.shadow.stages import Rebuilt, rebuilt
from lucerne._src.capture.shadow.state import Surroundings
from lucerne._src.capture.trace.captured import CapturedResult
from lucerne._src.capture.trace.input_sources import (
    ARGUMENT,
    CONSTANT,
    COVER,
    GRADIENT,
    HELD,
    KEY,
    NUMBER,
    SLOT,
    TANGENT,
    InputSource,
)
from lucerne._src.ir.graph import Graph, Node

EMPTY = "uninitialized"
"""The name of the op that gives memory nobody filled."""


@dataclass
class ShadowCase:
    """A call to be looked into. The surroundings are as they were before it."""

    entry: CacheEntry
    options: Any
    fn: Any
    args: Any
    kwargs: Any
    leaves: Sequence[Any]
    surroundings: Surroundings
    tangents: list[Any]
    eager: ShadowObservation | None = None
    compiled: ShadowObservation | None = None
    seen: dict[str, Difference] = field(default_factory=dict)
    recapture: Any = None
    """Captures the call anew: gives a `Captured`."""


class Evidence:
    """A call in pieces: its graph, the inputs of that, and what each result should be."""

    def __init__(self, case: ShadowCase) -> None:
        self.case = case
        self.captured = case.entry.captured
        self.built: Rebuilt = rebuilt(self.captured, case.options, key=bool(case.entry.key))
        self.rewind = case.surroundings.rewind
        case.surroundings.put_back()
        self.inputs = [self._input(s) for s in self.built.sources]
        self.right: Ran
        """The captured graph, op by op."""
        self.other: Ran | None = None
        """As `right`, with other junk in memory that nobody filled; None: there is no such."""
        self._first, self._given = 0, self.inputs
        """Of the part that is looked at: the number of its first output, and its inputs."""
        self._shaken: dict[int, tuple[Graph, list[Ran]]] = {}
        """By id of a graph: itself, and some runs of it."""

    def _input(self, source: InputSource) -> Any:
        if source.kind == CONSTANT:
            return held_copy(source.thing)
        if source.kind == NUMBER:
            return source.thing.now()
        if source.kind == TANGENT:
            return held_copy(self.case.tangents[source.index])
        if source.kind == KEY:
            self.rewind()
        return held_copy(tensor_of(source, self.case.leaves))

    def _runs(self, graph: Graph, inputs: list[Any]) -> list[Ran]:
        """A graph with its roundings moved by chance, run when first asked for."""
        if id(graph) not in self._shaken:
            found = shaken(graph, inputs[: len(graph.inputs)], self.rewind)
            self._shaken[id(graph)] = graph, found
        return self._shaken[id(graph)][1]

    def _spread_of(self, at: tuple[Spot, int, int]) -> Array | None:
        """How far rounding moves a reading of a value's memory at the end."""
        reading, index, _ = at
        runs = self._runs(self.built.captured, self.inputs)
        arrays = [Spot(reading._meta, r.last[index]._storage, reading._offset).array for r in runs]
        return range_of(arrays, reading._meta.dtype)

    def _filled(self, name: str) -> Array | None:
        """Which elements of what has this name somebody filled; None: all."""
        if self.other is None:
            return None
        return alike(self._expected()[name][0], self._expected(self.other)[name][0])

    def _expected(self, ran: Ran | None = None) -> dict[str, tuple[Array, Any, Any]]:
        """What the captured graph leaves behind, by the names that observations have."""
        ran = ran or self.right
        made: dict[str, tuple[Array, Any, Any]] = {}
        captured, named = self.captured, self.case.surroundings.named
        count = self.returned()
        for k, x in enumerate(captured.leaves[:count]):
            if type(x) is CapturedResult:
                name = f"result {k}" if count > 1 else "the result"
                made[name] = self._reading(x, ran)
        for effect in captured.effects:
            owner = tensor_of(effect.owner, self.case.leaves)
            if effect.outcome is not None and id(owner) in named:
                name = f"the new gradient of {named[id(owner)][0]}"
                made[name] = self._reading(effect.outcome, ran)
        for k, s in enumerate(self.built.sources):
            if s.kind not in (ARGUMENT, HELD, GRADIENT, SLOT, COVER):
                continue
            t = tensor_of(s.thing if s.kind == COVER else s, self.case.leaves)
            if id(t) in named:
                v = self.built.captured.inputs[k]
                memory = ran.last[v.index]
                start = t._offset if s.kind == COVER else 0
                reading = Spot(t._meta, memory._storage, start)
                at = reading, v.index, 0
                made[f"{named[id(t)][0]}, afterwards"] = reading.array, t._meta.dtype, at
        return made

    def returned(self) -> int:
        """How many of the leaves are what the function returns."""
        captured = self.captured
        ends = [first for _, _, first in captured.stored] + [leaf for leaf, _ in captured.checks]
        return min([len(captured.leaves), *ends])

    def _reading(self, x: CapturedResult, ran: Ran) -> tuple[Array, Any, Any]:
        graph = self.built.captured
        if x.of_input:
            given = [
                v
                for v, s in zip(graph.inputs, self.built.sources, strict=True)
                if s.kind in (ARGUMENT, HELD, GRADIENT, COVER, SLOT)
            ]
            root = given[x.index]
        else:
            root = graph.outputs[x.index]
        memory = ran.last[root.index]
        scale = memory._meta.dtype.itemsize / x.meta.dtype.itemsize
        reading = Spot(x.meta, memory._storage, int(memory._offset * scale) + x.offset)
        return reading.array, x.meta.dtype, (reading, root.index, 0)

    def _node_of(self, name: str) -> Node | None:
        """The op that made what has this name."""
        graph, captured = self.built.captured, self.captured
        count = self.returned()
        for k, x in enumerate(captured.leaves[:count]):
            own = f"result {k}" if count > 1 else "the result"
            if name == own and type(x) is CapturedResult and not x.of_input:
                return maker(graph, ("output", x.index))
        for effect in captured.effects:
            owner = tensor_of(effect.owner, self.case.leaves)
            known = self.case.surroundings.named.get(id(owner))
            x = effect.outcome
            if known is not None and name.endswith(f"gradient of {known[0]}") and x is not None:
                return None if x.of_input else maker(graph, ("output", x.index))
        return graph.nodes[-1] if graph.nodes else None

    def _finding(
        self, stage: str, node: Node | None, difference: Difference, *, kernel: str = "",
        graph: Graph | None = None, inputs: list[Any] | None = None, detail: str = "",
    ) -> Finding:  # fmt: skip
        return Finding(
            stage,
            "" if node is None else node.op.qualified,
            str(difference),
            place=None if node is None else node.place,
            kernel=kernel,
            seen={name: str(d) for name, d in self.case.seen.items()},
            detail=detail,
            graph=graph,
            inputs=inputs or [],
        )
