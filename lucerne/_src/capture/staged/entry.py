"""A version of a function whose program runs in stages."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from lucerne._src.backends.contract.backend import Runner
from lucerne._src.base.shape import Size
from lucerne._src.capture.aot.backward import Joint
from lucerne._src.capture.aot.split import constants_of, halves_of
from lucerne._src.capture.cache.entry import CacheEntry, Guards
from lucerne._src.capture.options import Options
from lucerne._src.capture.road import road_of
from lucerne._src.capture.staged.cut import alive
from lucerne._src.capture.staged.program import CompiledStage, StagedProgram
from lucerne._src.capture.trace.captured import Captured, CapturedResult, GradientStore
from lucerne._src.capture.trace.fake import CaptureError
from lucerne._src.capture.trace.input_sources import ARGUMENT, CONSTANT, HELD, TANGENT
from lucerne._src.ir.graph import Graph, Value
from lucerne._src.ir.symbolic.numbers import checked_again, guarding, is_symbolic
from lucerne._src.loops.stages import Stages
from lucerne._src.transforms.generalize import evaluated, formula_of
from lucerne._src.transforms.partition import OUTPUT

Half = Callable[[Graph, Stages], tuple[Any, Any]]
"""Compiles a graph: what runs it, and its program."""


class Found(list[Any]):
    """Results, and the sizes that were found on the way."""

    sizes: dict[str, int]


class StagedForward(Runner):
    """Runs the program of a call."""

    def __init__(self, program: StagedProgram) -> None:
        self.program = program
        self.launch = self._launch
        self.metas: Sequence[Any] = ()
        self.flags: Sequence[bool | None] = ()
        self.kinds: Sequence[type | None] = ()

    def expect(
        self,
        requires_grad: Sequence[bool | None] | None = None,
        groups: Sequence[int] | None = None,
        kinds: Sequence[type | None] | None = None,
    ) -> None:
        self.flags, self.kinds = requires_grad or (), kinds or ()

    def __call__(self, arguments: Any, numbers: Any, results: Any) -> None:
        raise AssertionError("the results of a program in stages have no sizes before it runs")

    def _launch(self, first: tuple[Any, ...], second: tuple[Any, ...], numbers: Any) -> Any:
        given = (*first, *second)
        asked = zip(given, self.metas, self.flags, self.kinds, strict=True)
        for t, meta, flag, kind in asked:
            if t._meta is not meta or (flag is not None and t._needs_grad != flag):
                return None
            if kind is not None and type(t) is not kind:
                return None
        sizes: dict[str, int] = {}
        found = Found(self.program(given, sizes))
        found.sizes = sizes
        return found


class StagedBackward(Runner):
    """Runs the backward pass of one call, whose sizes are known."""

    def __init__(self, program: StagedProgram, sizes: dict[str, int]) -> None:
        self.program, self.sizes, self.launch = program, sizes, self._launch

    def __call__(self, arguments: Any, numbers: Any, results: Any) -> None:
        raise AssertionError("the results of a program in stages have no sizes before it runs")

    def _launch(self, first: tuple[Any, ...], second: tuple[Any, ...], numbers: Any) -> Any:
        return self.program((*first, *second), self.sizes)


class StagedEntry(CacheEntry):
    """A version whose results have the sizes that a call finds."""

    backward: Any = None
    """The program of the backward pass, if there is one, and what is to be evaluated for it."""

    def _finish(
        self, leaves: Any, arguments: Any, results: Any, undo: Any = None, given: Any = None
    ) -> Any:
        call = copy.copy(self)
        sizes = results.sizes
        call.captured = _captured_at(self.captured, sizes, results)
        if self.joint is not None:
            joint = self.joint
            call.joint = replace(
                joint,
                runner=StagedBackward(self.backward, sizes),
                tangents=evaluated(formula_of(joint.tangents), sizes),
                gradients=[_outcome_at(x, sizes) for x in joint.gradients],
            )
        return CacheEntry._finish(call, leaves, arguments, results, undo, given)


def _captured_at(captured: Captured, sizes: dict[str, int], results: Sequence[Any]) -> Captured:
    """What a call leaves behind, at its sizes; one outcome stays one."""
    made: dict[int, Any] = {}

    def at(x: Any) -> Any:
        if type(x) is not CapturedResult:
            found = evaluated(formula_of(x), sizes)
            return Size(found) if isinstance(x, Size) else found
        if id(x) not in made:
            made[id(x)] = _outcome_at(x, sizes, results)
        return made[id(x)]

    leaves = [at(x) for x in captured.leaves]
    effects = [GradientStore(e.owner, at(e.outcome)) for e in captured.effects]
    return replace(captured, leaves=leaves, effects=effects)


def _outcome_at(x: Any, sizes: dict[str, int], results: Sequence[Any] = ()) -> Any:
    if type(x) is not CapturedResult:
        return x
    if not is_symbolic((*x.meta.shape, *x.meta.strides, x.offset)):
        return x
    meta, offset = evaluated(formula_of((x.meta, x.offset)), sizes)
    if results and not x.of_input and not offset:
        whole = results[x.index]._meta
        if whole.shape == meta.shape and whole.dtype is meta.dtype and meta.numel < 2:
            meta = whole  # (strides that nobody follows are eager's)
    gradient = _outcome_at(x.gradient, sizes, results)
    return replace(x, meta=meta, offset=offset, gradient=gradient)


class StagedBuilding:
    """From a captured call with unbacked sizes to an entry."""

    def __init__(
        self, captured: Captured, guards: Guards, options: Options, stages: Stages, half: Half
    ) -> None:
        self.captured, self.guards, self.options = captured, guards, options
        self.stages, self.half = stages, half
        _check(captured, options)

    def entry(self) -> StagedEntry:
        captured = self.captured
        with guarding(), checked_again():
            road = road_of(self.options, self.stages)
            new: dict[Value, Value] = {}
            graph = road.functional(captured.graph, captured.roots, captured.fresh, new=new)
            self._keep_decisions(graph, new)
            if not captured.gradients:
                forward, constants = graph, constants_of(captured.sources)
                return self._entry(forward, constants)
            halves = halves_of(road, graph, captured, captured.sources, self.options.budget)
            entry = self._entry(halves.forward, halves.constants)
            tangents = [
                v for v, s in zip(graph.inputs, captured.sources, strict=True) if s.kind == TANGENT
            ]
            entry.backward = self._program(
                halves.backward, halves.saved_constants, {}, (), len(halves.backward.outputs)
            )
            entry.joint = self._joint(halves, tangents, entry.backward)
            return entry

    def _keep_decisions(self, graph: Graph, new: dict[Value, Value]) -> None:
        """What ops decide again when they run must hold where they don't: their results are not
        needed, but somebody may have asked for their shapes."""
        unbacked = self.captured.unbacked
        runs = {v.index for n in alive(graph) for v in n.outputs}
        kept = [
            g for v, found in unbacked.dropped.items() if new[v].index not in runs for g in found
        ]
        unbacked.guards = list(dict.fromkeys([*unbacked.guards, *kept]))

    def _entry(self, forward: Graph, constants: dict[int, Any]) -> StagedEntry:
        captured, unbacked = self.captured, self.captured.unbacked
        bound = {}
        for root, (name, _, counts) in zip(unbacked.roots, unbacked.bound, strict=True):
            bound[forward.outputs[root].index] = name, counts
        program = self._program(forward, constants, bound, unbacked.guards, captured.forward_roots)
        runner = StagedForward(program)
        metas = [v.meta for v in forward.outputs]
        given = [k for k in range(len(forward.inputs)) if k not in constants]
        written = sorted(given.index(k) for k in program.written)
        entry = StagedEntry(captured, self.guards, runner, metas, written, self.stages)
        runner.metas = entry.metas
        return entry

    def _program(
        self, graph: Graph, constants: dict[int, Any], bound: Any, guards: Any, exposed: int
    ) -> StagedProgram:
        made = [v for n in graph.nodes for v in n.outputs]
        if any(k not in {v.index for v in made} for k in bound):
            raise CaptureError("what a size is taken from is written to")
        return StagedProgram(
            graph, constants, bound, guards, self.captured.unbacked.names, set(range(exposed)),
            self._compiled,
        )  # fmt: skip

    def _compiled(self, graph: Graph) -> CompiledStage:
        runner, program = self.half(graph, Stages())
        return CompiledStage(runner, program.results)

    def _joint(self, halves: Any, tangents: Any, program: StagedProgram) -> Joint:
        kept_at = (k for k, s in enumerate(halves.primals) if s.kind != CONSTANT)
        place = {k: at for at, k in enumerate(kept_at)}
        saved = []
        for kept in halves.saved:
            if kept.kind == OUTPUT:
                saved.append((False, kept.index))
            elif kept.index in place:
                saved.append((True, place[kept.index]))
        captured = self.captured
        return Joint(
            StagedBackward(program, {}), saved, [t.meta for t in tangents], [],
            captured.gradients, captured.wanted, Stages(), halves.report, [],
            captured.backward_uses,
        )  # fmt: skip


_SOURCES = (ARGUMENT, HELD, CONSTANT, TANGENT)


def _check(captured: Captured, options: Options) -> None:
    """Raise if there is something that a program in stages does not do."""
    other = next((s.kind for s in captured.sources if s.kind not in _SOURCES), None)
    if other is not None or captured.covered:
        raise CaptureError(f"a size depends on the data, and the function reads a {other}")
    if options.maker is not None:
        raise CaptureError("a size depends on the data, and the graph is run by somebody else")
