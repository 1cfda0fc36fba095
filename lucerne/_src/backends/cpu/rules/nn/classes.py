"""Cross entropy against class numbers, forward and backward."""

from __future__ import annotations

from typing import Any

from lucerne._src.backends.cpu.rowwise.cross_entropy import HEADER, CrossEntropyKind, write_classes
from lucerne._src.backends.cpu.rules.casts import is_rounding, is_widening
from lucerne._src.backends.cpu.rules.table import rule
from lucerne._src.backends.cpu.runtime.code import compiled
from lucerne._src.backends.cpu.runtime.kernel import NativeKernel
from lucerne._src.backends.cpu.runtime.pool import MAX_THREADS
from lucerne._src.base import dtype as dt
from lucerne._src.ir.graph import Graph, Node, Value
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.ir.symbolic.numbers import most

_DTYPES = (dt.float32, dt.float64, dt.bfloat16, dt.float16)
_CHUNK_SCORES = 16384
_MOST_CHUNKS = 64
_BACKWARD = "cross_entropy_classes_backward"
_NAMES = {"cross_entropy_classes": 0, _BACKWARD: 1}
"""Which argument has the scores."""


@rule("cross_entropy_classes")
def forward(node: Node) -> Any:
    return _kernel(node, node.args[0].meta, node.outputs[0].meta)


@rule("cross_entropy_classes_backward")
def backward(node: Node) -> Any:
    if node.args[0].meta.dtype is not node.args[1].meta.dtype:
        return None
    return _kernel(node, node.args[1].meta, node.outputs[0].meta)


def fuse(graph: Graph) -> NativeKernel | None:
    """A loss with the cast of its scores, a gradient with that and with the cast of its result:
    half the bytes of the largest tensors of many models. None: the graph has another form."""
    losses = [n for n in graph.nodes if n.op.qualified in _NAMES]
    if len(losses) != 1 or len(graph.outputs) != 1:
        return None
    [loss] = losses
    scores, end = loss.args[_NAMES[loss.op.qualified]], loss.outputs[0]
    source = scores
    for node in graph.nodes:
        if is_widening(node) and node.outputs[0] is scores:
            source = node.args[0]
        elif is_rounding(node) and node.args[0] is end and loss.op.qualified == _BACKWARD:
            end = node.outputs[0]
        elif node is not loss:
            return None
    places = {v.index: k for k, v in enumerate(graph.inputs)}
    tensors = [source if v is scores else v for v in loss.args if isinstance(v, Value)]
    if end is not graph.outputs[0] or any(v.index not in places for v in tensors):
        return None
    return _kernel(loss, source.meta, end.meta, tuple(places[v.index] for v in tensors))


def walk(graph: Graph) -> None:
    """Casts alone come along."""


def _kernel(
    node: Node, given: TensorMeta, result: TensorMeta, order: tuple[int, ...] = ()
) -> NativeKernel | None:
    """`given`: the scores as they lie in memory; `result`: what is written; `order`: of tensors."""
    g = node.args[0].meta if node.op.qualified == _BACKWARD else None
    scores, target, weight, reduction, ignored = node.args[0 if g is None else 1 :]
    dtype = scores.meta.dtype
    if given.ndim != 2 or dtype not in _DTYPES or not given.numel:
        return None
    if given.strides[1] != 1 and given.shape[1] != 1:
        return None
    if weight is not None and (weight.meta.dtype is not dtype or not weight.meta.contiguous):
        return None
    rows, classes = given.shape
    count = 2 + (weight is not None) + (g is not None)
    kind = CrossEntropyKind(
        dtype.name, weight is not None, reduction, g is not None,
        "" if given.dtype is dtype else given.dtype.name,
        "" if result.dtype is dtype else result.dtype.name, order or tuple(range(count)),
    )  # fmt: skip
    code = compiled(("classes", kind), lambda m: write_classes(m, kind))
    chunk = most(1, _CHUNK_SCORES // classes, -(-rows // _MOST_CHUNKS))
    g_step = g.byte_strides[0] if g is not None and g.ndim else 0
    chunks = -(-rows // chunk)
    steps = given.byte_strides[0], target.meta.byte_strides[0]
    extra = [rows, classes, *steps, chunk, chunks, ignored, g_step]
    kept = 0 if g is None or result.dtype is dtype.compute else MAX_THREADS * classes * 8
    return NativeKernel(
        code["entry"],
        outputs=1,
        tensors=count,
        extra=extra,
        workspace=HEADER + 16 * rows + kept,
        work=rows * (classes * 0.5 + 40),
        fail=_refuse,
    )


def _refuse(status: int, target: int) -> None:
    raise IndexError(f"Target {target} is out of bounds.")
