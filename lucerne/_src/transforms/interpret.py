"""A graph run node by node by the slow and obvious backend: for constants, and for tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lucerne._src import backends
from lucerne._src.backends.contract.tensor_view import Bytes, Spot
from lucerne._src.ir import op as op_
from lucerne._src.ir.graph import (
    Graph,
    Node,
    Value,
    alone,
    flat_inputs,
    parts_of,
    renamed,
    run_graph,
)
from lucerne._src.ir.meta import TensorMeta

Array = np.ndarray[Any, Any]
Expand = Callable[[Node], Graph | None]


def blank(meta: TensorMeta) -> Spot:
    """Zeros in memory of their own."""
    nbytes = meta.span * meta.dtype.itemsize
    return Spot(meta, Bytes(np.zeros(nbytes, np.uint8), nbytes, 0), 0)


def held(array: Any, meta: TensorMeta) -> Spot:
    """A tensor with the meta's layout and the array's elements (bits of the storage type)."""
    made = blank(meta)
    made.array[...] = array
    return made


def run(
    graph: Graph, inputs: Sequence[Any], expand: Expand | None = None
) -> tuple[list[Any], list[Any]]:
    """The outputs, and what each of `graph.writes` would store.

    `inputs` has a `Spot` or a bare array for each tensor, and numbers or objects as they are.
    Nothing is written into the inputs. `expand` gives the body of a composite as a graph.
    """
    given = [
        held(x, v.meta) if isinstance(v.meta, TensorMeta) and not isinstance(x, Spot) else x
        for v, x in zip(graph.inputs, inputs, strict=True)
    ]
    values = run_graph(graph, given, lambda node, args: compute(node, args, expand))
    return (
        [values[v.index] for v in graph.outputs],
        [values[v.index] for _, v in graph.writes],
    )


def run_node(node: Node, values: dict[int, Any]) -> list[Any]:
    """The results of one node, its operands by their numbers."""
    return compute(node, renamed(node.args, values))


def compute(node: Node, args: tuple[Any, ...], expand: Expand | None = None) -> list[Any]:
    """The results of one node."""
    if node.op.kind == op_.VIEW:
        return [Spot(m, args[0]._storage, at) for m, at in parts_of(node, args[0])]
    if node.op.kind == op_.COMPOSITE:
        body = None if expand is None else expand(node)
        if body is None:
            raise ValueError(f"{node.op.qualified} is a composite: its body is needed to run it")
        return run(body, values_in(node, args), expand)[0]
    outs = [blank(v.meta) for v in node.outputs]
    backends.get("reference").compile(alone(node))(flat_inputs(node.op, args), outs)
    return outs


def values_in(node: Node, args: tuple[Any, ...]) -> list[Any]:
    """Those of a node's arguments that are values of its graph, lists laid out."""
    return [
        x
        for had, has in zip(node.args, args, strict=True)
        for v, x in (zip(had, has, strict=True) if type(had) is tuple else ((had, has),))
        if type(v) is Value
    ]
