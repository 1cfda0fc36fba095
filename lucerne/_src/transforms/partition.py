"""A joint graph cut into forward and backward, choosing what is kept between the two.

The joint graph computes outputs and gradients from primals (the inputs of the forward part) and
tangents (the gradients that arrive from outside). Everything that depends on a tangent belongs to
backward. What backward reads from the rest is either kept in memory from forward, or computed a
second time from other things that are kept. Keeping costs the bytes of a value; a minimum cut
finds the cheapest choice.

What decides:

* inputs are there anyway: keeping one costs nothing (unless forward overwrites it);
* a view costs nothing and is never kept: its base is;
* products, convolutions, attention, sorts, scans and other heavy nodes are never computed twice,
  and no random number is ever drawn again;
* element-wise ops, casts and copies may be, and with a smaller `budget` folds as well, but never
  in longer chains than the budget allows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from lucerne._src.base import layout as lo
from lucerne._src.ir import op as op_
from lucerne._src.ir.checks.may_raise import may_raise
from lucerne._src.ir.graph import Graph, Node, Value, copy_nodes, operands
from lucerne._src.ir.op import Op
from lucerne._src.ops.copy.cast import clone_as
from lucerne._src.transforms import dead
from lucerne._src.transforms.flow import ENDLESS, SINK, SOURCE, Network
from lucerne._src.transforms.rewrite import nbytes, producers

INPUT, OUTPUT = "input", "output"

_CLONE: Op = clone_as.op  # type: ignore[attr-defined]
_LONGEST = 16
"""The longest chain of nodes computed again under a full budget; after half of it a chain ends at
the next value that lies in memory anyway, because a heavy node reads it."""
_FOLDS_BELOW = 0.6
"""With a budget below this, folds may be computed again too."""


@dataclass(frozen=True)
class Saved:
    """A value that backward gets from forward.

    `kind` "input": it is input number `index` of forward; "output": output number `index`.
    """

    value: Value
    kind: str
    index: int


@dataclass
class PartitionReport:
    """What the cut decided, for people to read."""

    bytes_saved: int = 0
    """Bytes kept between forward and backward, without inputs."""
    bytes_without: int = 0
    """The same if everything that backward reads was kept and nothing computed again."""
    recomputed: Counter[str] = field(default_factory=Counter)
    """How often each op is computed a second time (views, which cost nothing, left out)."""

    def __str__(self) -> str:
        names = ", ".join(f"{n} x {name}" for name, n in self.recomputed.most_common())
        return (
            f"kept for backward: {self.bytes_saved:,} bytes (all it reads: "
            f"{self.bytes_without:,}); computed again: {names or 'nothing'}"
        )


@dataclass
class Split:
    """The two graphs.

    `forward` has the primals as inputs; its outputs are those of the joint graph, then the values
    kept for backward that are neither inputs nor outputs already. `backward` has as inputs what
    `saved` lists, in that order, then the tangents; its outputs are the gradients.
    """

    forward: Graph
    backward: Graph
    saved: list[Saved]
    report: PartitionReport


def split(
    joint: Graph,
    forward_outputs: int,
    tangents: Sequence[Value],
    *,
    budget: float = 1.0,
    fragile: Sequence[Value] = (),
) -> Split:
    """Cut a joint graph whose first `forward_outputs` outputs are the results, the rest gradients.

    `budget` says how much memory may be spent to save time: 1 computes again only what costs
    nearly nothing, 0 keeps as little as possible. `fragile`: inputs that the caller may write to
    before backward runs. Those that the derivatives read must stay as they are (eager says so too),
    but nothing else is computed again from them.
    """
    if not 0 <= budget <= 1:
        raise ValueError(f"partition: the budget must be between 0 and 1, got {budget}")
    cut = _Cut(dead.run(joint), forward_outputs, tangents, budget, fragile)
    kept = cut.choose()
    return _assemble(cut, kept)


class _Cut:
    """Which nodes belong where, and the network that decides the rest."""

    def __init__(
        self,
        joint: Graph,
        forward_outputs: int,
        tangents: Sequence[Value],
        budget: float,
        fragile: Sequence[Value],
    ) -> None:
        self.joint, self.tangents = joint, list(tangents)
        self.results = joint.outputs[:forward_outputs]
        self.gradients = joint.outputs[forward_outputs:]
        self.made = producers(joint)
        given = {v.index for v in tangents}
        self.primals = [v for v in joint.inputs if v.index not in given]
        self.overwritten = {target.index for target, _ in joint.writes}
        self.late = self._depending(given)
        """Values that only backward can have."""
        wrong = [v for v in (*self.results, *(w for _, w in joint.writes)) if v.index in self.late]
        if wrong:
            raise ValueError(f"partition: {wrong[0].typed()} of forward depends on a tangent")
        self.again = self._recomputable(budget)
        """Nodes (by their first output) that backward may compute a second time."""
        self.needed = self._needed()
        """What backward reads of the rest."""
        self.overwritten |= {v.index for v in fragile if v.index not in self.needed}

    def _depending(self, given: set[int]) -> set[int]:
        """Values that depend on a tangent, or on a draw that backward makes.

        Draws come in the order of the joint graph: one after a draw of backward is backward's.
        """
        early = self._for_results()
        found = set(given)
        drawn = False
        for node in self.joint.nodes:
            late = any(v.index in found for v in operands(node.args))
            if node.op.kind == op_.RANDOM:
                late = late or (drawn and node.outputs[0].index not in early)
                drawn = drawn or late
            if late:
                found.update(v.index for v in node.outputs)
        return found

    def _for_results(self) -> set[int]:
        """What results and writes are computed from."""
        found = {v.index for v in (*self.results, *(w for _, w in self.joint.writes))}
        for node in reversed(self.joint.nodes):
            if any(v.index in found for v in node.outputs):
                found.update(v.index for v in operands(node.args))
        return found

    def _recomputable(self, budget: float) -> set[int]:
        longest = float("inf") if budget == 0 else _LONGEST / budget
        depth: dict[int, int] = {}
        found: set[int] = set()
        in_memory = {
            v.index
            for node in self.joint.nodes
            if node.outputs[0].index not in self.late and not _is_cheap(node, 1.0)
            for v in operands(node.args)
        }
        for node in self.joint.nodes:
            if node.outputs[0].index in self.late or not _is_cheap(node, budget):
                continue
            before = max((depth.get(v.index, 0) for v in operands(node.args)), default=0)
            here = before if node.op.kind == op_.VIEW else before + 1
            most = longest / 2 if node.outputs[0].index in in_memory else longest
            if here <= most or node.op.kind == op_.VIEW:
                found.add(node.outputs[0].index)
                depth.update((v.index, here) for v in node.outputs)
        return found

    def _needed(self) -> dict[int, Value]:
        """By number: early values that late nodes or gradients read."""
        found = {
            v.index: v
            for node in self.joint.nodes
            if node.outputs and node.outputs[0].index in self.late
            for v in operands(node.args)
            if v.index not in self.late
        }
        found.update((v.index, v) for v in self.gradients if v.index not in self.late)
        return found

    def cost(self, value: Value) -> int:
        """Bytes that keeping a value takes."""
        is_input = value.index not in self.made
        return 0 if is_input and value.index not in self.overwritten else nbytes(value.meta)

    def choose(self) -> set[int]:
        """The values to keep, by number: for each part of the graph that hangs together, a cut."""
        kept: set[int] = set()
        for part in self._parts():
            if len(part) == 1 and self._is_end(part[0]):
                kept.add(part[0].index)  # nothing to choose
            else:
                kept |= self._cut_part(part)
        return kept

    def _is_end(self, value: Value) -> bool:
        """Whether a value is never computed again."""
        node = self.made.get(value.index)
        return node is None or node.outputs[0].index not in self.again

    def _parts(self) -> list[list[Value]]:
        """What backward needs and all it could be computed from, in independent parts."""
        parts: list[list[Value]] = []
        region = self._region()
        links: dict[int, list[Value]] = {k: [] for k in region}
        for index, value in region.items():
            if not self._is_end(value):
                node = self.made[index]
                near = [*operands(node.args), *(v for v in node.outputs if v.index in region)]
                for v in near:
                    links[index].append(v)
                    links[v.index].append(value)
        seen: set[int] = set()
        for index, value in region.items():
            if index in seen:
                continue
            seen.add(index)
            part = [value]
            for v in part:  # grows while it is walked
                for w in links[v.index]:
                    if w.index not in seen:
                        seen.add(w.index)
                        part.append(w)
            parts.append(part)
        return parts

    def _region(self) -> dict[int, Value]:
        """Needed values and, backwards through nodes that may be computed again, their sources."""
        region = dict(self.needed)
        todo = list(region.values())
        for value in todo:  # grows while it is walked
            if self._is_end(value):
                continue
            for v in operands(self.made[value.index].args):
                if v.index not in region:
                    region[v.index] = v
                    todo.append(v)
        return region

    def _cut_part(self, part: list[Value]) -> set[int]:
        """The cheapest values of a part to keep.

        Each value is an edge whose capacity is its cost; before it lies its computation, which
        needs its operands. What lies on the sink's side of the cut is there in backward.
        """
        net = Network()
        before, after = {}, {}
        for v in part:
            before[v.index], after[v.index] = net.vertex(), net.vertex()
        for v in part:
            node = self.made.get(v.index)
            is_view = node is not None and node.op.kind == op_.VIEW
            net.edge(before[v.index], after[v.index], ENDLESS if is_view else self.cost(v))
            if v.index in self.needed:
                net.edge(after[v.index], SINK, ENDLESS)
            if node is None or self._is_end(v):
                net.edge(SOURCE, before[v.index], ENDLESS)
            else:
                for w in operands(node.args):
                    net.edge(after[w.index], before[v.index], ENDLESS)
        net.solve()
        there = net.sink_side()
        return {v.index for v in part if after[v.index] in there and before[v.index] not in there}


def _is_cheap(node: Node, budget: float) -> bool:
    """Whether a node may be computed a second time at all."""
    kind = node.op.kind
    if kind in (op_.POINTWISE, op_.VIEW) or node.op.cost == op_.MEMORY:
        return True
    return kind == op_.REDUCTION and budget < _FOLDS_BELOW


# ---- the two graphs -----------------------------------------------------------------------------


def _assemble(cut: _Cut, kept: set[int]) -> Split:
    """Forward computes results, writes and what is kept; backward the gradients from that."""
    joint = cut.joint
    order = [*joint.inputs, *(v for n in joint.nodes for v in n.outputs)]
    wanted = [v for v in order if v.index in kept]
    backward_nodes = _chain(cut, cut.gradients, kept, late=True)
    read = {v.index for n in backward_nodes for v in operands(n.args)}
    read |= {v.index for v in cut.gradients}
    wanted = [v for v in wanted if v.index in read]
    forward, saved = _forward(cut, wanted)
    backward, here = _started(list(wanted) + cut.tangents)
    copy_nodes(backward, backward_nodes, here)
    backward.outputs = tuple(here[v.index] for v in cut.gradients)
    return Split(forward, backward, saved, _report(cut, wanted, backward_nodes))


def _chain(cut: _Cut, wanted: Iterable[Value], ends: set[int], *, late: bool) -> list[Node]:
    """The nodes that compute `wanted` from `ends`, in order; random draws of this half as well, and
    what may raise."""
    needed = {v.index for v in wanted}
    found: list[Node] = []
    for node in reversed(cut.joint.nodes):
        mine = node.outputs[0].index in cut.late
        stays = any(v.index in needed and v.index not in ends for v in node.outputs)
        if not stays and mine is late:
            stays = node.op.kind == op_.RANDOM or may_raise(node)
        if stays:
            found.append(node)
            needed.update(v.index for v in operands(node.args))
    found.reverse()
    return found


def _forward(cut: _Cut, wanted: list[Value]) -> tuple[Graph, list[Saved]]:
    graph, here = _started(cut.primals)
    writes = [value for _, value in cut.joint.writes]
    copy_nodes(graph, _chain(cut, [*cut.results, *writes, *wanted], set(), late=False), here)
    outputs = [here[v.index] for v in cut.results]
    places = {v.index: k for k, v in reversed(list(enumerate(cut.results)))}
    inputs = {v.index: k for k, v in enumerate(cut.primals)}
    saved: list[Saved] = []
    for v in wanted:
        if v.index in inputs and v.index not in cut.overwritten:
            saved.append(Saved(v, INPUT, inputs[v.index]))
            continue
        if v.index in inputs:  # what it holds now is gone afterwards
            outputs += graph.call(_CLONE, (here[v.index], lo.preserve_format), [v.meta])
            saved.append(Saved(v, OUTPUT, len(outputs) - 1))
            continue
        if v.index not in places:
            places[v.index] = len(outputs)
            outputs.append(here[v.index])
        saved.append(Saved(v, OUTPUT, places[v.index]))
    graph.outputs = tuple(outputs)
    graph.writes = [(here[t.index], here[v.index]) for t, v in cut.joint.writes]
    return graph, saved


def _started(inputs: Sequence[Value]) -> tuple[Graph, dict[int, Value]]:
    graph = Graph()
    return graph, {v.index: graph.input(v.meta) for v in inputs}


def _report(cut: _Cut, wanted: list[Value], backward_nodes: list[Node]) -> PartitionReport:
    bases: dict[int, Value] = {}
    for v in cut.needed.values():
        base = v
        while (node := cut.made.get(base.index)) is not None and node.op.kind == op_.VIEW:
            base = node.args[0]
        bases[base.index] = base
    again = [
        n.op.qualified
        for n in backward_nodes
        if n.outputs[0].index not in cut.late and n.op.kind != op_.VIEW
    ]
    return PartitionReport(
        sum(cut.cost(v) for v in wanted), sum(map(cut.cost, bases.values())), Counter(again)
    )
