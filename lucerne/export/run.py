"""An exported graph run op by op: each node is a call of its op, so gradients flow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lucerne._src.ir.graph import Graph, operands, run_graph
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.ops.control import call_op
from lucerne._src.tensor import api as lu


class Steps:
    """A graph without mutation as a list of calls; values are let go after their last use."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        ends = {v.index for v in graph.outputs} | {v.index for _, v in graph.writes}
        last: dict[int, int] = {}
        for k, node in enumerate(graph.nodes):
            last.update((v.index, k) for v in operands(node.args))
        self.done: list[list[int]] = [[] for _ in graph.nodes]
        inputs = {v.index for v in graph.inputs}
        for index, k in last.items():
            if index not in ends and index not in inputs:
                self.done[k].append(index)

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        """The outputs; inputs that the program writes to hold their new values."""
        graph = self.graph
        given = {v.index: t for v, t in zip(graph.inputs, inputs, strict=True)}
        fitting = [laid_out(t, v.meta) for v, t in zip(graph.inputs, inputs, strict=True)]
        values = run_graph(graph, fitting, call_op, self.done)
        if graph.writes:
            with lu.no_grad():
                for target, value in graph.writes:
                    given[target.index].copy_(values[value.index])
        return [values[v.index] for v in graph.outputs]


def laid_out(t: Any, meta: TensorMeta) -> Any:
    """The tensor in the layout that a graph was made for, as a copy (gradients flow) if need be."""
    if t._meta.strides == meta.strides:
        return t
    room = lu.empty_strided(tuple(meta.shape), meta.strides, dtype=meta.dtype, device=meta.device)
    return room.copy_(t)
