"""Running the steps of a program one after another: what every backend can do.

A step's places become light objects that look like tensors to an executable. Those over arguments
and results are made anew for each call, those over the arena and the constants once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import Any

from lucerne._src.backends.contract import control_flow
from lucerne._src.backends.contract.backend import Backend, Executable, Runner, TensorState
from lucerne._src.backends.contract.fallback import executable as with_fallback
from lucerne._src.backends.contract.tensor_view import Bytes, Spot
from lucerne._src.base.process.profiler_hook import PROGRAM, Watch
from lucerne._src.base.unspecialized import Symbolic
from lucerne._src.ir import op as op_
from lucerne._src.ir.graph import Graph, Node, Value, map_values, operands
from lucerne._src.ir.meta import NumberMeta, TensorMeta, is_sized
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
from lucerne._src.ir.symbolic.numbers import checking, guards_now


class StepError(NotImplementedError):
    """A step that the backend can't compile: its op or group should not have been offered."""

    def __init__(self, text: str, graph: Graph | None = None) -> None:
        super().__init__(text)
        self.graph = graph


def executable_of(graph: Graph, backend: Backend) -> Executable:
    """What runs one step: a kernel for the group, or for the one op."""
    if len(graph.nodes) == 1 and control_flow.is_control(graph.nodes[0]):
        return control_flow.executable(graph.nodes[0], backend)
    hosted = graph.nodes[0].op.host if len(graph.nodes) == 1 else None
    if hosted is not None:
        python: Executable = hosted.executable(graph.nodes[0])
        return python
    composites = [n.op for n in graph.nodes if n.op.kind == op_.COMPOSITE]
    if len(graph.nodes) == 1 and not composites:
        return with_fallback(backend, graph)
    if "fuse" not in backend.abilities and not composites:
        return backend.compile(graph)
    alone = len(graph.nodes) == 1
    found = None if alone and not backend.fuses(composites[0]) else backend.fuse(graph)
    if found is None:
        what = "for this composite" if alone else "of this group"
        text = f"the backend {type(backend).__name__} has no kernel {what}:\n{graph}"
        raise StepError(text, graph)
    return found


def shape_of(graph: Graph) -> tuple[Any, ...]:
    """Everything an executable depends on, equal for graphs that differ in value numbers only.

    Numbers that flow in count by their type: executables are given them at each call.
    """
    size = len(graph.inputs), len(graph.nodes), graph.outputs
    if not graph.shape or graph.shape[0] != size:
        graph.shape = size, *_shape(graph)
    return (*graph.shape[1:], _decisions(graph))


def _shape(graph: Graph) -> tuple[Any, ...]:
    numbers = {v.index: i for i, v in enumerate(graph.inputs)}
    for node in graph.nodes:
        for v in node.outputs:
            numbers[v.index] = len(numbers)
    return (
        tuple([_kind(v.meta) for v in graph.inputs]),
        tuple([_shape_of_node(node, numbers) for node in graph.nodes]),
        tuple([numbers[v.index] for v in graph.outputs]),
    )


def _decisions(graph: Graph) -> int:
    """Whose decisions by sizes an executable of the graph depends on; 0: nobody's."""
    found = guards_now()
    if found is None:
        return 0
    made = (v for n in graph.nodes for v in n.outputs)
    return found.number if any(is_sized(v.meta) for v in (*graph.inputs, *made)) else 0


def _kind(meta: Any) -> Any:
    if isinstance(meta, TensorMeta):
        return meta
    if isinstance(meta, NumberMeta):
        return meta.kind
    if isinstance(meta, type):
        return meta
    return type(meta) if isinstance(meta, (bool, int, float, complex)) else ("object", id(meta))


def _shape_of_node(node: Node, numbers: dict[int, int]) -> tuple[Any, ...]:
    args = map_values(lambda v: _Ref(numbers[v.index]), node.args)
    return node.op, tuple([_static(a) for a in args]), tuple([v.meta for v in node.outputs])


class _Ref(int):
    """The number of a value; its type tells it from a static integer."""


def _static(a: Any) -> Any:
    """A static with its type: 1, 1.0 and True are equal but not the same."""
    if isinstance(a, (tuple, list)):
        return type(a), tuple([_static(x) for x in a])
    if isinstance(a, Symbolic):
        return type(a), a.key
    try:
        hash(a)
    except TypeError:
        return type(a), id(a)
    # a float by its text: 0.0 and -0.0 are equal, NaN is not equal to itself
    return type(a), repr(a) if isinstance(a, (float, complex)) else a


def check_step(step: Step) -> None:
    """The places of a step must be what its graph was made for."""
    graph = step.graph
    if len(step.inputs) != len(graph.inputs) or len(step.outputs) != len(graph.outputs):
        raise ValueError(
            f"step {step.name}: {len(step.inputs)} inputs and {len(step.outputs)} outputs for a "
            f"graph with {len(graph.inputs)} and {len(graph.outputs)}"
        )
    first = [v.index for n in graph.nodes[:1] for v in operands(n.args)]
    if len(graph.nodes) == 1 and first != [v.index for v in graph.inputs]:
        raise ValueError(
            f"step {step.name}: the inputs of a graph of one op are its arguments, in their "
            f"order, each time they occur:\n{graph}"
        )
    with checking():
        for x, v in (*zip(step.inputs, graph.inputs), *zip(step.outputs, graph.outputs)):  # noqa: B905
            _check_item(step, x, v)


def _check_item(step: Step, x: Any, v: Value) -> None:
    if isinstance(v.meta, TensorMeta):
        if type(x) is not Place or x.meta is not v.meta:
            found = x.meta if type(x) is Place else x
            raise ValueError(f"step {step.name}: {v} is {v.meta}, its place {found}")
        if x.offset % x.meta.dtype.itemsize:
            raise ValueError(f"step {step.name}: {x} is not aligned to its elements")
    elif type(x) is Place:
        raise ValueError(f"step {step.name}: {v} is a number, its place {x} a tensor")


class StepRunner(Runner):
    """A program on any backend: every step is a call of its executable."""

    def __init__(self, program: Program, backend: Backend) -> None:
        self.program, self.backend = program, backend
        for step in program.steps:
            check_step(step)
        made: dict[Any, Executable] = {}
        executables = [_remembered(made, step.graph, backend) for step in program.steps]
        self._calls = list(zip(program.steps, executables, strict=True))
        nbytes = max(program.arena, 1)
        buffer = backend.allocate(nbytes)
        self._arena = Bytes(buffer, nbytes, backend.address(buffer))
        self._fixed: dict[Place, Spot] = {}
        """Spots over memory that stays."""

    def __call__(
        self,
        arguments: Sequence[TensorState],
        numbers: Sequence[float],
        results: Sequence[TensorState],
    ) -> None:
        def spot(place: Place) -> Any:
            if place.kind == ARGUMENT:
                return over(arguments[place.index], place)
            if place.kind == RESULT:
                return over(results[place.index], place)
            return self._fixed.get(place) or self._fix(place)

        if Watch.current is not None:
            self._watched(spot, numbers)
            return
        for step, execute in self._calls:
            execute(inputs_of(step, spot, numbers), [spot(p) for p in step.outputs])

    def _watched(self, spot: Callable[[Place], Any], numbers: Sequence[float]) -> None:
        """The same, and who watches is told when each step began and ended."""
        watcher = Watch.current
        span = None if watcher is None else watcher.begin("", PROGRAM, self.program)
        times = [0] * (2 * len(self._calls))
        try:
            for k, (step, execute) in enumerate(self._calls):
                times[2 * k] = perf_counter_ns()
                execute(inputs_of(step, spot, numbers), [spot(p) for p in step.outputs])
                times[2 * k + 1] = perf_counter_ns()
        finally:
            if watcher is not None and span is not None:
                watcher.end(span)
                watcher.steps(span, self.program, times)

    def _fix(self, place: Place) -> Spot:
        if place.kind == CONSTANT:
            made = over(self.program.constants[place.index], place)
        else:
            assert place.kind == ARENA
            made = Spot(place.meta, self._arena, place.offset // place.meta.dtype.itemsize)
        self._fixed[place] = made
        return made


def _remembered(made: dict[Any, Executable], graph: Graph, backend: Backend) -> Executable:
    key = shape_of(graph)
    if key not in made:
        made[key] = executable_of(graph, backend)
    return made[key]


def inputs_of(step: Step, spot: Callable[[Place], Any], numbers: Sequence[float]) -> list[Any]:
    """A step's inputs, as its executable takes them."""
    return [
        spot(x) if type(x) is Place else numbers[x.index] if type(x) is NumberArgument else x
        for x in step.inputs
    ]


def over(t: TensorState, place: Place) -> Spot:
    """A place in the memory of a tensor."""
    start = t._offset * t._meta.dtype.itemsize + place.offset
    return Spot(place.meta, t._storage, start // place.meta.dtype.itemsize)
