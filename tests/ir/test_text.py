"""Graphs print and parse back, and a deep check sees metas that are wrong."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lucerne
from lucerne._src.ir import op as op_
from lucerne._src.ir.graph import Graph, Node, Value, verify
from lucerne._src.ir.infer import argument, results
from lucerne._src.ir.meta import make_meta
from lucerne._src.ir.meta_text import static_text
from lucerne._src.ir.text import ParseError, parse

CPU, META = lucerne.device("cpu"), lucerne.device("meta")
DTYPES = [
    lucerne.float32, lucerne.float64, lucerne.bfloat16, lucerne.int64, lucerne.bool,
    lucerne.complex64, lucerne.uint8,
]  # fmt: skip


def call(graph: Graph, name: str, *args: Any) -> tuple[Value, ...]:
    """Add a call of an op whose results follow from its arguments."""
    op = op_.get(name)
    metas = tuple(
        tuple(x.meta for x in a)
        if kind == "l"
        else argument(kind, a.meta if type(a) is Value else a, type(a) is Value)
        for kind, a in zip(op.kinds, args, strict=True)
    )
    found = results(op, metas)
    assert found is not None
    return graph.call(op, args, found)


@st.composite
def metas(draw: st.DrawFn) -> Any:
    shape = tuple(draw(st.lists(st.integers(0, 3), max_size=3)))
    strides = None
    if draw(st.booleans()):
        strides = tuple(draw(st.lists(st.integers(0, 9), min_size=len(shape), max_size=len(shape))))
    device = draw(st.sampled_from([CPU, META]))
    return make_meta(draw(st.sampled_from(DTYPES)), shape, strides, device)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Views, element-wise ops, folds, lists, several results, numbers, writes."""
    graph = Graph()
    shape = tuple(draw(st.lists(st.integers(1, 3), min_size=1, max_size=3)))
    base = make_meta(lucerne.float32, shape, None, CPU)
    live = [graph.input(base) for _ in range(draw(st.integers(1, 3)))]
    number = graph.input(float)
    graph.input(draw(metas()))
    for _ in range(draw(st.integers(0, 8))):
        x = draw(st.sampled_from(live))
        rank = len(x.meta.shape)
        kind = draw(st.integers(0, 7))
        if kind == 0:
            live += call(graph, "exp", x)
        elif kind == 1:
            same = [v for v in live if v.meta.shape == x.meta.shape]
            live += call(graph, "mul", x, draw(st.sampled_from([*same, 2, 0.5, True, number])))
        elif kind == 2:
            dim = draw(st.integers(0, rank - 1)) if rank else 0
            dtype = draw(st.sampled_from([None, lucerne.float64]))
            live += call(graph, "sum", x, (dim,) if rank else (), draw(st.booleans()), dtype)
        elif kind == 3 and rank > 1:
            live += call(graph, "transpose", x, 0, rank - 1)
        elif kind == 4 and rank:
            live += call(graph, "cat", (x, x), draw(st.integers(-rank, rank - 1)))
        elif kind == 5:
            live += call(graph, "unsqueeze", x, draw(st.integers(-rank - 1, rank)))
        elif kind == 6 and rank:
            live += call(graph, "unbind", x, 0)
        else:
            live += call(graph, "copy", x, draw(st.sampled_from([1, 1.5, x])))
    graph.outputs = tuple(draw(st.lists(st.sampled_from(live), max_size=3)))
    fits = [v for v in live if v.meta.shape == shape and v.meta.dtype is lucerne.float32]
    if draw(st.booleans()):
        graph.writes.append((graph.inputs[0], draw(st.sampled_from(fits))))
    return graph


@given(graphs())
def test_a_graph_prints_and_parses_back(graph: Graph) -> None:
    text = str(graph)
    again = parse(text)
    assert str(again) == text
    verify(graph, deep=True)
    verify(again, deep=True)
    for a, b in zip(graph.nodes, again.nodes, strict=True):
        assert a.op is b.op
        assert [v.meta for v in a.outputs] == [v.meta for v in b.outputs]
    assert again.value(float).index not in {v.index for n in graph.nodes for v in n.outputs}


literals = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.text(max_size=8), st.just(...),
        st.floats(allow_nan=False), st.complex_numbers(allow_nan=False),
        st.sampled_from([*DTYPES, CPU, META, lucerne.device("xpu", 1), lucerne.channels_last]),
        st.sampled_from([lucerne.strided, lucerne.sparse_coo]),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.lists(inner, max_size=3).map(tuple)),
    max_leaves=8,
)  # fmt: skip


@given(st.lists(literals, min_size=2, max_size=2))
def test_static_arguments_are_exact(pair: list[Any]) -> None:
    graph = Graph()
    x = graph.input(make_meta(lucerne.float32, (), None, CPU))
    op = op_.get("sum")
    graph.nodes.append(Node(op, (x, *pair, None), (graph.value(x.meta),)))
    again = parse(str(graph))
    read = again.nodes[0].args[1:3]
    assert [static_text(a) for a in read] == [static_text(a) for a in pair]
    assert tuple(map(type, read)) == tuple(map(type, pair))
    assert list(read) == pair


def test_not_a_number_is_kept() -> None:
    graph = parse("graph(%0: float32[])\n  %1: float32[] = mul(%0, nan)\n  return %1")
    assert math.isnan(graph.nodes[0].args[1])
    assert "mul(%0, nan)" in str(graph)


GOOD = "graph(%0: float32[2, 3])\n  %1: float32[3, 2]{1, 3} = transpose(%0, 0, 1)\n  return %1"

BROKEN = [
    ("", "empty"),
    ("graph(%0: float32[2])", "return"),
    ("graph(%0: float99[2])\n  return %0", "float99"),
    ("graph(%0: float32[2])\n  %1: float32[2] = nothing(%0)\n  return %1", "no op 'nothing'"),
    ("graph(%0: float32[2])\n  %1: float32[2] = exp(%7)\n  return %1", "before it is defined"),
    ("graph(%0: float32[2])\n  %0: float32[2] = exp(%0)\n  return %0", "defined twice"),
    ("graph(%0: float32[2])\n  %1: float32[2] = exp(%0\n  return %1", "expected"),
    ("graph(%0: float32[2])\n  %1: float32[2] = exp(%0) 3\n  return %1", "end of the line"),
    ("graph(%0: float32[2])\n  %1: float32[2] = exp($)\n  return %1", "can't read"),
    ("graph(%0: float32[2])\n  %1: float32[2] = exp(<Generator>)\n  return %1", "no text"),
    ("graph(%0: float32[2])\n  %1: float32[2] = exp(__import__)\n  return %1", "means nothing"),
    ("graph(%0: float32[2])\n  %1: float32[2] = exp(%0, 1)\n  return %1", "takes 1 arguments"),
    ("graph(%0: float32[2])\n  write %0 = %3\n  return %0", "before it is defined"),
]


@pytest.mark.parametrize(("text", "message"), BROKEN)
def test_broken_texts_are_refused_with_the_line(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        parse(text)
    if isinstance(caught.value, ParseError):
        assert str(caught.value).startswith("line ")


DEEP = [
    ("float32[3, 2]{1, 3}", "float32[2, 3]"),
    ("float32[3, 2]{1, 3}", "float64[3, 2]{1, 3}"),
    ("float32[3, 2]{1, 3}", "float32[3, 2]"),
    ("float32[3, 2]{1, 3}", "float32[3, 2]{1, 3}@meta"),
    ("transpose(%0, 0, 1)", "transpose(%0, 0, 5)"),
]


@pytest.mark.parametrize(("old", "new"), DEEP)
def test_a_deep_check_sees_wrong_metas(old: str, new: str) -> None:
    verify(parse(GOOD), deep=True)
    wrong = parse(GOOD.replace(old, new))
    with pytest.raises(ValueError, match="node 0"):
        verify(wrong, deep=True)


def test_a_training_step_survives() -> None:
    net = lucerne.nn.Sequential(
        lucerne.nn.Conv2d(2, 3, 3), lucerne.nn.BatchNorm2d(3), lucerne.nn.Flatten(),
        lucerne.nn.Linear(12, 5),
    )  # fmt: skip
    optimizer = lucerne.optim.SGD(net.parameters(), lr=0.1)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = lucerne.nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    labels = lucerne.tensor([1, 2])
    graph, _ = lucerne.fx.to_ir(step, lucerne.ones(2, 2, 4, 4), labels)
    verify(graph, deep=True)
    assert str(parse(str(graph))) == str(graph)
    assert graph.writes
