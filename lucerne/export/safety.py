"""What a graph from a file must not do: read or write outside the memory of its own tensors."""

from __future__ import annotations

from typing import Any

from lucerne._src.io.errors import CorruptFileError, UnsafeFileError
from lucerne._src.ir import op as op_
from lucerne._src.ir.graph import Graph, Node, Value
from lucerne._src.ir.meta import TensorMeta, make_meta
from lucerne._src.ops.control import NAMES as CONTROL
from lucerne._src.ops.control import graphs_of, stacked
from lucerne._src.ops.copy.cast import put_region
from lucerne._src.transforms.functionalize import view_offsets

_PUT = put_region.op  # type: ignore[attr-defined]
_MOST_BYTES = 1 << 40


def check_graph(graph: Graph, *, inside: bool = False) -> None:
    """Every view lies inside the memory it is a view of, and no value is beyond all sizes.

    `inside`: the graph stands in a node, so its inputs may be views.
    """
    roots: dict[int, tuple[TensorMeta, int]] = {}
    for v in graph.inputs:
        _check_size(v)
        if not inside and not v.meta.is_dense:
            raise UnsafeFileError(f"{v.typed()} has gaps")
        roots[v.index] = v.meta, 0
    for node in graph.nodes:
        if node.op.data_dependent:
            raise UnsafeFileError(f"{node.op.qualified}: its result has no shape beforehand")
        for v in node.outputs:
            _check_size(v)
        if node.op.kind == op_.VIEW:
            _views(node, roots)
            continue
        if node.op is _PUT:
            _region(node)
        if node.op.name in CONTROL:
            _control(node)
        for v in node.outputs:
            roots[v.index] = v.meta, 0


def _check_size(v: Value) -> None:
    meta = v.meta
    if isinstance(meta, TensorMeta) and meta.span * meta.dtype.itemsize > _MOST_BYTES:
        raise UnsafeFileError(f"{v.typed()} is larger than any memory")
    if isinstance(meta, TensorMeta) and min((*meta.shape, *meta.strides, 0)) < 0:
        raise CorruptFileError(f"{v.typed()} has negative sizes")


def _views(node: Node, roots: dict[int, tuple[TensorMeta, int]]) -> None:
    root, start = roots[node.args[0].index]
    for v, offset in zip(node.outputs, view_offsets(node), strict=True):
        unit = v.meta.dtype.itemsize
        at = start + offset * unit
        if at < 0 or at + v.meta.span * unit > root.span * root.dtype.itemsize:
            raise UnsafeFileError(f"{node!r} reads outside the memory of its argument")
        roots[v.index] = root, at


def _region(node: Node) -> None:
    input, _, size, stride, offset = node.args
    meta = input.meta
    region = make_meta(meta.dtype, tuple(size), tuple(stride), meta.device)
    if offset < 0 or min((*size, *stride, 0)) < 0 or offset + region.span > meta.span:
        raise UnsafeFileError(f"{node!r} writes outside the memory of its argument")


def _control(node: Node) -> None:
    """The graphs inside take what they are given and give what the node promises."""
    args = node.args
    metas = [v.meta for v in node.outputs]
    graphs = graphs_of(node)
    for graph in graphs:
        check_graph(graph, inside=True)
    given = [[v.meta for v in a] for a in args if type(a) is tuple]
    wanted: list[tuple[list[Any], list[Any] | None]]
    if node.op.name == "scan_graphs":
        init, xs, extra = given
        length, count = args[4], len(init)
        rows = [m.like(shape=tuple(m.shape[1:]), strides=tuple(m.strides[1:])) for m in xs]
        outs = [v.meta for v in graphs[0].outputs]
        wanted = [([*init, *rows, *extra], [*init, *outs[count:]])]
        good = all(m.shape[0] == length and m.contiguous for m in xs) and length >= 0
        good = good and metas == [*init, *(stacked(m, length) for m in outs[count:])]
    elif node.op.name == "while_graphs":
        carried, extra = given
        wanted = [([*carried, *extra], None), ([*carried, *extra], carried)]
        flag = graphs[0].outputs
        good = metas == carried and len(flag) == 1 and flag[0].meta.numel == 1
    else:
        wanted = [(given[0], metas)] * 2
        good = args[0].meta.numel == 1
    if len(graphs) != len(wanted):
        raise CorruptFileError(f"{node.op.name} without its graphs")
    for graph, (inputs, outputs) in zip(graphs, wanted, strict=True):
        good = good and [v.meta for v in graph.inputs] == inputs
        good = good and (outputs is None or [v.meta for v in graph.outputs] == outputs)
    if not good:
        raise CorruptFileError(f"the graphs inside {node.op.name} do not fit it")
