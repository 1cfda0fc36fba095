"""Common subexpressions: the same op on the same arguments is computed once."""

from __future__ import annotations

from typing import Any

from lucerne._src.base.exact import exact
from lucerne._src.base.unspecialized import GivenFloat
from lucerne._src.ir import op as op_
from lucerne._src.ir.graph import Graph, Node, Value
from lucerne._src.transforms.rewrite import Aliases, GraphBuilder


def run(graph: Graph) -> Graph:
    """The graph with repeated computations replaced by the first of them.

    Draws are never the same. Two results that both leave the graph stay two: the caller may write
    into one of them.
    """
    builder, aliases = GraphBuilder(graph), Aliases(graph)
    seen: dict[Any, Node] = {}
    for node in graph.nodes:
        if node.op.kind == op_.RANDOM:
            builder.keep(node)
            continue
        key = _key(node, builder.args(node.args))
        first = None if key is None else seen.get(key)
        if first is None:
            kept = builder.keep(node)
            if key is not None:
                seen[key] = kept
        elif _may_join(aliases, node, first):
            for old, new in zip(node.outputs, first.outputs, strict=True):
                builder.replace(old, new)
        else:
            builder.keep(node)
    return builder.finish()


def _may_join(aliases: Aliases, node: Node, first: Node) -> bool:
    """Not when the caller gets to see the memory of both. True: taken note of."""
    if node.op.kind == op_.VIEW:  # the same memory anyway, but two tensors remain two tensors
        both = any(
            a.index in aliases.shown and b.index in aliases.shown
            for a, b in zip(node.outputs, first.outputs, strict=True)
        )
        if not both:
            aliases.shown.update(
                b.index
                for a, b in zip(node.outputs, first.outputs, strict=True)
                if a.index in aliases.shown
            )
        return not both
    pairs = list(zip(node.outputs, first.outputs, strict=True))
    if any(a.index in aliases.leaving and b.index in aliases.leaving for a, b in pairs):
        return False
    aliases.leaving.update(b.index for a, b in pairs if a.index in aliases.leaving)
    aliases.shown.update(b.index for a, b in pairs if a.index in aliases.shown)
    return True


def _key(node: Node, args: tuple[Any, ...]) -> Any:
    """What makes two calls the same; None: can't be told."""
    key = (node.op, *map(_item, args), *[v.meta for v in node.outputs])
    try:
        hash(key)
    except TypeError:  # a static without a hash
        return None
    return key


def _item(a: Any) -> Any:
    """An argument such that what Python calls equal but ops don't is different."""
    kind = type(a)
    if kind is Value:
        return a
    if kind is tuple:
        return tuple(map(_item, a))
    return (kind, id(a)) if kind is GivenFloat else exact(a)  # only the same source is the same
