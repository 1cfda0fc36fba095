"""Matrix products, alone and with a sum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lucerne._src.backends.cpu.gemm.choose import product_kernel
from lucerne._src.backends.cpu.gemm.complex import REAL_KINDS, complex_product
from lucerne._src.backends.cpu.gemm.epilogue import PLAIN, Combine
from lucerne._src.backends.cpu.gemm.fuse import fused_product, spread_of, walk_behind
from lucerne._src.backends.cpu.gemm.kept import with_kept_weight
from lucerne._src.backends.cpu.gemm.kinds import KINDS
from lucerne._src.backends.cpu.gemm.shape import describe, expanded_strides
from lucerne._src.backends.cpu.gemm.update import UPDATE, fused_update, suits_update
from lucerne._src.backends.cpu.rules.table import rule
from lucerne._src.backends.cpu.runtime.kernel import NativeKernel
from lucerne._src.ir.checks.index_maps import LoopWalk
from lucerne._src.ir.graph import Graph, Node
from lucerne._src.ir.meta import TensorMeta


def nothing(inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
    """The executable of a product without results."""


def fuse(graph: Graph) -> NativeKernel | None:
    """One kernel of a product and what follows it: element-wise ops, or an optimizer's step."""
    if any(n.op.qualified == UPDATE for n in graph.nodes):
        return fused_update(graph)
    return fused_product(graph)


def walk(graph: Graph) -> tuple[Graph, LoopWalk] | None:
    """What that kernel goes through behind the product."""
    if any(n.op.qualified == UPDATE for n in graph.nodes):
        return None
    return walk_behind(graph)


def updates(node: Node, op: str) -> bool:
    """Whether a product does an optimizer's step for the weight whose gradient it is."""
    return op == UPDATE and suits_update(node)


@rule("batch_matmul")
def batch_matmul(node: Node) -> Any:
    a, b = (v.meta for v in node.args)
    return _product(a, b, node.outputs[0].meta)


@rule("nn.functional.linear")
def linear(node: Node) -> Any:
    """`input @ weight.T + bias`: the weight is read as it lies, as a transposed operand."""
    input, weight = node.args[0].meta, node.args[1].meta
    bias = None if node.args[2] is None else node.args[2].meta
    turned = weight.like(shape=weight.shape[::-1], strides=weight.strides[::-1])
    out: TensorMeta = node.outputs[0].meta
    kernel = _product(input, turned, out, bias, "linear")
    if out.dtype.name not in ("float32", "bfloat16"):
        return kernel
    spread = None if bias is None else spread_of(expanded_strides(bias, out.shape), out.shape[-1])
    return with_kept_weight(kernel, input, out, bias, Combine(spread) if spread else PLAIN)


@rule("add_product")
def add_product(node: Node) -> Any:
    start, left, right = (v.meta for v in node.args)
    return _product(left, right, node.outputs[0].meta, start, "add_product")


def _product(
    a: TensorMeta, b: TensorMeta, c: TensorMeta, e: TensorMeta | None = None, entry: str = "product"
) -> Any:
    if c.numel == 0:
        return nothing
    strides = None if e is None else expanded_strides(e, c.shape)
    product = describe(a, b, c, strides)
    if product is None:
        return None
    kind = KINDS.get(c.dtype.name)
    if strides is None:
        if c.dtype.name in REAL_KINDS:
            return complex_product(c.dtype.name, product)
        return None if kind is None else product_kernel(kind, product)
    spread = spread_of(strides, c.shape[-1])
    if kind is None or spread is None:
        return None
    return product_kernel(kind, product, Combine(spread), entry)


__all__ = ["fuse", "walk"]
