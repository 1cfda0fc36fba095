"""Random joint graphs, and what a cut of them may cost at best, found by trying everything."""

from __future__ import annotations

import itertools
import random
from typing import Any

import lucerne
from lucerne._src.base import layout as lo
from lucerne._src.ir import op as op_
from lucerne._src.ir.graph import Graph, Node, Value, operands, verify
from lucerne._src.transforms import dead
from lucerne._src.transforms.partition import _is_cheap
from lucerne._src.transforms.rewrite import nbytes, producers, result_metas
from tests.transforms.tracing import meta

N = 4


class Joint:
    """A graph of square matrices (and their rows), its tangents, and how many outputs are results.

    `generator` draws its random numbers.
    """

    def __init__(self, seed: int, early: int = 10, late: int = 6) -> None:
        self.rng = random.Random(seed)
        self.generator = lucerne.Generator()
        self.graph = Graph()
        primals = [self.graph.input(meta(N, N)) for _ in range(self.rng.randint(1, 3))]
        self.tangents = [self.graph.input(meta(N, N)) for _ in range(self.rng.randint(1, 2))]
        first = self.steps(list(primals), early)
        second = self.steps([*first, *self.tangents], late, late=True)
        made = first[len(primals) :] or first
        results = [self.rng.choice(made) for _ in range(self.rng.randint(1, 2))]
        self.results = len(results)
        gradients = [self.rng.choice(second) for _ in range(self.rng.randint(1, 3))]
        self.graph.outputs = (*results, *gradients)
        fitting = [v for v in made if v.meta is primals[0].meta]
        if fitting and self.rng.random() < 0.3:
            self.graph.writes = [(primals[0], self.rng.choice(fitting))]
        verify(self.graph)

    def steps(self, pool: list[Value], count: int, late: bool = False) -> list[Value]:
        made = []
        for _ in range(count):
            op, args = self.step(pool, late)
            try:
                metas = result_metas(op, args)
            except RuntimeError:
                continue
            found = self.graph.call(op, args, metas)
            pool += found
            made += found
        return made if late and made else pool

    def step(self, pool: list[Value], late: bool) -> tuple[Any, Any]:
        rng = self.rng
        a, b = rng.choice(pool[-5:]), rng.choice(pool)
        if late and rng.random() < 0.6:
            a = rng.choice(self.tangents)
        generator = self.generator
        square = a if a.meta.shape == b.meta.shape == (N, N) else self.graph.inputs[0]
        chosen = rng.choice([
            ("mul", (a, b)), ("add2", (a, b)), ("sub2", (b, a)), ("relu", (a,)), ("neg", (a,)),
            ("add2", (a, 1)), ("sum", (a, (0,), True, None)), ("transpose", (a, 0, 1)),
            ("ops.aten.slice", (a, 0, 0, 1, 1)), ("split_with_sizes", (a, (1, N - 1), 0)),
            ("clone_as", (a, lo.contiguous_format)), ("batch_matmul", (square, square)),
            ("draw", (a, "uniform", 0.0, 1.0, lucerne.float32, generator)),
            ("filled", ((N, N), 2.0, lucerne.float32, a.meta.device, None)),
        ])  # fmt: skip
        return op_.get(chosen[0]), chosen[1]


def is_late(graph: Graph, tangents: list[Value]) -> set[int]:
    found = {v.index for v in tangents}
    for n in graph.nodes:
        if any(v.index in found for v in operands(n.args)):
            found |= {v.index for v in n.outputs}
    return found


def draws_late(graph: Graph, tangents: list[Value]) -> bool:
    """Whether backward draws random numbers (which draws are its own is then another question)."""
    late = is_late(graph, tangents)
    return any(n.op.kind == op_.RANDOM and n.outputs[0].index in late for n in graph.nodes)


def best_cost(joint: Joint, budget: float) -> int | None:
    """The fewest bytes that must be kept, by trying every choice; None: too many to try."""
    graph = dead.run(joint.graph)
    late, made = is_late(graph, joint.tangents), producers(graph)
    overwritten = {t.index for t, _ in graph.writes}
    values = [v for v in graph.inputs if v.index not in late]
    values += [v for n in graph.nodes for v in n.outputs if v.index not in late]
    free = {v.index for v in values if v.index not in made and v.index not in overwritten}
    costly = [v for v in values if v.index not in free and not _is_view(made.get(v.index))]
    if len(costly) > 11 or draws_late(graph, joint.tangents):
        return None
    reads = [v for n in graph.nodes if n.outputs[0].index in late for v in operands(n.args)]
    reads += graph.outputs[joint.results :]
    wanted = [v.index for v in reads if v.index not in late]
    best = None
    for size in range(len(costly) + 1):
        for chosen in itertools.combinations(costly, size):
            cost = sum(nbytes(v.meta) for v in chosen)
            if best is not None and cost >= best:
                continue
            there = free | {v.index for v in chosen}
            for n in graph.nodes:
                cheap = n.outputs[0].index not in late and _is_cheap(n, budget)
                if cheap and all(v.index in there for v in operands(n.args)):
                    there |= {v.index for v in n.outputs}
            if all(index in there for index in wanted):
                best = cost
    return best


def _is_view(node: Node | None) -> bool:
    return node is not None and node.op.kind == op_.VIEW
