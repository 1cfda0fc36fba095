"""The rule of all pointwise ops."""

from __future__ import annotations

from typing import Any

from lucerne.backends.cpu.elementwise.pointwise import pointwise_kernel
from lucerne.backends.cpu.machine import NotTaken
from lucerne.backends.cpu.rules.table import rule
from lucerne.ir import op as op_
from lucerne.ir.graph import Node


@rule(op_.POINTWISE)
def pointwise(node: Node) -> Any:
    """The op's body in one pass over the elements; None if the machine lacks a function of it."""
    try:
        return pointwise_kernel(node.op, node.args, node.outputs[0].meta)
    except NotTaken:
        return None
