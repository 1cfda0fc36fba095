"""Optimizer steps that join the products of their gradients: which, and when they run."""

from __future__ import annotations

import itertools
from typing import Any

import lucerne
from lucerne._src.ir import op as op_
from lucerne._src.ir.graph import Graph, Value
from lucerne._src.ir.program import ARGUMENT
from lucerne._src.loops.group import Fusion, Grouping
from lucerne._src.loops.lower import lower
from lucerne._src.loops.updates import apart, gradient_of, overwritten
from tests.transforms.tracing import meta

HEADS = frozenset(("batch_matmul",))
FUSION = Fusion(HEADS, updates=lambda node, op: node.op.qualified in HEADS)
SHAPE = (4, 4)


class Training:
    """A graph of weights with their gradients, that ends with one update of all."""

    def __init__(self, weights: int = 2) -> None:
        self.graph = Graph()
        self.x = self.graph.input(meta(*SHAPE))
        self.lists = [[self.graph.input(meta(*SHAPE)) for _ in range(weights)] for _ in range(3)]
        self.counts = tuple(self.graph.input(meta()) for _ in range(weights))
        self.numbers = [self.graph.input(float) for _ in range(5)]

    def call(self, name: str, *args: Any) -> Value:
        return self.graph.call(op_.get(name), args, [meta(*SHAPE)])[0]

    def update(self, *gradients: Value) -> Graph:
        graph, metas = self.graph, [meta()] * len(self.counts)
        counted = graph.call(op_.get("counted_up"), (self.counts,), metas)
        params, averages, squares = (tuple(items) for items in self.lists)
        args = (params, gradients, averages, squares, (), counted)
        metas = [meta(*SHAPE)] * (3 * len(params))
        flags = (False, False, False)
        made = graph.call(op_.get("adam_update"), (*args, *self.numbers, *flags), metas)
        graph.writes = [
            *zip((*params, *averages, *squares), made, strict=True),
            *zip(self.counts, counted, strict=True),
        ]
        graph.outputs = gradients
        return graph


def products(training: Training) -> Graph:
    """Of two weights: the second one's gradient is made first, as in a backward pass."""
    w1, w2 = training.lists[0]
    h = training.call("batch_matmul", training.x, w1)
    y = training.call("batch_matmul", h, w2)
    d2 = training.call("batch_matmul", h, y)
    back = training.call("batch_matmul", y, w2)
    d1 = training.call("batch_matmul", training.x, back)
    return training.update(d1, d2)


def names(graph: Graph, groups: list[list[int]]) -> list[str]:
    return ["+".join(graph.nodes[k].op.name for k in group) for group in groups]


def test_a_list_is_taken_apart() -> None:
    training = Training(3)
    made = training.call("batch_matmul", training.x, training.x)
    other = training.call("relu", training.x)
    graph = training.update(other, made, other)
    found = apart(graph, FUSION.updates)
    one, rest = (node for node in found.nodes if node.op.name == "adam_update")
    whole = graph.nodes[-1]
    assert gradient_of(one) is made
    assert gradient_of(rest) is None
    assert one.outputs == (whole.outputs[1], whole.outputs[4], whole.outputs[7])
    assert [len(items) for items in rest.args[:6]] == [2, 2, 2, 2, 0, 2]
    assert {*one.outputs, *rest.outputs} == {*whole.outputs}
    assert overwritten(one) == [items[1] for items in training.lists]
    assert len(graph.nodes[-1].outputs) == 9  # the graph that was given stays as it is


def test_nothing_to_take_apart() -> None:
    training = Training(1)
    graph = training.update(training.call("relu", training.x))
    assert [n.op.name for n in apart(graph, FUSION.updates).nodes] == [
        n.op.name for n in graph.nodes
    ]
    none = products(Training())
    assert [n.op.name for n in apart(none, Fusion(HEADS).updates).nodes] == [
        n.op.name for n in none.nodes
    ]


def test_updates_wait_for_the_readers_of_old_values() -> None:
    """The second weight is read after its gradient is made: by the product that goes back."""
    graph = apart(products(Training()), FUSION.updates)
    order = names(graph, Grouping(graph, FUSION).groups())
    assert order == [
        "counted_up",
        "batch_matmul",
        "batch_matmul",
        "batch_matmul",
        "batch_matmul+adam_update",
        "batch_matmul+adam_update",
    ]


def test_new_values_are_made_in_place() -> None:
    program = lower(products(Training()), lambda graphs: [True] * len(graphs), FUSION)
    assert not any(step.name == "copy" for step in program.steps)
    last = [step for step in program.steps if "adam_update" in step.name]
    assert len(last) == 2
    for step in last:
        assert [place.kind for place in step.outputs[1:]] == [ARGUMENT] * 3


def test_a_gradient_that_another_op_makes_first() -> None:
    """A product whose group has more in it, or that reads the weight itself, is left alone."""
    training = Training(1)
    made = training.call("batch_matmul", training.x, training.x)
    graph = training.update(training.call("relu", made))
    found = apart(graph, FUSION.updates)
    assert "batch_matmul+adam_update" not in names(found, Grouping(found, FUSION).groups())
    own = Training(1)
    graph = own.update(own.call("batch_matmul", own.x, own.lists[0][0]))
    found = apart(graph, FUSION.updates)
    assert names(found, Grouping(found, FUSION).groups())[-1] == "adam_update"


def test_readers_of_old_and_new_values() -> None:
    """A reader of the old value that needs the new one as well can't come first."""
    training = Training(1)
    made = training.call("batch_matmul", training.x, training.x)
    graph = training.update(made)
    both = training.call("mul", graph.nodes[-1].outputs[0], training.lists[0][0])
    graph.outputs = (made, both)
    found = apart(graph, FUSION.updates)
    order = names(found, Grouping(found, FUSION).groups())
    assert order == ["counted_up", "batch_matmul+adam_update", "mul"]


def step_of(sizes: tuple[int, ...], optimizer: Any) -> tuple[Any, Any, Any]:
    lucerne.manual_seed(0)
    pairs = itertools.pairwise(sizes)
    model = lucerne.nn.Sequential(*(lucerne.nn.Linear(i, o) for i, o in pairs))
    optim = optimizer(model.parameters(), lr=0.01, weight_decay=0.1)

    def step(x: Any) -> Any:
        optim.zero_grad()
        loss = (model(x) ** 2).mean()
        loss.backward()
        optim.step()
        return loss

    return model, optim, step


def values(model: Any, optimizer: Any) -> list[Any]:
    found = [p.detach().clone() for p in model.parameters()]
    found += [p.grad.clone() for p in model.parameters()]
    for state in optimizer.state.values():
        found += [state["exp_avg"].clone(), state["exp_avg_sq"].clone(), state["step"].clone()]
    return found


def test_whole_steps_have_the_bits_of_eager_mode() -> None:
    x = lucerne.randn(64, 300)
    for optimizer in (lucerne.optim.Adam, lucerne.optim.AdamW):
        seen = []
        for compiled in (False, True):
            model, optim, step = step_of((300, 320, 256, 10), optimizer)
            run = lucerne.compile(step, mode="bitwise", fullgraph=True) if compiled else step
            losses = [run(x).item() for _ in range(4)]
            seen.append((losses, values(model, optim)))
        (eager, wanted), (own, found) = seen
        assert eager == own
        for a, b in zip(wanted, found, strict=True):
            assert lucerne.equal(a, b)


def test_a_changed_learning_rate_counts() -> None:
    """Numbers are given at each call to the fused kernel too."""
    x, seen = lucerne.randn(64, 300), []
    for compiled in (False, True):
        model, optim, step = step_of((300, 320, 256), lucerne.optim.Adam)
        run = lucerne.compile(step, mode="bitwise", fullgraph=True) if compiled else step
        for rate in (0.01, 0.1, 0.001):
            optim.param_groups[0]["lr"] = rate
            run(x)
        seen.append(values(model, optim))
    assert all(lucerne.equal(a, b) for a, b in zip(*seen, strict=True))
