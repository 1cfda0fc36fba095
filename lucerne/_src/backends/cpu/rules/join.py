"""Tensors put together, or turned around."""

from __future__ import annotations

from typing import Any

from lucerne._src.backends.cpu.elementwise.batch import Job, batch_kernel
from lucerne._src.backends.cpu.elementwise.copying import move_over
from lucerne._src.backends.cpu.elementwise.plan import no_work
from lucerne._src.backends.cpu.rules.table import rule
from lucerne._src.ir.graph import Node
from lucerne._src.ir.meta import TensorMeta


@rule("cat")
def cat(node: Node) -> Any:
    """One block copy per tensor."""
    tensors, dim = node.args
    out: TensorMeta = node.outputs[0].meta
    if not out.numel:
        return no_work
    jobs, at = [], 0
    for k, value in enumerate(tensors):
        meta: TensorMeta = value.meta
        recipe, space = move_over(
            tuple(meta.shape), out.byte_strides, meta.byte_strides, out.dtype.itemsize
        )
        jobs.append(Job(recipe, space, k, target_offset=at * out.byte_strides[dim]))
        at += meta.shape[dim]
    return batch_kernel(jobs, len(tensors))


@rule("flip")
def flip(node: Node) -> Any:
    """A copy that reads from the other end: strides of the turned dimensions are negative."""
    out: TensorMeta = node.outputs[0].meta
    if not out.numel:
        return no_work
    meta: TensorMeta = node.args[0].meta
    turned = {d % meta.ndim for d in node.args[1]} if meta.ndim else set()
    steps = [-s if d in turned else s for d, s in enumerate(meta.byte_strides)]
    start = sum((meta.shape[d] - 1) * meta.byte_strides[d] for d in turned)
    recipe, space = move_over(tuple(out.shape), out.byte_strides, steps, out.dtype.itemsize)
    return batch_kernel([Job(recipe, space, 0, source_offset=start)], 1)
