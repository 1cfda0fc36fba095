"""Optimizer steps beside the heavy ops that make their gradients.

One op updates the parameters of a whole list. Where a gradient comes right from a heavy op, that op
can update the parameter on the way, while the gradient is at hand: so the list is taken apart first
(`apart`), and the part of one parameter joins the heavy op's group (`group.py`).

Such a group must come after all that read the old values, or these could not be written over. It
should not come later than that: the operands of the product are kept for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from lucerne._src.ir.graph import Graph, Node, Value

COUNTS = "counted_up"
"""The op that counts steps: whoever updates needs its results."""
LISTS = {"adam_update": (6, 3)}
"""Ops on lists, of one item for each parameter: how many lists are given, and how many are made, if
no more are asked for. The second list has the gradients, and the last one the counts of steps."""


def apart(graph: Graph, updates: Callable[[Node, str], bool]) -> Graph:
    """The same graph, updates of parameters whose gradient a heavy op makes as nodes of their own.

    `updates(node, op)`: whether that node can take along the step of an optimizer.
    """
    if not any(node.op.qualified in LISTS for node in graph.nodes):
        return graph
    maker = {v: node for node in graph.nodes for v in node.outputs}

    made = Graph()
    made.inputs, made.outputs, made.writes = graph.inputs, graph.outputs, graph.writes
    made._next = graph._next
    for node in graph.nodes:
        name = node.op.qualified

        def is_made_so(gradient: Any, name: str = name) -> bool:
            return gradient in maker and updates(maker[gradient], name)

        made.nodes += _parts(node, is_made_so) if name in LISTS else [node]
    return made


def _parts(node: Node, is_made_so: Callable[[Any], bool]) -> Iterator[Node]:
    """The update as several: one for each such parameter, and one for all others."""
    given, made = LISTS[node.op.qualified]
    lists = node.args[:given]
    count = len(lists[0])
    alone = [k for k in range(count) if is_made_so(lists[1][k])]
    if len(node.outputs) != made * count or not alone:
        yield node
        return
    others = [k for k in range(count) if k not in alone]
    for which in [*([k] for k in alone), others]:
        if not which:
            continue
        parts = tuple(tuple(items[k] for k in which) if items else items for items in lists)
        outputs = tuple(node.outputs[n * count + k] for n in range(made) for k in which)
        yield Node(node.op, (*parts, *node.args[given:]), outputs, node.place)


def gradient_of(node: Node) -> Value | None:
    """The gradient that an update of one parameter reads; None: it is of several."""
    gradients = node.args[1]
    return gradients[0] if len(gradients) == 1 else None


def overwritten(node: Node) -> list[Value]:
    """What an update gives new values of."""
    given, _ = LISTS[node.op.qualified]
    return [v for k, items in enumerate(node.args[: given - 1]) if k != 1 for v in items]
