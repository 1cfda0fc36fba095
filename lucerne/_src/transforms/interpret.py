"""A graph run node by node by the slow and obvious backend: for constants, and for tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lucerne._src import backends
from lucerne._src.ir import op as op_
from lucerne._src.ir.graph import Graph, Node, Value, one_op_graph
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.transforms.rewrite import given_metas

Array = np.ndarray[Any, Any]
Expand = Callable[[Node], Graph | None]


class _Bytes:
    """Memory that several tensors may share."""

    __slots__ = ("buffer",)

    def __init__(self, size: int) -> None:
        self.buffer = np.zeros(size, np.uint8)


class Held:
    """A tensor as backends see one."""

    __slots__ = ("_array", "_meta", "_offset", "_storage")

    def __init__(self, meta: TensorMeta, storage: Any = None, offset: int = 0) -> None:
        self._meta = meta
        self._storage = _Bytes(meta.span * meta.dtype.itemsize) if storage is None else storage
        self._offset = offset
        self._array = None

    @property
    def array(self) -> Array:
        """The elements, as the storage type of the dtype (bfloat16 as uint16, ...)."""
        meta = self._meta
        storage = meta.dtype.storage
        if not meta.numel:
            return np.empty(tuple(meta.shape), storage)
        start = self._offset * storage.itemsize
        return np.ndarray(
            tuple(meta.shape), storage, self._storage.buffer, start, meta.byte_strides
        )


def held(array: Any, meta: TensorMeta) -> Held:
    """A tensor with the meta's layout and the array's elements (bits of the storage type)."""
    made = Held(meta)
    made.array[...] = array
    return made


def run(
    graph: Graph, inputs: Sequence[Any], expand: Expand | None = None
) -> tuple[list[Any], list[Any]]:
    """The outputs, and what each of `graph.writes` would store.

    `inputs` has a `Held` or a bare array for each tensor, and numbers or objects as they are.
    Nothing is written into the inputs. `expand` gives the body of a composite as a graph.
    """
    values: dict[int, Any] = {}
    for v, x in zip(graph.inputs, inputs, strict=True):
        plain = isinstance(v.meta, TensorMeta) and not isinstance(x, Held)
        values[v.index] = held(x, v.meta) if plain else x
    for node in graph.nodes:
        found = run_node(node, values, expand)
        values.update((v.index, x) for v, x in zip(node.outputs, found, strict=True))
    return (
        [values[v.index] for v in graph.outputs],
        [values[v.index] for _, v in graph.writes],
    )


def run_node(node: Node, values: dict[int, Any], expand: Expand | None = None) -> list[Any]:
    """The results of one node."""
    if node.op.kind == op_.VIEW:
        return _view(node, values[node.args[0].index])
    if node.op.kind == op_.COMPOSITE:
        body = None if expand is None else expand(node)
        if body is None:
            raise ValueError(f"{node.op.qualified} is a composite: its body is needed to run it")
        given = [values[v.index] for a in node.args for v in (a if type(a) is tuple else (a,))
                 if type(v) is Value]  # fmt: skip
        return run(body, given, expand)[0]
    outs = [Held(v.meta) for v in node.outputs]
    graph = one_op_graph(node.op, given_metas(node.op, node.args), [v.meta for v in node.outputs])
    inputs = [
        values[x.index] if type(x) is Value else x
        for kind, a in zip(node.op.kinds, node.args, strict=True)
        for x in (a if kind == op_.TENSOR_LIST else (a,))
        if kind != op_.STATIC and x is not None
    ]
    backends.get("reference").compile(graph)(inputs, outs)
    return outs


def _view(node: Node, source: Held) -> list[Any]:
    found = node.op.body(*given_metas(node.op, node.args))
    parts = found if isinstance(found, (list, tuple)) else (found,)
    start = source._offset * source._meta.dtype.itemsize
    return [
        Held(v.meta, source._storage, start // v.meta.dtype.itemsize + g.offset)
        for v, g in zip(node.outputs, parts, strict=True)
    ]
