"""Primitives as kernels that any device can run: loops, loads, stores, scalar instructions.

A backend whose device takes kernels (as text, as an IR) says once how one is written (`Writer`) and
can then run all of these. They are meant to be right and short, not fast: a rule of its own
replaces a formula wherever speed matters.

    def writer(self):
        return MyWriter(...)

    def compile(self, graph):
        return formulas.executable(graph, self)
"""

from __future__ import annotations

from typing import Any

from lucerne._src.backends.contract.backend import Executable as ExecutableState
from lucerne._src.backends.formulas import fourier as fourier
from lucerne._src.backends.formulas import index as index
from lucerne._src.backends.formulas import linalg as linalg
from lucerne._src.backends.formulas import svd as svd
from lucerne._src.backends.formulas import windows as windows
from lucerne._src.backends.formulas.elementwise import pointwise
from lucerne._src.backends.formulas.frame import FormulaExecutable, Frame
from lucerne._src.backends.formulas.groups import Groups as Groups
from lucerne._src.backends.formulas.nonzero import Nonzero
from lucerne._src.backends.formulas.reduce import reduction
from lucerne._src.backends.formulas.table import FORMULAS
from lucerne._src.backends.formulas.table import formula as formula
from lucerne._src.backends.formulas.writer import Launch as Launch
from lucerne._src.backends.formulas.writer import Writer as Writer
from lucerne._src.ir import op as op_
from lucerne._src.ir.graph import Graph
from lucerne._src.ir.op import Op

__all__ = ["Frame", "Groups", "Launch", "Writer", "executable", "formula", "has"]


def has(op: Op) -> bool:
    """Whether there is a formula for an op."""
    return _found(op) is not None


def _found(op: Op) -> Any:
    if op.qualified in FORMULAS:
        return FORMULAS[op.qualified]
    if op.data_dependent:
        return Nonzero if op.qualified == "nonzero" else None
    return {op_.POINTWISE: pointwise, op_.REDUCTION: reduction}.get(op.kind)


def executable(graph: Graph, backend: Any) -> ExecutableState:
    """A graph of one op as kernels of this backend: `backend.writer()` begins one."""
    if len(graph.nodes) != 1 or not has(graph.nodes[0].op):
        names = ", ".join(n.op.qualified for n in graph.nodes)
        raise NotImplementedError(f"there is no formula for {names}")
    found = _found(graph.nodes[0].op)
    return found(graph, backend) if found is Nonzero else FormulaExecutable(graph, found, backend)
