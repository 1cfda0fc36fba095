"""Which composites stay whole in a captured graph.

Those with a kernel of their own on the device always do. The rest is taken apart, so that its parts
can join other groups. Where every bit must be as eager has it (`bitwise`), the composites that
eager runs as one fused kernel stay whole as well, each with the graph of its body: they then are
the same kernel here as there.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from lucerne._src import backends
from lucerne._src.base.device import device
from lucerne._src.base.raw import is_a
from lucerne._src.base.unspecialized import Guarding
from lucerne._src.capture.trace.fake import CaptureError, fake_tensor
from lucerne._src.ir import argument_errors, dispatch
from lucerne._src.ir import op as op_
from lucerne._src.ir.graph import Graph, Node, Value
from lucerne._src.ir.meta import TensorMeta, plain_meta
from lucerne._src.ir.op import Op
from lucerne._src.ops.control import NAMES as CONTROL
from lucerne._src.tensor.base import TensorBase
from lucerne._src.tensor.eager.composite import body_of
from lucerne._src.tensor.eager.composite_graph import traced
from lucerne._src.tensor.eager.keys import metas_of
from lucerne._src.transforms.rewrite import Bodies


class Body(NamedTuple):
    """A composite as the graph of its parts, and the type of its results."""

    graph: Graph
    metas: tuple[TensorMeta, ...]
    kind: Any


class Composites:
    """Asked by the recorder about every composite it meets."""

    def __init__(self, backend: str, bitwise: bool) -> None:
        self.backend, self.bitwise = backends.get(backend), bitwise
        self.refused: set[tuple[Any, ...]] = set()
        """Composites with the metas of their tensors that the backend has no kernel for."""
        self._bodies: dict[Any, Body | None] = {}

    def __call__(self, op: Op, args: tuple[Any, ...]) -> bool:
        if op.name in CONTROL:
            return True
        if not self.backend.fuses(op):
            return False
        if op.meta is None:
            return self.bitwise and self.body(op, args) is not None
        if self.refused and (op, *_tensor_metas(args)) in self.refused:
            return False
        try:
            return op.meta(*metas_of(op, args)) is not None
        except argument_errors.CAUGHT:  # a wrong call, which says so where it is recorded
            return True

    def refuse(self, graph: Graph) -> bool:
        """Not whole again; False: the graph is no single composite, or is known already."""
        key = (graph.nodes[0].op, *(v.meta for v in graph.inputs if is_a(v.meta, TensorMeta)))
        if len(graph.nodes) != 1 or key in self.refused:
            return False
        self.refused.add(key)
        return True

    # ---- composites without a meta of their own ------------------------------------------------

    def body(self, op: Op, args: tuple[Any, ...]) -> Body | None:
        """The body if eager would run it as one kernel."""
        if op_.SCALAR in op.kinds or op_.TENSOR_LIST in op.kinds:
            return None
        if Guarding.count:  # expressions are no keys
            return self._traced(op, args)
        try:
            key = (op, *metas_of(op, args))
            if key not in self._bodies:
                self._bodies[key] = self._traced(op, args)
            return self._bodies[key]
        except (TypeError, KeyError):  # a static that can't be a key, an operand that is no tensor
            return None

    def graph_of(self, node: Node) -> Graph | None:
        """The body of a node of a captured graph; None: it is an op of its own."""
        if node.op.kind != op_.COMPOSITE or node.op.meta is not None:
            return None
        key = (node.op, *(a.meta if type(a) is Value else a for a in node.args))
        if key not in self._bodies:  # the graph was made for sizes that nobody has traced
            args = [fake_tensor(a.meta) if type(a) is Value else a for a in node.args]
            self._bodies[key] = self._traced(node.op, tuple(args))
        found = self._bodies[key]
        if found is None:
            raise CaptureError(f"{node.op.name} is not one kernel at these sizes")
        return found.graph

    def _traced(self, op: Op, args: tuple[Any, ...]) -> Body | None:
        tensors = [a for a in args if is_a(a, TensorBase)]
        if any(
            is_a(a, (bool, int, float)) and k == "t" for a, k in zip(args, op.kinds, strict=True)
        ):
            return None
        target: device = tensors[0]._meta.device
        with dispatch.unseen():
            seen = traced(op, args, target, body_of)
        if seen is None:
            return None
        graph, result = seen
        if not self.backend.fuses_groups([graph])[0]:
            return None
        return Body(graph, tuple(v.meta for v in graph.outputs), type(result))


def _body_metas(op: Op, args: tuple[Any, ...]) -> tuple[TensorMeta, ...] | None:
    """What the body of a composite gives for operands with these metas; None: no graph holds it.
    (A composite that is one kernel in bitwise mode is made again for other sizes.)"""
    metas = [a for a in args if is_a(a, TensorMeta)]
    if not metas:
        return None
    given = tuple([fake_tensor(a) if is_a(a, TensorMeta) else a for a in args])
    with dispatch.unseen():
        seen = traced(op, given, metas[0].device, body_of)
    return None if seen is None else tuple([v.meta for v in seen[0].outputs])


Bodies.metas = _body_metas


def _tensor_metas(args: tuple[Any, ...]) -> list[TensorMeta]:
    """The metas of the tensors among arguments, in lists as well."""
    flat = [x for a in args for x in (a if is_a(a, tuple | list) else (a,))]
    return [plain_meta(x._meta) for x in flat if is_a(x, TensorBase)]
