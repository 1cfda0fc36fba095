"""Which composites are one node of an exported graph: those that name their own derivative.

An exported program is run on any device and may be trained, so its ops are those that have a
derivative and a body: a backend without a kernel for one gets the ops of the body.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucerne._src.base.unspecialized import Guarding
from lucerne._src.capture.trace.composites import Body
from lucerne._src.capture.trace.fake import fake_tensor
from lucerne._src.ir import argument_errors, dispatch
from lucerne._src.ir import op as op_
from lucerne._src.ir.graph import Graph, Node, Value
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.ir.op import Op
from lucerne._src.ops.control import NAMES as CONTROL
from lucerne._src.tensor.base import TensorBase
from lucerne._src.tensor.eager.composite import body_of
from lucerne._src.tensor.eager.composite_graph import traced
from lucerne._src.tensor.eager.keys import metas_of
from lucerne._src.transforms.rewrite import Bodies


class Explicit:
    """Asked by the recorder about every composite it meets."""

    def __init__(
        self, apart: bool = False, keep: Callable[[Op, tuple[Any, ...]], bool] | None = None
    ) -> None:
        """`apart`: composites are taken apart as far as their bodies can be held in graphs; `keep`:
        those that it names are not."""
        self.apart, self.keep = apart, keep
        self._bodies: dict[Any, Body | None] = {}

    def __call__(self, op: Op, args: tuple[Any, ...]) -> bool:
        if op.name in CONTROL:
            return True
        if self.apart or not op.explicit:
            return False
        if self.keep is not None and not self.keep(op, args):
            return False
        if op.meta is None:
            return self.body(op, args) is not None
        try:
            return op.meta(*metas_of(op, args)) is not None
        except argument_errors.CAUGHT:  # a wrong call, which says so where it is recorded
            return True

    def body(self, op: Op, args: tuple[Any, ...]) -> Body | None:
        """The body as a graph; None: it does what a graph can't hold."""
        if Guarding.count:  # expressions are no keys
            return _body(op, args)
        try:
            key = (op, *metas_of(op, args), *(type(a) for a in args))
            if key not in self._bodies:
                self._bodies[key] = _body(op, args)
            return self._bodies[key]
        except (TypeError, KeyError):  # a static that can't be a key
            return None


def _body(op: Op, args: tuple[Any, ...]) -> Body | None:
    tensors = [a for a in args if isinstance(a, TensorBase)]
    if op_.TENSOR_LIST in op.kinds or op_.SCALAR in op.kinds or not tensors:
        return None
    with dispatch.unseen():
        seen = traced(op, args, tensors[0]._meta.device, body_of)
    if seen is None:
        return None
    graph, result = seen
    return Body(graph, tuple(v.meta for v in graph.outputs), type(result))


def body_graph(op: Op, args: tuple[Any, ...]) -> Graph | None:
    """The body of a composite for arguments that are metas where tensors are meant."""
    given = tuple(fake_tensor(a) if isinstance(a, TensorMeta) else a for a in args)
    found = _body(op, given)
    return None if found is None else found.graph


def expand(node: Node) -> Graph | None:
    """The body of a composite node of a graph; None: it must stay as it is."""
    args = tuple(a.meta if type(a) is Value else a for a in node.args)
    return body_graph(node.op, args)


def _body_metas(op: Op, args: tuple[Any, ...]) -> tuple[TensorMeta, ...] | None:
    graph = body_graph(op, args)
    return None if graph is None else tuple(v.meta for v in graph.outputs)


Bodies.metas = staticmethod(_body_metas)
