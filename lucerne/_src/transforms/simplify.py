"""Simplification by a table of rules: each says what it replaces and why that is right.

One walk over the graph: a rule sees a node and, through `Look`, the nodes written before it. What
a rule answers is checked here once for all: the new result must have the same meta (shape, dtype,
strides), and memory that the caller gets to see must not become a second name of other memory.
"""

from __future__ import annotations

import functools

from lucerne._src.ir import op as op_
from lucerne._src.ir.graph import Graph, Node, Value
from lucerne._src.ir.op import Op
from lucerne._src.transforms.refusals import check_dtypes
from lucerne._src.transforms.rewrite import Aliases, GraphBuilder, result_metas
from lucerne._src.transforms.rules import arithmetic, moves, views
from lucerne._src.transforms.rules.rule import Look, NewNode, Rule

RULES: tuple[Rule, ...] = (*views.RULES, *moves.RULES, *arithmetic.RULES)
_MOST = 8
"""Rules that may apply to one node in turn: no rule undoes another one, but who knows."""


def run(graph: Graph, *, bitwise: bool = False) -> Graph:
    """The graph after one walk of the rules; `bitwise`: only of those that keep every bit."""
    builder, aliases, look = GraphBuilder(graph), Aliases(graph), Look()
    for node in graph.nodes:
        args = builder.args(node.args)
        here = node if args is node.args else Node(node.op, args, node.outputs, node.place)
        found: Value | Node | None = here
        for _ in range(_MOST):
            found = _first(rules_for(here.op, bitwise), look, here, aliases)
            if type(found) is not Node:
                break
            here = found
        if found is not None or here.op is not node.op:
            check_dtypes(node)  # what takes its place may not say it
        if type(found) is Value:
            builder.replace(node.outputs[0], found)
        else:
            builder.graph.nodes.append(here)
            look.note(here)
            if here.op.kind == op_.VIEW:
                aliases.note_view(here)
    return builder.finish()


def _first(
    rules: tuple[Rule, ...], look: Look, node: Node, aliases: Aliases
) -> Value | Node | None:
    """What the first rule that applies puts in place of the node."""
    for rule in rules:
        found = rule.apply(look, node)
        if found is None:
            continue
        if type(found) is Value:
            if aliases.may_stand_for(found, node.outputs[0]):
                return found
        elif type(found) is NewNode and _fits(found, node, aliases):
            return Node(found.op, found.args, node.outputs, node.place)
    return None


def _fits(found: NewNode, node: Node, aliases: Aliases) -> bool:
    """Whether a node can stand in place of another one. Its results keep their numbers."""
    out = node.outputs[0]
    becomes_view = found.op.kind == op_.VIEW and node.op.kind != op_.VIEW
    if becomes_view and aliases.root(out) in aliases.leaving:
        return False
    try:
        metas = result_metas(found.op, found.args)
    except (RuntimeError, IndexError, TypeError):  # no such view, no such call
        return False
    return len(metas) == 1 and metas[0] is out.meta


@functools.cache
def rules_for(op: Op, bitwise: bool) -> tuple[Rule, ...]:
    """The rules that may apply to an op, those of its kind after its own."""
    chosen = [r for r in RULES if r.exact or not bitwise]
    own = [r for r in chosen if op.qualified in r.ops]
    return (*own, *(r for r in chosen if op.kind in r.ops))
