"""Dead code, common subexpressions, constants, bodies of composites, and what passes share."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lucerne
import lucerne.nn.functional as F
from lucerne._src.base.unspecialized import GivenFloat
from lucerne._src.ir import op as op_
from lucerne._src.ir.graph import Graph, Node, operands, verify
from lucerne._src.transforms import cse, dead, decompose, fold, interpret, partition, simplify
from lucerne._src.transforms.rewrite import GraphBuilder, producers, result_metas
from tests.support.pace import fastest, slowness
from tests.transforms.test_simplify import F64, I64, Make
from tests.transforms.tracing import (
    CPU,
    arrays,
    assert_same_bits,
    assert_sound,
    meta,
    names,
    results,
    traced,
)

# ---- dead ---------------------------------------------------------------------------------------


def test_dead_drops_what_nobody_reads() -> None:
    make = Make()
    x = make.input(3)
    make.neg(make.exp(x))
    make.graph.outputs = (make.relu(x),)
    assert names(dead.run(make.graph)) == ["relu"]


def test_dead_keeps_draws_and_what_they_read() -> None:
    make = Make()
    x = make.input(3)
    make.draw(make.exp(x), "uniform", 0.0, 1.0, lucerne.float32, lucerne.Generator())
    make.graph.outputs = (make.relu(x),)
    assert names(dead.run(make.graph)) == ["exp", "draw", "relu"]
    assert names(dead.run(make.graph, keep_draws=False)) == ["relu"]


def test_dead_keeps_writes() -> None:
    make = Make()
    x, y = make.input(3), make.input(3)
    make.graph.writes = [(x, make.neg(x)), (y, y)]
    new = dead.run(make.graph)
    verify(new)
    assert names(new) == ["neg"]
    assert [t for t, _ in new.writes] == [x]


# ---- cse ----------------------------------------------------------------------------------------


def pair(first: Any, second: Any, shown: bool = False) -> list[str]:
    """The ops left of two calls on the same input."""
    make = Make()
    x = make.input(2, 2)
    a, b = first(make, x), second(make, x)
    make.graph.outputs = (a, b) if shown else (make.hypot(a, b),)
    new = cse.run(make.graph)
    assert_sound(new, make.graph)
    assert_same_bits(results(new, arrays(new)), results(make.graph, arrays(new)))
    return names(new) if shown else names(new)[:-1]


def test_cse_joins_the_same() -> None:
    assert pair(lambda m, x: m.mul(x, 2.0), lambda m, x: m.mul(x, 2.0)) == ["mul"]
    assert pair(lambda m, x: m.exp(m.neg(x)), lambda m, x: m.exp(m.neg(x))) == ["neg", "exp"]
    assert pair(lambda m, x: m.mul(x, float("nan")), lambda m, x: m.mul(x, float("nan"))) == ["mul"]
    assert pair(lambda m, x: m.cat((x, x), 0), lambda m, x: m.cat((x, x), 0)) == ["cat"]


@pytest.mark.parametrize(
    ("a", "b"), [(0.0, -0.0), (1, 1.0), (1, True), (0.0, 0), (2.0, 3.0), (1.0, 1 + 0j)]
)
def test_cse_keeps_numbers_apart(a: Any, b: Any) -> None:
    make = Make()
    x = make.input(2, dtype=I64)
    make.graph.outputs = (make.add2(x, a), make.add2(x, b))
    assert names(cse.run(make.graph)) == ["add2", "add2"]


def test_cse_keeps_draws_apart() -> None:
    generator = lucerne.Generator()
    args = ("uniform", 0.0, 1.0, lucerne.float32, generator)
    make = Make()
    x = make.input(2)
    make.graph.outputs = (make.hypot(make.draw(x, *args), make.draw(x, *args)),)
    assert names(cse.run(make.graph)) == ["draw", "draw", "hypot"]


def test_cse_keeps_given_numbers_apart() -> None:
    rates = {"a": 0.5, "b": 0.5}
    a, b = (GivenFloat(0.5, (rates, k)) for k in rates)
    assert pair(lambda m, x: m.mul(x, a), lambda m, x: m.mul(x, b)) == ["mul", "mul"]
    assert pair(lambda m, x: m.mul(x, a), lambda m, x: m.mul(x, a)) == ["mul"]


def test_cse_keeps_two_results_two() -> None:
    same = lambda m, x: m.neg(x)  # noqa: E731
    assert pair(same, same, shown=True) == ["neg", "neg"]
    seen = lambda m, x: m.view(m.neg(x), (4,))  # noqa: E731
    assert pair(seen, seen, shown=True) == ["neg", "view", "neg", "view"]


# ---- fold ---------------------------------------------------------------------------------------

FOLDED = [
    ("numbers", lambda m: m.mul(m.filled(3.0, 2), 2), ["filled"], True),
    ("promotion", lambda m: m.add2(m.filled(3, 2, dtype=I64), 0.5), ["filled"], True),
    ("a view of equal elements", lambda m: m.neg(m.expand(m.filled(3.0, 1), (2, 3))),
     ["filled"], True),
    ("a cast", lambda m: m.cast(m.filled(0.1, 2), F64), ["filled"], True),
    ("exp, whose bits differ", lambda m: m.exp(m.filled(1.0, 2)), ["filled"], False),
    ("a sum of ones", lambda m: m.sum(m.filled(1.0, 100, 7), (0,), False, None), ["filled"], True),
    ("a sum of tenths", lambda m: m.sum(m.filled(0.1, 100), (0,), False, None), ["filled"], False),
    ("the largest", lambda m: m.amax(m.filled(0.1, 100), (0,), False), ["filled"], True),
    ("a count", lambda m: m.mul(m.counted(0, 1, 5, I64, CPU), 3), ["counted"], True),
    ("a comparison", lambda m: m.lt(m.counted(0, 1, 5, I64, CPU), 9), ["filled"], True),
    ("a negative zero", lambda m: m.neg(m.filled(0.0, 2)), ["filled"], True),
    ("a join", lambda m: m.cat((m.filled(1.0, 2), m.filled(1.0, 3)), 0), ["filled"], True),
]  # fmt: skip


@pytest.mark.parametrize("row", FOLDED, ids=lambda r: r[0])
def test_fold(row: Any) -> None:
    _, build, left, exact = row
    make = Make()
    make.graph.outputs = (build(make),)
    loose = dead.run(fold.run(make.graph))
    assert_sound(loose, make.graph)
    assert names(loose) == left
    strict = dead.run(fold.run(make.graph, bitwise=True))
    assert (names(strict) == left) is exact
    assert_same_bits(results(strict, []), results(make.graph, []))


@pytest.mark.parametrize(
    "build",
    [
        lambda m: m.mul(m.filled(GivenFloat(0.5, ({"lr": 0.5}, "lr")), 2), 2),
        lambda m: m.mul(m.filled(1.0, 2), GivenFloat(0.5, ({"lr": 0.5}, "lr"))),
        lambda m: m.mul(m.counted(0, 1, 500, I64, CPU), 2),
        lambda m: m.mul(m.input(2), 2),
        lambda m: m.floor_divide(m.filled(1, 2, dtype=I64), 0),
        lambda m: m.draw(m.filled(1.0, 2), "uniform", 0.0, 1.0, lucerne.float32, None),
    ],
)
def test_not_folded(build: Any) -> None:
    make = Make()
    make.graph.outputs = (build(make),)
    assert names(fold.run(make.graph)) == names(make.graph)


def test_constant_inputs_are_known() -> None:
    make = Make()
    x, two = make.input(3), make.input()
    make.graph.outputs = (make.mul(x, make.neg(two)),)
    new = fold.run(make.graph, constants={two.index: np.float32(2).reshape(())})
    assert names(dead.run(simplify.run(new))) == ["mul"]
    assert dead.run(simplify.run(new)).nodes[0].args[1] == -2


# ---- decompose ----------------------------------------------------------------------------------


def body_of_linear(node: Node) -> Graph | None:
    if node.op.name != "linear":
        return None
    return traced(lambda x, w, b: F.linear(x, w, b), *(v.meta for v in operands(node.args)))


def test_decompose_puts_the_body_in_place() -> None:
    graph = Graph()
    x, w, b = (graph.input(meta(*s)) for s in ((5, 4), (3, 4), (3,)))
    linear = op_.get("nn.functional.linear")
    y = graph.call(linear, (x, w, b), result_metas(linear, (x, w, b)))[0]
    graph.outputs = graph.call(op_.get("relu"), (y,), [y.meta])
    new = decompose.run(graph, body_of_linear)
    assert_sound(new, graph)
    assert names(new) == ["transpose", "expand", "batch_matmul", "add2", "relu"]
    given = arrays(graph)
    assert_same_bits(results(new, given), results(graph, given, expand=body_of_linear))
    assert names(decompose.run(graph, lambda node: None)) == names(graph)
    with pytest.raises(ValueError, match="is a composite"):
        interpret.run(graph, given)


def test_decompose_keeps_layouts() -> None:
    graph = Graph()
    x = graph.input(meta(5, 4))
    sigmoid = next(op for op in op_.table().values() if op.kind == op_.COMPOSITE)
    graph.outputs = graph.call(sigmoid, (x,), [meta(5, 4, strides=(1, 5))])
    new = decompose.run(graph, lambda node: traced(lambda t: t * 2, x.meta))
    assert_sound(new, graph)
    assert names(new) == ["mul", "uninitialized", "copy"]
    with pytest.raises(ValueError, match="is needed"):
        decompose.run(graph, lambda node: traced(lambda t: t.sum(), x.meta))
    with pytest.raises(ValueError, match="gives 2 results"):
        decompose.run(graph, lambda node: traced(lambda t: (t + 1, t + 2), x.meta))


# ---- rewrite ------------------------------------------------------------------------------------


def net(x: Any, w: Any) -> Any:
    h = (x @ w).relu()
    return h.sum(0), h.t()


def test_tables() -> None:
    graph = traced(net, meta(5, 4), meta(4, 3))
    relu = graph.nodes[1]
    assert producers(graph)[relu.outputs[0].index] is relu
    assert [v.index for v in operands(relu.args)] == [graph.nodes[0].outputs[0].index]


def test_builder_leaves_the_source_alone() -> None:
    graph = traced(net, meta(5, 4), meta(4, 3))
    text = str(graph)
    builder = GraphBuilder(graph)
    for node in graph.nodes:
        if node.op.name == "relu":
            builder.replace(node.outputs[0], builder.call(op_.get("neg"), node.args)[0])
        else:
            builder.keep(node)
    new = builder.finish()
    verify(new)
    assert names(new)[1] == "neg"
    assert str(graph) == text
    with pytest.raises(ValueError, match="inputs expected"):
        builder.inline(graph, [])


def test_shapes_of_bodies_without_meta_are_refused() -> None:
    composite = next(
        op for op in op_.table().values() if op.kind == op_.COMPOSITE and op.meta is None
    )
    with pytest.raises(ValueError, match="decompose it first"):
        result_metas(composite, tuple(None for _ in composite.params))


WRONG_WRITES = [
    (lambda g: [(g.nodes[0].outputs[0], g.inputs[0])], "is no input"),
    (lambda g: [(g.inputs[0], g.inputs[0])] * 2, "written twice"),
    (lambda g: [(g.inputs[0], g.inputs[1])], "can't hold"),
]


@pytest.mark.parametrize(("writes", "message"), WRONG_WRITES)
def test_wrong_writes_are_caught(writes: Any, message: str) -> None:
    graph = traced(net, meta(5, 4), meta(4, 3))
    graph.writes = writes(graph)
    with pytest.raises(ValueError, match=message):
        verify(graph)


# ---- time ---------------------------------------------------------------------------------------


def big(x: Any, g: Any, *weights: Any) -> Any:
    for w in weights:
        h = F.layer_norm(x, (8,))
        x = x + F.gelu(h @ w).reshape(4, 8) * 1.0
    return x, *lucerne.autograd.grad(x, weights, g)


def test_passes_are_fast() -> None:
    """All passes over some 3,000 nodes: 33 ms where this was written, the bound is 150."""
    count = 60
    graph = traced(big, meta(4, 8), meta(4, 8), *[meta(8, 8)] * count, grad=range(2, count + 2))
    assert len(graph.nodes) > 2500
    new = dead.run(cse.run(fold.run(simplify.run(graph))))
    slow = slowness()
    assert fastest(lambda: dead.run(cse.run(fold.run(simplify.run(graph))))) < 0.3 * slow
    assert fastest(lambda: partition.split(new, 1, [new.inputs[1]], budget=0.5)) < 0.6 * slow
