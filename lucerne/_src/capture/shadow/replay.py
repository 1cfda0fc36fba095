"""A graph run node by node on the reference backend, with every value kept.

Captured graphs have writes and views that alias; they are run with real memory here, so that what
comes out does not depend on any pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lucerne._src.backends.contract.tensor_view import Spot
from lucerne._src.base import dtype as dt
from lucerne._src.capture.shadow.nearness import EPSILON, Array, wide
from lucerne._src.capture.trace.fake import fake_tensor
from lucerne._src.ir import dispatch
from lucerne._src.ir import op as op_
from lucerne._src.ir.graph import Graph, Node, Value, map_values, run_graph
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.ir.op import Op
from lucerne._src.ops.copy.cast import cast, copy, uninitialized
from lucerne._src.tensor.autograd.record import call_body
from lucerne._src.tensor.base import TensorBase, new_tensor
from lucerne._src.tensor.eager.composite import body_of
from lucerne._src.tensor.eager.composite_graph import traced
from lucerne._src.tensor.interop.outside import assign
from lucerne._src.tensor.interop.outside import bits as bits_of
from lucerne._src.transforms import interpret
from lucerne._src.transforms.interpret import held

_COPY: Op = copy.op  # type: ignore[attr-defined]
_CAST: Op = cast.op  # type: ignore[attr-defined]
_EMPTY: Op = uninitialized.op  # type: ignore[attr-defined]
RUNS = 5


@dataclass
class Ran:
    """What a run gave: values by their number as they were when they were made, the memories of
    the inputs at the end, outputs, and what each write stores."""

    seen: dict[int, Array] = field(default_factory=dict)
    inputs: list[Any] = field(default_factory=list)
    outputs: list[Array] = field(default_factory=list)
    writes: list[Array] = field(default_factory=list)
    last: dict[int, Any] = field(default_factory=dict)
    """By number of a value: its memory at the end."""


def held_copy(t: Any) -> Any:
    """A tensor's elements in memory of their own."""
    return held(bits_of(t), t._meta) if isinstance(t, TensorBase) else t


def again(x: Any) -> Any:
    """The same once more, in other memory."""
    return held(x.array, x._meta) if isinstance(x, Spot) else x


class Replay:
    """`junk`: what memory that nobody filled holds. `shake`: round every result by chance.
    `keep`: note every value as it was made."""

    def __init__(self, *, junk: int = 0, shake: Any = None, keep: bool = True) -> None:
        self.junk, self.shake, self.keep = junk, shake, keep

    def run(self, graph: Graph, inputs: Sequence[Any]) -> Ran:
        made = Ran(inputs=[again(x) for x in inputs])
        for v, x in zip(graph.inputs, made.inputs, strict=True):
            if isinstance(x, Spot):
                self._shaken(x)
                if self.keep:
                    made.seen[v.index] = np.array(x.array)
        made.last = values = run_graph(
            graph, made.inputs, lambda node, args: self._node(node, args, made.seen)
        )
        made.outputs = [np.array(values[v.index].array) for v in graph.outputs]
        made.writes = [np.array(values[v.index].array) for _, v in graph.writes]
        return made

    def _node(self, node: Node, args: tuple[Any, ...], seen: dict[int, Array]) -> list[Any]:
        if not node.outputs and node.op is _COPY:
            whole = Value(-1, args[0]._meta)
            args[0].array[...] = interpret.compute(Node(_COPY, node.args, (whole,)), args)[0].array
            return []
        found = self.results(node, args)
        for v, x in zip(node.outputs, found, strict=True):
            if node.op is _EMPTY and x._meta.numel:
                x._storage.buffer[:] = self.junk
            elif node.op.kind != op_.VIEW and node.op.exact != op_.CHOICE:
                self._shaken(x)
            if self.keep:
                seen[v.index] = np.array(x.array)
        return found

    def results(self, node: Node, args: tuple[Any, ...]) -> list[Any]:
        if node.op.kind != op_.COMPOSITE:
            return interpret.compute(node, args)
        body = _body(node)
        if body is None:
            return _eagerly(node, args)
        operands = interpret.values_in(node, args)
        given = [_fitted(x, b.meta) for x, b in zip(operands, body.inputs, strict=True)]
        found = interpret.run(body, given, _body)[0]
        return [_fitted(x, v.meta) for x, v in zip(found, node.outputs, strict=True)]

    def _shaken(self, x: Any) -> None:
        dtype: dt.dtype = x._meta.dtype
        if self.shake is None or dtype.name not in EPSILON or not x._meta.numel:
            return
        array = x.array
        move = self.shake.integers(-1, 2, array.shape) * EPSILON[dtype.name]
        with np.errstate(all="ignore"):
            if dtype is dt.bfloat16:
                moved = (wide(array, dtype) * (1 + move)).astype(np.float32)
                array[...] = (moved.view(np.uint32) + np.uint32(0x8000)) >> np.uint32(16)
            else:
                array[...] = (array * (1 + move)).astype(array.dtype)


def _is_tensor(a: Any) -> bool:
    return type(a) is not Value or isinstance(a.meta, TensorMeta)


def _widened(op: Op, meta: TensorMeta) -> TensorMeta:
    """What an op computes with: some do everything in a wider type and round at the end."""
    return meta.like(dtype=meta.dtype.compute) if op.needs_opmath else meta


def _fitted(x: Any, meta: TensorMeta) -> Any:
    """A value converted to the dtype and the layout that is expected of it."""
    if x._meta is meta:
        return x
    if x._meta.dtype is not meta.dtype:
        source, made = Value(0, x._meta), Value(1, x._meta.like(dtype=meta.dtype))
        x = interpret.run_node(Node(_CAST, (source, meta.dtype), (made,)), {0: x})[0]
    return held(x.array, meta)


def _has_values(a: Any) -> bool:
    return type(a) is tuple and any(type(x) is Value for x in a)


_bodies: dict[Any, Graph | None] = {}


def _body(node: Node) -> Graph | None:
    """The graph of a composite's body; None: it has none that a graph holds."""
    metas = map_values(lambda v: v.meta, node.args)
    try:
        key: Any = (node.op, metas)
        hash(key)
    except TypeError:
        key = None
    if key is not None and key in _bodies:
        return _bodies[key]
    if any(_has_values(a) or not _is_tensor(a) for a in node.args):
        return None  # lists, and numbers that are given anew for each call
    args = tuple(
        fake_tensor(_widened(node.op, a.meta)) if type(a) is Value else a for a in node.args
    )
    target = node.outputs[0].meta.device
    with dispatch.unseen():
        found = traced(node.op, args, target, call_body if node.op.needs_opmath else body_of)
    body = None if found is None else found[0]
    if key is not None:
        _bodies[key] = body
    return body


def is_settled(node: Node) -> bool:
    """Whether a node gives the same each time: it draws nothing, and leaves no memory unfilled."""
    if node.op.kind != op_.COMPOSITE:
        return node.op.kind != op_.RANDOM and node.op is not _EMPTY
    body = _body(node)
    return body is not None and all(map(is_settled, body.nodes))


def _eagerly(node: Node, args: tuple[Any, ...]) -> list[Any]:
    """A composite without a graph: as eager mode runs it."""
    with dispatch.unseen():
        found = body_of(node.op, tuple([_as_tensor(a) for a in args]))
    several = found if isinstance(found, tuple) else (found,)
    return [held(bits_of(t), v.meta) for t, v in zip(several, node.outputs, strict=True)]


def _as_tensor(a: Any) -> Any:
    return tuple(map(tensor_of_held, a)) if type(a) is tuple else tensor_of_held(a)


def tensor_of_held(x: Any) -> Any:
    """A tensor with the elements of one that backends see."""
    if not isinstance(x, Spot):
        return x
    meta: TensorMeta = x._meta
    made = new_tensor(meta)
    assign(made, x.array)
    return made


def shaken(graph: Graph, inputs: Sequence[Any], rewind: Any) -> list[Ran]:
    """Some runs of a graph, with every rounding moved by chance."""
    found = []
    for k in range(RUNS):
        rewind()
        found.append(Replay(shake=np.random.default_rng(k), keep=False).run(graph, inputs))
    return found


def range_of(arrays: Sequence[Array], dtype: dt.dtype) -> Array:
    """How far each element moves between runs."""
    stacked = np.stack([np.abs(x) if x.dtype.kind == "c" else x.astype(np.float64)
                        for x in (wide(a, dtype) for a in arrays)])  # fmt: skip
    with np.errstate(all="ignore"):
        found = stacked.max(0) - stacked.min(0)
        return np.where(np.isnan(found), np.inf, found)


def spread(graph: Graph, inputs: Sequence[Any], rewind: Any, output: int) -> Array:
    """How far rounding moves an output of a graph."""
    runs = shaken(graph, inputs, rewind)
    return range_of([r.outputs[output] for r in runs], graph.outputs[output].meta.dtype)
