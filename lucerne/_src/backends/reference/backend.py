"""The backend object: host memory, and graphs run node by node."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from lucerne._src.backends.contract.backend import Backend, Buffer, Executable, TensorState
from lucerne._src.backends.reference import rules as rules
from lucerne._src.backends.reference.kernels import Kernel, make_kernel
from lucerne._src.backends.reference.table import RULES
from lucerne._src.base.device import device
from lucerne._src.base.memory import array_over
from lucerne._src.ir import op as op_
from lucerne._src.ir.define import Geometry
from lucerne._src.ir.graph import Graph, Node, Value, alone, flat_inputs, geometries, run_graph
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.ir.op import Op

ALIGNMENT = 64
_SMALL = 2048
_SLAB = 1 << 16


class _Slab(threading.local):
    """Small buffers are cut from one aligned block: cheaper than an allocation each."""

    def __init__(self) -> None:
        self.block = np.empty(0, np.uint8)
        self.used = 0


_slab = _Slab()


class _QuietContext(threading.local):
    """NumPy's warning state is a context variable: kernels run in a context where it is off.

    Entering `np.errstate` for each op would cost more than the op.
    """

    def __init__(self) -> None:
        self.context = contextvars.Context()
        self.context.run(np.seterr, all="ignore")


_quiet = _QuietContext()


class ReferenceBackend(Backend):
    """Everything in NumPy."""

    contract_version = 5

    def devices(self) -> list[device]:
        return [device("reference")]

    def allocate(self, nbytes: int) -> Buffer:
        if nbytes > _SMALL:
            return aligned(nbytes)
        size = (nbytes + ALIGNMENT - 1) & -ALIGNMENT or ALIGNMENT
        start = _slab.used
        if start + size > _slab.block.size:
            _slab.block, start = aligned(_SLAB), 0
        _slab.used = start + size
        return _slab.block[start : start + nbytes]

    def to_host(self, buffer: Buffer) -> np.ndarray[Any, Any]:
        return np.asarray(buffer)

    def from_host(self, data: np.ndarray[Any, Any]) -> Buffer:
        made = self.allocate(data.nbytes)
        made[:] = data.reshape(-1).view(np.uint8)
        return made

    def address(self, buffer: Buffer) -> int:
        return int(buffer.__array_interface__["data"][0])

    def supports(self, op: Op) -> bool:
        return op.qualified in RULES or op.kind in (op_.POINTWISE, op_.REDUCTION, op_.VIEW)

    def compile(self, graph: Graph) -> Executable:
        if len(graph.nodes) == 1 and graph.nodes[0].op.kind != op_.VIEW:
            are_tensors = [isinstance(v.meta, TensorMeta) for v in graph.inputs]
            return _one_node(make_kernel(graph.nodes[0]), are_tensors)
        return _many_nodes(graph)


def aligned(nbytes: int) -> np.ndarray[Any, Any]:
    """Uninitialised bytes whose address is a multiple of 64."""
    raw = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = -raw.__array_interface__["data"][0] % ALIGNMENT
    return raw[start : start + nbytes]


def array(t: TensorState) -> np.ndarray[Any, Any]:
    """The tensor's memory as an array of its storage type, cached on the tensor.

    The cache is a pair (buffer, array): a storage that was resized has another buffer.
    """
    buffer = t._storage.buffer
    cached = t._array
    if cached is not None and cached[0] is buffer:
        return cached[1]
    meta = t._meta
    storage = meta.dtype.storage
    if not meta.numel:  # nothing to point at, but NumPy would still check offset and strides
        return np.empty(meta.shape, storage)
    start = t._offset * storage.itemsize
    found = np.ndarray(meta.shape, storage, buffer, start, meta.byte_strides)
    t._array = (buffer, found)
    return found


def _one_node(kernel: Kernel, are_tensors: list[bool]) -> Executable:
    if len(are_tensors) == 2 and all(are_tensors):
        return _two_tensors(kernel)

    def execute(inputs: Sequence[Any], outputs: Sequence[TensorState]) -> Any:
        return _quiet.context.run(
            kernel,
            [
                array(x) if is_tensor else x
                for x, is_tensor in zip(inputs, are_tensors)  # noqa: B905 - hot path
            ],
            [array(o) for o in outputs],
        )

    return execute


def _two_tensors(kernel: Kernel) -> Executable:
    """The commonest case without loops."""

    def execute(inputs: Sequence[Any], outputs: Sequence[TensorState]) -> Any:
        a, b = inputs
        return _quiet.context.run(kernel, (array(a), array(b)), [array(o) for o in outputs])

    return execute


def _many_nodes(graph: Graph) -> Executable:
    """Walk the graph: intermediate values are fresh arrays."""
    kernels = {id(n): make_kernel(alone(n).nodes[0]) for n in graph.nodes if n.op.kind != op_.VIEW}

    def call(node: Node, args: tuple[Any, ...]) -> list[Any]:
        if node.op.kind == op_.VIEW:
            parts = zip(node.outputs, geometries(node), strict=True)
            return [_restride(args[0], g, v) for v, g in parts]
        results = [_empty(v.meta) for v in node.outputs]
        _quiet.context.run(kernels[id(node)], flat_inputs(node.op, args), results)
        return results

    def execute(inputs: Sequence[Any], outputs: Sequence[TensorState]) -> Any:
        arrays = [array(x) if hasattr(x, "_meta") else x for x in inputs]
        values = run_graph(graph, arrays, call)
        for v, o in zip(graph.outputs, outputs, strict=True):
            array(o)[...] = values[v.index]

    return execute


def _empty(meta: TensorMeta) -> np.ndarray[Any, Any]:
    flat = aligned(meta.span * meta.dtype.itemsize)
    return np.ndarray(meta.shape, meta.dtype.storage, flat, 0, meta.byte_strides)


def _restride(base: np.ndarray[Any, Any], g: Geometry, out: Value) -> Any:
    storage = out.meta.dtype.storage
    start = base.__array_interface__["data"][0] + g.offset * storage.itemsize
    strides = tuple(st * storage.itemsize for st in g.strides)
    return array_over(start, tuple(g.shape), storage, strides, base)
