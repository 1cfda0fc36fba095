"""Who is to blame once the captured graph is right: a pass, a half, a step, or their assembly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lucerne._src import backends
from lucerne._src.backends.contract.tensor_view import Spot
from lucerne._src.capture.shadow.evidence import EMPTY, Evidence
from lucerne._src.capture.shadow.graphs import (
    alike,
    broken,
    first_changed,
    first_new,
    maker,
    words,
)
from lucerne._src.capture.shadow.nearness import Array, NearnessRule
from lucerne._src.capture.shadow.replay import Ran, Replay, held_copy, range_of, tensor_of_held
from lucerne._src.capture.shadow.report import ASSEMBLY, Finding
from lucerne._src.capture.shadow.reproduce import small_case
from lucerne._src.capture.shadow.stages import PARTITION, ShadowPart
from lucerne._src.capture.shadow.walk import ShadowFault, ShadowWalk
from lucerne._src.capture.trace.input_sources import TANGENT
from lucerne._src.ir.graph import Graph, Node
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.tensor.base import new_tensor
from lucerne._src.tensor.interop.outside import bits
from lucerne._src.transforms.interpret import held
from lucerne._src.transforms.partition import OUTPUT


class ByStage(Evidence):
    """Compares each stage with the one before it."""

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
            found = NearnessRule(local=False).difference(
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
            return alike(x.array, y.array) if isinstance(x, Spot) else None
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
                if isinstance(x, Spot) and v.index not in fresh:
                    made["input", k] = x.array, v.meta.dtype
            return made
        stored = {t.index: a for (t, _), a in zip(graph.writes, ran.writes, strict=True)}
        for k, (v, x) in enumerate(zip(graph.inputs, ran.inputs, strict=True)):
            if isinstance(x, Spot):
                made["input", k] = stored.get(v.index, x.array), v.meta.dtype
        return made

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
            after[graph.inputs.index(target)] = held(array, target.meta)
        return [
            held(forward.outputs[s.index], graph.outputs[s.index].meta)
            if s.kind == OUTPUT
            else after[s.index]
            for s in halves.saved
        ]

    def _of_part(
        self, part: ShadowPart, inputs: list[Any], want: Sequence[Array] | None
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
            found = NearnessRule(local=False).difference(
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
        self, part: ShadowPart, inputs: list[Any], right: tuple[Graph, Any, Ran]
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
        numbers = tuple(x for x in inputs if not isinstance(x, Spot))
        results = [new_tensor(m) for m in program.results]
        self.rewind()
        copies = [held_copy(t) for t in given]
        walk = ShadowWalk(program, low, backend, self.case.surroundings.generators)
        fault = walk.run(given, numbers, results)
        if fault is not None:
            return self._of_fault(fault)
        return self._of_assembly(part, copies, numbers, given, results)

    def _of_fault(self, fault: ShadowFault) -> Finding:
        return self._finding(
            fault.stage, fault.node, fault.difference, kernel=fault.step.name,
            graph=fault.graph, inputs=fault.inputs, detail=fault.detail,
        )  # fmt: skip

    def _of_assembly(
        self,
        part: ShadowPart,
        copies: list[Any],
        numbers: Any,
        given: list[Any],
        results: list[Any],
    ) -> Finding | None:
        """Whether the program in one go gives what its steps gave."""
        entry, program = self.case.entry, part.program
        assert program is not None
        own = entry.runner if part is self.built.parts[0] else entry.joint.runner
        again = [tensor_of_held(x) for x in copies]
        made = [new_tensor(m) for m in program.results]
        for t in made:
            t._storage.write(0, np.full(t._storage.nbytes, 0x41, np.uint8))
        self.rewind()
        own(again, numbers, made)
        names = [(f"result{k}", m) for k, m in enumerate(program.results)]
        names += [(f"argument{k}", m) for k, m in enumerate(program.arguments)]
        rule = NearnessRule(local=True)
        for (name, meta), a, b in zip(names, [*made, *again], [*results, *given], strict=True):
            found = rule.difference(np.array(bits(a)), np.array(bits(b)), meta.dtype)
            if found is not None and not self._is_undefined(part, name):
                node = self._writer(part, name)
                detail = f"{name} of {part.name}"
                return self._finding(ASSEMBLY, node, found, detail=detail)
        return None

    def _is_undefined(self, part: ShadowPart, name: str) -> bool:
        """Whether a result holds memory that nobody filled."""
        if not any(n.op.qualified == EMPTY for n in part.graph.nodes):
            return False
        made = [Replay(junk=j).run(part.graph, self._given) for j in (0, 0x41)]
        k = int(name.removeprefix("result")) if name.startswith("result") else -1
        return k >= 0 and not np.array_equal(made[0].outputs[k], made[1].outputs[k])

    def _writer(self, part: ShadowPart, name: str) -> Node | None:
        """The node whose value a buffer holds at the end."""
        graph = part.graph
        if name.startswith("result"):
            return maker(graph, ("output", int(name.removeprefix("result"))))
        low = part.lowering
        assert low is not None
        target = low.placing.arguments[int(name.removeprefix("argument"))]
        new = [v for t, v in graph.writes if t is target]
        return low.maker.get(new[0]) if new else None
