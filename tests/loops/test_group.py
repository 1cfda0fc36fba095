"""Grouping: every node in one group, groups in an order in which they can run, no circles."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lucerne
import lucerne.nn.functional as F
from lucerne._src.ir import op as op_
from lucerne._src.ir.graph import Graph, operands
from lucerne._src.loops.group import Fusion, Group, Grouping, in_order, squeezed
from tests.transforms.programs import Maker
from tests.transforms.tracing import meta, traced

FUSIONS = st.sampled_from(
    [
        Fusion(),
        Fusion(folds=False),
        Fusion(most_nodes=3),
        Fusion(anchors=frozenset(("cat", "padded", "batch_matmul"))),
        Fusion(anchors=frozenset(("cat", "padded")), prologue_anchors=frozenset(("cat", "padded"))),
    ]
)


def groups_of(graph: Graph, fusion: Fusion | None = None) -> list[list[str]]:
    """The names of the ops, group by group."""
    found = Grouping(graph, fusion or Fusion()).groups()
    return [[graph.nodes[at].op.name for at in group] for group in found]


def assert_runs_in_order(graph: Graph, groups: list[list[int]]) -> None:
    """Each node once, and each group after all that it reads from."""
    plain = [k for k, n in enumerate(graph.nodes) if n.op.kind != op_.VIEW]
    assert sorted(k for group in groups for k in group) == plain
    ready = {v.index for v in graph.inputs}
    maker = {v.index: k for k, n in enumerate(graph.nodes) for v in n.outputs}

    def base(index: int) -> int:
        node = graph.nodes[maker[index]] if index in maker else None
        return base(node.args[0].index) if node is not None and node.op.kind == op_.VIEW else index

    for group in groups:
        inside = {v.index for k in group for v in graph.nodes[k].outputs}
        for k in group:
            for v in operands(graph.nodes[k].args):
                assert base(v.index) in ready | inside, f"{group} reads {v} too early"
        ready |= inside


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32), size=st.integers(1, 30), fusion=FUSIONS)
def test_random_graphs(seed: int, size: int, fusion: Fusion) -> None:
    graph = Maker(seed).make(size)
    groups = Grouping(graph, fusion).groups()
    assert_runs_in_order(graph, groups)
    assert all(len(group) <= fusion.most_nodes for group in groups)


@settings(max_examples=80, deadline=None)
@given(seed=st.integers(0, 2**32), size=st.integers(1, 30))
def test_groups_walk_one_space(seed: int, size: int) -> None:
    """Element-wise nodes of a group have one shape, or that which the folds of the group leave."""
    graph = Maker(seed).make(size)
    for group in Grouping(graph, Fusion()).groups():
        nodes = [graph.nodes[k] for k in group]
        folds = [n for n in nodes if n.op.kind == op_.REDUCTION]
        shapes = {
            squeezed(tuple(n.outputs[0].meta.shape))
            for n in nodes
            if n not in folds and len(group) > 1
        }
        assert len(shapes) <= (2 if folds else 1)


@pytest.mark.parametrize("shape", [(4, 4), (4, 5)], ids=str)
def test_folds_over_other_dimensions_stay_apart(shape: tuple[int, ...]) -> None:
    """No loops fold two ways at once: a backend would turn the whole group down."""

    def both(x: Any) -> Any:
        e = x.exp()
        return e.sum(0), e.sum(1)

    graph = traced(both, meta(*shape))
    assert sorted(names.count("sum") for names in groups_of(graph) if "sum" in names) == [1, 1]


def test_the_check_sees_a_wrong_order() -> None:
    graph = traced(lambda x: (x.exp().sum(0) + 1).sqrt(), meta(3, 4))
    at = [k for k, n in enumerate(graph.nodes) if n.op.kind != op_.VIEW]
    with pytest.raises(AssertionError, match="too early"):
        assert_runs_in_order(graph, [[k] for k in reversed(at)])


def test_a_circle_is_an_error_of_the_compiler() -> None:
    graph = traced(lambda x: x.cumsum(0).exp() + x, meta(4))
    grouping = Grouping(graph, Fusion())
    a, b = (Group(k, graph.nodes[k]) for k in (0, 1))
    a.nodes[2], grouping.of[0], grouping.of[2] = graph.nodes[2], a, a
    grouping.of[1] = b
    with pytest.raises(AssertionError, match="circle"):
        in_order([a, b], grouping)


def test_element_wise_ops_are_one_group() -> None:
    graph = traced(lambda x, y: ((x + y) * 2).exp().relu(), meta(4, 5), meta(4, 5))
    assert groups_of(graph) == [["add2", "mul", "exp", "relu"]]


def test_a_broadcast_joins_where_it_is_read() -> None:
    graph = traced(lambda x, b: (x + b).exp(), meta(4, 5), meta(5))
    assert groups_of(graph) == [["add2", "exp"]]


def test_softmax_is_one_group() -> None:
    def softmax(x: Any) -> Any:
        e = (x - x.amax(1, keepdim=True)).exp()
        return e / e.sum(1, keepdim=True)

    assert len(groups_of(traced(softmax, meta(8, 16)))) == 1


def test_what_stands_between_is_not_skipped() -> None:
    """x feeds a sum over rows and its own product with it through an op of another kind."""
    graph = traced(lambda x: x.exp() * x.exp().cumsum(0), meta(4, 4))
    groups = Grouping(graph, Fusion()).groups()
    assert_runs_in_order(graph, groups)
    assert all(len(g) < len(graph.nodes) for g in groups)


def test_other_shapes_are_other_groups() -> None:
    graph = traced(lambda x, y: (x.exp(), y.exp()), meta(4), meta(5))
    assert groups_of(graph) == [["exp"], ["exp"]]


def test_empty_tensors_stay_alone() -> None:
    assert groups_of(traced(lambda x: (x + 1).exp(), meta(0, 3))) == [["add2"], ["exp"]]


def test_a_head_takes_what_follows() -> None:
    graph = traced(lambda x, w: F.relu(x @ w) * 2, meta(4, 5), meta(5, 6))
    fusion = Fusion(anchors=frozenset(("batch_matmul", "matrix_product", "mm", "product")))
    names = groups_of(graph, fusion)
    flat = [n for group in names for n in group]
    assert "relu" in flat
    assert len(names) <= len(groups_of(graph, Fusion()))


def test_there_is_a_most() -> None:
    def chain(x: Any) -> Any:
        for _ in range(30):
            x = x.sin()
        return x

    graph = traced(chain, meta(4))
    assert max(map(len, groups_of(graph, Fusion(most_nodes=7)))) <= 7
    assert lucerne.float32 is graph.inputs[0].meta.dtype
