"""What passes share: copying a graph with some values replaced, and questions about graphs.

A pass makes a new Graph but shares nodes and values with the old one wherever nothing changed, so
a pass over three thousand nodes costs a few milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from lucerne._src.base import shape as sh
from lucerne._src.ir import infer
from lucerne._src.ir import op as op_
from lucerne._src.ir.graph import Graph, Node, Value, given_metas, renamed
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.ir.op import Op

PLAIN = frozenset((bool, int, float, complex))
"""Numbers that are the same at every call (a `GivenFloat` is not)."""


def producers(graph: Graph) -> dict[int, Node]:
    """The node that makes each value (inputs have none)."""
    return {v.index: n for n in graph.nodes for v in n.outputs}


def results(graph: Graph) -> list[Value]:
    """What the graph is for: its outputs and what it writes to inputs."""
    return [*graph.outputs, *(value for _, value in graph.writes)]


def nbytes(meta: Any) -> int:
    """Bytes that the elements of a value take; numbers take none."""
    return meta.numel * meta.dtype.itemsize if isinstance(meta, TensorMeta) else 0


# ---- metas --------------------------------------------------------------------------------------


class Bodies:
    """Metas of composites that have no meta function: by running their bodies, which the layer
    that can do so installs here."""

    metas: Callable[[Op, tuple[Any, ...]], tuple[TensorMeta, ...] | None] | None = None


def result_metas(op: Op, args: tuple[Any, ...]) -> tuple[TensorMeta, ...]:
    """The metas of the results of a call."""
    metas = given_metas(op, args)
    made = infer.results(op, metas)
    if made is None and Bodies.metas is not None and op.kind == op_.COMPOSITE:
        made = Bodies.metas(op, metas)
    if made is None:
        raise ValueError(f"{op.qualified} has no meta for these arguments: decompose it first")
    return made


# ---- builder ------------------------------------------------------------------------------------


class GraphBuilder:
    """Copies a graph node by node, with values replaced on the way.

    `keep` takes a node over, `call` writes a new one, `replace` makes all later readers of a value
    read another; `finish` gives the new graph. Values keep their numbers.
    """

    def __init__(self, source: Graph) -> None:
        self.source = source
        self.graph = shell(source)
        self.replaced: dict[int, Value] = {}

    def replace(self, old: Value, new: Value) -> None:
        if old is not new:
            self.replaced[old.index] = new

    def read(self, value: Value) -> Value:
        """The value that stands for `value` now."""
        return self.replaced.get(value.index, value)

    def args(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Arguments with replaced values; the same object when nothing changed."""
        replaced = self.replaced
        if not replaced:
            return args
        for a in args:
            if type(a) is Value:
                if a.index in replaced:
                    break
            elif type(a) is tuple and any(type(x) is Value and x.index in replaced for x in a):
                break
        else:
            return args
        read = self.read
        return tuple(
            read(a)
            if type(a) is Value
            else tuple(read(x) if type(x) is Value else x for x in a)
            if type(a) is tuple
            else a
            for a in args
        )

    def keep(self, node: Node) -> Node:
        """Take a node over, reading what its arguments have become."""
        args = self.args(node.args)
        kept = node if args is node.args else Node(node.op, args, node.outputs, node.place)
        self.graph.nodes.append(kept)
        return kept

    def call(
        self, op: Op, args: tuple[Any, ...], metas: Sequence[TensorMeta] | None = None
    ) -> tuple[Value, ...]:
        """A new node."""
        return self.graph.call(op, args, result_metas(op, args) if metas is None else metas)

    def inline(self, part: Graph, values: Sequence[Value]) -> tuple[Value, ...]:
        """The nodes of another graph, its inputs being `values`; gives its outputs here. They come
        from where `graph.place` says."""
        if len(values) != len(part.inputs):
            raise ValueError(f"{len(part.inputs)} inputs expected, {len(values)} values given")
        here = {v.index: given for v, given in zip(part.inputs, values, strict=True)}
        for node in part.nodes:
            made = self.graph.call(
                node.op, renamed(node.args, here), [v.meta for v in node.outputs]
            )
            here.update((old.index, new) for old, new in zip(node.outputs, made, strict=True))
        return tuple(here[v.index] for v in part.outputs)

    def finish(self) -> Graph:
        self.graph.outputs = tuple(self.read(v) for v in self.source.outputs)
        self.graph.writes = [(t, self.read(v)) for t, v in self.source.writes]
        return self.graph


def shell(graph: Graph) -> Graph:
    """A graph with the same inputs and nothing else; new values get new numbers."""
    made = Graph()
    made.inputs = list(graph.inputs)
    made._next = graph._next
    return made


# ---- whose memory a value is --------------------------------------------------------------------


class Aliases:
    """Which values are views of which, and which of them the caller gets to see.

    Inside a functional graph it doesn't matter where a value lies. What leaves it (outputs, what
    inputs are overwritten with) must have memory of its own where the user's program gave it some:
    a returned `x + 0` is no second name of `x`.
    """

    def __init__(self, graph: Graph) -> None:
        self._root: dict[int, int] = {}
        for n in graph.nodes:
            if n.op.kind == op_.VIEW:
                self.note_view(n)
        shown = results(graph)
        self.shown = {v.index for v in shown}
        """Values that are outputs or written to inputs themselves."""
        self.inputs = {v.index for v in graph.inputs}
        self.leaving = {self.root(v) for v in shown}
        """Roots of memory that the caller gets to see."""

    def note_view(self, node: Node) -> None:
        source = self.root(node.args[0])
        for v in node.outputs:
            self._root[v.index] = source

    def root(self, value: Value) -> int:
        """The number of the value whose memory this one reads."""
        return self._root.get(value.index, value.index)

    def may_stand_for(self, new: Value, old: Value) -> bool:
        """Whether `new` can be read wherever `old` is. True: it is taken note of."""
        if new.meta is not old.meta:
            return False
        root, was = self.root(new), self.root(old)
        if was not in self.leaving:
            return True
        if root == was:  # a view that says nothing new; as an output it stays its own object
            return old.index not in self.shown
        if root in self.leaving or root in self.inputs or root != new.index:
            return False
        self.leaving.add(root)
        if old.index in self.shown:
            self.shown.add(new.index)
        return True


def layout_of(shape: Iterable[int], strides: sh.Shape) -> sh.Shape | None:
    """Strides as ops that make tensors take them: None when they are the ordinary ones."""
    return None if strides == sh.contiguous_strides(tuple(shape)) else strides
