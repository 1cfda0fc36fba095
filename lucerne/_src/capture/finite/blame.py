"""Which op of a program made the first number that is not finite: its steps one by one, then the
nodes of the step. For calls that the function itself can't make once more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lucerne._src import backends
from lucerne._src.backends.contract.step_runner import StepRunner, inputs_of, over
from lucerne._src.backends.contract.tensor_view import elements
from lucerne._src.base.process.error_notes import step_failed
from lucerne._src.base.process.source_location import Origin
from lucerne._src.capture.finite.check import is_read
from lucerne._src.capture.shadow.nearness import wide
from lucerne._src.capture.shadow.replay import Ran, Replay, held_copy
from lucerne._src.ir.graph import Graph, Node, operands
from lucerne._src.ir.program import ARGUMENT, RESULT, Place, Program, Step
from lucerne._src.tensor.autograd.node import anomaly
from lucerne._src.tensor.autograd.nonfinite import NonFiniteError
from lucerne._src.tensor.base import new_tensor
from lucerne._src.transforms.interpret import held
from lucerne._src.transforms.rewrite import producers


@dataclass
class Birth:
    """An op that gave `values` of finite `given`; `origins` are the lines it may come from."""

    op: str
    values: Sequence[Any]
    given: Sequence[tuple[Any, Any]]
    """(meta, elements) of each of its inputs."""
    origins: Sequence[Origin]

    @property
    def is_backward(self) -> bool:
        return bool(self.origins) and all(o.backward for o in self.origins)

    @property
    def is_asked_for(self) -> bool:
        """Anomaly mode wants to know of nan in backward passes only."""
        return anomaly.looks is not None or (self.is_backward and self._counts()[0] > 0)

    def _counts(self) -> tuple[int, int]:
        """Values that are nan, and those that are infinite."""
        nans, infs = (sum(int(test(x).sum()) for x in self.values) for test in (np.isnan, np.isinf))
        return nans, infs

    def error(self) -> NonFiniteError:
        """In the words of a call that is seen as it is made."""
        direction = "backward" if self.is_backward else "forward"
        nans, infs = self._counts()
        kind, count = ("nan", nans) if nans else ("inf", infs)
        total = sum(x.size for x in self.values)
        shown = ", ".join(
            f"{meta.dtype.name}{list(meta.shape)}{_range(x)}" for meta, x in self.given
        )
        made = NonFiniteError(
            f"{self.op}() gave {kind} in {count} of {total} values in the {direction} pass, of "
            f"{shown or 'nothing'}"
        )
        step_failed(made, self.op, [meta for meta, _ in self.given], self.origins)
        return made


def _range(x: Any) -> str:
    return f" in [{x.min():.4g}, {x.max():.4g}]" if x.size else ""


def birth_in(program: Program, arguments: Sequence[Any], numbers: Sequence[Any]) -> Birth | None:
    """Run a program on these tensors, which it may write over, step by step; None: every step that
    was given finite numbers gave finite ones."""
    device = next((m.device.type for m in (*program.arguments, *program.results)), backends.HOST)
    steps = _Stepwise(program, backends.get(device))
    steps(arguments, numbers, [new_tensor(meta) for meta in program.results])
    return steps.birth


class _Stepwise(StepRunner):
    """Stops at the first step that makes something of finite numbers that is none."""

    birth: Birth | None = None

    def __call__(
        self, arguments: Sequence[Any], numbers: Sequence[Any], results: Sequence[Any]
    ) -> None:
        def spot(place: Place) -> Any:
            if place.kind in (ARGUMENT, RESULT):
                return over((arguments if place.kind == ARGUMENT else results)[place.index], place)
            return self._fixed.get(place) or self._fix(place)

        for step, execute in self._calls:
            inputs = inputs_of(step, spot, numbers)
            copies = [held(elements(x), x._meta) if hasattr(x, "_meta") else x for x in inputs]
            outputs = [spot(p) for p in step.outputs]
            execute(inputs, outputs)
            if all(map(_is_finite, copies)) and not all(map(_is_finite, outputs)):
                self.birth = _inside(step, copies, outputs)
                return


def _is_finite(x: Any) -> bool:
    return not is_read(getattr(x, "_meta", None)) or bool(np.isfinite(_numbers(x)).all())


def _numbers(x: Any) -> Any:
    return wide(elements(x), x._meta.dtype)


def _inside(step: Step, inputs: list[Any], outputs: list[Any]) -> Birth:
    """The node of a step, if the step is several; else, or if that can't be told, the step."""
    found = None
    if len(step.graph.nodes) > 1:
        try:
            found = birth_in_graph(step.graph, inputs)
        except Exception:  # (a node that only the backend knows how to run)
            found = None
    if found is not None:
        origins = found.origins or step.origins
        return Birth(found.op, found.values, found.given, origins)
    given = [(x._meta, _numbers(x)) for x in inputs if is_read(getattr(x, "_meta", None))]
    values = [_numbers(x) for x in outputs if is_read(x._meta)]
    return Birth(step.name, values, given, step.origins)


def birth_in_graph(graph: Graph, inputs: Sequence[Any]) -> Birth | None:
    """Of what a graph gives or writes: the first node where it was born."""
    ran = Replay().run(graph, [held_copy(x) for x in inputs])
    made = producers(graph)
    ends = (*graph.outputs, *(value for _, value in graph.writes))
    bad = [v.index for v in ends if _is_bad(v, ran)]
    seen: set[int] = set()
    born: set[int] = set()
    while bad:
        node = made.get(bad.pop())
        if node is None:
            continue
        worse = [v.index for v in operands(node.args) if _is_bad(v, ran)]
        if not worse:
            born.update(v.index for v in node.outputs)
        bad += [k for k in worse if k not in seen]
        seen.update(worse)
    first = (node for node in graph.nodes if any(v.index in born for v in node.outputs))
    return next((_of_node(node, ran) for node in first), None)


def _is_bad(v: Any, ran: Ran) -> bool:
    return is_read(v.meta) and not np.isfinite(wide(ran.seen[v.index], v.meta.dtype)).all()


def _of_node(node: Node, ran: Ran) -> Birth:
    given = [
        (v.meta, wide(ran.seen[v.index], v.meta.dtype))
        for v in operands(node.args)
        if is_read(v.meta)
    ]
    values = [wide(ran.seen[v.index], v.meta.dtype) for v in node.outputs if is_read(v.meta)]
    return Birth(node.op.name, values, given, () if node.place is None else (node.place,))
