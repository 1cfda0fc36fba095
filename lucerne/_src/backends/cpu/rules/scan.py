"""Running sums, products and extremes; linear recurrences."""

from __future__ import annotations

from typing import Any

from lucerne._src.backends.cpu.rowwise.scan import ScanPlan, write_scan
from lucerne._src.backends.cpu.rules.table import rule
from lucerne._src.backends.cpu.runtime.code import compiled
from lucerne._src.backends.cpu.runtime.kernel import NativeKernel
from lucerne._src.base import dtype as dt
from lucerne._src.ir.graph import Node
from lucerne._src.ir.meta import TensorMeta


@rule("scan")
def scan(node: Node) -> Any:
    source, dim, mode, reverse, _ = node.args
    meta: TensorMeta = source.meta
    if meta.dtype.category == dt.COMPLEX and mode == "logaddexp":
        return None
    return _kernel(mode, dim, reverse, [node.outputs[0].meta, meta])


@rule("linear_scan")
def linear_scan(node: Node) -> Any:
    decay, source, dim, reverse = node.args
    if decay.meta.shape != source.meta.shape:
        return None
    return _kernel("linear", dim, reverse, [node.outputs[0].meta, decay.meta, source.meta])


def _kernel(mode: str, dim: int, reverse: bool, metas: list[TensorMeta]) -> NativeKernel:
    out = metas[0]
    plan = ScanPlan(mode, dim % max(out.ndim, 1), reverse, metas)
    code = compiled(plan.key, lambda m: write_scan(m, plan))
    return NativeKernel(
        code["entry"],
        outputs=1,
        tensors=len(metas) - 1,
        extra=plan.words,
        work=0.5 * out.numel,
    )
