"""The list of all steps from a captured graph to something that runs, in order, with reasons.

`PASSES` are those that make a graph out of a graph; around them stand what begins and ends the road
(`road.py`). `lucerne passes` prints the list; docs/inside/passes.md has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from lucerne._src.backends.contract.backend import Backend
from lucerne._src.ir.graph import Graph, verify
from lucerne._src.transforms import cse, dead, decompose, fold, layout, simplify
from lucerne._src.transforms.random import separate_draws


@dataclass(frozen=True)
class PassSetting:
    """What passes are told besides the graph."""

    bitwise: bool = False
    """Whether every bit must stay as eager has it."""
    prefers_channels_last: layout.Prefers | None = None
    """The backend's word about convolutions; None: there is no backend."""
    expand: decompose.Expand | None = None
    """The bodies of composites that the backend does not take; None: there are no such nodes."""

    @staticmethod
    def of(
        backend: Backend | None, *, bitwise: bool, expand: decompose.Expand | None = None
    ) -> PassSetting:
        prefers = None if backend is None else backend.prefers_channels_last
        return PassSetting(bitwise, prefers, expand)


@dataclass(frozen=True)
class RoadStep:
    """A step of the road: what it does, and why it stands where it stands."""

    name: str
    does: str
    why: str


@dataclass(frozen=True)
class Pass(RoadStep):
    """A step from graph to graph."""

    run: Callable[[Graph, PassSetting], Graph]


PASSES: tuple[Pass, ...] = (
    Pass(
        "decompose",
        "puts the ops of its body in place of a composite that the backend does not take",
        "first: the others then see the ops of a composite that the backend has no kernel for",
        lambda g, s: g if s.expand is None else decompose.run(g, s.expand),
    ),
    Pass(
        "fold",
        "computes what is known before the program runs; bitwise: what is exact on every backend",
        "what is known now is not computed at each call",
        lambda g, s: fold.run(g, bitwise=s.bitwise),
    ),
    Pass(
        "layout",
        "turns images around where the backend's convolutions prefer channels last; bitwise: off",
        "images lie as the backend's convolutions like them; copies it adds may go below",
        lambda g, s: g if s.bitwise else layout.run(g, s.prefers_channels_last),
    ),
    Pass(
        "simplify",
        "rewrites by a table of rules; bitwise: only rules that keep every bit",
        "copies and casts that do nothing go, numbers take the place of constant tensors",
        lambda g, s: simplify.run(g, bitwise=s.bitwise),
    ),
    Pass(
        "cse",
        "joins equal nodes; never draws, nor two results that the caller gets",
        "the same thing is computed once",
        lambda g, _: cse.run(g),
    ),
    Pass(
        "dead",
        "drops what nobody reads; keeps draws, because they move the generator on",
        "the others leave values that nobody reads",
        lambda g, _: dead.run(g),
    ),
    Pass(
        "draws",
        "computes a random number again for each of its readers",
        "last: a random number is computed where it is read; the others would join the copies",
        lambda g, _: separate_draws(g),
    ),
)

FUNCTIONALIZE = RoadStep(
    "functionalize",
    "takes writes out: what inputs hold afterwards stands in `graph.writes`",
    "no mutation, so that passes may reorder",
)
COUNT_DRAWS = RoadStep(
    "count_draws",
    "makes random numbers follow from a key and their own number; bitwise: off",
    "random numbers follow from counters",
)
PARTITION = RoadStep(
    "partition",
    "cuts a joint graph into forward and backward, each of which goes on from `decompose`",
    "the backward pass may run later: what it needs is saved",
)
TAKING = RoadStep(
    "take",
    "hands the graph to a backend that makes one program of it; the others go on",
    "an engine that fuses and plans memory by itself gets the graph before that is done",
)
FUSION = RoadStep(
    "fusion",
    "puts nodes into groups that one kernel computes",
    "values inside of a kernel never go through memory",
)
MEMORY = RoadStep(
    "memory plan",
    "gives every value its bytes",
    "values that are never in use together may share memory",
)
ASSEMBLY = RoadStep(
    "assembly",
    "makes one call of the steps, in the backend's own way or one by one",
    "last: nothing is decided after it",
)


def steps() -> tuple[RoadStep, ...]:
    """All of the road, in order."""
    return (FUNCTIONALIZE, COUNT_DRAWS, *PASSES, PARTITION, TAKING, FUSION, MEMORY, ASSEMBLY)


def as_markdown() -> str:
    """The table of docs/inside/passes.md."""
    rows = [f"| `{s.name}` | {s.does} | {s.why} |" for s in steps()]
    return "\n".join(["| step | what it does | why there |", "|---|---|---|", *rows]) + "\n"


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
