"""A version of a function for all sizes: compiled once, at a new size its numbers are evaluated.

`Sized` is a capture for all sizes. Its graph goes the whole road once more with symbols in it:
every decision on the way that depends on a size (a tile, an algorithm, a layout) is a guard, and
every number of the programs is a formula. For sizes that all guards hold for, a version is made
by evaluating them (`SizedVersion.at`): no pass runs, no plan is made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from lucerne._src.backends.contract.backend import OneSizeError, SizedProgram
from lucerne._src.base.changed import changed
from lucerne._src.base.process.forks import once
from lucerne._src.base.shape import Size
from lucerne._src.capture.aot.backward import Joint
from lucerne._src.capture.aot.pruned_backward import Compile, PrunedBackward
from lucerne._src.capture.cache.entry import CacheEntry, Guards
from lucerne._src.capture.symbolic.shapes import all_outcomes, with_gradients
from lucerne._src.capture.trace.captured import Captured, CapturedResult, GradientStore
from lucerne._src.ir.graph import Graph, Node, Value
from lucerne._src.ir.meta import TensorMeta, is_sized
from lucerne._src.ir.symbolic.at_sizes import graph_at
from lucerne._src.ir.symbolic.evaluate import predicate, things_at
from lucerne._src.ir.symbolic.expressions import Guard, symbol
from lucerne._src.ir.symbolic.numbers import SizeGuards, SymInt
from lucerne._src.loops.stages import StagesAt
from lucerne._src.transforms.generalize import evaluated, formula_of


@dataclass
class SizedBackward:
    """The backward pass for all sizes."""

    program: SizedProgram
    joint: Joint
    """With symbols; nothing runs it."""
    graph: Graph
    sums: frozenset[int]
    constants: dict[int, Any]
    compile: Compile


def symbols_at(sizes: dict[str, int]) -> dict[str, Any]:
    """Symbols that stand for these sizes, and for any others."""
    return {name: SymInt(n, symbol(name)) for name, n in sizes.items()}


class SizedGraph(Graph):
    """The graph of a captured call at some sizes: its nodes are made when somebody looks."""

    __slots__ = ("_graph", "_sizes")

    def __init__(self, graph: Graph, inputs: list[Value], sizes: dict[str, int]) -> None:
        self._graph: Any = graph
        self._sizes = sizes
        self.inputs, self.outputs, self.writes = inputs, (), []
        self._next, self.place = graph._next, None

    @property
    def nodes(self) -> list[Node]:  # type: ignore[override]
        if self._sizes is not None:
            self._graph, self._sizes = graph_at(self._graph, self._sizes), None  # type: ignore[assignment]
        found: list[Node] = self._graph.nodes
        return found


class SizedVersion:
    """What is made of a capture for all sizes, and the guards that say for which it holds."""

    def __init__(
        self,
        names: Sequence[str],
        decisions: SizeGuards,
        building: Any,
        forward: SizedProgram,
        backward: SizedBackward | None,
    ) -> None:
        """`building`: what made the programs."""
        captured: Captured = building.captured
        self.names, self.captured = list(names), captured
        self.stages, self.key = building.stages, building.key
        self.forward, self.backward = forward, backward
        pinned = [g for g, by_value in decisions.items() if by_value is not None]
        if pinned:
            raise OneSizeError(f"a number is needed: {pinned[0]}")
        self.decisions: tuple[Guard, ...] = tuple(decisions)
        self._holds = predicate(self.decisions, self.names)
        self.first: CacheEntry | None = None
        """The version for the first sizes; others are made like it."""
        outcomes = all_outcomes(captured)
        inputs = captured.graph.inputs
        self._sized_inputs = [k for k, v in enumerate(inputs) if is_sized(v.meta)]
        tangents = [] if backward is None else backward.joint.tangents
        self._evaluate = things_at(
            [
                [(x.offset, x.meta) for x in outcomes],
                [inputs[k].meta for k in self._sized_inputs],
                list(tangents),
            ],
            self.names,
        )
        others = [x for x in captured.leaves if type(x) is not CapturedResult]
        self._others = [formula_of(x) for x in others]

    def holds(self, sizes: dict[str, int]) -> bool:
        return self._holds(*[sizes[name] for name in self.names])

    # ---- at a size -----------------------------------------------------------------------------

    def at(self, sizes: dict[str, int], guards_of: Callable[[Captured], Guards]) -> CacheEntry:
        """The version for these sizes; `guards_of` makes its guards."""
        given = [sizes[name] for name in self.names]
        places, metas, tangents = self._evaluate(*given)
        captured = self._captured_at(sizes, places, metas)
        runner, results = self.forward.at(given)
        guards = guards_of(captured)
        if self.first is None:
            self.first = entry = CacheEntry(
                captured, guards, runner, results, sorted(self.forward.written), self.stages,
                self.key,
            )  # fmt: skip
        else:
            entry = self.first.resized(captured, guards, runner, results)
        entry.stages = StagesAt(self.stages, lambda: self.forward.program_at(given))
        if self.backward is not None:
            entry.joint = self._joint_at(sizes, given, captured, tangents)
        return entry

    def _captured_at(
        self, sizes: dict[str, int], places: list[Any], metas: list[TensorMeta]
    ) -> Captured:
        old = self.captured
        moved: dict[int, CapturedResult] = {}
        for x, (offset, meta) in zip(all_outcomes(old), places, strict=True):
            if id(x) not in moved:
                same = meta is x.meta and type(x.offset) is int
                moved[id(x)] = x if same else changed(x, offset=offset, meta=meta)
        with_gradients(moved)
        rest = iter(self._others)

        def leaf(x: Any) -> Any:
            if type(x) is CapturedResult:
                return moved[id(x)]
            found = evaluated(next(rest), sizes)
            return Size(found) if isinstance(x, Size) else found

        def outcome(x: Any) -> Any:
            return moved[id(x)] if type(x) is CapturedResult else x

        inputs = list(old.graph.inputs)
        for k, meta in zip(self._sized_inputs, metas, strict=True):
            inputs[k] = Value(inputs[k].index, meta)
        return changed(
            old,
            graph=SizedGraph(old.graph, inputs, sizes),
            leaves=[leaf(x) for x in old.leaves],
            effects=[GradientStore(e.owner, outcome(e.outcome)) for e in old.effects],
            gradients=[outcome(x) for x in old.gradients],
        )

    def _joint_at(
        self, sizes: dict[str, int], given: list[int], captured: Captured, tangents: list[Any]
    ) -> Joint:
        backward = self.backward
        assert backward is not None
        runner, results = backward.program.at(given)
        if not runner.is_told:
            runner.expect()
        old = backward.joint
        made = changed(
            old, runner=runner, tangents=tangents, result_metas=results,
            gradients=captured.gradients, made_lean={}, times_asked={}, launch=runner.launch,
            _kept={},
            stages=StagesAt(old.stages, lambda: backward.program.program_at(given)),
        )  # fmt: skip
        if len(tangents) > 1 or len(made.gradients) > 1:
            made.make_lean = _Lean(made, backward, sizes)
        return made


class _Lean:
    """`Joint.make_lean` at some sizes."""

    def __init__(self, joint: Joint, backward: SizedBackward, sizes: dict[str, int]) -> None:
        self.joint, self.backward, self.sizes = joint, backward, sizes

    @once
    def _made(self) -> PrunedBackward:
        b = self.backward
        graph = graph_at(b.graph, self.sizes)
        return PrunedBackward(self.joint, graph, b.sums, b.constants, b.compile, self.joint.tell)

    def __call__(self, arrives: tuple[bool, ...], asked: tuple[bool, ...]) -> Joint | None:
        return self._made(arrives, asked)
