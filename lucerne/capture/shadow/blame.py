"""From two results that differ to the first op that does, and to the stage that made it so.

In order: does the captured graph, op by op, give what eager gives; does each pass leave it what it
was; does each step of the program compute what its ops compute, on what was made for it; do the
steps give the same as one program; and is the right thing made of its results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lucerne import backends
from lucerne.capture.entry import Entry, tensor_of
from lucerne.capture.shadow.eagerly import Watcher
from lucerne.capture.shadow.graphs import (
    alike,
    broken,
    first_changed,
    first_new,
    held_of,
    maker,
    one_op_inputs,
    words,
)
from lucerne.capture.shadow.nearness import Array, Difference, Rule
from lucerne.capture.shadow.observe import Observation
from lucerne.capture.shadow.replay import (
    Ran,
    Replay,
    held_copy,
    range_of,
    shaken,
    spread,
    tensor_of_held,
)
from lucerne.capture.shadow.report import (
    ASSEMBLY,
    EAGER,
    GUARDS,
    RESULTS,
    UNKNOWN,
    Finding,
)
from lucerne.capture.shadow.reproduce import small_case
from lucerne.capture.shadow.stages import CAPTURE, PARTITION, Part, Rebuilt, rebuilt
from lucerne.capture.shadow.state import Surroundings
from lucerne.capture.shadow.walk import Fault, Walk
from lucerne.capture.trace import (
    ARGUMENT,
    CONSTANT,
    COVER,
    GRADIENT,
    HELD,
    KEY,
    NUMBER,
    SLOT,
    TANGENT,
    Outcome,
    Source,
)
from lucerne.ir import dispatch
from lucerne.ir import op as op_
from lucerne.ir.graph import Graph, Node, map_values, one_op_graph
from lucerne.ir.meta import TensorMeta
from lucerne.tensor.autograd.modes import set_grad_enabled
from lucerne.tensor.base import new_tensor
from lucerne.tensor.interop import bits
from lucerne.transforms.interpret import Held
from lucerne.transforms.partition import OUTPUT
from lucerne.transforms.rewrite import given_metas

_EMPTY = "uninitialized"


@dataclass
class Case:
    """A call to be looked into. The surroundings are as they were before it."""

    entry: Entry
    options: Any
    fn: Any
    args: Any
    kwargs: Any
    leaves: Sequence[Any]
    surroundings: Surroundings
    tangents: list[Any]
    eager: Observation | None = None
    compiled: Observation | None = None
    seen: dict[str, Difference] = field(default_factory=dict)
    recapture: Any = None
    """Captures the call anew: gives a `Captured`."""


class Bisection:
    """The search for who is to blame."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.captured = case.entry.captured
        self.built: Rebuilt = rebuilt(self.captured, case.options, key=bool(case.entry.key))
        self.rewind = case.surroundings.rewind
        case.surroundings.put_back()
        self.inputs = [self._input(s) for s in self.built.sources]
        self.other: Ran | None = None
        """As `right`, with other junk in memory that nobody filled; None: there is no such."""
        self._first, self._given = 0, self.inputs
        """Of the part that is looked at: the number of its first output, and its inputs."""
        self._shaken: dict[int, tuple[Graph, list[Ran]]] = {}
        """By id of a graph: itself, and some runs of it."""

    def _input(self, source: Source) -> Any:
        if source.kind == CONSTANT:
            return held_copy(source.thing)
        if source.kind == NUMBER:
            return source.thing.now()
        if source.kind == TANGENT:
            return held_copy(self.case.tangents[source.index])
        if source.kind == KEY:
            self.rewind()
        return held_copy(tensor_of(source, self.case.leaves))

    # ---- the whole search ----------------------------------------------------------------------

    def found(self) -> Finding | None:
        """None: nothing is wrong but rounding."""
        found = self._search()
        self.case.surroundings.put_back()
        return found

    def _search(self) -> Finding | None:
        self.rewind()
        self.right = Replay().run(self.built.captured, self.inputs)
        self._undefined()
        return (
            self._of_capture()
            or self._of_passes()
            or self._of_parts()
            or self._of_results()
            or self._of_nobody()
        )

    def part(self) -> Finding | None:
        """Of a part of a function, which can't be run by itself: what the version left behind is
        compared with its captured graph, op by op."""
        self.rewind()
        self.right = Replay().run(self.built.captured, self.inputs)
        self._undefined()
        got, rule = self.case.compiled, Rule(local=False)
        assert got is not None
        for name, (array, dtype, at) in self._expected().items():
            if name not in got.tensors:
                continue
            found = rule.difference(
                got.tensors[name].array, array, dtype, lambda at=at: self._spread_of(at),  # type: ignore[misc]
                self._filled(name),
            )  # fmt: skip
            if found is not None:
                self.case.seen[name] = found
        wrong = bool(self.case.seen)
        finding = (self._of_passes() if wrong else None) or self._of_parts() or self._of_results()
        self.case.surroundings.put_back()
        return finding

    def right_values(self) -> dict[str, Array]:
        """What the call should have left behind, by name."""
        return {name: found[0] for name, found in self._expected().items()}

    def steps(self) -> Finding | None:
        """Only whether the programs' steps compute what their ops do."""
        self.rewind()
        self.right = Replay().run(self.built.captured, self.inputs)
        self._undefined()
        found = self._of_parts()
        self.case.surroundings.put_back()
        return found

    def _undefined(self) -> None:
        """Elements that nobody filled: they are whatever they are."""
        graph = self.built.captured
        if any(n.op.qualified == _EMPTY for n in graph.nodes):
            self.rewind()
            self.other = Replay(junk=0x41).run(graph, self.inputs)

    # ---- the captured graph and eager ----------------------------------------------------------

    def _of_capture(self) -> Finding | None:
        """Whether the captured graph says what eager does."""
        if self.case.eager is None:
            return None
        want, rule = self.case.eager, Rule(local=False)
        for name, (array, dtype, at) in self._expected().items():
            if name not in want.tensors or name not in self.case.seen:
                continue

            def moved(at: Any = at) -> Any:
                return self._spread_of(at)

            known = self._filled(name)
            found = rule.difference(want.tensors[name].array, array, dtype, moved, known)
            if found is not None:
                return self._eager_kernel() or self._captured_wrong(name, found)
        return None

    def _runs(self, graph: Graph, inputs: list[Any]) -> list[Ran]:
        """A graph with its roundings moved by chance, run when first asked for."""
        if id(graph) not in self._shaken:
            found = shaken(graph, inputs[: len(graph.inputs)], self.rewind)
            self._shaken[id(graph)] = graph, found
        return self._shaken[id(graph)][1]

    def _spread_of(self, at: tuple[Held, int, int]) -> Array | None:
        """How far rounding moves a reading of a value's memory at the end."""
        reading, index, _ = at
        runs = self._runs(self.built.captured, self.inputs)
        arrays = [Held(reading._meta, r.last[index]._storage, reading._offset).array for r in runs]
        return range_of(arrays, reading._meta.dtype)

    def _filled(self, name: str) -> Array | None:
        """Which elements of what has this name somebody filled; None: all."""
        if self.other is None:
            return None
        return alike(self._expected()[name][0], self._expected(self.other)[name][0])

    def _expected(self, ran: Ran | None = None) -> dict[str, tuple[Array, Any, Any]]:
        """What the captured graph leaves behind, by the names that observations have."""
        ran = ran or self.right
        made: dict[str, tuple[Array, Any, Any]] = {}
        captured, named = self.captured, self.case.surroundings.named
        count = self.returned()
        for k, x in enumerate(captured.leaves[:count]):
            if type(x) is Outcome:
                name = f"result {k}" if count > 1 else "the result"
                made[name] = self._reading(x, ran)
        for effect in captured.effects:
            owner = tensor_of(effect.owner, self.case.leaves)
            if effect.outcome is not None and id(owner) in named:
                name = f"the new gradient of {named[id(owner)][0]}"
                made[name] = self._reading(effect.outcome, ran)
        for k, s in enumerate(self.built.sources):
            if s.kind not in (ARGUMENT, HELD, GRADIENT, SLOT, COVER):
                continue
            t = tensor_of(s.thing if s.kind == COVER else s, self.case.leaves)
            if id(t) in named:
                v = self.built.captured.inputs[k]
                memory = ran.last[v.index]
                start = t._offset if s.kind == COVER else 0
                reading = Held(t._meta, memory._storage, start)
                at = reading, v.index, 0
                made[f"{named[id(t)][0]}, afterwards"] = reading.array, t._meta.dtype, at
        return made

    def returned(self) -> int:
        """How many of the leaves are what the function returns."""
        captured = self.captured
        ends = [first for _, _, first in captured.stored] + [leaf for leaf, _ in captured.checks]
        return min([len(captured.leaves), *ends])

    def _reading(self, x: Outcome, ran: Ran) -> tuple[Array, Any, Any]:
        graph = self.built.captured
        if x.of_input:
            given = [
                v
                for v, s in zip(graph.inputs, self.built.sources, strict=True)
                if s.kind in (ARGUMENT, HELD, GRADIENT, COVER, SLOT)
            ]
            root = given[x.index]
        else:
            root = graph.outputs[x.index]
        memory = ran.last[root.index]
        scale = memory._meta.dtype.itemsize / x.meta.dtype.itemsize
        reading = Held(x.meta, memory._storage, int(memory._offset * scale) + x.offset)
        return reading.array, x.meta.dtype, (reading, root.index, 0)

    def _eager_kernel(self) -> Finding | None:
        """An op whose own kernel is wrong, eager or not."""
        rule = Rule(local=True)
        functional = self.built.stages[0][1]  # without writes: an operand is what was made
        self.rewind()
        ran = Replay().run(functional, self.inputs)
        for node in functional.nodes:
            given = one_op_inputs(node, ran.seen)
            skipped = node.op.kind in (op_.VIEW, op_.RANDOM) or node.op.qualified == _EMPTY
            if skipped or given is None or not node.outputs:
                continue
            graph = one_op_graph(
                node.op, given_metas(node.op, node.args), [v.meta for v in node.outputs]
            )
            graph.outputs = graph.nodes[0].outputs
            outs = _as_eager_does(node, ran.seen, graph, given)
            for k, (v, o) in enumerate(zip(node.outputs, outs, strict=True)):
                found = rule.difference(
                    np.array(bits(o)), ran.seen[v.index], v.meta.dtype,
                    lambda k=k, g=graph, x=given: spread(g, x, lambda: None, k),  # type: ignore[misc]
                )  # fmt: skip
                if found is not None:
                    return self._finding(EAGER, node, found, graph=graph, inputs=given)
        return None

    def _captured_wrong(self, name: str, difference: Difference) -> Finding:
        """The graph is not what the function does now: was it ever?"""
        case = self.case
        case.surroundings.put_back()
        anew = case.recapture()
        case.surroundings.put_back()
        if anew is not None and str(anew.graph) != str(self.captured.graph):
            old, new = self.captured.graph.nodes, anew.graph.nodes
            pairs = zip(old, new, strict=False)
            at = next((b for a, b in pairs if str(a) != str(b)), None)
            at = at or (new[min(len(old), len(new) - 1)] if new else None)
            detail = f"{name} differs; captured again, the function gives another graph"
            return self._finding(GUARDS, at, difference, detail=detail)
        node = self._first_other_op()
        return self._finding(CAPTURE, node, difference, detail=f"{name} differs")

    def _first_other_op(self) -> Node | None:
        """The first op that gives eager something else than the captured graph has there."""
        case = self.case
        case.surroundings.put_back()
        watcher = Watcher(case.options.whole)
        try:
            with watcher:
                case.fn(*case.args, **case.kwargs)
        except Exception:  # it is looked at as far as it came
            watcher.ended = True
        case.surroundings.put_back()
        calls = iter(watcher.calls)
        rule = Rule(local=False)
        call = next(calls, None)
        last = None
        for node in self.built.captured.nodes:
            if call is None:
                break
            if call[0] is not node.op or len(call[1]) != len(node.outputs):
                continue  # a reading of memory that no op made
            last = node
            for a, v in zip(call[1], node.outputs, strict=True):
                if rule.difference(a, self.right.seen[v.index], v.meta.dtype) is not None:
                    return node
            call = next(calls, None)
        return last

    # ---- passes --------------------------------------------------------------------------------

    def _of_passes(self) -> Finding | None:
        """Whether each stage leaves the graph what it was."""
        graph = self.built.captured
        before = graph, self._ends(graph, self.right, self.right.inputs), self.right
        for name, after in self.built.stages:
            found, before = self._of_pass(name, after, before, self.inputs)
            if found is not None:
                return found
        return None

    def _of_pass(
        self, name: str, graph: Graph, before: tuple[Graph, Any, Ran], inputs: list[Any]
    ) -> tuple[Finding | None, tuple[Graph, Any, Ran]]:
        self.rewind()
        try:
            ran = Replay().run(graph, inputs[: len(graph.inputs)])
        except Exception as error:
            return self._finding(name, first_new(before[0], graph), broken(error)), before
        now = self._ends(graph, ran, None)
        ends = graph, now, ran
        for at, (a, dtype) in now.items():
            if at not in before[1]:
                continue
            b = before[1][at][0]
            found = Rule(local=False).difference(
                a, b, dtype, lambda at=at: self._moved(before[0], inputs, at), self._defined(at)  # type: ignore[misc]
            )  # fmt: skip
            if found is not None:
                culprits = first_changed(before[0], before[2], graph, ran)
                node = culprits[0] if culprits else maker(graph, at)
                detail = f"{words(at)} differs"
                made = self._finding(name, node, found, detail=detail)
                made.graph, made.inputs = small_case(name, before[0], culprits, before[2].seen)
                return made, ends
        return None, ends

    def _defined(self, at: tuple[str, int]) -> Array | None:
        """Which elements of an output, or of an input at the end, somebody filled; None: all."""
        which, k = at
        if self.other is None:
            return None
        if which == "input":
            x, y = self.right.inputs[k], self.other.inputs[k]
            return alike(x.array, y.array) if isinstance(x, Held) else None
        k += self._first
        count = len(self.right.outputs)
        return alike(self.right.outputs[k], self.other.outputs[k]) if k < count else None

    def _moved(self, graph: Graph, inputs: list[Any], at: tuple[str, int]) -> Array | None:
        which, k = at
        runs = self._runs(graph, inputs)
        if which == "output":
            return range_of([r.outputs[k] for r in runs], graph.outputs[k].meta.dtype)
        dtype = graph.inputs[k].meta.dtype
        for j, (target, _) in enumerate(graph.writes):
            if graph.inputs.index(target) == k:
                return range_of([r.writes[j] for r in runs], dtype)
        return range_of([r.last[graph.inputs[k].index].array for r in runs], dtype)

    def _ends(
        self, graph: Graph, ran: Ran, memories: list[Any] | None
    ) -> dict[tuple[str, int], tuple[Array, Any]]:
        """Outputs, and what inputs hold at the end, with their dtypes."""
        made: dict[tuple[str, int], tuple[Array, Any]] = {}
        for k, (v, a) in enumerate(zip(graph.outputs, ran.outputs, strict=True)):
            made["output", k] = a, v.meta.dtype
        if memories is not None:
            fresh = {v.index for v in self.captured.fresh}
            for k, (v, x) in enumerate(zip(graph.inputs, memories, strict=True)):
                if isinstance(x, Held) and v.index not in fresh:
                    made["input", k] = x.array, v.meta.dtype
            return made
        stored = {t.index: a for (t, _), a in zip(graph.writes, ran.writes, strict=True)}
        for k, (v, x) in enumerate(zip(graph.inputs, ran.inputs, strict=True)):
            if isinstance(x, Held):
                made["input", k] = stored.get(v.index, x.array), v.meta.dtype
        return made

    # ---- programs ------------------------------------------------------------------------------

    def _of_parts(self) -> Finding | None:
        built = self.built
        joint = built.stages[-1][1]
        self.rewind()
        whole = Replay().run(joint, self.inputs)
        if built.halves is None:
            return self._of_part(built.parts[0], self.inputs, None)
        primals = [self.inputs[k] for k in built.primals]
        count = self.captured.forward_roots
        found = self._of_part(built.parts[0], primals, whole.outputs[:count])
        if found is not None:
            return found
        self.rewind()
        forward = Replay().run(built.halves.forward, primals)
        try:
            kept = self._kept(forward, primals)
        except Exception as error:
            return self._finding(PARTITION, None, broken(error), detail="what backward keeps")
        tangents = [self.inputs[k] for k, s in enumerate(built.sources) if s.kind == TANGENT]
        return self._of_part(built.parts[1], [*kept, *tangents], whole.outputs[count:])

    def _kept(self, forward: Ran, primals: list[Any]) -> list[Any]:
        """What the forward part leaves for the backward part."""
        halves = self.built.halves
        assert halves is not None
        graph = halves.forward
        after = list(primals)  # what the forward part writes to is not what it was
        for (target, _), array in zip(graph.writes, forward.writes, strict=True):
            after[graph.inputs.index(target)] = held_of(array, target.meta)
        return [
            held_of(forward.outputs[s.index], graph.outputs[s.index].meta)
            if s.kind == OUTPUT
            else after[s.index]
            for s in halves.saved
        ]

    def _of_part(
        self, part: Part, inputs: list[Any], want: Sequence[Array] | None
    ) -> Finding | None:
        graph = part.stages[0][1]
        self._given = inputs
        self._first = 0 if part is self.built.parts[0] else self.captured.forward_roots
        self.rewind()
        try:
            ran = Replay().run(graph, inputs)
            assert want is None or len(ran.outputs) >= len(want)
        except Exception as error:
            node = graph.nodes[-1] if graph.nodes else None
            return self._finding(PARTITION, node, broken(error), detail=f"in {part.name}")
        for k, b in enumerate(want or ()):
            found = Rule(local=False).difference(
                ran.outputs[k], b, graph.outputs[k].meta.dtype,
                lambda k=k: self._moved(graph, inputs, ("output", k)),  # type: ignore[misc]
                self._defined(("output", k)),
            )  # fmt: skip
            if found is not None:
                node = maker(graph, ("output", k))
                return self._finding(PARTITION, node, found, detail=f"in {part.name}")
        before = graph, self._ends(graph, ran, None), ran
        for name, after in part.stages[1:]:
            finding, before = self._of_pass(name, after, before, inputs)
            if finding is not None:
                return finding
        return self._of_steps(part, inputs, before)

    def _of_steps(
        self, part: Part, inputs: list[Any], right: tuple[Graph, Any, Ran]
    ) -> Finding | None:
        program, low = part.program, part.lowering
        if program is None or low is None:
            return None
        backend = backends.get(self.case.options.backend)
        given = [
            tensor_of_held(x)
            for k, (v, x) in enumerate(zip(part.graph.inputs, inputs, strict=True))
            if isinstance(v.meta, TensorMeta) and k not in part.constants
        ]
        numbers = tuple(x for x in inputs if not isinstance(x, Held))
        results = [new_tensor(m) for m in program.results]
        self.rewind()
        copies = [held_copy(t) for t in given]
        walk = Walk(program, low, backend, self.case.surroundings.generators)
        fault = walk.run(given, numbers, results)
        if fault is not None:
            return self._of_fault(fault)
        return self._of_assembly(part, copies, numbers, given, results)

    def _of_fault(self, fault: Fault) -> Finding:
        return self._finding(
            fault.stage, fault.node, fault.difference, kernel=fault.step.name,
            graph=fault.graph, inputs=fault.inputs, detail=fault.detail,
        )  # fmt: skip

    def _of_assembly(
        self, part: Part, copies: list[Any], numbers: Any, given: list[Any], results: list[Any]
    ) -> Finding | None:
        """Whether the program in one go gives what its steps gave."""
        entry, program = self.case.entry, part.program
        assert program is not None
        own = entry.runner if part is self.built.parts[0] else entry.joint.runner
        again = [tensor_of_held(x) for x in copies]
        made = [new_tensor(m) for m in program.results]
        for t in made:
            t._storage.host()[:] = 0x41
        self.rewind()
        own(again, numbers, made)
        names = [(f"result{k}", m) for k, m in enumerate(program.results)]
        names += [(f"argument{k}", m) for k, m in enumerate(program.arguments)]
        rule = Rule(local=True)
        for (name, meta), a, b in zip(names, [*made, *again], [*results, *given], strict=True):
            found = rule.difference(np.array(bits(a)), np.array(bits(b)), meta.dtype)
            if found is not None and not self._is_undefined(part, name):
                node = self._writer(part, name)
                detail = f"{name} of {part.name}"
                return self._finding(ASSEMBLY, node, found, detail=detail)
        return None

    def _is_undefined(self, part: Part, name: str) -> bool:
        """Whether a result holds memory that nobody filled."""
        if not any(n.op.qualified == _EMPTY for n in part.graph.nodes):
            return False
        made = [Replay(junk=j).run(part.graph, self._given) for j in (0, 0x41)]
        k = int(name.removeprefix("result")) if name.startswith("result") else -1
        return k >= 0 and not np.array_equal(made[0].outputs[k], made[1].outputs[k])

    def _writer(self, part: Part, name: str) -> Node | None:
        """The node whose value a buffer holds at the end."""
        graph = part.graph
        if name.startswith("result"):
            return maker(graph, ("output", int(name.removeprefix("result"))))
        low = part.lowering
        assert low is not None
        target = low.placing.arguments[int(name.removeprefix("argument"))]
        new = [v for t, v in graph.writes if t is target]
        return low.maker.get(new[0]) if new else None

    # ---- what is made of it --------------------------------------------------------------------

    def _of_results(self) -> Finding | None:
        """The program is right, and what the call left behind is not."""
        case = self.case
        if case.compiled is None:
            return None
        rule = Rule(local=False)
        expected = self._expected()
        for name, difference in case.seen.items():
            if name.startswith("gradient ") and not difference.what:
                wrong = self._of_gradient(name)
                if wrong is not None:
                    return wrong
            if difference.what:
                node = self._node_of(name)
                return self._finding(RESULTS, node, difference, detail=f"{name} is not right")
            if name in expected and name in case.compiled.tensors:
                array, dtype, at = expected[name]
                got = case.compiled.tensors[name].array
                found = rule.difference(
                    got, array, dtype, lambda at=at: self._spread_of(at), self._filled(name)  # type: ignore[misc]
                )  # fmt: skip
                if found is not None:
                    detail = f"{name} is not what the program computes"
                    return self._finding(RESULTS, self._node_of(name), found, detail=detail)
        return None

    def _of_gradient(self, name: str) -> Finding | None:
        """A gradient that a backward pass from outside gave, its program being right."""
        case = self.case
        x = self.captured.gradients[int(name.split()[1])]
        if x is None or case.compiled is None or case.eager is None:
            return None
        index = self.captured.forward_roots + x.index
        root = self.built.captured.outputs[index]
        memory = self.right.last[root.index]
        reading = Held(x.meta, memory._storage, memory._offset + x.offset)
        got = case.compiled.tensors.get(name)
        want = case.eager.tensors.get(name)
        if got is None or want is None:
            return None
        found = Rule(local=False).difference(
            got.array, want.array, x.meta.dtype, lambda: self._spread_of((reading, root.index, 0))
        )
        if found is None:
            return None
        node = maker(self.built.captured, ("output", index))
        return self._finding(
            RESULTS, node, found, detail=f"{name} is not what its program computes"
        )

    def _node_of(self, name: str) -> Node | None:
        """The op that made what has this name."""
        graph, captured = self.built.captured, self.captured
        count = self.returned()
        for k, x in enumerate(captured.leaves[:count]):
            own = f"result {k}" if count > 1 else "the result"
            if name == own and type(x) is Outcome and not x.of_input:
                return maker(graph, ("output", x.index))
        for effect in captured.effects:
            owner = tensor_of(effect.owner, self.case.leaves)
            known = self.case.surroundings.named.get(id(owner))
            x = effect.outcome
            if known is not None and name.endswith(f"gradient of {known[0]}") and x is not None:
                return None if x.of_input else maker(graph, ("output", x.index))
        return graph.nodes[-1] if graph.nodes else None

    def _of_nobody(self) -> Finding | None:
        """Every stage is right: what differs is rounding, or nobody knows."""
        case = self.case
        for name, difference in case.seen.items():
            if name.startswith("gradient "):
                continue  # of a backward pass: its programs were found right
            if name not in self._expected():
                return self._finding(UNKNOWN, self._node_of(name), difference, detail=name)
        return None

    def _finding(
        self, stage: str, node: Node | None, difference: Difference, *, kernel: str = "",
        graph: Graph | None = None, inputs: list[Any] | None = None, detail: str = "",
    ) -> Finding:  # fmt: skip
        return Finding(
            stage,
            "" if node is None else node.op.qualified,
            str(difference),
            place=None if node is None else node.place,
            kernel=kernel,
            seen={name: str(d) for name, d in self.case.seen.items()},
            detail=detail,
            graph=graph,
            inputs=inputs or [],
        )


def _as_eager_does(
    node: Node, seen: dict[int, Array], graph: Graph, given: list[Any]
) -> Sequence[Any]:
    """The results of one op by its own kernel."""
    if node.op.kind == op_.COMPOSITE:
        with dispatch.unseen(), set_grad_enabled(False):
            read = map_values(lambda v: tensor_of_held(held_of(seen[v.index], v.meta)), node.args)
            result = dispatch.entry.run(node.op, read)
        return result if isinstance(result, tuple) else (result,)
    outs = [new_tensor(v.meta) for v in node.outputs]
    backend = backends.get(node.outputs[0].meta.device.type)
    backend.compile(graph)([tensor_of_held(x) for x in given], outs)
    return outs
