"""Composites as one kernel: where a device takes one whole, its body does not run op by op."""

from __future__ import annotations

from typing import Any

from lucerne._src import backends
from lucerne._src.ir import argument_errors, dispatch
from lucerne._src.ir import op as op_
from lucerne._src.ir.graph import one_op_graph
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.ir.op import Op
from lucerne._src.tensor.autograd import record
from lucerne._src.tensor.base import Plans, TensorBase
from lucerne._src.tensor.eager.composite_graph import traced
from lucerne._src.tensor.eager.keys import key_of, metas_of
from lucerne._src.tensor.eager.plans import PLANS, KernelPlan, keep_plan
from lucerne._src.tensor.layers import conjugate

_state = dispatch.state


class FusedPlan(KernelPlan):
    """A composite whose device runs it as one kernel."""

    __slots__ = ("result_type",)

    def __init__(
        self, op: Op, args: tuple[Any, ...], metas: tuple[TensorMeta, ...], execute: Any, kind: Any
    ) -> None:
        super().__init__(op, args, metas, execute)
        self.result_type = kind if hasattr(kind, "_fields") else None
        if self.result_type is not None:
            self.native = False

    def run(self, args: tuple[Any, ...]) -> Any:
        result = super().run(args)
        return result if self.result_type is None else self.result_type(*result)


def fused_plan(op: Op, args: tuple[Any, ...]) -> Any:
    """The plan of a composite that its device takes as a whole; None: run its body."""
    if _state.kernel_level:
        return None
    key = key_of(op, args)[0]
    if key is None:
        return None
    try:
        return PLANS[key]
    except KeyError:
        return keep_plan(key, _made(op, args))
    except TypeError:  # a static that can't be a key
        return None


def _made(op: Op, args: tuple[Any, ...]) -> Any:
    if not _is_usual(op, args):
        return None
    tensors = [x for a in args for x in (a if isinstance(a, tuple) else (a,))]
    devices = {x._meta.device for x in tensors if isinstance(x, TensorBase)}
    target = next(iter(devices), None)
    if len(devices) != 1 or target is None or target.type == backends.META:
        return None
    backend = backends.get(target.type)
    if not backend.fuses(op):
        return None
    try:
        return _built(op, args, target, backend)
    except argument_errors.CAUGHT as error:
        argument_errors.raise_named(error, op, args)


def _is_usual(op: Op, args: tuple[Any, ...]) -> bool:
    """Whether what flows in is tensors as their memory has them, and single ones may lack."""
    if op_.OPAQUE in op.kinds or conjugate.among(args):
        return False
    for kind, a in zip(op.kinds, args, strict=True):
        if kind == op_.TENSOR and not (a is None or isinstance(a, TensorBase)):
            return False
        if kind == op_.TENSOR_LIST and any(x is None for x in a):
            return False
    return True


def _built(op: Op, args: tuple[Any, ...], target: Any, backend: Any) -> Any:
    if op.meta is not None:
        found = op.meta(*metas_of(op, args))
        if found is None:  # an unusual case, which only the body knows
            return None
        metas = (found,) if isinstance(found, TensorMeta) else tuple(found)
        graph, kind = one_op_graph(op, metas_of(op, args), metas), tuple
    elif op_.SCALAR in op.kinds or op_.TENSOR_LIST in op.kinds:
        return None
    else:
        seen = traced(op, args, target, body_of)
        if seen is None:
            return None
        graph, kind = seen[0], type(seen[1])
        metas = tuple(v.meta for v in graph.outputs)
    execute = backend.fuse(graph)
    return None if execute is None else FusedPlan(op, args, metas, execute, kind)


def body_of(op: Op, args: tuple[Any, ...]) -> Any:
    """The result of a composite's body."""
    try:
        if op.needs_opmath:
            return record.in_opmath(op, args)
        return record.call_body(op, args)
    except argument_errors.CAUGHT as error:
        argument_errors.raise_named(error, op, args)


Plans.fused = staticmethod(fused_plan)
