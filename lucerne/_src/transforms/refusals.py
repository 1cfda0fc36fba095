"""Dtypes that element-wise ops and folds refuse. Making a kernel of such a node raises; whoever
drops the node instead, or puts something else in its place, asks here."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from lucerne._src.backends import HOST
from lucerne._src.base import dtype as dt
from lucerne._src.base.device import device
from lucerne._src.base.unspecialized import Symbolic
from lucerne._src.ir import op as op_
from lucerne._src.ir.graph import Graph, Node, Value, operands
from lucerne._src.ir.meta import NUMBER_METAS, NumberMeta, TensorMeta, make_meta
from lucerne._src.ir.op import Op
from lucerne._src.transforms import interpret
from lucerne._src.transforms.rewrite import result_metas


def check_dtypes(node: Node) -> None:
    """Raise what an element-wise op or a fold has to say about the dtypes of its operands: where
    its result is read, making a kernel of it does."""
    if node.op.kind in (op_.POINTWISE, op_.REDUCTION):
        error = _refusal(node)
        if error is not None:
            raise type(error)(*error.args)


def _refusal(node: Node) -> Exception | None:
    key = tuple([_outline(a) for a in node.args])
    try:
        hash(key)
    except TypeError:  # a static that has no hash
        return _asked.__wrapped__(node.op, key)
    return _asked(node.op, key)


def _outline(a: Any) -> Any:
    """An operand without its sizes."""
    if type(a) is tuple:
        return tuple([_outline(x) for x in a])
    if isinstance(a, Symbolic):  # (asked for its value it would hold for that one only)
        return NUMBER_METAS[type(a)]
    if type(a) is not Value:
        return a
    return Like(a.meta.dtype, a.meta.ndim) if isinstance(a.meta, TensorMeta) else a.meta


class Like(tuple[Any, ...]):
    """An operand by its dtype and number of dimensions."""

    __slots__ = ()

    def __new__(cls, dtype: dt.dtype, ndim: int) -> Like:
        return super().__new__(cls, (dtype, ndim))


@functools.lru_cache(maxsize=4096)
def _asked(op: Op, outline: tuple[Any, ...]) -> Exception | None:
    """What an op raises on tensors with one element, by the backend that has every op."""
    graph = Graph()

    def operand(a: Any) -> Any:
        if type(a) is Like:
            return graph.input(make_meta(a[0], (1,) * a[1], None, device(HOST)))
        if type(a) is NumberMeta:  # a number that is given at each call, or follows from sizes
            return a.kind(1)
        return tuple(map(operand, a)) if type(a) is tuple else a

    args = tuple(map(operand, outline))
    try:
        made = Node(op, args, tuple(Value(-1 - k, m) for k, m in enumerate(result_metas(op, args))))
        given = {v.index: interpret.held(np.ones((1,) * v.meta.ndim), v.meta)
                 for v in operands(args)}  # fmt: skip
        interpret.run_node(made, given)
    except Exception as error:
        return error.with_traceback(None)
    return None
