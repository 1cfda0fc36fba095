"""Composites that nobody takes whole give way to the ops of their bodies."""

from __future__ import annotations

from collections.abc import Callable

from lucerne._src.ir import op as op_
from lucerne._src.ir.graph import Graph, Node, Value, operands
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.ops.copy.cast import copy, uninitialized
from lucerne._src.transforms.rewrite import GraphBuilder

Expand = Callable[[Node], Graph | None]
"""The body of a composite as a graph whose inputs are the values among the node's arguments, in
order; None: the node stays as it is."""


def run(graph: Graph, expand: Expand) -> Graph:
    """The graph with each composite that `expand` answers for replaced by what it answers.

    Composites inside bodies are asked for as well.
    """
    builder = GraphBuilder(graph)
    for node in graph.nodes:
        body = expand(node) if node.op.kind == op_.COMPOSITE else None
        if body is None:
            kept = builder.keep(node)
            if any(isinstance(a, Graph) for a in kept.args):
                args = tuple(run(a, expand) if isinstance(a, Graph) else a for a in kept.args)
                builder.graph.nodes[-1] = Node(kept.op, args, kept.outputs, kept.place)
            continue
        body = run(body, expand)
        builder.graph.place = node.place
        found = builder.inline(body, operands(builder.args(node.args)))
        if len(found) != len(node.outputs):
            raise ValueError(f"the body of {node!r} gives {len(found)} results")
        for old, new in zip(node.outputs, found, strict=True):
            builder.replace(old, _fitted(builder, new, old))
    return builder.finish()


def _fitted(builder: GraphBuilder, new: Value, old: Value) -> Value:
    """A result in the layout that the rest of the graph was made for."""
    have: TensorMeta = new.meta
    want: TensorMeta = old.meta
    if have is want:
        return new
    if have.shape != want.shape or have.dtype is not want.dtype:
        raise ValueError(f"a body gives {new.typed()} where {old.typed()} is needed")
    room = builder.call(
        uninitialized.op,  # type: ignore[attr-defined]
        (tuple(want.shape), want.dtype, want.device, want.strides),
        [want],
    )[0]
    return builder.call(copy.op, (room, new), [want])[0]  # type: ignore[attr-defined]
