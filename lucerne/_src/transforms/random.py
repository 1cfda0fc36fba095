"""Draws of a captured graph become numbers computed from counters.

Eager draws continue torch's stream, one after the other, into memory. In a program a draw from the
default generator becomes a `counted_draw`: each element follows from a key, which is one more input
of the graph and new for each call, so it is computed wherever it is needed, by any thread, in the
loop that uses it. Nothing is kept of a dropout mask but the key.
"""

from __future__ import annotations

import math
from typing import Any

from lucerne._src.base import dtype as dt
from lucerne._src.ir import op as op_
from lucerne._src.ir.graph import Graph, Node, Value, operands
from lucerne._src.ir.meta import TensorMeta, make_meta
from lucerne._src.ir.op import Op
from lucerne._src.ops.copy.cast import cast
from lucerne._src.ops.pointwise.compare import lt
from lucerne._src.ops.random.counted import counted_draw
from lucerne._src.ops.random.draws import draw, draw_each
from lucerne._src.transforms.rewrite import GraphBuilder

_DRAW: Op = draw.op  # type: ignore[attr-defined]
_DRAW_EACH: Op = draw_each.op  # type: ignore[attr-defined]
_COUNTED: Op = counted_draw.op  # type: ignore[attr-defined]
_LT: Op = lt.op  # type: ignore[attr-defined]
_CAST: Op = cast.op  # type: ignore[attr-defined]

_KEY_SIZE = 2
_MOST_INTEGERS = 1 << 31


def count_draws(graph: Graph, generator: Any) -> tuple[Graph, Value | None]:
    """The graph with draws from `generator` computed from counters, and its new last input.

    The input is the key: two int64, a seed and an offset, on the device of the draws. None (and
    the graph itself) if there was nothing to replace. Distributions without a formula stay draws.
    """
    builder = GraphBuilder(graph)
    key: Value | None = None
    stream = 0
    for node in graph.nodes:
        wanted = _numbers_of(node, generator)
        if wanted is None:
            builder.keep(node)
            continue
        if key is None:
            device = node.outputs[0].meta.device
            key = builder.graph.input(make_meta(dt.int64, (_KEY_SIZE,), None, device))
        builder.graph.place = node.place
        builder.replace(node.outputs[0], _replaced(builder, node, key, stream, wanted))
        stream += 1
    return (graph, None) if key is None else (builder.finish(), key)


def _replaced(builder: GraphBuilder, node: Node, key: Value, stream: int, wanted: Any) -> Value:
    """What stands for the result of a draw."""
    meta: TensorMeta = node.outputs[0].meta
    each = node.op is _DRAW_EACH
    dtype = meta.dtype
    if each:  # its own probability for each element: compared with a uniform number
        dtype = node.args[0].meta.dtype.compute
    distribution, first, second = wanted
    args = (
        key, tuple(meta.shape), meta.strides, distribution, first, second, stream, dtype,
        meta.device,
    )  # fmt: skip
    (value,) = builder.call(_COUNTED, args)
    if not each:
        return value
    (below,) = builder.call(_LT, (value, builder.read(node.args[0])))
    return builder.call(_CAST, (below, meta.dtype))[0]


def _numbers_of(node: Node, generator: Any) -> tuple[str, Any, Any] | None:
    """Distribution and numbers as `counted_draw` takes them; None: it stays as it is."""
    if node.op is not _DRAW and node.op is not _DRAW_EACH:
        return None
    named = node.op.named(node.args)
    meta: TensorMeta = node.outputs[0].meta
    if named["generator"] is not generator or not meta.is_dense or not meta.numel:
        return None
    name = named["distribution"]
    if node.op is _DRAW_EACH:
        real = named["input"].meta.dtype.category == dt.FLOAT
        return ("uniform", 0.0, 1.0) if name == "bernoulli" and real else None
    numbers = (named["first"], named["second"])
    if any(type(x) not in (int, float) for x in numbers):
        return None  # given anew for each call
    found = _FORMULAS[name](meta.dtype, *numbers) if name in _FORMULAS else None
    return None if found is None else (name, *found)


def _uniform(dtype: dt.dtype, low: float, high: float) -> tuple[float, float] | None:
    floating = dtype.category == dt.FLOAT
    return (float(low), float(high) - float(low)) if floating else None


def _normal(dtype: dt.dtype, mean: float, std: float) -> tuple[float, float] | None:
    return (float(mean), float(std)) if dtype.category == dt.FLOAT else None


def _exponential(dtype: dt.dtype, rate: float, _: float) -> tuple[float, float] | None:
    return (-1.0 / rate, 0.0) if dtype.category == dt.FLOAT else None


def _bernoulli(dtype: dt.dtype, p: float, _: float) -> tuple[int, int] | None:
    return None if dtype.category == dt.COMPLEX else (round(p * 2.0**32), 0)


def _integers(dtype: dt.dtype, low: float, high: float) -> tuple[int, int] | None:
    if math.isnan(high) or dtype.category == dt.COMPLEX:
        return None
    first = 0 if math.isnan(low) else int(low)
    count = int(high) - first
    return (first, count) if 0 < count <= _MOST_INTEGERS else None


_FORMULAS: dict[str, Any] = {
    "uniform": _uniform, "normal": _normal, "exponential": _exponential,
    "bernoulli": _bernoulli, "integers": _integers,
}  # fmt: skip


# ---- one for each reader ------------------------------------------------------------------------


def separate_draws(graph: Graph) -> Graph:
    """Give each node that reads counted numbers its own copy of what makes them.

    A number that two distant kernels read (forward and backward of dropout) would go through
    memory; computed twice it never does. Run it after all passes: they would join the copies again.
    """
    made: dict[int, Node] = {}
    """Nodes that make nothing but functions of counted numbers, by their result."""
    for node in graph.nodes:
        if _is_random(node, made):
            made[node.outputs[0].index] = node
    if not made:
        return graph
    shown = {v.index for v in graph.outputs} | {v.index for _, v in graph.writes}
    taken: set[int] = set()
    builder = GraphBuilder(graph)
    for node in graph.nodes:
        outside = not node.outputs or node.outputs[0].index not in made
        if outside:
            for v in operands(node.args):
                if v.index in made and v.index not in shown:
                    if v.index in taken:
                        builder.replace(v, _copied(builder, v, made))
                    taken.add(v.index)
        builder.keep(node)
    return builder.finish()


def _is_random(node: Node, made: dict[int, Node]) -> bool:
    if node.op is _COUNTED:
        return True
    values = operands(node.args)
    simple = node.op.kind == op_.POINTWISE or node.op is _CAST
    return simple and bool(values) and all(v.index in made for v in values)


def _copied(builder: GraphBuilder, value: Value, made: dict[int, Node]) -> Value:
    """The nodes behind a value once more."""
    node = made[value.index]
    here = {v.index: _copied(builder, v, made) for v in operands(node.args) if v.index in made}
    args = tuple(here.get(a.index, a) if type(a) is Value else a for a in node.args)
    builder.graph.place = node.place
    return builder.call(node.op, args, [v.meta for v in node.outputs])[0]


__all__ = ["count_draws", "separate_draws"]
