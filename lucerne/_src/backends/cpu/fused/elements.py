"""Element-wise ops computed inside another kernel's loops, on the vectors it has at hand.

A kernel that walks over a tensor (batch norm, a convolution's results) may take the element-wise
ops before or after it into its walk. They are read as expressions of a `FusedProgram`; whoever
walks hands over the vectors of what flows in and gets those of the results. All rounding of a
stored value happens here as it would in memory, so the fused ops give the bits of separate ones.
"""

from __future__ import annotations

from collections.abc import Sequence

from lucerne._src.backends.cpu.elementwise.apply import apply_point, rounded_to
from lucerne._src.backends.cpu.fused.account import Account
from lucerne._src.backends.cpu.fused.passes import describe
from lucerne._src.backends.cpu.fused.program import (
    Convert,
    FusedExpr,
    FusedNumber,
    FusedOp,
    FusedProgram,
    Load,
)
from lucerne._src.backends.cpu.machine import LlvmScalar
from lucerne._src.backends.cpu.math.number import NotTaken, Num
from lucerne._src.base import dtype as dt
from lucerne._src.ir import op as op_
from lucerne._src.ir.checks.index_maps import LoopWalk
from lucerne._src.ir.graph import Graph, Node, Value, operands


class Elements:
    """Results of element-wise `nodes`, from the values `given`; NotTaken for other ops."""

    def __init__(
        self, nodes: Sequence[Node], given: Sequence[Value], results: Sequence[Value]
    ) -> None:
        graph = Graph()
        graph.inputs, graph.nodes, graph.outputs = list(given), list(nodes), tuple(results)
        self.given, self.results = tuple(given), tuple(results)
        self.graph, self.program = graph, FusedProgram(graph)
        if self.program.folds or any(n.op.kind == op_.VIEW for n in nodes):
            raise NotTaken("not element by element")
        if any(n.op.qualified == "counted_draw" for n in nodes):
            raise NotTaken("elements are not counted in other kernels' loops")

    @property
    def key(self) -> tuple[object, ...]:
        """Everything the code depends on; numbers are part of the code."""
        numbers = tuple(repr(e.value) for e in self.program.exprs if isinstance(e, FusedNumber))
        return describe(self.program), numbers

    def walk(
        self, loops: Sequence[tuple[int, Sequence[int]]], steps: Sequence[Sequence[int]]
    ) -> LoopWalk:
        """What loops go through. `loops`: of each one the size and the bytes it goes on in every
        result; `steps`: likewise, what it goes on in everything that flows in."""
        account = Account(self.program)
        for k, v in enumerate(self.results):
            account.store(v, 0, k)
        count = len(self.results)
        for e in self.program.exprs:
            if isinstance(e, Load):
                account.load(e, e.memory.slot)
        assert len(steps) == len(loops)
        return account.walk(
            [(n, (*mine[:count], *theirs)) for (n, mine), theirs in zip(loops, steps, strict=True)]
        )

    @property
    def dtypes(self) -> list[dt.dtype]:
        return [v.meta.dtype for v in self.results]

    def run(self, machine: LlvmScalar, given: Sequence[Num | None]) -> list[Num]:
        """One vector of every result, not rounded to its dtype yet (a store does that).

        `given` are the vectors of what flows in, as their dtypes hold them.
        """
        raw: dict[FusedExpr, Num] = {}

        def get(e: FusedExpr) -> Num:
            return rounded_to(machine, raw[e], e.dtype)

        for e in self.program.exprs:
            if isinstance(e, Load):
                found = given[e.memory.slot - len(self.results)]
                assert found is not None, "a value that was said to be given is not there"
                raw[e] = found
            elif isinstance(e, FusedNumber):
                raw[e] = machine.to(e.value, e.dtype.compute)
            elif isinstance(e, Convert):
                raw[e] = machine.to(get(e.source), e.dtype.compute)
            else:
                assert isinstance(e, FusedOp), e
                raw[e] = apply_point(e, machine, get)
        if machine.failed is not None:
            raise NotTaken("an op that may fail")
        return [raw[r.expr] for r in self.program.results]


def inputs_of(nodes: Sequence[Node]) -> list[Value]:
    """Values that nodes read and none of them makes, each once, in order."""
    made = {v.index for n in nodes for v in n.outputs}
    read = {v.index: v for n in nodes for v in operands(n.args) if v.index not in made}
    return list(read.values())
