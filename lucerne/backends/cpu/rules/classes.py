"""Cross entropy against class numbers, forward and backward."""

from __future__ import annotations

from typing import Any

from lucerne.backends.cpu.loops.classes import HEADER, Kind, write_classes
from lucerne.backends.cpu.rules.table import rule
from lucerne.backends.cpu.runtime.code import compiled
from lucerne.backends.cpu.runtime.kernel import Kernel
from lucerne.base import dtype as dt
from lucerne.ir.graph import Node
from lucerne.ir.meta import TensorMeta

_DTYPES = (dt.float32, dt.float64, dt.bfloat16, dt.float16)
_CHUNK_SCORES = 16384
_MOST_CHUNKS = 64


@rule("cross_entropy_classes")
def forward(node: Node) -> Any:
    scores, target, weight, reduction, ignored = node.args
    return _kernel(scores.meta, target.meta, weight, reduction, ignored, None)


@rule("cross_entropy_classes_backward")
def backward(node: Node) -> Any:
    g, scores, target, weight, reduction, ignored = node.args
    if g.meta.dtype is not scores.meta.dtype:
        return None
    return _kernel(scores.meta, target.meta, weight, reduction, ignored, g.meta)


def _kernel(
    scores: TensorMeta,
    target: TensorMeta,
    weight: Any,
    reduction: str,
    ignored: int,
    g: TensorMeta | None,
) -> Kernel | None:
    if scores.ndim != 2 or scores.dtype not in _DTYPES or not scores.numel:
        return None
    if scores.strides[1] != 1 and scores.shape[1] != 1:
        return None
    if weight is not None and (weight.meta.dtype is not scores.dtype or not weight.meta.contiguous):
        return None
    rows, classes = scores.shape
    kind = Kind(scores.dtype.name, weight is not None, reduction, g is not None)
    code = compiled(("classes", kind), lambda m: write_classes(m, kind))
    chunk = max(1, _CHUNK_SCORES // classes, -(-rows // _MOST_CHUNKS))
    g_step = g.byte_strides[0] if g is not None and g.ndim else 0
    chunks = -(-rows // chunk)
    steps = scores.byte_strides[0], target.byte_strides[0]
    extra = [rows, classes, *steps, chunk, chunks, ignored, g_step]
    return Kernel(
        code["entry"],
        outputs=1,
        tensors=2 + (weight is not None) + (g is not None),
        extra=extra,
        workspace=HEADER + 16 * rows,
        work=rows * (classes * 0.5 + 40),
        fail=_refuse,
    )


def _refuse(status: int, target: int) -> None:
    raise IndexError(f"Target {target} is out of bounds.")
