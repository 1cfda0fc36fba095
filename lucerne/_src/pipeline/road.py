"""The one road from a captured graph to something that runs.

    functional -> counted -> improved -> split -> compiled (taken whole, or fused and assembled)

Whoever goes it goes it by `Road`: compile, its report, shadow mode, export, lazy mode. Some stop
before the end, and `saw` is told of every graph on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any

from lucerne._src.backends.contract.backend import Backend, Runner, SizedProgram
from lucerne._src.backends.contract.control_flow import SubProgram, is_control
from lucerne._src.base.config import config
from lucerne._src.ir.checks.lifetimes import check_places
from lucerne._src.ir.graph import Graph, Node, Value
from lucerne._src.ir.program import Program
from lucerne._src.ir.symbolic.numbers import checking
from lucerne._src.loops.group import Fusion
from lucerne._src.loops.lower import Body, Lowering, no_body
from lucerne._src.loops.notes import Notes
from lucerne._src.loops.run import make_runner, taken
from lucerne._src.loops.stages import Stages
from lucerne._src.pipeline import passes
from lucerne._src.pipeline.passes import (
    ASSEMBLY,
    COUNT_DRAWS,
    FUNCTIONALIZE,
    FUSION,
    MEMORY,
    PARTITION,
    TAKING,
    PassSetting,
    RoadStep,
    during,
    verified,
)
from lucerne._src.transforms import decompose
from lucerne._src.transforms.functionalize import functionalize
from lucerne._src.transforms.partition import Split, split
from lucerne._src.transforms.random import count_draws
from lucerne._src.transforms.rewrite import GraphBuilder

Saw = Callable[[RoadStep, Graph, float], None]
"""Is told of a step, the graph after it, and how many seconds it took."""


def nobody(step: RoadStep, graph: Graph, seconds: float) -> None:
    """Nobody looks."""


class Road:
    """What was told to a compilation, and its steps.

    `disable`: steps that are left out (a pass, "fuse", "anchors"). `body`: the graph of a composite
    that is run as one kernel. `expand`: that of one which is to be taken apart.
    """

    def __init__(
        self,
        backend: Backend | None,
        *,
        mode: str | None = None,
        disable: frozenset[str] = frozenset(),
        stages: Stages | None = None,
        body: Body = no_body,
        expand: decompose.Expand | None = None,
        saw: Saw = nobody,
    ) -> None:
        self.backend, self.disable, self.body, self.saw = backend, disable, body, saw
        self.bitwise = mode == "bitwise"
        self.stages = Stages() if stages is None else stages
        self.setting = PassSetting.of(backend, bitwise=self.bitwise, expand=expand)

    # ---- graphs --------------------------------------------------------------------------------

    def functional(
        self,
        graph: Graph,
        roots: Sequence[Value],
        fresh: frozenset[Value] = frozenset(),
        readings: Sequence[Value] = (),
        new: dict[Value, Value] | None = None,
    ) -> Graph:
        """The graph without mutation (see `functionalize`)."""
        began = perf_counter()
        with during(FUNCTIONALIZE.name):
            graph = functionalize(graph, roots, fresh, readings, new)
        return self._noted(FUNCTIONALIZE, graph, began)

    def counted(self, graph: Graph, generator: Any) -> tuple[Graph, Value | None]:
        """Draws from `generator` as numbers that follow from a key, the graph's new last input."""
        began = perf_counter()
        with during(COUNT_DRAWS.name):
            graph, key = count_draws(graph, generator)
        if key is not None:
            self.saw(COUNT_DRAWS, graph, perf_counter() - began)
        return graph, key

    def improved(self, graph: Graph) -> Graph:
        """All passes over a graph without mutation, verified after each."""
        for p in passes.PASSES:
            if p.name not in self.disable:
                began = perf_counter()
                before = graph
                with during(p.name):
                    graph = p.run(graph, self.setting)
                self._noted(p, graph, began, is_new=graph is not before)
        return graph

    def split(
        self,
        joint: Graph,
        forward_roots: int,
        tangents: Sequence[Value],
        *,
        budget: float,
        fragile: Sequence[Value],
    ) -> Split:
        """A joint graph in two (see `partition.split`)."""
        began = perf_counter()
        with during(PARTITION.name):
            cut = split(joint, forward_roots, tangents, budget=budget, fragile=fragile)
        self.saw(PARTITION, cut.forward, perf_counter() - began)
        return cut

    def _noted(self, step: RoadStep, graph: Graph, began: float, is_new: bool = True) -> Graph:
        if config.verify_passes and is_new:
            with checking():
                verified(graph, step.name)
        self.stages.note(step.name, graph, began)
        self.saw(step, graph, perf_counter() - began)
        return graph

    # ---- programs ------------------------------------------------------------------------------

    def compiled(self, graph: Graph, constants: Mapping[int, Any] | None = None) -> Runner:
        """Something that runs a graph without mutation: `runner(arguments, numbers, results)`.

        `constants`: tensors for inputs (by number) whose bytes never change.
        """
        backend, stages = self._backend(), self.stages
        known = len(backend.kernels)
        graph, held = self.improved(graph), constants or {}
        began = perf_counter()
        with during(TAKING.name):
            whole = taken(graph, held, backend)
        if whole is not None:
            stages.seconds[TAKING.name] = perf_counter() - began
            stages.nodes[TAKING.name], stages.program = len(graph.nodes), whole.program
            return whole
        program = self._program(graph, held)
        began = perf_counter()
        with during(ASSEMBLY.name):
            runner = make_runner(program, backend)
        stages.seconds["assemble"] = perf_counter() - began
        stages.kernels = backend.kernels[known:]
        return runner

    def sized(
        self, graph: Graph, constants: Mapping[int, Any], names: Sequence[str]
    ) -> SizedProgram | None:
        """As `compiled`, for a graph whose numbers follow from sizes with these names: a program
        for all of them. None: the backend makes programs of known sizes only."""
        program = self._program(self.improved(graph), constants)
        with during(ASSEMBLY.name):
            return self._backend().sized(program, names)

    def _program(self, graph: Graph, constants: Mapping[int, Any]) -> Program:
        """The program of a graph that all passes are done with."""
        stages = self.stages
        began = perf_counter()
        low = self.lowered(graph, constants)
        with during(MEMORY.name):
            program = low.program()
            if config.verify_passes:
                with checking():
                    check_places(program)
        stages.seconds["lower"] = perf_counter() - began
        stages.nodes["lower"] = len(program.steps)
        stages.program = program
        return program

    def lowered(
        self, graph: Graph, constants: Mapping[int, Any], notes: Notes | None = None
    ) -> Lowering:
        """A graph that all passes are done with, on its way to a program. `notes` get what is
        decided and why."""
        backend = self._backend()
        with during(FUSION.name):
            graph = self._with_programs(graph)
            held = [(graph.inputs[k], t) for k, t in constants.items()]
            takes = backend.fuses_groups
            given = graph, takes, self._fusion(backend), held, self.body, backend.over_operand
            return Lowering(*given, notes)

    def _backend(self) -> Backend:
        if self.backend is None:
            raise ValueError("a road without a backend ends with its graphs")
        return self.backend

    def _with_programs(self, graph: Graph) -> Graph:
        """The graphs inside control-flow nodes become programs of the same backend."""
        if not any(is_control(node) for node in graph.nodes):
            return graph
        backend = self._backend()
        mode = "bitwise" if self.bitwise else None
        inner = Road(backend, mode=mode, disable=self.disable, body=self.body)

        def program(inside: Graph) -> SubProgram:
            made = inner.lowered(inner.improved(inside), {}).program()
            return SubProgram(inside, made, make_runner(made, backend))

        builder = GraphBuilder(graph)
        for node in graph.nodes:
            kept = builder.keep(node)
            if is_control(kept):
                args = tuple(program(a) if isinstance(a, Graph) else a for a in kept.args)
                builder.graph.nodes[-1] = Node(kept.op, args, kept.outputs, kept.place)
        return builder.finish()

    def _fusion(self, backend: Backend) -> Fusion | None:
        """Which groups to look for; None: every node runs by itself."""
        if "fuse" in self.disable or "fuses_groups" not in backend.abilities:
            return None
        anchors = frozenset() if "anchors" in self.disable else frozenset(backend.anchors)
        return Fusion(
            anchors,
            anchors & backend.prologue_anchors,
            folds=not self.bitwise and backend.folds,
            is_costly=backend.is_costly,
            folds_into_loads=backend.folds_into_loads,
            recomputed_in_readers=backend.recomputed_in_readers,
            updates=backend.updates if anchors else _updates_nothing,
        )


def _updates_nothing(node: Node, op: str) -> bool:
    return False
