"""Which nodes may raise when they run: code that must raise does so, whether somebody reads its
result or not. Whoever drops what nobody reads, or joins nodes to a loop, asks here."""

from __future__ import annotations

from lucerne._src.base import dtype as dt
from lucerne._src.ir import op as op_
from lucerne._src.ir.graph import Graph, Node, Value

_INTEGERS = (dt.BOOL, dt.INTEGER)


def may_raise(node: Node) -> bool:
    """Whether running a node may raise, for the values of its operands."""
    op = node.op
    if op.checks in (op_.VALUES, op_.POSITIONS) or op.host is not None:
        return True
    if op.checks == op_.DIVISION and _divides(node):
        return True
    return any(may_raise(inner) for a in node.args if type(a) is Graph for inner in a.nodes)


def _divides(node: Node) -> bool:
    """Whether integers are divided by what may be nought."""
    divisor = node.args[1]
    known = type(divisor) is not Value and divisor != 0
    return not known and node.outputs[0].meta.dtype.category in _INTEGERS
