"""Graph: a straight list of op calls on typed values. Eager hands over graphs of one node.

Text form, one line per node, made to be read and compared:

    graph(%0: float32[2, 3], %1: float32[3])
      %2: float32[2, 3] = add(%0, %1)
      return %2

`%1: float32[3, 2]{1, 3}@meta` has other strides than the contiguous ones, and another device.
`ir/text.py` reads it back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from lucerne._src.base.process.source_location import Origin
from lucerne._src.ir import infer
from lucerne._src.ir.define import Geometry
from lucerne._src.ir.meta import NUMBER_METAS, TensorMeta
from lucerne._src.ir.meta_text import meta_text, static_text
from lucerne._src.ir.op import VIEW, Op


class Value:
    """A tensor (TensorMeta) or a Python number (its type) that flows through a graph."""

    __slots__ = ("index", "meta")

    def __init__(self, index: int, meta: Any) -> None:
        self.index = index
        self.meta = meta

    def __repr__(self) -> str:
        return f"%{self.index}"

    def typed(self) -> str:
        return f"%{self.index}: {meta_text(self.meta)}"


class Node:
    """One call: `args` in signature order, with Values where data flows in."""

    __slots__ = ("args", "op", "outputs", "place")

    def __init__(
        self, op: Op, args: tuple[Any, ...], outputs: tuple[Value, ...], place: Origin | None = None
    ) -> None:
        self.op = op
        self.args = args
        self.outputs = outputs
        self.place = place
        """The user's line that it comes from: for people, nothing depends on it."""

    def __repr__(self) -> str:
        left = ", ".join(v.typed() for v in self.outputs)
        call = f"{self.op.qualified}({', '.join(map(static_text, self.args))})"
        return f"{left} = {call}" if left else call


class Graph:
    """Inputs, nodes in order, outputs, and which inputs hold another value afterwards."""

    __slots__ = ("_next", "inputs", "nodes", "outputs", "place", "shape", "writes")

    def __init__(self) -> None:
        self.inputs: list[Value] = []
        self.nodes: list[Node] = []
        self.outputs: tuple[Value, ...] = ()
        self.writes: list[tuple[Value, Value]] = []
        """(input, the value its memory holds when all nodes are done): nodes themselves are pure,
        so every node reads what the input held before."""
        self._next = 0
        self.shape: tuple[Any, ...] = ()
        """Of a step's graph, which nobody changes: what `step_runner.shape_of` keeps of it."""
        self.place: Origin | None = None
        """What nodes that are made now come from: a pass says it for each node it looks at."""

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
        self.nodes.append(Node(op, args, outputs, self.place))
        return outputs

    def __str__(self) -> str:
        lines = [f"graph({', '.join(v.typed() for v in self.inputs)})"]
        lines += [f"  {n!r}" for n in self.nodes]
        lines += [f"  write {target!r} = {value!r}" for target, value in self.writes]
        lines.append(f"  return {', '.join(map(repr, self.outputs))}")
        return "\n".join(lines)


def geometries(node: Node, source: TensorMeta | None = None) -> list[Geometry]:
    """Of each result of a view, one or several: how it lies in its source (or in another one with
    the source's shape)."""
    metas = [a.meta if type(a) is Value else a for a in node.args]
    found = node.op.body(source or metas[0], *metas[1:])
    return list(found) if isinstance(found, (list, tuple)) else [found]


def parts_of(node: Node, source: Any) -> list[tuple[TensorMeta, int]]:
    """Of each result of a view of this tensor: its meta, and the element where it begins."""
    start = source._offset * source._meta.dtype.itemsize
    pairs = zip(node.outputs, geometries(node), strict=True)
    return [(v.meta, start // v.meta.dtype.itemsize + g.offset) for v, g in pairs]


def bases(graph: Graph) -> dict[Value, tuple[Value, int]]:
    """Of every value the one in whose memory it lies, and where in it, in bytes."""
    found = {v: (v, 0) for v in graph.inputs}
    for node in graph.nodes:
        if node.op.kind != VIEW:
            found.update({v: (v, 0) for v in node.outputs})
            continue
        base, start = found[node.args[0]]
        for v, part in zip(node.outputs, geometries(node), strict=True):
            found[v] = base, start + part.offset * v.meta.dtype.itemsize
    return found


def map_values(fn: Callable[[Value], Any], args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arguments with each Value replaced by `fn(value)`, inside tensor lists as well."""
    return tuple(
        [
            fn(a)
            if type(a) is Value
            else tuple([fn(x) if type(x) is Value else x for x in a])
            if type(a) is tuple and Value in map(type, a)
            else a
            for a in args
        ]
    )


def operands(args: tuple[Any, ...]) -> list[Value]:
    """The values among the arguments of a node, in order."""
    found: list[Value] = []
    for a in args:
        if type(a) is Value:
            found.append(a)
        elif type(a) is tuple:
            found.extend([x for x in a if type(x) is Value])
    return found


def renamed(args: tuple[Any, ...], names: Mapping[int, Any]) -> tuple[Any, ...]:
    """Arguments with each value looked up in `names` by its number."""
    return map_values(lambda v: names[v.index], args)


def copy_nodes(graph: Graph, nodes: Iterable[Node], here: dict[int, Value]) -> None:
    """The same ops at the end of another graph; `here`: values of it by their numbers in the old
    one, to which results are added (those that are known already stay)."""
    for node in nodes:
        graph.place = node.place
        made = graph.call(node.op, renamed(node.args, here), [v.meta for v in node.outputs])
        for old, new in zip(node.outputs, made, strict=True):
            here.setdefault(old.index, new)


def verify(graph: Graph, deep: bool = False) -> None:
    """Every value is defined once, before it is read, and op arguments match the signature.

    `deep`: also, every op gives results of the dtype, shape, strides and device that are noted.
    """
    defined = {v.index for v in graph.inputs}
    views: set[int] = set()
    if len(defined) != len(graph.inputs):
        raise ValueError("graph: an input is listed twice")
    for n, node in enumerate(graph.nodes):
        op, args = node.op, node.args
        if len(args) != len(op.params):
            raise ValueError(
                f"node {n}: {op.name} takes {len(op.params)} arguments, has {len(args)}"
            )
        for a in args:  # (each pass comes here with each value: no call for those that are right)
            kind = type(a)
            if kind is Value:
                if a.index not in defined:
                    _read(a, defined, n)
            elif kind is tuple:
                for x in a:
                    if type(x) is Value and x.index not in defined:
                        _read(x, defined, n)
            elif kind is Graph:
                _verify_inside(a, n, node, deep)
        if op.args[-3:] == _REGION:
            _verify_region(n, node, views)
        for v in node.outputs:
            if v.index in defined:
                raise ValueError(f"node {n}: {v} is defined twice")
            defined.add(v.index)
        if op.kind == VIEW:
            views.update([v.index for v in node.outputs])
    for v in graph.outputs:
        _read(v, defined, len(graph.nodes))
    _verify_writes(graph, defined)
    if deep:
        for n, node in enumerate(graph.nodes):
            _verify_metas(n, node)


_REGION = ("size", "stride", "offset")
"""The last arguments of ops that say themselves which part of a memory they read or write."""


def _verify_inside(graph: Graph, n: int, node: Node, deep: bool) -> None:
    try:
        verify(graph, deep)
    except ValueError as error:
        raise ValueError(f"node {n} ({node.op.name}), graph inside: {error}") from error
    if graph.writes:
        raise ValueError(f"node {n} ({node.op.name}): a graph inside a node writes to nothing")


def _verify_region(n: int, node: Node, views: set[int]) -> None:
    """Another reading of a memory (or a write to a part of it) stays inside of it. One that begins
    at a view may go as far as what that is a view of."""
    if type(node.args[0]) is not Value:
        return
    size, stride, offset = node.args[-3:]
    if 0 in size or node.args[0].index in views:
        return
    last = offset + sum((s - 1) * st for s, st in zip(size, stride, strict=True))
    if offset < 0 or last >= node.args[0].meta.span:
        raise ValueError(f"node {n}: {node!r} reaches outside of {node.args[0].typed()}")


def _verify_metas(n: int, node: Node) -> None:
    """The results of a node are what its op makes of the arguments' metas."""
    args = tuple(
        tuple(x.meta if type(x) is Value else x for x in a)
        if kind == "l"
        else infer.argument(kind, a.meta if type(a) is Value else a, type(a) is Value)
        for kind, a in zip(node.op.kinds, node.args, strict=True)
    )
    try:
        found = infer.results(node.op, args)
    except (TypeError, ValueError, RuntimeError, IndexError, AttributeError, KeyError) as error:
        raise ValueError(f"node {n}: {node!r} takes no such arguments: {error}") from error
    if found is None or not node.outputs:  # unknown, or a write that keeps no result
        return
    noted = [v.meta for v in node.outputs]
    if list(found) != noted:
        told = ", ".join(map(meta_text, found))
        raise ValueError(f"node {n}: {node!r} gives {told}")


def _verify_writes(graph: Graph, defined: set[int]) -> None:
    """Only inputs are written, each once, with a value that fits."""
    inputs = {v.index for v in graph.inputs}
    written: set[int] = set()
    for target, value in graph.writes:
        if target.index not in inputs:
            raise ValueError(f"graph: {target} is written but is no input")
        if target.index in written:
            raise ValueError(f"graph: {target} is written twice")
        written.add(target.index)
        _read(value, defined, len(graph.nodes))
        old, new = target.meta, value.meta
        if isinstance(old, TensorMeta) and (old.shape != new.shape or old.dtype is not new.dtype):
            raise ValueError(f"graph: {target.typed()} can't hold {value.typed()}")


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


def alone(node: Node) -> Graph:
    """The graph of one node, as eager hands over a call: numbers that flow in are inputs too."""
    return one_op_graph(node.op, given_metas(node.op, node.args), [v.meta for v in node.outputs])


def given_metas(op: Op, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments as meta functions take them: metas in place of values and numbers."""
    found: list[Any] = []
    for kind, a in zip(op.kinds, args, strict=True):
        if type(a) is Value:
            found.append(a.meta)
        elif kind == "l":
            found.append(tuple([x.meta if type(x) is Value else x for x in a]))
        elif kind == "t" and type(a) in NUMBER_METAS:
            found.append(NUMBER_METAS[type(a)])
        else:
            found.append(a)
    return tuple(found)


def flat_inputs(op: Op, args: tuple[Any, ...]) -> list[Any]:
    """What flows into the graph of one call, in order: tensors, numbers, other objects."""
    found: list[Any] = []
    for kind, a in zip(op.kinds, args, strict=True):
        if kind == "l":
            found.extend(x for x in a if x is not None)
        elif kind in "tno" and a is not None:
            found.append(a)
    return found


# ---- run node by node: the one walk. What a node does is told by whoever has it run -----------

Call = Callable[[Node, tuple[Any, ...]], Any]
"""From a node and its arguments to its result, or a tuple or list of its results."""


def run_graph(
    graph: Graph, inputs: Sequence[Any], call: Call, done: Sequence[Sequence[int]] = ()
) -> dict[int, Any]:
    """The values of a graph by their number; `done` lists for each node those let go after it."""
    values = {v.index: x for v, x in zip(graph.inputs, inputs, strict=True)}
    for k, node in enumerate(graph.nodes):
        run_node(node, values, call)
        for index in done[k] if done else ():
            del values[index]
    return values


def run_node(node: Node, values: dict[int, Any], call: Call) -> None:
    """Add what a node makes to the values."""
    found = call(node, renamed(node.args, values))
    outs = found if isinstance(found, (tuple, list)) else (found,)
    values.update((v.index, x) for v, x in zip(node.outputs, outs, strict=True))
