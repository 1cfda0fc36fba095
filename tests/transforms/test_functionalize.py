"""Functionalize: a graph with writes, run as it stands, and the graph without them that is made."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lucerne
from lucerne._src.ir import op as op_
from lucerne._src.ir.graph import Graph, Node, Value, verify
from lucerne._src.transforms import interpret
from lucerne._src.transforms.functionalize import MutationError, functionalize
from lucerne._src.transforms.interpret import held
from tests.transforms.programs import Maker
from tests.transforms.tracing import arrays, assert_same_bits, meta

COPY = op_.get("copy")


def with_writes(seed: int, size: int) -> Graph:
    """A random graph in which values, inputs and views are written to now and then."""
    maker = Maker(seed)
    maker.make(size)
    rng, graph = random.Random(seed), maker.graph
    graph.writes = []
    nodes, known = [], list(graph.inputs)
    for node in graph.nodes:
        nodes.append(node)
        known += node.outputs
        if rng.random() < 0.4:
            nodes += _write(rng, known)
    graph.nodes = nodes
    return graph


def _write(rng: random.Random, known: list[Value]) -> list[Node]:
    target = rng.choice(known)
    if _overlaps(target):
        return []  # eager refuses that
    fitting = [v for v in known if v.meta.shape == target.meta.shape]
    source: Any = rng.choice(fitting) if rng.random() < 0.7 else rng.choice([0, 1, 2.5])
    return [Node(COPY, (target, source), ())]


def _overlaps(v: Value) -> bool:
    return any(n > 1 and not s for n, s in zip(v.meta.shape, v.meta.strides, strict=True))


def directly(graph: Graph, inputs: list[Any]) -> dict[int, Any]:
    """Run node by node, writing where the graph writes: what every value holds at the end."""
    values = {v.index: held(x, v.meta) for v, x in zip(graph.inputs, inputs, strict=True)}
    for node in graph.nodes:
        if node.outputs:
            found = interpret.run_node(node, values)
            values.update((v.index, x) for v, x in zip(node.outputs, found, strict=True))
            continue
        target = node.args[0]
        result = Value(-1, target.meta)
        written = interpret.run_node(Node(COPY, node.args, (result,)), values)[0]
        values[target.index].array[...] = written.array
    return values


def roots_of(graph: Graph) -> list[Value]:
    return [v for n in graph.nodes if n.op.kind != op_.VIEW for v in n.outputs]


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 2**32), size=st.integers(1, 20))
def test_nothing_is_lost(seed: int, size: int) -> None:
    graph = with_writes(seed, size)
    given = arrays(graph, seed % 1000)
    want = directly(graph, given)
    roots = roots_of(graph)
    try:
        made = functionalize(graph, roots)
    except MutationError:
        return  # a view of another dtype
    verify(made)
    assert all(n.outputs for n in made.nodes)
    outputs, written = interpret.run(made, given)
    assert_same_bits([x.array for x in outputs], [want[v.index].array for v in roots])
    after = dict(zip([t.index for t, _ in made.writes], written, strict=True))
    for v, old, x in zip(graph.inputs, made.inputs, given, strict=True):
        have = after[old.index].array if old.index in after else np.asarray(x)
        assert_same_bits([have], [want[v.index].array])


def test_there_are_writes_in_the_examples() -> None:
    graphs = [with_writes(seed, 12) for seed in range(50)]
    assert sum(not n.outputs for g in graphs for n in g.nodes) > 50


def test_a_write_over_all_is_the_value_itself() -> None:
    graph = Graph()
    x = graph.input(meta(3))
    (y,) = graph.call(op_.get("exp"), (x,), [x.meta])
    graph.nodes.append(Node(COPY, (x, y), ()))
    made = functionalize(graph, [])
    assert [n.op.name for n in made.nodes] == ["exp"]
    assert [(t.index, v.index) for t, v in made.writes] == [(0, made.nodes[0].outputs[0].index)]


def test_a_view_is_read_anew_after_a_write() -> None:
    graph = Graph()
    x = graph.input(meta(3))
    (row,) = graph.call(op_.get("as_strided"), (x, (2,), (1,), 1), [meta(2)])
    graph.nodes.append(Node(COPY, (x, 7.0), ()))
    (y,) = graph.call(op_.get("neg"), (row,), [row.meta])
    made = functionalize(graph, [y])
    outputs, _ = interpret.run(made, [np.zeros(3, np.float32)])
    assert outputs[0].array.tolist() == [-7.0, -7.0]


def test_what_begins_anew_is_not_written_back() -> None:
    graph = Graph()
    x = graph.input(meta(3))
    graph.nodes.append(Node(COPY, (x, 7.0), ()))
    assert functionalize(graph, [x], frozenset([x])).writes == []
    assert len(functionalize(graph, [x]).writes) == 1


def test_a_write_by_another_dtype_is_refused() -> None:
    graph = Graph()
    x = graph.input(meta(4))
    seen = meta(4, dtype=lucerne.int32)
    (bits,) = graph.call(op_.get("view_dtype"), (x, lucerne.int32), [seen])
    graph.nodes.append(Node(COPY, (bits, 1), ()))
    with pytest.raises(MutationError, match="another dtype"):
        functionalize(graph, [])
