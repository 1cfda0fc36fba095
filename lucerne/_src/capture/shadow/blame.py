"""From two results that differ to the first op that does, and to the stage that made it so.

In order: does the captured graph, op by op, give what eager gives; does each pass leave it what it
was; does each step of the program compute what its ops compute, on what was made for it; do the
steps give the same as one program; and is the right thing made of its results.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from lucerne._src import backends
from lucerne._src.backends.contract.tensor_view import Spot
from lucerne._src.capture.shadow.by_stage import ByStage
from lucerne._src.capture.shadow.eagerly import EagerComposites, EagerWatcher
from lucerne._src.capture.shadow.evidence import EMPTY
from lucerne._src.capture.shadow.graphs import maker, one_op_inputs
from lucerne._src.capture.shadow.nearness import Array, Difference, NearnessRule
from lucerne._src.capture.shadow.replay import Replay, is_settled, spread, tensor_of_held
from lucerne._src.capture.shadow.report import EAGER, GUARDS, RESULTS, UNKNOWN, Finding
from lucerne._src.capture.shadow.stages import CAPTURE
from lucerne._src.ir import dispatch
from lucerne._src.ir import op as op_
from lucerne._src.ir.dispatch import Interpreter
from lucerne._src.ir.graph import Graph, Node, given_metas, map_values, one_op_graph
from lucerne._src.tensor.autograd.modes import set_grad_enabled
from lucerne._src.tensor.base import new_tensor
from lucerne._src.tensor.interop.outside import bits
from lucerne._src.transforms.interpret import held


class Bisection(ByStage):
    """The search for who is to blame."""

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
        got, rule = self.case.compiled, NearnessRule(local=False)
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
        if any(n.op.qualified == EMPTY for n in graph.nodes):
            self.rewind()
            self.other = Replay(junk=0x41).run(graph, self.inputs)

    def _of_capture(self) -> Finding | None:
        """Whether the captured graph says what eager does."""
        if self.case.eager is None:
            return None
        want, rule = self.case.eager, NearnessRule(local=False)
        for name, (array, dtype, at) in self._expected().items():
            if name not in want.tensors or name not in self.case.seen:
                continue

            def moved(at: Any = at) -> Any:
                return self._spread_of(at)

            known = self._filled(name)
            found = rule.difference(want.tensors[name].array, array, dtype, moved, known)
            if found is not None:
                return (
                    self._eager_kernel()
                    or self._eager_composite()
                    or self._captured_wrong(name, found)
                )
        return None

    def _eager_kernel(self) -> Finding | None:
        """An op whose own kernel is wrong, eager or not."""
        rule = NearnessRule(local=True)
        functional = self.built.stages[0][1]  # without writes: an operand is what was made
        self.rewind()
        ran = Replay().run(functional, self.inputs)
        for node in functional.nodes:
            given = one_op_inputs(node, ran.seen)
            skipped = node.op.kind in (op_.VIEW, op_.RANDOM) or node.op.qualified == EMPTY
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

    def _eager_composite(self) -> Finding | None:
        """A composite that eager mode runs as one kernel, which gives something else than the ops
        it stands for: the captured graph has these in its place."""
        watched = EagerComposites()
        self._run_watched(watched)
        rule = NearnessRule(local=True)
        for call in watched.calls:
            node, held = call.node, one_op_inputs(call.node, call.given)
            if held is None or not is_settled(node):
                continue
            metas = [v.meta for v in node.outputs]
            graph = one_op_graph(node.op, given_metas(node.op, node.args), metas)
            graph.outputs = graph.nodes[0].outputs
            want = Replay(keep=False).run(graph, held).outputs
            for k, (got, right) in enumerate(zip(call.got, want, strict=True)):
                found = rule.difference(
                    got, right, metas[k].dtype,
                    lambda k=k, g=graph, x=held: spread(g, x, lambda: None, k),  # type: ignore[misc]
                )  # fmt: skip
                if found is not None:
                    return self._finding(EAGER, node, found, graph=graph, inputs=held)
        return None

    def _run_watched(self, watcher: Interpreter) -> None:
        """Run the function once more under an interpreter, and put back what it changed."""
        case = self.case
        case.surroundings.put_back()
        with watcher, suppress(Exception):  # it is looked at as far as it came
            case.fn(*case.args, **case.kwargs)
        case.surroundings.put_back()

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
        watcher = EagerWatcher(self.case.options.whole)
        self._run_watched(watcher)
        calls = iter(watcher.calls)
        rule = NearnessRule(local=False)
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

    def _of_results(self) -> Finding | None:
        """The program is right, and what the call left behind is not."""
        case = self.case
        if case.compiled is None:
            return None
        rule = NearnessRule(local=False)
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
        reading = Spot(x.meta, memory._storage, memory._offset + x.offset)
        got = case.compiled.tensors.get(name)
        want = case.eager.tensors.get(name)
        if got is None or want is None:
            return None
        found = NearnessRule(local=False).difference(
            got.array, want.array, x.meta.dtype, lambda: self._spread_of((reading, root.index, 0))
        )
        if found is None:
            return None
        node = maker(self.built.captured, ("output", index))
        return self._finding(
            RESULTS, node, found, detail=f"{name} is not what its program computes"
        )

    def _of_nobody(self) -> Finding | None:
        """Every stage is right: what differs is rounding, or nobody knows."""
        case = self.case
        for name, difference in case.seen.items():
            if name.startswith("gradient "):
                continue  # of a backward pass: its programs were found right
            if name not in self._expected():
                return self._finding(UNKNOWN, self._node_of(name), difference, detail=name)
        return None


def _as_eager_does(
    node: Node, seen: dict[int, Array], graph: Graph, given: list[Any]
) -> Sequence[Any]:
    """The results of one op by its own kernel."""
    if node.op.kind == op_.COMPOSITE:
        with dispatch.unseen(), set_grad_enabled(False):
            read = map_values(lambda v: tensor_of_held(held(seen[v.index], v.meta)), node.args)
            result = dispatch.entry.run(node.op, read)
        return result if isinstance(result, tuple) else (result,)
    outs = [new_tensor(v.meta) for v in node.outputs]
    backend = backends.get(node.outputs[0].meta.device.type)
    backend.compile(graph)([tensor_of_held(x) for x in given], outs)
    return outs
