"""A joint graph in two: what a call computes, and what its backward pass does later."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lucerne._src.capture.trace.captured import Captured
from lucerne._src.capture.trace.input_sources import (
    ARGUMENT,
    CONSTANT,
    GRADIENT,
    HELD,
    INNER,
    SLOT,
    TANGENT,
    InputSource,
)
from lucerne._src.ir.graph import Graph
from lucerne._src.pipeline.road import Road
from lucerne._src.transforms.partition import OUTPUT, Split


def constants_of(sources: Sequence[InputSource]) -> dict[int, Any]:
    """By number of an input: the tensors that never change."""
    return {k: s.thing for k, s in enumerate(sources) if s.kind == CONSTANT}


@dataclass
class ForwardBackward(Split):
    """A joint graph in two, and where the inputs of both come from."""

    primals: list[InputSource]
    """Of the inputs of forward."""

    @property
    def constants(self) -> dict[int, Any]:
        return constants_of(self.primals)

    @property
    def saved_constants(self) -> dict[int, Any]:
        """Those among the inputs of backward that are kept for it."""
        known = self.constants
        return {
            k: known[kept.index]
            for k, kept in enumerate(self.saved)
            if kept.kind != OUTPUT and kept.index in known
        }


def is_fragile(source: InputSource) -> bool:
    """Whether it may well be written to before the backward pass runs: an argument, a buffer (a
    queue of keys), what the function keeps. Parameters wait for the optimizer."""
    if source.kind == HELD:
        return not source.thing._needs_grad
    return source.kind in (ARGUMENT, SLOT, GRADIENT, INNER)


def halves_of(
    road: Road, joint: Graph, captured: Captured, sources: Sequence[InputSource], budget: float
) -> ForwardBackward:
    """The joint graph of a captured function in two; `sources`: of its inputs."""
    tangents = [v for v, s in zip(joint.inputs, sources, strict=True) if s.kind == TANGENT]
    fragile = [v for v, s in zip(joint.inputs, sources, strict=True) if is_fragile(s)]
    cut = road.split(joint, captured.forward_roots, tangents, budget=budget, fragile=fragile)
    primals = [s for s in sources if s.kind != TANGENT]
    return ForwardBackward(cut.forward, cut.backward, cut.saved, cut.report, primals)
