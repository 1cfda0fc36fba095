"""Steps that hold programs: which one runs, and how often, is decided by Python at each call.

The same for all backends: a graph of a control-flow op was compiled before (`SubProgram`), and its
runner reads and writes places like any other step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lucerne._src.backends.contract.backend import Executable, Runner
from lucerne._src.backends.contract.tensor_view import Room, elements, row
from lucerne._src.ir.graph import Graph, Node
from lucerne._src.ir.program import Program
from lucerne._src.ops.control import NAMES


class SubProgram:
    """A graph inside a node that is ready to run."""

    __slots__ = ("graph", "program", "runner")

    def __init__(self, graph: Graph, program: Program, runner: Runner) -> None:
        self.graph, self.program, self.runner = graph, program, runner

    def __repr__(self) -> str:
        return f"<program of {len(self.graph.nodes)} nodes>"

    @property
    def inputs(self) -> Any:
        """This and the next two: it can be looked at, and run op by op, as the graph it is."""
        return self.graph.inputs

    @property
    def nodes(self) -> Any:
        return self.graph.nodes

    @property
    def outputs(self) -> Any:
        return self.graph.outputs


def _is_true(t: Any) -> bool:
    return bool(elements(t).reshape(-1)[0])


def _move(source: Any, target: Any) -> None:
    elements(target)[...] = elements(source)


def executable(node: Node, backend: Any) -> Executable:
    """What runs a control-flow node whose graphs are programs."""
    made: Executable = _KINDS[node.op.name](node, backend)
    return made


def is_control(node: Node) -> bool:
    return node.op.name in NAMES and node.op.namespace == ""


class _Cond:
    def __init__(self, node: Node, backend: Any) -> None:
        self.yes, self.no = node.args[2:]

    def __call__(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        chosen = self.yes if _is_true(inputs[0]) else self.no
        chosen.runner(inputs[1:], (), outputs)


class _While:
    def __init__(self, node: Node, backend: Any) -> None:
        self.goes_on, self.body = node.args[2:]
        self.count, self.backend = len(node.args[0]), backend

    def __call__(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        now, extra = list(inputs[: self.count]), list(inputs[self.count :])
        flag = Room(self.goes_on.outputs[0].meta, self.backend)
        rooms = [[Room(t._meta, self.backend) for t in now] for _ in range(2)]
        turn = 0
        while True:
            self.goes_on.runner([*now, *extra], (), [flag])
            if not _is_true(flag):
                break
            self.body.runner([*now, *extra], (), rooms[turn])
            now, turn = list(rooms[turn]), 1 - turn
        for source, target in zip(now, outputs, strict=True):
            _move(source, target)


class _Scan:
    def __init__(self, node: Node, backend: Any) -> None:
        self.body, self.length, self.reverse = node.args[3:]
        self.counts, self.backend = (len(node.args[0]), len(node.args[1])), backend

    def __call__(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        n, m = self.counts
        carry, xs, extra = list(inputs[:n]), inputs[n : n + m], inputs[n + m :]
        rooms = [[Room(t._meta, self.backend) for t in carry] for _ in range(2)]
        steps = range(self.length)
        for turn, k in enumerate(reversed(steps) if self.reverse else steps):
            to = rooms[turn % 2]
            rows = [row(y, k) for y in outputs[n:]]
            self.body.runner([*carry, *(row(x, k) for x in xs), *extra], (), [*to, *rows])
            carry = list(to)
        for source, target in zip(carry, outputs[:n], strict=True):
            _move(source, target)


_KINDS: dict[str, Any] = {"cond_graphs": _Cond, "while_graphs": _While, "scan_graphs": _Scan}
