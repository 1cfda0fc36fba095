"""Programs written by hand: every value in its own place, or in places that are used again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import lucerne as torch
from lucerne._src.ir import op as op_
from lucerne._src.ir.define import Geometry
from lucerne._src.ir.graph import Graph, one_op_graph
from lucerne._src.ir.meta import NUMBER_METAS, TensorMeta, make_meta
from lucerne._src.ir.program import (
    ARENA,
    ARGUMENT,
    CONSTANT,
    RESULT,
    NumberArgument,
    Place,
    Program,
    Step,
)


def meta_of(t: Any) -> TensorMeta:
    return t._meta  # type: ignore[no-any-return]


class Sketch:
    """A program in the making.

    s = Sketch()
    x, w = s.argument(x), s.argument(w)
    s.result(s.call("relu", s.call("batch_matmul", x, w)))
    program = s.done()
    """

    def __init__(self) -> None:
        self.arguments: list[TensorMeta] = []
        self.results: list[TensorMeta] = []
        self.constants: list[Any] = []
        self.steps: list[Step] = []
        self.written: set[int] = set()
        self.numbers = self.used = 0

    def argument(self, t: Any) -> Place:
        self.arguments.append(meta_of(t))
        return Place(ARGUMENT, len(self.arguments) - 1, 0, meta_of(t))

    def constant(self, t: Any) -> Place:
        self.constants.append(t)
        return Place(CONSTANT, len(self.constants) - 1, 0, meta_of(t))

    def number(self) -> NumberArgument:
        self.numbers += 1
        return NumberArgument(self.numbers - 1)

    def room(self, meta: TensorMeta) -> Place:
        """A place of its own in the arena."""
        at = self.used
        self.used += -(-meta.span * meta.dtype.itemsize // 64) * 64
        return Place(ARENA, 0, at, meta)

    def to_result(self, meta: TensorMeta) -> Place:
        self.results.append(meta)
        return Place(RESULT, len(self.results) - 1, 0, meta)

    def call(
        self, name: str, *args: Any, into: Sequence[Place] | None = None, result: bool = False
    ) -> Any:
        """One op. `into`: where its results go (an argument's place: it is written)."""
        op = op_.get(name)
        given = tuple(_meta(a) for a in args)
        found = op.meta(*given)  # type: ignore[misc]
        metas = [found] if isinstance(found, TensorMeta) else list(found)
        make = self.to_result if result else self.room
        outputs = tuple(into) if into is not None else tuple(make(m) for m in metas)
        inputs: list[Any] = []
        for kind, a in zip(op.kinds, args, strict=True):
            if kind == "l":
                inputs += [x for x in a if x is not None]
            elif kind in "tno" and a is not None:
                inputs.append(a)
        self.steps.append(Step(one_op_graph(op, given, metas), tuple(inputs), outputs))
        self.written |= {p.index for p in outputs if p.kind == ARGUMENT}
        return outputs[0] if len(outputs) == 1 else outputs

    def group(self, graph: Graph, inputs: Sequence[Any], *, result: bool = False) -> Any:
        make = self.to_result if result else self.room
        outputs = tuple(make(v.meta) for v in graph.outputs)
        self.steps.append(Step(graph, tuple(inputs), outputs))
        return outputs[0] if len(outputs) == 1 else outputs

    def view(self, place: Place, name: str, *statics: Any) -> Place:
        """A view is a place too: the same bytes read otherwise."""
        g: Geometry = op_.get(name).body(place.meta, *statics)
        meta = make_meta(place.meta.dtype, tuple(g.shape), tuple(g.strides), place.meta.device)
        offset = place.offset + g.offset * place.meta.dtype.itemsize
        return replace(place, offset=offset, meta=meta)

    def done(self) -> Program:
        return Program(
            tuple(self.arguments), tuple(self.results), tuple(self.constants), self.numbers,
            self.used, self.steps, frozenset(self.written),
        )  # fmt: skip


def _meta(a: Any) -> Any:
    if type(a) is Place:
        return a.meta
    if type(a) is NumberArgument:
        return NUMBER_METAS[float]
    if type(a) is tuple and any(type(x) is Place for x in a):
        return tuple(None if x is None else x.meta for x in a)
    return NUMBER_METAS.get(type(a), a) if type(a) is float else a


def pointwise_graph(meta: TensorMeta, *names: str) -> Graph:
    """`names` one after another on one tensor, as one group."""
    graph = Graph()
    value = graph.input(meta)
    for name in names:
        op = op_.get(name)
        (value,) = graph.call(op, (value,), [op.meta(value.meta)])  # type: ignore[misc]
    graph.outputs = (value,)
    return graph


def fresh_results(program: Program) -> list[Any]:
    """Tensors for a call's results, filled with what must not be seen."""
    made = []
    for meta in program.results:
        t = torch.empty_strided(tuple(meta.shape), meta.strides, dtype=meta.dtype)
        t.view(-1).fill_(77) if t.is_contiguous() else t.fill_(77)
        made.append(t)
    return made
