"""Gradients that are nought whatever arrives: what they come of stays visible in the graph.

`round` and `sign` give noughts as the gradient of their argument, without a look at what arrives.
Eager gives none at all where nothing arrives: `x.grad` stays None. For a compiled pass to know the
difference (see `transforms.absent`), each such gradient is made to read what arrived.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from lucerne._src.base import dtype as dt
from lucerne._src.capture.trace.recorder import Recorder
from lucerne._src.ir.graph import Value, operands
from lucerne._src.tensor.base import TensorBase


class ZeroGradients:
    """The `Link` of a recorded pass (see `engine`)."""

    def __init__(self, recorder: Recorder, tangents: Iterable[Value]) -> None:
        self.recorder = recorder
        self.late = {v.index for v in tangents}
        """Values that depend on a tangent."""
        self.seen = len(recorder.graph.nodes)

    def __call__(self, node: Any, found: Sequence[Any], given: Sequence[Any]) -> Sequence[Any]:
        return [self._linked(g, given) if self._is_apart(g) else g for g in found]

    def _is_apart(self, g: Any) -> bool:
        """Whether a gradient does not read what arrived (now and then it does, by a write that is
        not followed here: to read it twice does no harm)."""
        if not isinstance(g, TensorBase) or g._meta.dtype.category != dt.FLOAT:
            return False
        self._look()
        value = self.recorder.known(g)
        return value is not None and value.index not in self.late

    def _look(self) -> None:
        nodes, late = self.recorder.graph.nodes, self.late
        for node in nodes[self.seen :]:
            if any(v.index in late for v in operands(node.args)):
                late.update(v.index for v in node.outputs or operands(node.args[:1]))
        self.seen = len(nodes)

    @staticmethod
    def _linked(g: Any, given: Sequence[Any]) -> Any:
        """`g` with every bit as it is: what is added is -0.0, whatever arrived."""
        for arrived in given:
            if arrived is None or not isinstance(arrived, TensorBase) or not arrived._meta.numel:
                continue
            if arrived._meta.dtype.category == dt.FLOAT:
                first: Any = arrived
                for _ in arrived._meta.shape:
                    first = first.select(0, 0)
                g = g + -(first < -float("inf")).to(g.dtype)
        return g


def feeding(edges: Sequence[Any]) -> list[int]:
    """Which of some results others of them were computed from: what arrives at those from outside
    is not all of their gradient."""
    if len(edges) < 2:
        return []
    places: dict[tuple[int, int], int] = {(id(node), nr): k for k, (node, nr) in enumerate(edges)}
    found: set[int] = set()
    seen: set[int] = set()
    todo = [node for node, _ in edges]
    while todo:
        node = todo.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        for edge in node.next_edges:
            if edge is not None:
                found.add(places.get((id(edge[0]), edge[1]), -1))
                todo.append(edge[0])
    return sorted(found - {-1})
