"""Composites that become one kernel.

Listed are those whose bodies are element-wise ops, folds over one set of dimensions, casts and
views, and which check nothing but shapes and types: a body runs once, on tensors without bytes.
Composites with a rule of their own in the table are taken too.
"""

from __future__ import annotations

from typing import Any

from lucerne._src.backends.cpu.rules.table import FAMILIES, RULES, load
from lucerne._src.ir import op as op_
from lucerne._src.ir.checks.index_maps import LoopWalk
from lucerne._src.ir.graph import Graph, Node
from lucerne._src.ir.op import Op


def fuses(op: Op) -> bool:
    return op.kind == op_.COMPOSITE and (op.fuse or op.qualified in RULES)


ANCHORS = {
    "channel_norm": "nn.norm",
    "channel_norm_backward": "nn.norm",
    "conv": "nn.conv",
    **dict.fromkeys(FAMILIES["nn.classes"], "nn.classes"),
    **dict.fromkeys(FAMILIES["linalg.matmul"], "linalg.matmul"),
}
"""Ops that take element-wise ops into their own loops: the family whose `fuse` does it."""

PROLOGUE_ANCHORS = frozenset(("channel_norm_backward",))
"""Anchors that take the ops which make their first operand."""


def updates(node: Node, op: str) -> bool:
    """Whether a product does an optimizer's step for the weight whose gradient it is."""
    if ANCHORS.get(node.op.qualified) != "linalg.matmul":
        return False
    found: bool = load("linalg.matmul").updates(node, op)
    return found


OVER_OPERAND = {"cross_entropy_classes_backward": 1}
"""Kernels that may write over an operand: scores turn into their gradient row by row."""


def is_short(graph: Graph) -> bool:
    """Whether no code of a product, a convolution or an attention belongs to it: such kernels take
    longest to compile, and are begun first."""
    return not any(n.op.qualified in _LONG for n in graph.nodes)


_LONG = frozenset((*FAMILIES["nn.attention"], *ANCHORS, *FAMILIES["nn.conv"]))


def fuse(graph: Graph) -> Any:
    """The kernel of a traced composite, of one that has a rule, or of a group around an anchor."""
    if len(graph.nodes) == 1 and graph.nodes[0].op.qualified in RULES:
        return RULES[graph.nodes[0].op.qualified](graph.nodes[0])
    for node in graph.nodes:
        if node.op.qualified in ANCHORS:
            return load(ANCHORS[node.op.qualified]).fuse(graph)
    return load("reduce").fused_kernel(graph)


def walk(graph: Graph) -> tuple[Graph, LoopWalk] | None:
    """What the loops of that kernel go through; None: they take no other ops along than casts, or
    the step of an optimizer."""
    if len(graph.nodes) == 1:
        return None
    families = {ANCHORS[n.op.qualified] for n in graph.nodes if n.op.qualified in ANCHORS}
    found: tuple[Graph, LoopWalk] | None = load(families.pop() if families else "reduce").walk(
        graph
    )
    return found
