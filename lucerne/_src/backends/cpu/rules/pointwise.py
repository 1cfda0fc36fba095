"""The rule of all pointwise ops."""

from __future__ import annotations

from typing import Any

from lucerne._src.backends.cpu.elementwise.pointwise import pointwise_kernel
from lucerne._src.backends.cpu.machine import NotTaken
from lucerne._src.backends.cpu.rules.table import rule
from lucerne._src.ir import op as op_
from lucerne._src.ir.graph import Node


@rule(op_.POINTWISE)
def pointwise(node: Node) -> Any:
    """The op's body in one pass over the elements; None if the machine lacks a function of it."""
    try:
        return pointwise_kernel(node.op, node.args, node.outputs[0].meta)
    except NotTaken:
        return None
