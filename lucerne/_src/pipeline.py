"""L6: from a captured graph to something that runs: the one list of passes, with reasons.

    graph (captured) -> functionalize -> PASSES in order -> groups, memory plan -> the backend

`compile_graph` is all of it. Each stage can be looked at: `Stages` keeps the text of the graph
after every pass when asked to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from lucerne._src import backends
from lucerne._src.backends.contract.backend import Backend
from lucerne._src.backends.contract.control_flow import SubProgram, is_control
from lucerne._src.base.config import config
from lucerne._src.ir.checks.lifetimes import check_places
from lucerne._src.ir.graph import Graph, Node, verify
from lucerne._src.loops.group import Fusion
from lucerne._src.loops.lower import Body, Lowering, no_body
from lucerne._src.loops.notes import Notes
from lucerne._src.loops.run import make_runner
from lucerne._src.loops.stages import Stages
from lucerne._src.transforms import cse, dead, decompose, fold, layout, simplify
from lucerne._src.transforms.random import separate_draws
from lucerne._src.transforms.rewrite import GraphBuilder


@dataclass(frozen=True)
class PassSetting:
    """What passes are told besides the graph."""

    bitwise: bool = False
    """Whether every bit must stay as eager has it."""
    prefers_channels_last: layout.Prefers | None = None
    """The backend's word about convolutions; None: it has none."""
    expand: decompose.Expand | None = None
    """The bodies of composites that the backend does not take; None: there are no such nodes."""

    @staticmethod
    def of(
        backend: Backend, *, bitwise: bool, expand: decompose.Expand | None = None
    ) -> PassSetting:
        return PassSetting(bitwise, backend.prefers_channels_last, expand)


PLAIN = PassSetting()


@dataclass(frozen=True)
class Pass:
    """A step of the pipeline: what it does, and why it stands where it stands."""

    name: str
    run: Callable[[Graph, PassSetting], Graph]
    why: str


PASSES: tuple[Pass, ...] = (
    Pass(
        "decompose",
        lambda g, s: g if s.expand is None else decompose.run(g, s.expand),
        "first: the others then see the ops of a composite that the backend has no kernel for",
    ),
    Pass(
        "fold",
        lambda g, s: fold.run(g, bitwise=s.bitwise),
        "what is known now is not computed at each call",
    ),
    Pass(
        "layout",
        lambda g, s: g if s.bitwise else layout.run(g, s.prefers_channels_last),
        "images lie as the backend's convolutions like them; copies it adds may go below",
    ),
    Pass(
        "simplify",
        lambda g, s: simplify.run(g, bitwise=s.bitwise),
        "copies and casts that do nothing go, numbers take the place of constant tensors",
    ),
    Pass("cse", lambda g, _: cse.run(g), "the same thing is computed once"),
    Pass("dead", lambda g, _: dead.run(g), "the others leave values that nobody reads"),
    Pass(
        "draws",
        lambda g, _: separate_draws(g),
        "last: a random number is computed where it is read; the others would join the copies",
    ),
)


def improve(
    graph: Graph,
    stages: Stages,
    disable: frozenset[str] = frozenset(),
    setting: PassSetting = PLAIN,
) -> Graph:
    """All passes over a graph without mutation, verified after each."""
    began = perf_counter()
    for p, after in improving(graph, disable, setting):
        graph = after
        if config.verify_passes:
            verified(graph, p.name)
        stages.note(p.name, graph, began)
        began = perf_counter()
    return graph


def improving(
    graph: Graph, disable: frozenset[str], setting: PassSetting
) -> Iterator[tuple[Pass, Graph]]:
    """Pass by pass: which it was, and the graph after it."""
    for p in PASSES:
        if p.name not in disable:
            with during(p.name):
                graph = p.run(graph, setting)
            yield p, graph


@contextmanager
def during(stage: str) -> Iterator[None]:
    """What is raised inside says which stage raised it (`error.stage`)."""
    try:
        yield
    except Exception as error:
        if not hasattr(error, "stage"):
            error.stage = stage  # type: ignore[attr-defined]
        raise


def verified(graph: Graph, after: str) -> None:
    """A graph that is not well-formed is the fault of the stage it comes from."""
    with during(after):
        verify(graph)


def compile_graph(
    graph: Graph,
    backend_name: str,
    *,
    constants: Mapping[int, Any] | None = None,
    mode: str | None = None,
    disable: frozenset[str] = frozenset(),
    stages: Stages | None = None,
    body: Body = no_body,
    expand: decompose.Expand | None = None,
) -> Any:
    """Something that runs a graph without mutation: `runner(arguments, numbers, results)`.

    `constants`: tensors for inputs (by number) whose bytes never change. `body`: the graph of a
    composite that is run as one kernel. `expand`: that of one which is to be taken apart.
    """
    stages = stages or Stages()
    backend = backends.get(backend_name)
    known = len(backend.kernels)
    setting = PassSetting.of(backend, bitwise=mode == "bitwise", expand=expand)
    graph = improve(graph, stages, disable, setting)
    began = perf_counter()
    with during("fusion"):
        low = lowering(graph, backend, constants or {}, mode, disable, body)
    with during("memory plan"):
        program = low.program()
        if config.verify_passes:
            check_places(program)
    stages.seconds["lower"] = perf_counter() - began
    stages.nodes["lower"] = len(program.steps)
    stages.program = program
    began = perf_counter()
    with during("assembly"):
        runner = make_runner(program, backend)
    stages.seconds["assemble"] = perf_counter() - began
    stages.kernels = backend.kernels[known:]
    return runner


def _with_programs(
    graph: Graph, backend: Backend, mode: str | None, disable: frozenset[str], body: Body
) -> Graph:
    """The graphs inside control-flow nodes become programs of the same backend."""
    if not any(is_control(node) for node in graph.nodes):
        return graph
    setting = PassSetting.of(backend, bitwise=mode == "bitwise")

    def program(inside: Graph) -> SubProgram:
        better = improve(inside, Stages(), disable, setting)
        made = lowering(better, backend, {}, mode, disable, body).program()
        return SubProgram(inside, made, make_runner(made, backend))

    builder = GraphBuilder(graph)
    for node in graph.nodes:
        kept = builder.keep(node)
        if is_control(kept):
            args = tuple(program(a) if isinstance(a, Graph) else a for a in kept.args)
            builder.graph.nodes[-1] = Node(kept.op, args, kept.outputs, kept.place)
    return builder.finish()


def lowering(
    graph: Graph,
    backend: Backend,
    constants: Mapping[int, Any],
    mode: str | None,
    disable: frozenset[str],
    body: Body,
    notes: Notes | None = None,
) -> Lowering:
    """A graph that all passes are done with, on its way to a program of this backend. `notes` get
    what is decided and why."""
    graph = _with_programs(graph, backend, mode, disable, body)
    fusion = _fusion(backend, disable, bitwise=mode == "bitwise")
    held = [(graph.inputs[k], t) for k, t in constants.items()]
    takes = backend.fuses_groups
    return Lowering(graph, takes, fusion, held, body, backend.over_operand, notes)


def _fusion(backend: Backend, disable: frozenset[str], *, bitwise: bool) -> Fusion | None:
    """Which groups to look for; None: every node runs by itself."""
    if "fuse" in disable or "fuses_groups" not in backend.abilities:
        return None
    anchors = frozenset() if "anchors" in disable else frozenset(backend.anchors)
    return Fusion(
        anchors,
        anchors & backend.prologue_anchors,
        folds=not bitwise and backend.folds,
        is_costly=backend.is_costly,
        folds_into_loads=backend.folds_into_loads,
        recomputed_in_readers=backend.recomputed_in_readers,
        updates=backend.updates if anchors else _updates_nothing,
    )


def _updates_nothing(node: Node, op: str) -> bool:
    return False
