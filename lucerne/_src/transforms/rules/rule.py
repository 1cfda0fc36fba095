"""What a rule is, and what it may ask about the graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from lucerne._src.ir import op as op_
from lucerne._src.ir.graph import Node, Value
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.ir.op import Op
from lucerne._src.transforms.constants import filled_number
from lucerne._src.transforms.rewrite import PLAIN


class NewNode(NamedTuple):
    """A node to put in place of another one."""

    op: Op
    args: tuple[Any, ...]


Answer = Value | NewNode | None
"""A value to read instead of the node's result, a node to put in its place, or None."""


class Look:
    """What is known about the nodes written so far."""

    def __init__(self) -> None:
        self._made: dict[int, Node] = {}
        self._numbers: dict[int, Any] = {}

    def note(self, node: Node) -> None:
        """Take note of a node that was written."""
        for v in node.outputs:
            self._made[v.index] = node
        name = node.op.qualified
        if name == "filled":
            number = filled_number(node)
            if number is not None:
                self._numbers[node.outputs[0].index] = number
        elif node.op.kind == op_.VIEW and node.args[0].index in self._numbers:
            source = node.args[0]
            self._numbers.update(
                (v.index, self._numbers[source.index])
                for v in node.outputs
                if v.meta.dtype is source.meta.dtype
            )

    def producer(self, a: Any, *names: str) -> Node | None:
        """The node that made a value, if it has one of these names."""
        node = self._made.get(a.index) if type(a) is Value else None
        return node if node is not None and node.op.qualified in names else None

    def number(self, a: Any) -> Any:
        """An operand as a Python number, if it is one or a tensor with one value everywhere."""
        if type(a) is Value:
            return self._numbers.get(a.index)
        return a if type(a) in PLAIN else None

    @property
    def any_numbers(self) -> bool:
        return bool(self._numbers)


class Rule(NamedTuple):
    """`ops`: qualified names, or kinds of ops. `exact`: the same bits in every case."""

    name: str
    ops: tuple[str, ...]
    apply: Callable[[Look, Node], Answer]
    exact: bool
    reason: str


def meta_of(a: Any) -> TensorMeta | None:
    """The meta of an operand that is a tensor."""
    return a.meta if type(a) is Value and isinstance(a.meta, TensorMeta) else None
