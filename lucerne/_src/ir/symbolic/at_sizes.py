"""Graphs and programs whose numbers follow from sizes, as they are at given sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from lucerne._src.base.process.forks import once
from lucerne._src.base.unspecialized import Symbolic
from lucerne._src.ir.graph import Graph, Node, Value
from lucerne._src.ir.meta import TensorMeta, is_sized, make_meta
from lucerne._src.ir.program import Place, Program, Step
from lucerne._src.ir.symbolic.numbers import formula, plain

Sizes = Mapping[str, int] | None
"""By name; None: those of the trace."""


def thing_at(x: Any, sizes: Sizes) -> Any:
    """A number, a meta, a place, a graph, or a tuple or list of such, at these sizes."""
    if isinstance(x, Symbolic):
        return plain(x) if sizes is None else formula(x).at(sizes)
    if isinstance(x, TensorMeta):
        return meta_at(x, sizes)
    if type(x) is Place:
        return replace(x, offset=thing_at(x.offset, sizes), meta=meta_at(x.meta, sizes))
    if type(x) is Graph:
        return graph_at(x, sizes)
    if isinstance(x, tuple | list):
        found = [thing_at(y, sizes) for y in x]
        same = all(a is b for a, b in zip(found, x, strict=True))
        return x if same else type(x)(found)
    return x


def meta_at(meta: Any, sizes: Sizes) -> Any:
    if not is_sized(meta):
        return meta
    shape, strides = thing_at(tuple(meta.shape), sizes), thing_at(meta.strides, sizes)
    return make_meta(meta.dtype, shape, strides, meta.device, meta.flipped)


def graph_at(graph: Graph, sizes: Sizes) -> Graph:
    """A copy of the graph; its values have the same numbers."""
    made = Graph()
    new: dict[int, Value] = {}

    def value(v: Value) -> Value:
        new[v.index] = Value(v.index, meta_at(v.meta, sizes))
        return new[v.index]

    def arg(a: Any) -> Any:
        if type(a) is Value:
            return new[a.index]
        if type(a) is tuple and any(type(x) is Value for x in a):
            return tuple(map(arg, a))
        return thing_at(a, sizes)

    made.inputs = [value(v) for v in graph.inputs]
    for n in graph.nodes:
        args = tuple(map(arg, n.args))
        made.nodes.append(Node(n.op, args, tuple(map(value, n.outputs)), n.place))
    made.outputs = tuple(new[v.index] for v in graph.outputs)
    made.writes = [(new[a.index], new[b.index]) for a, b in graph.writes]
    made._next, made.place = graph._next, graph.place
    return made


class StepAt(Step):
    """A step at some sizes; its graph is made when somebody asks for it."""

    def __init__(self, step: Step, sizes: Sizes) -> None:
        self.inputs = thing_at(step.inputs, sizes)
        self.outputs = thing_at(step.outputs, sizes)
        self.origins = step.origins
        self._step, self._sizes = step, sizes

    @once
    def graph(self) -> Graph:
        return graph_at(self._step.graph, self._sizes)

    @property
    def name(self) -> str:
        return self._step.name


def program_at(program: Program, sizes: Sizes) -> Program:
    return Program(
        arguments=thing_at(program.arguments, sizes),
        results=thing_at(program.results, sizes),
        constants=program.constants,
        numbers=program.numbers,
        arena=thing_at(program.arena, sizes),
        steps=[StepAt(s, sizes) for s in program.steps],
        written=program.written,
    )
