"""Dead code: nodes whose results nobody reads are dropped, and writes that change nothing."""

from __future__ import annotations

from lucerne._src.ir import op as op_
from lucerne._src.ir.checks.may_raise import may_raise
from lucerne._src.ir.graph import Graph, Node, operands
from lucerne._src.transforms.refusals import check_dtypes
from lucerne._src.transforms.rewrite import results, shell


def run(graph: Graph, *, keep_draws: bool = True) -> Graph:
    """The graph without nodes that nobody reads, and that can't raise.

    A random draw moves its generator on, so what is drawn later depends on it: it stays, unless
    the caller knows that nobody draws later (`keep_draws=False`).
    """
    made = shell(graph)
    made.outputs = graph.outputs
    made.writes = [(target, value) for target, value in graph.writes if target is not value]
    wanted = {v.index for v in results(made)}
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        stays = any(v.index in wanted for v in node.outputs)
        stays = stays or (keep_draws and node.op.kind == op_.RANDOM)
        if stays or may_raise(node):
            kept.append(node)
            wanted.update(v.index for v in operands(node.args))
        else:
            check_dtypes(node)
    kept.reverse()
    made.nodes = kept
    return made
