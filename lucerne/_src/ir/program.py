"""Program: a graph with its memory decided. Steps in order, each reading and writing places.

A step computes a small graph: one op, or a group that one kernel does. A place is some bytes of a
buffer read as a tensor. Buffers are given anew for each call (arguments, results), stay for ever
(constants), or lie in the arena: one piece of scratch memory whose bytes are used again and again
by values whose lives don't cross.

    program(2 arguments, 1 results, 0 numbers, arena 256 bytes)
      arena+0: float32[8, 8] = batch_matmul(argument0+0, argument1+0)
      result0+0: float32[8, 8] = relu(arena+0)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lucerne._src.base.process.source_location import Origin
from lucerne._src.ir.graph import Graph
from lucerne._src.ir.meta import TensorMeta

ARGUMENT, RESULT, CONSTANT, ARENA = "argument", "result", "constant", "arena"
_MOST_NAMES, _FIRST_NAMES = 100, 3
"""A step that is a whole graph is named by its first ops."""


@dataclass(frozen=True, slots=True)
class Place:
    """A tensor in a buffer: `kind` and `index` name the buffer (the arena has index 0)."""

    kind: str
    index: int
    offset: int
    """In bytes, from the first element of an argument or constant, from the start of the arena."""
    meta: TensorMeta

    def __str__(self) -> str:
        name = self.kind if self.kind == ARENA else f"{self.kind}{self.index}"
        return f"{name}+{self.offset}"


@dataclass(frozen=True, slots=True)
class NumberArgument:
    """A number that is given anew for each call."""

    index: int


@dataclass
class Step:
    """`inputs` has one item for each input of `graph`.

    An item is a Place, a Number, a Python number that never changes, or an object that only the
    backend understands (a generator).
    """

    graph: Graph
    inputs: tuple[Any, ...]
    outputs: tuple[Place, ...]
    origins: tuple[Origin, ...] = ()
    """The user's lines that it comes from: for people."""

    @property
    def name(self) -> str:
        names = [n.op.name for n in self.graph.nodes]
        if len(names) > _MOST_NAMES:
            names = [*names[:_FIRST_NAMES], f"({len(names) - _FIRST_NAMES} more)"]
        return "+".join(names)

    def __str__(self) -> str:
        left = ", ".join(f"{p}: {p.meta.dtype.name}{list(p.meta.shape)}" for p in self.outputs)
        return f"{left} = {self.name}({', '.join(map(str, self.inputs))})"


@dataclass
class Program:
    """Everything a backend needs to run a captured function in one go."""

    arguments: tuple[TensorMeta, ...]
    results: tuple[TensorMeta, ...]
    constants: tuple[Any, ...] = ()
    """Tensors whose bytes never change while the program lives."""
    numbers: int = 0
    arena: int = 0
    """Bytes of scratch memory, 64-aligned."""
    steps: list[Step] = field(default_factory=list)
    written: frozenset[int] = frozenset()
    """Which arguments the steps write to."""

    def __str__(self) -> str:
        head = (
            f"program({len(self.arguments)} arguments, {len(self.results)} results, "
            f"{self.numbers} numbers, arena {self.arena} bytes)"
        )
        return "\n".join([head, *(f"  {s}" for s in self.steps)])


def places(items: Sequence[Any]) -> list[Place]:
    return [x for x in items if type(x) is Place]


def program_of_one_step(graph: Graph, constants: Mapping[int, Any]) -> Program:
    """A graph that somebody takes as a whole, as a program to look at: one step, no arena.

    `constants`: tensors for inputs (by number) whose bytes never change.
    """
    inputs: list[Any] = []
    counts = {ARGUMENT: 0, CONSTANT: 0}
    numbers = 0
    for k, v in enumerate(graph.inputs):
        if not isinstance(v.meta, TensorMeta):
            inputs.append(NumberArgument(numbers))
            numbers += 1
            continue
        kind = CONSTANT if k in constants else ARGUMENT
        inputs.append(Place(kind, counts[kind], 0, v.meta))
        counts[kind] += 1
    at = {v.index: place for v, place in zip(graph.inputs, inputs, strict=True)}
    outputs = [Place(RESULT, k, 0, v.meta) for k, v in enumerate(graph.outputs)]
    lines = tuple(dict.fromkeys(n.place for n in graph.nodes if n.place is not None))
    given = [x for x in inputs if type(x) is Place and x.kind == ARGUMENT]
    writes = [at[target.index] for target, _ in graph.writes]
    return Program(
        tuple(x.meta for x in given),
        tuple(v.meta for v in graph.outputs),
        tuple(constants[k] for k in sorted(constants)),
        numbers,
        steps=[Step(graph, tuple(inputs), (*outputs, *writes), lines)],
        written=frozenset(x.index for x in writes),
    )
