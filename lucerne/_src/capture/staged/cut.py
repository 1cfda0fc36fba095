"""A graph with unbacked sizes in stages, by turns: nodes whose sizes are all known when the program
is made are compiled together, and the others run as eager's kernels, each when its sizes are known.

A program per size found would have to be made at nearly every call: sizes that depend on the data
hardly come twice. Kernels of single ops do not depend on sizes, as in eager.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from lucerne._src.backends.contract.control_flow import is_control
from lucerne._src.ir import op as op_
from lucerne._src.ir.checks.may_raise import may_raise
from lucerne._src.ir.graph import Graph, Node, Value, copy_nodes, operands
from lucerne._src.ir.symbolic.expressions import FORMULAS
from lucerne._src.ir.symbolic.numbers import UNBACKED
from lucerne._src.transforms.generalize import formula_of, meta_formula

_FEW = 2
"""So few nodes are no program of their own: a call of one costs as much as they do."""


@dataclass
class ProgramStage:
    """Nodes that run together, in order."""

    compiled: bool
    nodes: list[Node] = field(default_factory=list)


def symbols_in(formula: Any) -> frozenset[str]:
    """The unbacked symbols of what `formula_of` gave."""
    if isinstance(formula, FORMULAS):
        return frozenset(n for n in formula.symbols() if n.startswith(UNBACKED))
    if isinstance(formula, tuple | list):
        return frozenset().union(*map(symbols_in, formula))
    return frozenset()


def symbols_of(node: Node) -> frozenset[str]:
    """The unbacked symbols that a node's arguments and results are told with."""
    plain = tuple(a for a in node.args if type(a) is not Value)
    given = [v.meta for v in (*operands(node.args), *node.outputs)]
    found = symbols_in(formula_of(plain))
    return found.union(*[symbols_in(meta_formula(m)) for m in given])


class Cut:
    """Which node runs in which stage. `bound`: by value, the symbol that is known once it is.
    `decisive`: symbols that Python decided by. What it did after it knew one of them runs when the
    decision has been checked: it may raise if that comes out otherwise."""

    def __init__(
        self,
        graph: Graph,
        bound: dict[int, str],
        decisive: frozenset[str] = frozenset(),
        compiles: bool = True,
    ) -> None:
        self.decisive = decisive
        self.graph, self.bound = graph, bound
        self.nodes = alive(graph, set(bound))
        self.symbols = {id(n): symbols_of(n) for n in self.nodes}
        self.views = {v.index: n for n in self.nodes if n.op.kind == op_.VIEW for v in n.outputs}
        self.single = {id(n) for n in self.nodes if not compiles or self._is_single(n)}
        """Nodes that are run by themselves."""
        self.levels: dict[int, int] = {}
        self._level()
        if self._without_few():
            self._level()

    def _is_single(self, node: Node) -> bool:
        random = node.op.kind == op_.RANDOM  # (drawn in eager's order)
        return node.op.data_dependent or random or bool(self.symbols[id(node)])

    def _level(self) -> None:
        """By number of a value and by id of a node: odd ones are stages of single nodes."""
        levels = self.levels = {v.index: 0 for v in self.graph.inputs}
        known: dict[str, int] = {}
        drawn = least = 0
        for node in self.nodes:
            at = max([levels[v.index] for v in operands(node.args)], default=0)
            at = max(at, least)
            at = max([at, *[known.get(s, 0) for s in self.symbols[id(node)]]])
            if node.op.kind == op_.RANDOM:
                at = drawn = max(at, drawn)
            if node.op.kind != op_.VIEW or id(node) in self.single:
                at += at % 2 != (id(node) in self.single)
            levels[id(node)] = at
            for v in node.outputs:
                levels[v.index] = at
                if v.index in self.bound:
                    name = self.bound[v.index]
                    known[name] = at + 1 - at % 2
                    least = max(least, known[name]) if name in self.decisive else least

    def _without_few(self) -> bool:
        """Let stages of few nodes run node by node. Whether there were any."""
        by_level: dict[int, list[Node]] = {}
        for node in self.nodes:
            if id(node) not in self.single and node.op.kind != op_.VIEW:
                by_level.setdefault(self.levels[id(node)], []).append(node)
        few = [n for nodes in by_level.values() if len(nodes) <= _FEW for n in nodes]
        few = [n for n in few if not is_control(n)]
        self.single.update(map(id, few))
        return bool(few)

    def stages(self) -> list[ProgramStage]:
        """In order. A view is made by each stage that reads it."""
        found: dict[int, ProgramStage] = {}
        for node in self.nodes:
            if node.op.kind == op_.VIEW and id(node) not in self.single:
                continue
            at = self.levels[id(node)]
            stage = found.setdefault(at, ProgramStage(compiled=id(node) not in self.single))
            stage.nodes.append(node)
        made = [found[at] for at in sorted(found)]
        for stage in made:
            stage.nodes = self._with_views(stage.nodes)
        ends = (*self.graph.outputs, *(w for _, w in self.graph.writes))
        last = self._with_views([], ends)
        return [*made, ProgramStage(False, last)] if last else made

    def _with_views(self, nodes: list[Node], wanted: Iterable[Value] = ()) -> list[Node]:
        """Nodes with the views that they read, those of single nodes left out: they have run."""
        found: list[Node] = []
        there: set[int] = set()

        def bring(v: Value) -> None:
            node = self.views.get(v.index)
            if node is None or id(node) in self.single or id(node) in there:
                return
            there.add(id(node))
            for w in operands(node.args):
                bring(w)
            found.append(node)

        for node in nodes:
            for v in operands(node.args):
                bring(v)
            found.append(node)
        for v in wanted:
            bring(v)
        return found


def alive(graph: Graph, kept: Iterable[int] = ()) -> list[Node]:
    """Nodes that outputs, writes or sizes are computed from."""
    wanted = {v.index for v in graph.outputs} | {w.index for _, w in graph.writes}
    wanted.update(kept)
    found = []
    for node in reversed(graph.nodes):
        stays = node.op.kind == op_.RANDOM or may_raise(node)
        if stays or any(v.index in wanted for v in node.outputs):
            found.append(node)
            wanted.update(v.index for v in operands(node.args))
    return found[::-1]


def subgraph(nodes: list[Node], wanted: set[int]) -> tuple[Graph, list[Value], list[Value]]:
    """The graph of some nodes, the values it reads, and those of it that others want."""
    made, here = Graph(), {}
    inside = {v.index for n in nodes for v in n.outputs}
    read = {v.index: v for n in nodes for v in operands(n.args) if v.index not in inside}
    for v in read.values():
        here[v.index] = made.input(v.meta)
    copy_nodes(made, nodes, here)
    given = [
        v for n in nodes if n.op.kind != op_.VIEW for v in n.outputs if v.index in wanted
    ]  # (views are made by who reads them)
    made.outputs = tuple(here[v.index] for v in given)
    return made, list(read.values()), given
