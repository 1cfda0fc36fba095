"""Graph: a straight list of op calls on typed values. Eager hands over graphs of one node.

Text form, one line per node, made to be read and compared:

    graph(%0: float32[2, 3], %1: float32[3])
      %2: float32[2, 3] = add(%0, %1)
      return %2
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lucerne.ir.meta import TensorMeta
from lucerne.ir.op import Op


class Value:
    """A tensor (TensorMeta) or a Python number (its type) that flows through a graph."""

    __slots__ = ("index", "meta")

    def __init__(self, index: int, meta: Any) -> None:
        self.index = index
        self.meta = meta

    def __repr__(self) -> str:
        return f"%{self.index}"

    def typed(self) -> str:
        if isinstance(self.meta, TensorMeta):
            return f"%{self.index}: {self.meta.dtype.name}{list(self.meta.shape)}"
        return f"%{self.index}: {getattr(self.meta, '__name__', self.meta)}"


class Node:
    """One call: `args` in signature order, with Values where data flows in."""

    __slots__ = ("args", "op", "outputs")

    def __init__(self, op: Op, args: tuple[Any, ...], outputs: tuple[Value, ...]) -> None:
        self.op = op
        self.args = args
        self.outputs = outputs

    def __repr__(self) -> str:
        left = ", ".join(v.typed() for v in self.outputs)
        return f"{left} = {self.op.qualified}({', '.join(map(repr, self.args))})"


class Graph:
    """Inputs, nodes in order, outputs."""

    __slots__ = ("_next", "inputs", "nodes", "outputs")

    def __init__(self) -> None:
        self.inputs: list[Value] = []
        self.nodes: list[Node] = []
        self.outputs: tuple[Value, ...] = ()
        self._next = 0

    def value(self, meta: Any) -> Value:
        made = Value(self._next, meta)
        self._next += 1
        return made

    def input(self, meta: Any) -> Value:
        made = self.value(meta)
        self.inputs.append(made)
        return made

    def call(self, op: Op, args: tuple[Any, ...], metas: Sequence[TensorMeta]) -> tuple[Value, ...]:
        outputs = tuple(self.value(m) for m in metas)
        self.nodes.append(Node(op, args, outputs))
        return outputs

    def __str__(self) -> str:
        lines = [f"graph({', '.join(v.typed() for v in self.inputs)})"]
        lines += [f"  {n!r}" for n in self.nodes]
        lines.append(f"  return {', '.join(map(repr, self.outputs))}")
        return "\n".join(lines)


def map_values(fn: Callable[[Value], Any], args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arguments with each Value replaced by `fn(value)`, inside tensor lists as well."""
    return tuple(
        fn(a)
        if type(a) is Value
        else tuple(fn(x) if type(x) is Value else x for x in a)
        if type(a) is tuple and any(type(x) is Value for x in a)
        else a
        for a in args
    )


def verify(graph: Graph) -> None:
    """Every value is defined once, before it is read, and op arguments match the signature."""
    defined = {v.index for v in graph.inputs}
    if len(defined) != len(graph.inputs):
        raise ValueError("graph: an input is listed twice")
    for n, node in enumerate(graph.nodes):
        if len(node.args) != len(node.op.params):
            raise ValueError(
                f"node {n}: {node.op.name} takes {len(node.op.params)} arguments, has "
                f"{len(node.args)}"
            )
        map_values(lambda v, n=n: _read(v, defined, n), node.args)  # type: ignore[misc]
        for v in node.outputs:
            if v.index in defined:
                raise ValueError(f"node {n}: {v} is defined twice")
            defined.add(v.index)
    for v in graph.outputs:
        _read(v, defined, len(graph.nodes))


def _read(v: Value, defined: set[int], n: int) -> None:
    if v.index not in defined:
        raise ValueError(f"node {n}: {v} is read before it is defined")


def one_op_graph(op: Op, args: tuple[Any, ...], metas: Sequence[TensorMeta]) -> Graph:
    """The graph of one eager call: `args` holds metas (or number types) where data flows in."""
    graph = Graph()
    placed: list[Any] = []
    for kind, a in zip(op.kinds, args, strict=True):
        if kind == "l":
            placed.append(tuple(None if m is None else graph.input(m) for m in a))
        elif kind in "tno" and a is not None:
            placed.append(graph.input(a))
        else:
            placed.append(a)
    graph.outputs = graph.call(op, tuple(placed), metas)
    return graph
