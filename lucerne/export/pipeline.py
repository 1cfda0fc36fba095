"""An exported graph through the compiler's pipeline, on any backend.

Composites that the backend has no kernel for are taken apart (the pass `decompose`): the graph
does not depend on the machine that it was exported on.
"""

from __future__ import annotations

from typing import Any

from lucerne._src import backends
from lucerne._src.backends.contract.step_runner import StepError
from lucerne._src.capture.process_state import quiet
from lucerne._src.capture.trace.composites import Composites
from lucerne._src.capture.trace.fake import fake_tensor
from lucerne._src.capture.trace.recorder import Recorder
from lucerne._src.ir.graph import Graph, Node
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.ops.control import NAMES as CONTROL
from lucerne._src.ops.control import outputs_of
from lucerne._src.pipeline.road import Road
from lucerne._src.tensor import api as lu
from lucerne._src.tensor.base import new_tensor
from lucerne._src.tensor.eager.inplace import bump
from lucerne._src.tensor.random.api import default_generator, new_key
from lucerne.export.blueprint import Blueprint
from lucerne.export.run import laid_out
from lucerne.export.whole import expand

_MOST_SIZES = 64


class Compiled:
    """One program for each size that comes."""

    def __init__(
        self, plan: Blueprint, backend: str | None = None, mode: str | None = None
    ) -> None:
        self.plan, self.mode = plan, mode
        self.backend = backend or backends.HOST
        self.made: dict[Any, tuple[_Program, list[Any]]] = {}

    def __call__(self, sizes: tuple[Any, ...], inputs: list[Any]) -> tuple[list[Any], list[Any]]:
        found = self.made.get(sizes)
        if found is None:
            if len(self.made) >= _MOST_SIZES:
                self.made.clear()
            graph, constants = self.plan.at(dict(sizes))
            found = self.made[sizes] = _Program(graph, self.backend, self.mode), constants
        return found[0](inputs), found[1]


class _Program:
    def __init__(self, graph: Graph, backend: str, mode: str | None) -> None:
        self.metas = [v.meta for v in graph.inputs]
        self.key = False
        if mode != "bitwise":
            graph, key = Road(None).counted(graph, default_generator)
            self.key = key is not None
        self.results: list[TensorMeta] = [v.meta for v in graph.outputs]
        targets = {t.index for t, _ in graph.writes}
        self.written = [k for k, v in enumerate(graph.inputs) if v.index in targets]
        self.runner = runner_of(graph, backend, mode)

    def __call__(self, inputs: list[Any]) -> list[Any]:
        pairs = zip(inputs, self.metas, strict=True)
        given = [laid_out(t.detach(), meta) for t, meta in pairs]
        results = [new_tensor(meta) for meta in self.results]
        arguments = [*given, new_key()] if self.key else given
        self.runner(arguments, (), results)
        for k in self.written:
            bump(given[k])
            if given[k]._storage is not inputs[k]._storage:
                inputs[k].copy_(given[k])
        return results


def runner_of(graph: Graph, backend: str, mode: str | None) -> Any:
    """What runs a graph without mutation on a backend."""
    refused: set[Any] = set()
    while True:
        try:
            expand = _Expand(backend, refused)
            return Road(backends.get(backend), mode=mode, expand=expand).compiled(graph)
        except _NoBodyError:  # its body has constants: look at it once more
            apart, constants = _recorded(graph, backend, mode)
            return Road(backends.get(backend), mode=mode).compiled(apart, constants)
        except StepError as error:  # a composite of these sizes has no kernel after all
            if error.graph is None or len(error.graph.nodes) != 1:
                raise
            key = _key(error.graph.nodes[0])
            if key in refused:
                raise
            refused.add(key)


class _NoBodyError(Exception):
    """A composite whose body is more than ops on its arguments."""


def _recorded(graph: Graph, backend: str, mode: str | None) -> tuple[Graph, dict[int, Any]]:
    """The graph run once without data, as a capture sees it that asks the backend about each
    composite; and the tensors of inputs (by number) that the bodies of composites made."""
    recorder = Recorder(Composites(backend, mode == "bitwise"))
    whole = Graph()
    whole.inputs, whole.nodes = graph.inputs, graph.nodes
    whole.outputs = (*graph.outputs, *(value for _, value in graph.writes))
    fakes = [fake_tensor(v.meta) for v in graph.inputs]
    with quiet(), lu.no_grad(), recorder:
        for t in fakes:
            recorder.input(t)
        values = [recorder.value(t) for t in outputs_of(whole, fakes)]
    made = Road(None).functional(recorder.graph, [], frozenset(recorder.constants), values)
    count = len(graph.outputs)
    made.writes = [
        (made.inputs[graph.inputs.index(target)], value)
        for (target, _), value in zip(graph.writes, made.outputs[count:], strict=True)
    ]
    made.outputs = made.outputs[:count]
    pairs = zip(recorder.graph.inputs, recorder.outside, strict=True)
    return made, {k: t for k, (v, t) in enumerate(pairs) if v in recorder.constants}


class _Expand:
    """Bodies of composites that the backend does not claim."""

    def __init__(self, backend: str, refused: set[Any]) -> None:
        self.refused = refused
        self.fuses = backends.get(backend).fuses

    def __call__(self, node: Node) -> Graph | None:
        whole = node.op.meta is not None and self.fuses(node.op)
        if whole and _key(node) not in self.refused:
            return None
        if node.op.name in CONTROL:
            return None
        found = expand(node)
        if found is None:
            raise _NoBodyError(node.op.qualified)
        return found


def _key(node: Node) -> Any:
    metas = [
        v.meta for a in node.args for v in (a if type(a) is tuple else (a,)) if hasattr(v, "meta")
    ]
    return (node.op, *(m for m in metas if isinstance(m, TensorMeta)))
