"""Control flow: nodes that hold graphs of their own."""

from __future__ import annotations

from typing import Any

from lucerne._src.base import dtype as dt
from lucerne._src.ir.graph import Graph
from lucerne.export.onnx.errors import NotExpressibleError
from lucerne.export.onnx.packages import onnx_package
from lucerne.export.onnx.table import rule
from lucerne.export.onnx.types import code_of


def _info(name: str, meta: Any) -> Any:
    return onnx_package().helper.make_tensor_value_info(name, code_of(meta.dtype), None)


def _inside(c: Any, graph: Any, given: list[str], title: str, more: Any = None) -> Any:
    """A graph inside a node: it reads names from around it, and has nodes of its own.

    `given`: the names of its inputs. `more` gets the names of its outputs, and gives those that the
    ONNX graph has, with their metas.
    """
    if not isinstance(graph, Graph):
        raise NotExpressibleError("a graph inside whose sizes change")
    outside, known = c.nodes, c._known
    c.nodes, c._known = [], {k: v for k, v in known.items() if k[0] == "constant"}
    try:
        made = c.inside(graph, given)
        found = [(name, v.meta) for name, v in zip(made, graph.outputs, strict=True)]
        if more is not None:
            found = more(found)
        # An output must be made inside, and be there once.
        outs = []
        for name, meta in found:
            fresh = c.several("Identity", [name], 1)[0]
            outs.append(_info(fresh, meta))
        return c.nodes, outs, title
    finally:
        constants = {k: v for k, v in c._known.items() if k[0] == "constant"}
        c.nodes, c._known = outside, {**known, **constants}


@rule("cond_graphs")
def cond_graphs(c: Any, node: Any, pred: Any, operands: Any, yes: Any, no: Any) -> list[str]:
    helper = onnx_package().helper
    given = [c.of(x) for x in operands]
    parts = [_inside(c, g, given, title) for g, title in ((yes, "then"), (no, "else"))]
    graphs = [helper.make_graph(nodes, title, [], outs) for nodes, outs, title in parts]
    flag = c.node("Reshape", [c.operand(pred, dt.bool_), c.ints([])])
    return c.several("If", [flag], len(node.outputs), then_branch=graphs[0], else_branch=graphs[1])


@rule("while_graphs")
def while_graphs(c: Any, node: Any, carried: Any, extra: Any, goes_on: Any, body: Any) -> list[str]:
    helper = onnx_package().helper
    outer = [c.of(x) for x in extra]
    flag = _flag_of(c, goes_on, [*(c.of(x) for x in carried), *outer])
    names = [c.fresh("s") for _ in carried]
    counter, before = c.fresh("s"), c.fresh("s")

    def with_flag(found: Any) -> Any:
        again = _flag_of(c, goes_on, [*(name for name, _ in found), *outer])
        return [(again, _Bool), *found]

    nodes, outs, title = _inside(c, body, [*names, *outer], "body", with_flag)
    inputs = [
        helper.make_tensor_value_info(counter, code_of(dt.int64), []),
        helper.make_tensor_value_info(before, code_of(dt.bool_), []),
        *(_info(n, x.meta) for n, x in zip(names, carried, strict=True)),
    ]
    graph = helper.make_graph(nodes, title, inputs, outs)
    return c.several("Loop", ["", flag, *(c.of(x) for x in carried)], len(carried), body=graph)


class _Bool:
    dtype = dt.bool_


def _flag_of(c: Any, graph: Any, given: list[str]) -> str:
    """What the condition says of values with these names."""
    if not isinstance(graph, Graph):
        raise NotExpressibleError("a graph inside whose sizes change")
    (name,) = c.inside(graph, given)
    if graph.outputs[0].meta.dtype is not dt.bool_:
        name = c.cast(name, dt.bool_)
    return c.node("Reshape", [name, c.ints([])])


@rule("scan_graphs")
def scan_graphs(
    c: Any, node: Any, init: Any, xs: Any, extra: Any, body: Any, length: Any, reverse: bool
) -> list[str]:
    helper = onnx_package().helper
    if not xs:
        raise NotExpressibleError("a scan over nothing")
    names = [c.fresh("s") for _ in (*init, *xs)]
    given = [*names, *(c.of(x) for x in extra)]
    nodes, outs, title = _inside(c, body, given, "step")
    inputs = [_info(n, x.meta) for n, x in zip(names, (*init, *xs), strict=True)]
    graph = helper.make_graph(nodes, title, inputs, outs)
    many = len(outs) - len(init)
    return c.several(
        "Scan", [c.of(x) for x in (*init, *xs)], len(outs), body=graph, num_scan_inputs=len(xs),
        scan_input_directions=[int(reverse)] * len(xs),
        scan_output_directions=[int(reverse)] * many,
    )  # fmt: skip
