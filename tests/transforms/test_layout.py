"""Regions of images change their memory order; what leaves the graph does not."""

from __future__ import annotations

from typing import Any

import pytest

import lucerne
from lucerne import backends
from lucerne._src.ir import op as op_
from lucerne._src.ir.graph import Graph, Node
from lucerne._src.pipeline.road import Road
from lucerne._src.transforms import interpret, layout
from lucerne._src.transforms.rewrite import result_metas
from tests.transforms.tracing import (
    arrays,
    assert_close,
    assert_sound,
    meta,
    names,
    results,
    traced,
)

CONV = op_.get("conv")


def convolved(graph: Graph, x: Any, w: Any) -> Any:
    args = (x, w, None, (1, 1), (1, 1), (1, 1), 1)
    return graph.call(CONV, args, result_metas(CONV, args))[0]


def two_convs(between: str = "relu") -> Graph:
    graph = Graph()
    x, w, v = graph.input(meta(2, 3, 5, 5)), graph.input(meta(4, 3, 3, 3)), None
    v = graph.input(meta(4, 4, 3, 3))
    h = convolved(graph, x, w)
    op = op_.get(between)
    h = graph.call(op, (h,), result_metas(op, (h,)))[0]
    graph.outputs = (convolved(graph, h, v),)
    return graph


def always(node: Node) -> bool:
    return True


def test_region_between_copies() -> None:
    graph = two_convs()
    new = layout.run(graph, always)
    assert_sound(new, graph)
    assert names(new) == ["clone_as", "conv", "relu", "conv", "clone_as"]
    given = arrays(graph, special=False)
    assert_close(results(new, given), results(graph, given))


def test_the_pipeline_asks_the_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = backends.get("reference")
    graph = two_convs()
    silent = Road(backend).improved(graph)
    assert names(silent) == ["conv", "relu", "conv"]
    monkeypatch.setattr(backend, "prefers_channels_last", always, raising=False)
    turned = Road(backend).improved(graph)
    assert names(turned) == ["clone_as", "conv", "relu", "conv", "clone_as"]
    exact = Road(backend, mode="bitwise").improved(graph)
    assert names(exact) == ["conv", "relu", "conv"]


def test_nobody_asks_for_it() -> None:
    graph = two_convs()
    assert layout.run(graph, None) is graph
    assert layout.run(graph, lambda node: False) is graph
    plain = traced(lambda x: x.relu(), meta(2, 3, 4, 4))
    assert layout.run(plain, always) is plain


def test_the_heavier_side_wins() -> None:
    graph = two_convs()  # the second convolution works more
    heavy, light = (n.outputs[0].index for n in (graph.nodes[2], graph.nodes[0]))
    assert layout.run(graph, lambda n: n.outputs[0].index == light) is graph
    assert layout.run(graph, lambda n: n.outputs[0].index == heavy) is not graph


def test_readers_outside_get_the_usual_order() -> None:
    graph = two_convs()
    h = graph.nodes[1].outputs[0]
    view = op_.get("view")
    flat = graph.call(view, (h, (2, -1)), result_metas(view, (h, (2, -1))))[0]
    graph.outputs = (*graph.outputs, flat, h)
    new = layout.run(graph, always)
    assert_sound(new, graph)
    assert names(new).count("clone_as") == 3
    given = arrays(graph, special=False)
    assert_close(results(new, given), results(graph, given))


def step(x: Any, w: Any, gamma: Any, beta: Any, v: Any, g: Any) -> Any:
    conv2d = lucerne.nn.functional.conv2d
    h = conv2d(x, w, padding=1).relu() * gamma.reshape(1, 4, 1, 1) + beta.reshape(1, 4, 1, 1)
    h = lucerne.nn.functional.max_pool2d(h, 2)
    y = conv2d(h + h.abs(), v)
    return y, *lucerne.autograd.grad(y, [w, gamma, v], g)


def test_training_step() -> None:
    shapes = [(2, 3, 6, 6), (4, 3, 3, 3), (4,), (4,), (5, 4, 3, 3), (2, 5, 1, 1)]
    graph = traced(step, *(meta(*s) for s in shapes), grad=(1, 2, 3, 4))
    new = layout.run(graph, always)
    assert_sound(new, graph)
    changed = [n for n in new.nodes if n.op.name == "conv" and not n.args[0].meta.contiguous]
    assert changed
    given = arrays(graph, special=False)
    want = interpret.run(graph, given)[0]
    got = interpret.run(new, given)[0]
    assert [x._meta for x in got] == [x._meta for x in want]
    assert_close([x.array for x in got], [x.array for x in want])
