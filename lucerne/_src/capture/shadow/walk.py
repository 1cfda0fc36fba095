"""A program run step by step on its own kernels, each step checked on the operands it really read.

What a step computes is compared with its graph on the reference backend. What it reads is compared
with what was made for it: a value that changed in between was overwritten too early.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lucerne._src.backends.contract.step_runner import executable_of, inputs_of, over
from lucerne._src.backends.contract.tensor_view import Bytes, Spot, elements
from lucerne._src.capture.shadow.nearness import Array, Difference, NearnessRule
from lucerne._src.capture.shadow.replay import Replay, spread
from lucerne._src.capture.shadow.reproduce import in_memory
from lucerne._src.ir import op as op_
from lucerne._src.ir.graph import Graph, Node, Value, alone, flat_inputs
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.ir.program import ARENA, ARGUMENT, CONSTANT, RESULT, Place, Program, Step
from lucerne._src.loops.group import is_elementwise
from lucerne._src.loops.lower import Lowering, StepDraft
from lucerne._src.ops.copy.cast import put_region, uninitialized
from lucerne._src.transforms import interpret
from lucerne._src.transforms.interpret import blank, held

_PUT: Any = put_region.op  # type: ignore[attr-defined]
_EMPTY: Any = uninitialized.op  # type: ignore[attr-defined]
KERNEL, MEMORY, FUSION = "kernel", "memory plan", "fusion"


@dataclass
class ShadowFault:
    """The first thing that is wrong in a program."""

    stage: str
    node: Node
    step: Step
    number: int
    difference: Difference
    graph: Graph
    """What reproduces it: a graph ..."""
    inputs: list[Any]
    """... and what flows into it."""
    detail: str = ""


class ShadowWalk:
    """`backend`: whose kernels; `rewind` and `mark` turn back random numbers."""

    def __init__(self, program: Program, lowering: Lowering, backend: Any, generators: Any) -> None:
        self.program, self.low, self.backend = program, lowering, backend
        self.generators = generators
        nbytes = max(program.arena, 1)
        buffer = backend.allocate(nbytes)
        self._arena = Bytes(buffer, nbytes, backend.address(buffer), backend)
        self._made: dict[Value, tuple[Any, int]] = {}
        """What was made as each value in memory, and by which step."""
        self.units = _units_of(program, lowering)

    def run(
        self, arguments: Sequence[Any], numbers: Sequence[float], results: Sequence[Any]
    ) -> ShadowFault | None:
        self.arguments, self.numbers, self.results = arguments, numbers, results
        placing = self.low.placing
        for v in (*placing.arguments, *self.low.constants):
            self._made[v] = held(elements(self._spot(placing.place(v))), v.meta), -1
        for number, step in enumerate(self.program.steps):
            fault = self._lost(number, step) or self._step(number, step)
            if fault is not None:
                return fault
        return None

    def _spot(self, place: Place) -> Spot:
        if place.kind == ARGUMENT:
            return over(self.arguments[place.index], place)
        if place.kind == RESULT:
            return over(self.results[place.index], place)
        if place.kind == CONSTANT:
            return over(self.program.constants[place.index], place)
        assert place.kind == ARENA
        return Spot(place.meta, self._arena, place.offset // place.meta.dtype.itemsize)

    # ---- what it reads -------------------------------------------------------------------------

    def _lost(self, number: int, step: Step) -> ShadowFault | None:
        unit = self.units[number]
        if unit is None:
            return None
        placing = self.low.placing
        for v in unit.reads:
            if not isinstance(v.meta, TensorMeta) or not v.meta.numel:
                continue
            base = self.low.base.get(v, (v, 0))[0]
            if base not in self._made:
                if _is_empty(self.low, base):
                    continue
                node = self.low.maker.get(base, unit.nodes[0])
                text = "it is read before the step that makes it"
                return self._fault(FUSION, node, number, Difference(0, (), 0, 0, 0, 0, text))
            by = self._made[base][1]
            want = self._right(v).array
            have = elements(self._spot(placing.place(v)))
            difference = _bitwise(have, want)
            if difference is not None:
                node = self.low.maker.get(base, unit.nodes[0])
                who = self._overwriter(by, number, placing.place(v))
                text = f"what was made by step {by} is no longer there when step {number} reads it"
                found = self._fault(MEMORY, node, number, difference)
                found.detail = text + who
                return found
        return None

    def _right(self, v: Value) -> Any:
        """What a value is, by the ops that lead to it from what was made in memory."""
        if v not in self.low.base:
            return self._made[v][0]
        node = self.low.maker[v]
        source = self._right(node.args[0])
        found = interpret.run_node(node, {node.args[0].index: source})
        return found[[o is v for o in node.outputs].index(True)]

    def _overwriter(self, first: int, last: int, place: Place) -> str:
        size = place.meta.span * place.meta.dtype.itemsize
        for k in range(last - 1, first, -1):
            for out in self.program.steps[k].outputs:
                stop = out.offset + out.meta.span * out.meta.dtype.itemsize
                same = (out.kind, out.index) == (place.kind, place.index)
                if same and out.offset < place.offset + size and place.offset < stop:
                    return f": step {k} ({self.program.steps[k].name}) writes over it"
        return ""

    # ---- what it computes ----------------------------------------------------------------------

    def _step(self, number: int, step: Step) -> ShadowFault | None:
        given = inputs_of(step, self._spot, self.numbers)
        read = [held(elements(x), x._meta) if isinstance(x, Spot) else x for x in given]
        outs = [self._spot(p) for p in step.outputs]
        random = any(n.op.kind == op_.RANDOM for n in step.graph.nodes)
        before = [g.state_bytes() for g in self.generators] if random else []
        executable_of(step.graph, self.backend)(given, outs)
        got = [np.array(elements(o)) for o in outs]
        self._note(number)

        def rewind() -> None:
            for g, state in zip(self.generators, before, strict=False):
                g.load_state_bytes(state)

        rewind()
        want = Replay().run(step.graph, read)
        for k, (a, b) in enumerate(zip(got, want.outputs, strict=True)):
            found = _differ(step.graph, k, a, b, read, rewind)
            if found is not None:
                return self._narrowed(number, step, read, found, k)
        return None

    def _note(self, number: int) -> None:
        unit = self.units[number]
        last = number + 1 >= len(self.units) or self.units[number + 1] is not unit
        if unit is None or not last:
            return
        for v in unit.outputs:
            if v.meta.numel:
                place = self.low.placing.place(v)
                self._made[v] = held(elements(self._spot(place)), v.meta), number

    def _fault(self, stage: str, node: Node, number: int, difference: Difference) -> ShadowFault:
        step = self.program.steps[number]
        return ShadowFault(stage, node, step, number, difference, step.graph, [])

    def _narrowed(
        self, number: int, step: Step, read: list[Any], difference: Difference, output: int
    ) -> ShadowFault:
        """The first node of a group with which it goes wrong."""
        graph = step.graph
        nodes = graph.nodes
        wrong = graph.outputs[output].index
        made_by = next((n for n in nodes if any(v.index == wrong for v in n.outputs)), nodes[-1])
        fault = ShadowFault(KERNEL, made_by, step, number, difference, graph, read)
        if len(nodes) == 1:
            return fault
        for k, node in enumerate(nodes):
            if node.op.kind == op_.VIEW or node.op.kind == op_.RANDOM:
                continue
            try:
                found = self._prefix(graph, k, read)
            except Exception:  # no kernel is made of a group like this
                continue
            if found is not None:
                small, given, difference = found
                return ShadowFault(KERNEL, node, step, number, difference, small, given)
        return fault

    def _prefix(
        self, graph: Graph, k: int, read: list[Any]
    ) -> tuple[Graph, list[Any], Difference] | None:
        """The nodes up to number `k` as a group of their own: whether that is wrong already."""
        small = Graph()
        small.inputs, small.nodes = list(graph.inputs), graph.nodes[: k + 1]
        small.outputs = graph.nodes[k].outputs
        given = read
        if k == 0:
            small, given = _alone(graph.nodes[0], graph, read)
        outs = [blank(v.meta) for v in small.outputs]
        tensors = [in_memory(x, self.backend) for x in given]
        spots = [in_memory(o, self.backend) for o in outs]
        executable_of(small, self.backend)(tensors, spots)
        want = Replay().run(small, given)
        for i, (o, b) in enumerate(zip(spots, want.outputs, strict=True)):
            found = _differ(small, i, np.array(elements(o)), b, given, lambda: None)
            if found is not None:
                return small, given, found
        return None


def _alone(node: Node, graph: Graph, read: list[Any]) -> tuple[Graph, list[Any]]:
    """One node as the graph eager hands over, and what flows into it."""
    values = {v.index: x for v, x in zip(graph.inputs, read, strict=True)}
    small = alone(node)
    small.outputs = small.nodes[0].outputs
    return small, [
        values[x.index] if type(x) is Value else x for x in flat_inputs(node.op, node.args)
    ]


def _bitwise(have: Array, want: Array) -> Difference | None:
    a, b = (np.ascontiguousarray(x).view(np.uint8) for x in (have, want))
    if np.array_equal(a, b):
        return None
    per = have.dtype.itemsize
    wrong = int((a.reshape(-1, per) != b.reshape(-1, per)).any(1).sum())
    first = int(np.argmax((a.reshape(-1, per) != b.reshape(-1, per)).any(1)))
    at = tuple(int(i) for i in np.unravel_index(first, have.shape))
    return Difference(float("inf"), at, have[at].item(), want[at].item(), wrong, have.size)


def _differ(
    graph: Graph, k: int, got: Array, want: Array, read: list[Any], rewind: Any
) -> Difference | None:
    exact = all(is_elementwise(n) or n.op.kind == op_.VIEW for n in graph.nodes)
    rule = NearnessRule(local=True, exact=exact)
    dtype = graph.outputs[k].meta.dtype
    found = rule.difference(got, want, dtype, lambda: spread(graph, read, rewind, k))
    return found or rule.rounds_otherwise(got, want, dtype)


def _is_empty(low: Lowering, v: Value) -> bool:
    node = low.maker.get(v)
    return node is not None and node.op is _EMPTY


def _units_of(program: Program, low: Lowering) -> list[StepDraft | None]:
    """The unit that each step belongs to; None: a copy at the end."""
    found: list[StepDraft | None] = []
    placing = low.placing
    for unit in low.units:
        node = unit.nodes[0]
        count = 1
        if len(unit.nodes) == 1 and node.op is _EMPTY:
            count = 0
        elif len(unit.nodes) == 1 and node.op is _PUT:
            old, _, size, _, _ = node.args
            apart = old in low.base or placing.home[old] != placing.home[node.outputs[0]]
            count = int(apart) + int(0 not in tuple(size))
        found += [unit] * count
    return [*found, *[None] * (len(program.steps) - len(found))]


__all__ = ["FUSION", "KERNEL", "MEMORY", "ShadowFault", "ShadowWalk"]
