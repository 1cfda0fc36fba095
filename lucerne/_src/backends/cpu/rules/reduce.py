"""Reductions: sum, product, extremes and their positions, any and all."""

from __future__ import annotations

from typing import Any

from lucerne._src.backends.cpu.fused.fuse import fused_kernel, walk
from lucerne._src.backends.cpu.rules.table import rule
from lucerne._src.ir.graph import Graph, Node, Value


@rule("reduction")
def reduction(node: Node) -> Any:
    """A program of one fold."""
    graph = Graph()
    graph.inputs = [a for a in node.args if type(a) is Value]
    graph.nodes = [node]
    graph.outputs = node.outputs
    return fused_kernel(graph)


__all__ = ["fused_kernel", "walk"]
