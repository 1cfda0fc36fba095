"""A version of a function for all sizes: compiled once, at a new size its numbers are evaluated.

`Sized` is a capture for all sizes. Its graph goes the whole road once more with symbols in it:
every decision on the way that depends on a size (a tile, an algorithm, a layout) is a guard, and
every number of the programs is a formula. For sizes that all guards hold for, a version is made
by evaluating them (`SizedVersion.at`): no pass runs, no plan is made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lucerne._src.backends.contract.backend import OneSizeError, SizedProgram
from lucerne._src.base.changed import changed
from lucerne._src.base.process.forks import once
from lucerne._src.base.shape import Size
from lucerne._src.base.unspecialized import Symbolic
from lucerne._src.capture.aot.backward import Joint
from lucerne._src.capture.aot.pruned_backward import Compile, PrunedBackward
from lucerne._src.capture.cache.entry import CacheEntry, Guards
from lucerne._src.capture.symbolic.shapes import all_outcomes, checks_at, with_gradients
from lucerne._src.capture.trace.captured import Captured, CapturedResult, GradientStore
from lucerne._src.ir.graph import Graph, Node, Value
from lucerne._src.ir.meta import Flips, TensorMeta, is_sized
from lucerne._src.ir.symbolic.at_sizes import graph_at
from lucerne._src.ir.symbolic.evaluate import predicate, things_at
from lucerne._src.ir.symbolic.expressions import Guard, symbol
from lucerne._src.ir.symbolic.numbers import SizeGuards, SymInt
from lucerne._src.loops.stages import StagesAt
from lucerne._src.transforms.generalize import evaluated, formula_of

GuardsOf = Callable[[Callable[[], Captured]], Guards]
"""What makes the guards of a version; it may ask for the call as it would have been captured."""


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
        self.results: list[TensorMeta] = building.stages.program.results
        pinned = [g for g, by_value in decisions.items() if by_value is not None]
        if pinned:
            raise OneSizeError(f"a number is needed: {pinned[0]}")
        self.decisions: tuple[Guard, ...] = tuple(decisions)
        self._holds = predicate(self.decisions, self.names)
        self.first: CacheEntry | None = None
        """The version for the first sizes; others are made like it."""
        inputs = captured.graph.inputs
        self._sized_inputs = [k for k, v in enumerate(inputs) if is_sized(v.meta)]
        self._outcomes = _sized_outcomes(captured)
        tangents = [] if backward is None else backward.joint.tangents
        self._evaluate = things_at(
            [
                [(x.offset, x.meta) for x in self._outcomes.values()],
                [inputs[k].meta for k in self._sized_inputs],
            ],
            self.names,
        )
        self._tangents = things_at([list(tangents)], self.names)
        others = [k for k, x in enumerate(captured.leaves) if type(x) is not CapturedResult]
        formulas = {k: formula_of(captured.leaves[k]) for k in others}
        self._others = {k: x for k, x in formulas.items() if x is not captured.leaves[k]}
        """By leaf: the formulas of numbers that are returned."""

    def holds(self, sizes: dict[str, int]) -> bool:
        return self._holds(**sizes)

    # ---- at a size -----------------------------------------------------------------------------

    def at(self, sizes: dict[str, int], guards_of: GuardsOf) -> CacheEntry:
        """The version for these sizes."""
        given = [sizes[name] for name in self.names]
        runner, results = self.forward.at(given)
        if self.first is None:
            captured = self.captured_at(sizes)
            self.first = entry = CacheEntry(
                captured, guards_of(lambda: captured), runner, results,
                sorted(self.forward.written), self.stages, self.key,
            )  # fmt: skip
            entry.stages = self.stages_at(sizes)
        else:
            entry = self._like_first.at(sizes, guards_of, runner, results)
        if self.backward is not None:
            entry.joint = self._joint_at(sizes, given, entry.captured)
        return entry

    @once
    def _like_first(self) -> SizedEntries:
        assert self.first is not None
        return SizedEntries(self, self.first)

    def stages_at(self, sizes: dict[str, int]) -> StagesAt:
        given = [sizes[name] for name in self.names]
        return StagesAt(self.stages, lambda: self.forward.program_at(given))

    def captured_at(self, sizes: dict[str, int]) -> Captured:
        """As the call would have been captured for these sizes."""
        places, metas = self._evaluate(**sizes)
        old, moved = self.captured, dict[int, CapturedResult]()
        for (at, x), (offset, meta) in zip(self._outcomes.items(), places, strict=True):
            moved[at] = changed(x, offset=offset, meta=meta)
        if moved:
            with_gradients(moved)

        def outcome(x: Any) -> Any:
            return moved.get(id(x), x)

        leaves = [outcome(x) for x in old.leaves] if moved else list(old.leaves)
        for k, formula in self._others.items():
            found = evaluated(formula, sizes)
            leaves[k] = Size(found) if isinstance(old.leaves[k], Size) else found
        inputs = list(old.graph.inputs)
        for k, meta in zip(self._sized_inputs, metas, strict=True):
            inputs[k] = Value(inputs[k].index, meta)
        made = changed(old, graph=SizedGraph(old.graph, inputs, sizes), leaves=leaves)
        if old.checks:
            made.checks = checks_at(old, sizes)
        if moved:
            made.gradients = [outcome(x) for x in old.gradients]
            if any(id(e.outcome) in moved for e in old.effects):
                made.effects = [GradientStore(e.owner, outcome(e.outcome)) for e in old.effects]
        return made

    def _joint_at(self, sizes: dict[str, int], given: list[int], captured: Captured) -> Joint:
        backward = self.backward
        assert backward is not None
        runner, results = backward.program.at(given)
        if not runner.is_told:
            runner.expect()
        old = backward.joint
        (tangents,) = self._tangents(*given)
        made = changed(
            old, runner=runner, tangents=tangents, result_metas=results,
            gradients=captured.gradients, made_lean={}, times_asked={}, launch=runner.launch,
            _kept={},
            stages=StagesAt(old.stages, lambda: backward.program.program_at(given)),
        )  # fmt: skip
        if len(tangents) > 1 or len(made.gradients) > 1:
            made.make_lean = _Lean(made, backward, sizes)
        return made


def _sized_outcomes(captured: Captured) -> dict[int, CapturedResult]:
    """By id: the outcomes that depend on sizes, or whose gradient does."""
    found = all_outcomes(captured)
    sized = {id(x): x for x in found if is_sized(x.meta) or isinstance(x.offset, Symbolic)}
    count = -1
    while count != len(sized):
        count = len(sized)
        sized |= {id(x): x for x in found if id(x.gradient) in sized}
    return sized


class SizedEntry(CacheEntry):
    """A version like the first one for other sizes. What a call rarely asks is made then."""

    if TYPE_CHECKING:
        of: SizedEntries
        sizes: dict[str, int]

    @once
    def captured(self) -> Captured:
        return self.of.version.captured_at(self.sizes)

    @once
    def metas(self) -> list[TensorMeta]:
        return self._metas()

    @once
    def with_history(self) -> list[Any]:
        return self._histories()

    @once
    def again(self) -> Any:
        again = self.of.again
        return None if again is None else again.at(self)

    @once
    def stages(self) -> Any:
        return self.of.version.stages_at(self.sizes)


_LATE = frozenset(("captured", "metas", "with_history", "again", "stages", "_outputs"))


class SizedEntries:
    """Makes versions like the first one of a `SizedVersion`."""

    def __init__(self, version: SizedVersion, first: CacheEntry) -> None:
        self.version = version
        self.again = first.again
        first.plain_results  # noqa: B018 (with it are those that are made like it)
        self._same = {k: x for k, x in vars(first).items() if k not in _LATE}
        self._same |= {
            "of": self, "flat": first.flat_now(), "calls": 0, "untried": 0, "joint": None,
            "shadow": None, "watched": None, "keep_at": 0,
        }  # fmt: skip
        if not first.with_history:
            self._same["with_history"] = []
        results = version.results
        self._is_alike = all(
            x.of_input or x.meta is results[x.index]
            for x in version.captured.leaves
            if type(x) is CapturedResult
        )
        """Whether results are read as they are written at all sizes, or at none."""

    def at(
        self,
        sizes: dict[str, int],
        guards_of: GuardsOf,
        runner: Any,
        results: Sequence[TensorMeta],
    ) -> SizedEntry:
        made = object.__new__(SizedEntry)
        vars(made).update(
            self._same, sizes=sizes, runner=runner, launch=runner.launch, result_metas=results
        )
        made.guards = guards = guards_of(lambda: made.captured)
        if guards.shares or Flips.met:
            made.flat = made.flat_now()
        if not self._is_alike:
            del made.plain_results
            made.look_at_results()
        if not runner.is_told:
            made.tell_runner()
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
