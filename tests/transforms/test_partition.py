"""Forward and backward together compute what the joint graph does, keeping as little as can be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lucerne
import lucerne.nn.functional as F
from lucerne._src.base import layout as lo
from lucerne._src.ir import op as op_
from lucerne._src.ir.graph import Graph, Value, verify
from lucerne._src.transforms import cse, dead, interpret, simplify
from lucerne._src.transforms.flow import SINK, SOURCE, Network
from lucerne._src.transforms.partition import INPUT, OUTPUT, Split, split
from tests.transforms.joints import Joint, best_cost
from tests.transforms.tracing import arrays, assert_same_bits, meta, names, traced

SEEDS = st.integers(0, 1 << 30)
BUDGETS = st.sampled_from([0.0, 0.3, 0.5, 0.8, 1.0])


def halves(made: Split, primals: list[Any], tangents: list[Any]) -> list[np.ndarray]:
    """Results, gradients and written values, computed by the two graphs one after the other."""
    given = [interpret.held(a, v.meta) for a, v in zip(primals, made.forward.inputs, strict=True)]
    outputs, writes = interpret.run(made.forward, given)
    kept = [given[s.index] if s.kind == INPUT else outputs[s.index] for s in made.saved]
    gradients, _ = interpret.run(made.backward, [*kept, *tangents])
    return [np.array(x.array) for x in (*outputs, *gradients, *writes)]


def assert_split_right(
    joint: Graph, results: int, tangents: list[Value], made: Split, generator: Any = None
) -> None:
    """The two halves together give what the joint graph gives, bit for bit."""
    verify(made.forward)
    verify(made.backward)
    values = dict(zip((v.index for v in joint.inputs), arrays(joint), strict=True))
    late = {v.index for v in tangents}
    if generator is not None:
        generator.manual_seed(3)
    outputs, writes = interpret.run(joint, list(values.values()))
    want = [np.array(x.array) for x in (*outputs, *writes)]
    if generator is not None:
        generator.manual_seed(3)
    got = halves(
        made,
        [values[v.index] for v in joint.inputs if v.index not in late],
        [values[v.index] for v in tangents],
    )
    extra = len(made.forward.outputs) - results
    assert_same_bits(got[:results] + got[results + extra :], want)


@given(SEEDS, BUDGETS)
@settings(max_examples=80, deadline=None)
def test_halves_equal_the_whole(seed: int, budget: float) -> None:
    joint = Joint(seed)
    made = split(joint.graph, joint.results, joint.tangents, budget=budget)
    assert_split_right(joint.graph, joint.results, joint.tangents, made, joint.generator)
    assert made.report.bytes_saved <= made.report.bytes_without
    backward = [n for n in made.backward.nodes if n.op.kind == op_.RANDOM]
    drawn = [n for n in made.forward.nodes if n.op.kind == op_.RANDOM]
    assert len(backward) + len(drawn) == names(joint.graph).count("draw")


@given(SEEDS, st.sampled_from([0.0, 1.0]))
@settings(max_examples=60, deadline=None)
def test_cut_is_the_cheapest(seed: int, budget: float) -> None:
    joint = Joint(seed, early=7, late=5)  # too short for the limit on chains to matter
    best = best_cost(joint, budget)
    if best is not None:
        made = split(joint.graph, joint.results, joint.tangents, budget=budget)
        assert made.report.bytes_saved == best


def test_wrong_halves_are_caught() -> None:
    joint = Joint(5)
    made = split(joint.graph, joint.results, joint.tangents)
    shown = made.backward.outputs
    made.backward.outputs = tuple(made.backward.inputs[-1] for _ in shown)
    with pytest.raises(AssertionError):
        assert_split_right(joint.graph, joint.results, joint.tangents, made, joint.generator)


def mlp(x: Any, w: Any, b: Any, v: Any, g: Any) -> Any:
    y = F.linear(F.gelu(F.linear(x, w, b)), v)
    return y, *lucerne.autograd.grad(y, [w, b, v], g)


def joint_mlp() -> Graph:
    shapes = [(32, 8), (16, 8), (16,), (8, 16), (32, 8)]
    graph = traced(mlp, *(meta(*s) for s in shapes), grad=(1, 2, 3))
    return dead.run(cse.run(simplify.run(graph)))


def test_mlp_keeps_one_activation() -> None:
    """gelu is computed again from the value before it; products never are."""
    graph = joint_mlp()
    made = split(graph, 1, [graph.inputs[-1]])
    assert_split_right(graph, 1, [graph.inputs[-1]], made)
    assert made.report.bytes_saved == 32 * 16 * 4
    assert made.report.bytes_without > made.report.bytes_saved
    products = [names(g).count("batch_matmul") for g in (made.forward, made.backward)]
    assert sum(products) == names(graph).count("batch_matmul")
    assert [s.kind for s in made.saved].count(OUTPUT) == 1
    assert "computed again" in str(made.report)


def test_budget_trades_memory_for_time() -> None:
    """A softmax-like fold is kept under a full budget and computed again under a small one."""

    def fn(x: Any, g: Any) -> Any:
        h = x @ x.t()
        y = h * h.sum(1, keepdim=True) * h.sum(0, keepdim=True)
        return y, *lucerne.autograd.grad(y, [x], g)

    graph = traced(fn, meta(16, 16), meta(16, 16), grad=(0,))
    graph = dead.run(cse.run(graph))
    saved = [
        split(graph, 1, [graph.inputs[1]], budget=b).report.bytes_saved for b in (0.0, 0.5, 1.0)
    ]
    assert saved == sorted(saved)
    assert saved[0] < saved[2]
    with pytest.raises(ValueError, match="between 0 and 1"):
        split(graph, 1, [graph.inputs[1]], budget=2)


def test_long_chains_are_not_computed_again() -> None:
    graph = Graph()
    x, g = graph.input(meta(4)), graph.input(meta(4))
    value = graph.call(op_.get("cat"), ((x,), 0), [x.meta])[0]
    for _ in range(30):
        value = graph.call(op_.get("relu"), (value,), [x.meta])[0]
    end = graph.call(op_.get("mul"), (value, g), [x.meta])
    graph.outputs = (value, *end)
    counts = [
        sum(split(graph, 1, [g], budget=b).report.recomputed.values()) for b in (1.0, 0.5, 0.0)
    ]
    assert counts == [0, 0, 0]  # all cost the same, so the last is kept
    half = graph.call(op_.get("cast"), (value, lucerne.float64), [meta(4, dtype=lucerne.float64)])[
        0
    ]
    wide = graph.call(op_.get("mul"), (half, g), [half.meta])
    graph.outputs = (value, *wide)
    assert split(graph, 1, [g], budget=1.0).report.recomputed == {"cast": 1}


def test_overwritten_input_is_kept_as_a_copy() -> None:
    def fn(x: Any, g: Any) -> Any:
        return x + 1, g * x

    graph = traced(fn, meta(4), meta(4))
    graph.writes = [(graph.inputs[0], graph.outputs[0])]
    made = split(graph, 1, [graph.inputs[1]])
    assert [s.kind for s in made.saved] == [OUTPUT]
    assert names(made.forward) == ["add2", "clone_as"]
    assert [(t.index, v.index) for t, v in made.forward.writes] == [(0, 1)] or made.forward.writes
    assert made.report.bytes_saved == 16


def test_result_that_needs_a_tangent_is_refused() -> None:
    graph = traced(lambda x, g: (x * g, g + 1), meta(4), meta(4))
    with pytest.raises(ValueError, match="depends on a tangent"):
        split(graph, 1, [graph.inputs[1]])


def test_view_is_not_kept_but_its_base() -> None:
    graph = traced(lambda x, g: ((h := x @ x).sum(), g * h.t()[:2, :2]), meta(4, 4), meta(2, 2))
    made = split(graph, 1, [graph.inputs[1]])
    assert [names(graph)[0], *(s.value.index for s in made.saved)] == ["batch_matmul", 2]
    assert_split_right(graph, 1, [graph.inputs[1]], made)


@pytest.mark.parametrize(
    ("edges", "size"),
    [
        ([(SOURCE, 2, 3), (2, 3, 2), (3, SINK, 5)], 2),
        ([(SOURCE, 2, 3), (SOURCE, 3, 2), (2, SINK, 2), (3, SINK, 3), (2, 3, 5)], 5),
        ([(SOURCE, 2, 10), (2, 3, 4), (2, 4, 8), (3, 4, 6), (3, SINK, 10), (4, SINK, 10)], 10),
        ([(2, 3, 1)], 0),
    ],
)
def test_flow(edges: list[tuple[int, int, int]], size: int) -> None:
    net = Network()
    for _ in range(3):
        net.vertex()
    for e in edges:
        net.edge(*e)
    assert net.solve() == size
    there = net.sink_side()
    assert SOURCE not in there
    assert sum(c for a, b, c in edges if a not in there and b in there) == size


def test_clone_formats_are_kept() -> None:
    graph = traced(lambda x, g: (x.t().clone(memory_format=lo.contiguous_format), g * x),
                   meta(2, 3), meta(2, 3))  # fmt: skip
    made = split(graph, 1, [graph.inputs[1]])
    assert made.forward.outputs[0].meta is graph.outputs[0].meta
