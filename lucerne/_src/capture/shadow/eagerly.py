"""The function as it is, seen from below: with the random numbers of the program, or watched."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from lucerne._src.capture.shadow.nearness import Array
from lucerne._src.ir import dispatch
from lucerne._src.ir.dispatch import InPlace, Interpreter
from lucerne._src.ir.graph import Graph, Node, run_graph
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.ir.op import COMPOSITE, Op
from lucerne._src.ops.random.draws import draw, draw_each
from lucerne._src.tensor.base import Plans, TensorBase, make_tensor
from lucerne._src.tensor.eager.keys import metas_of
from lucerne._src.tensor.eager.plans import plan_for
from lucerne._src.tensor.interop.outside import bits
from lucerne._src.tensor.random.api import default_generator
from lucerne._src.transforms.random import count_draws

_DRAWS: tuple[Op, ...] = (draw.op, draw_each.op)  # type: ignore[attr-defined]


class Counted(Interpreter):
    """Draws from the default generator give what a program with this key computes."""

    level = "kernel"

    def __init__(self, key: Any) -> None:
        self.key, self.stream = key, 0
        self._known: dict[Any, Graph | None] = {}

    def run(self, op: Op, args: tuple[Any, ...], out: Any, proceed: Any) -> Any:
        if op not in _DRAWS or type(out) is InPlace:
            return proceed(op, args, out)
        graph = self._counted(op, args)
        if graph is None:
            return proceed(op, args, out)
        tensors = [a for a in args if isinstance(a, TensorBase)]
        values = run_graph(graph, [*tensors, self.key], self._drawn)
        self.stream += 1
        return values[graph.outputs[0].index]

    def _drawn(self, node: Node, args: tuple[Any, ...]) -> Any:
        named = zip(node.op.args, args, strict=True)
        given = tuple(self.stream if n == "stream" else a for n, a in named)
        return plan_for(node.op, given).run(given)

    def _counted(self, op: Op, args: tuple[Any, ...]) -> Graph | None:
        """What stands for a draw in a program; None: it stays as it is."""
        assert op.meta is not None
        meta: TensorMeta = op.meta(*metas_of(op, args))
        graph = Graph()
        placed = tuple(graph.input(a._meta) if isinstance(a, TensorBase) else a for a in args)
        outputs = (graph.value(meta),)
        graph.nodes.append(Node(op, placed, outputs))
        graph.outputs = outputs
        made, key = count_draws(graph, default_generator)
        return None if key is None else made

    def drawn(self) -> Any:
        return self.stream

    @contextmanager
    def drawing_again(self, position: Any) -> Iterator[None]:
        before, self.stream = self.stream, position
        try:
            yield
        finally:
            self.stream = before


class EagerWatcher(Interpreter):
    """Keeps what every op gave, in order."""

    level = "kernel"

    def __init__(self, whole: Any) -> None:
        self.whole = whole
        self.calls: list[tuple[Op, list[Array]]] = []

    def takes(self, op: Op, args: tuple[Any, ...]) -> bool:
        return op.meta is not None and bool(self.whole(op, args))

    def run(self, op: Op, args: tuple[Any, ...], out: Any, proceed: Any) -> Any:
        result = proceed(op, args, out)
        if type(out) is InPlace or result is None:
            return result
        outs = result if isinstance(result, tuple) else (result,)
        self.calls.append((op, [_elements(o) for o in outs]))
        return result


@dataclass
class WholeCall:
    """A call of a composite: its node, what it was given by number of a value, what it gave."""

    node: Node
    given: dict[int, Array]
    got: list[Array]


class EagerComposites(Interpreter):
    """Keeps calls of composites that eager mode runs whole, with what they were given."""

    level = "kernel"

    def __init__(self) -> None:
        self.calls: list[WholeCall] = []

    def takes(self, op: Op, args: tuple[Any, ...]) -> bool:
        with dispatch.unseen():
            return Plans.fused(op, args) is not None

    def run(self, op: Op, args: tuple[Any, ...], out: Any, proceed: Any) -> Any:
        if op.kind != COMPOSITE or out is not None:
            return proceed(op, args, out)
        graph, given = Graph(), {}

        def placed(a: Any) -> Any:
            if type(a) in (tuple, list):
                return tuple(placed(x) for x in a)
            if not isinstance(a, TensorBase):
                return a
            value = graph.input(a._meta)
            given[value.index] = _elements(a)
            return value

        read = tuple(placed(a) for a in args)
        with dispatch.unseen():
            result = Plans.fused(op, args).run(args)
        outs = result if isinstance(result, tuple) else (result,)
        if all(isinstance(o, TensorBase) for o in outs):
            node = Node(op, read, tuple(graph.value(o._meta) for o in outs))
            self.calls.append(WholeCall(node, given, [_elements(o) for o in outs]))
        return result


def _elements(t: Any) -> Array:
    return np.array(bits(make_tensor(t._storage, t._offset, t._meta)))
