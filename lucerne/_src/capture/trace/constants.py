"""Tensors whose values are known while a function is captured: computed from constants alone.

`torch.tensor([3, 1, 2])`, `torch.arange(4)`, and what is computed from them (a sort, a sum, a mask)
is the same at each call. So looking at such values is no break: they are computed at once, beside
the graph. Lengths of sequences that come as a list of numbers are the case that matters: packing a
padded batch looks at them.
"""

from __future__ import annotations

from typing import Any

from lucerne._src.base.raw import is_a
from lucerne._src.ir import dispatch
from lucerne._src.ir import op as op_
from lucerne._src.ir.graph import Graph, Node, Value, operands, run_node
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.transforms.functionalize import MutationError, functionalize

_MOST_ELEMENTS = 1 << 16
_MOST_NODES = 400


def known_values(
    graph: Graph, constants: frozenset[Value], outside: list[Any], value: Value
) -> Any | None:
    """The tensor that a value of a graph is at every call; None: it depends on something else.

    `outside`: the tensors of the inputs; `constants`: the inputs that are the same at each call.
    """
    if not _is_small(value.meta):
        return None
    try:
        pure = functionalize(graph, (), constants, [value])
    except MutationError:
        return None
    nodes = _needed(pure, pure.outputs[0])
    allowed = {pure.inputs[k]: outside[k] for k, v in enumerate(graph.inputs) if v in constants}
    if nodes is None or not _only(nodes, pure.outputs[0], allowed):
        return None
    with dispatch.unseen():
        return _computed(nodes, pure.outputs[0], allowed)


def _is_small(meta: Any) -> bool:
    return is_a(meta, TensorMeta) and meta.numel <= _MOST_ELEMENTS


def _needed(graph: Graph, wanted: Value) -> list[Node] | None:
    """The nodes that a value is computed by, in order; None: too many, or one that draws."""
    makers = {v: node for node in graph.nodes for v in node.outputs}
    found: dict[int, Node] = {}
    todo = [wanted]
    while todo:
        node = makers.get(todo.pop())
        if node is None or id(node) in found:
            continue
        small = all(_is_small(v.meta) for v in node.outputs)
        if not small or node.op.kind == op_.RANDOM or len(found) >= _MOST_NODES:
            return None
        found[id(node)] = node
        todo += operands(node.args)
    return [node for node in graph.nodes if id(node) in found]


def _only(nodes: list[Node], wanted: Value, allowed: dict[Value, Any]) -> bool:
    """Whether nothing else than constants is read."""
    made = {v for node in nodes for v in node.outputs}
    read = [v for node in nodes for v in operands(node.args)]
    return all(v in made or v in allowed for v in [*read, wanted])


def _computed(nodes: list[Node], wanted: Value, known: dict[Value, Any]) -> Any:
    values = {v.index: t for v, t in known.items()}
    for node in nodes:
        run_node(node, values, lambda n, args: dispatch.entry.run(n.op, args))
    return values[wanted.index]
