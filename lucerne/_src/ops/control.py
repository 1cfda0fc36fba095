"""Control flow as ops: a node that holds graphs, of which one runs, or one runs again and again.

`cond_graphs`, `while_graphs` and `scan_graphs` are what `cond`, `while_loop`, `scan` and `map`
become in a captured graph. Run as they are, they run the nodes of their graphs one by one, so they
work on every device and differentiate through what they run; compiled, each graph is a program.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lucerne._src.base import layout as lo
from lucerne._src.ir import dispatch
from lucerne._src.ir.define import composite
from lucerne._src.ir.graph import Graph, Node, run_graph
from lucerne._src.ir.meta import TensorMeta, make_meta
from lucerne._src.ir.op import COMPOSITE, Op, Tensor, TensorList
from lucerne._src.ops.copy.cast import clone_as, copy, put_region, uninitialized
from lucerne._src.ops.copy.join import stack
from lucerne._src.ops.view.slicing import strided_view

NAMES = frozenset(("cond_graphs", "while_graphs", "scan_graphs"))
_PUT: Op = put_region.op  # type: ignore[attr-defined]


# ---- running graphs -----------------------------------------------------------------------------


def outputs_of(graph: Graph, inputs: Sequence[Any]) -> list[Any]:
    """The outputs of a graph without mutation: each node is a call of its op."""
    values = run_graph(graph, inputs, call_op)
    return [values[v.index] for v in graph.outputs]


def call_op(node: Node, args: tuple[Any, ...]) -> Any:
    """What a node's op makes of arguments, in the layout that the graph was made for."""
    if node.op is _PUT:
        return put_in(*args)
    found = dispatch.entry.run(node.op, args)
    if node.op.kind != COMPOSITE:
        return found
    outs = found if isinstance(found, (tuple, list)) else (found,)
    return tuple(_fitted(t, v.meta) for t, v in zip(outs, node.outputs, strict=True))


def _fitted(t: Any, meta: TensorMeta) -> Any:
    """A result in the layout that the graph was made for: the body of a composite may lay it out
    in another way than the kernel that was there when the graph was recorded."""
    have = t._meta
    if have.strides == meta.strides or have.shape != meta.shape:
        return t
    room = uninitialized(tuple(have.shape), have.dtype, have.device, meta.strides)
    return copy(room, t)


def put_in(input: Any, src: Any, size: Any, stride: Any, offset: int) -> Any:
    """`put_region` with a derivative: a write to a view of a copy."""
    made = clone_as(input, lo.preserve_format)
    have = input._meta
    if made._meta.strides != have.strides:  # a region counts in the memory of the original
        room = uninitialized(tuple(have.shape), have.dtype, have.device, have.strides)
        made = copy(room, input)
    view = strided_view(made, tuple(size), tuple(stride), offset)
    copy(view, src, out=dispatch.InPlace(view))
    return made


def _one_or_all(outs: Sequence[Any]) -> Any:
    return outs[0] if len(outs) == 1 else tuple(outs)


# ---- the ops ------------------------------------------------------------------------------------


def _cond_meta(pred: Any, operands: Any, yes: Graph, no: Graph) -> tuple[TensorMeta, ...]:
    return tuple(v.meta for v in yes.outputs)


@composite(internal=True, meta=_cond_meta, out=False)
def cond_graphs(pred: Tensor, operands: TensorList, yes: Any, no: Any) -> Tensor:
    """What one of two graphs makes of `operands`: `yes` if `pred` (one element) is true."""
    return _one_or_all(outputs_of(yes if bool(pred) else no, operands))


def _while_meta(carried: Any, extra: Any, goes_on: Graph, body: Graph) -> tuple[TensorMeta, ...]:
    return tuple(v.meta for v in body.outputs)


@composite(internal=True, meta=_while_meta, out=False)
def while_graphs(carried: TensorList, extra: TensorList, goes_on: Any, body: Any) -> Tensor:
    """`carried = body(carried, extra)` for as long as `goes_on(carried, extra)` is true."""
    now = list(carried)
    while bool(outputs_of(goes_on, [*now, *extra])[0]):
        now = outputs_of(body, [*now, *extra])
    return _one_or_all(now)


def stacked(meta: TensorMeta, length: int) -> TensorMeta:
    """`length` tensors of one meta, one behind the other."""
    return make_meta(meta.dtype, (length, *meta.shape), None, meta.device)


def _scan_meta(
    init: Any, xs: Any, extra: Any, body: Graph, length: int, reverse: bool
) -> tuple[TensorMeta, ...]:
    metas = [v.meta for v in body.outputs]
    count = len(init)
    return (*metas[:count], *(stacked(m, length) for m in metas[count:]))


@composite(internal=True, meta=_scan_meta, out=False)
def scan_graphs(
    init: TensorList, xs: TensorList, extra: TensorList, body: Any, length: int, reverse: bool
) -> Tensor:
    """`carry, y = body(carry, x, extra)` for each row `x` of `xs`: the last carry, and all `y`."""
    carry, count = list(init), len(init)
    rows: list[list[Any]] = [[] for _ in body.outputs[count:]]
    for t in range(length - 1, -1, -1) if reverse else range(length):
        outs = outputs_of(body, [*carry, *(x[t] for x in xs), *extra])
        carry = outs[:count]
        for found, y in zip(rows, outs[count:], strict=True):
            found.append(y)
    made = [stack(tuple(r[::-1] if reverse else r), 0) for r in rows]
    return _one_or_all([*carry, *made])


COND: Op = cond_graphs.op  # type: ignore[attr-defined]
WHILE: Op = while_graphs.op  # type: ignore[attr-defined]
SCAN: Op = scan_graphs.op  # type: ignore[attr-defined]


def graphs_of(node: Node) -> list[Graph]:
    """The graphs that a node holds."""
    return [a for a in node.args if isinstance(a, Graph)]
