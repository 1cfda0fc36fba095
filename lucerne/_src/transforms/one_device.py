"""Graphs on one device: tensors of the host go where the others are, since a program is there."""

from __future__ import annotations

from typing import Any

from lucerne._src.base.device import device as Device
from lucerne._src.ir.graph import Graph, Value, renamed
from lucerne._src.ir.meta import TensorMeta


def on_one_device(graph: Graph, target: Device) -> Graph:
    """The same ops, all of them on `target`; inputs keep their numbers."""
    made, known = Graph(), {}

    def moved(meta: Any) -> Any:
        if isinstance(meta, TensorMeta):
            return meta.like(device=target)
        return target if isinstance(meta, Device) else meta

    for v in graph.inputs:
        known[v.index] = made.input(moved(v.meta))
    for node in graph.nodes:
        made.place = node.place
        args = renamed(node.args, known)
        given = tuple([a if type(a) is Value else moved(a) for a in args])
        outputs = made.call(node.op, given, [moved(v.meta) for v in node.outputs])
        known.update((v.index, w) for v, w in zip(node.outputs, outputs, strict=True))
    made.outputs = tuple([known[v.index] for v in graph.outputs])
    made.writes = [(known[t.index], known[v.index]) for t, v in graph.writes]
    return made
