"""Casts that heavy kernels do while they read."""

from __future__ import annotations

from lucerne._src.base import dtype as dt
from lucerne._src.ir.graph import Node, Value

READ_NARROW = frozenset(("cross_entropy_classes", "cross_entropy_classes_backward"))
"""Ops whose kernels read scores in fewer bytes than they compute with."""


def is_rounding(node: Node) -> bool:
    """A cast that packing for tiles does on the way: products read what it reads."""
    return _types(node) == (dt.float32, dt.bfloat16)


def is_widening(node: Node) -> bool:
    """A cast that changes no number, and makes each twice as long."""
    return _types(node) in ((dt.bfloat16, dt.float32), (dt.float16, dt.float32))


def _types(node: Node) -> tuple[dt.dtype, dt.dtype] | None:
    if node.op.qualified != "cast" or not isinstance(node.args[0], Value):
        return None
    return node.args[0].meta.dtype, node.outputs[0].meta.dtype
