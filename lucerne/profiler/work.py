"""How much an op has to do: floating-point operations, and bytes that must move.

These are counts of the work, not of what a kernel happens to do: a product of (m, k) and (k, n) is
2 m n k operations whether it runs on tiles in parts or not, and bytes are those of the inputs and
outputs, each once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from lucerne._src.ir import op as op_
from lucerne._src.ir.graph import Graph, Node
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.ir.op import Op
from lucerne._src.ir.program import Place, Step

_PRODUCTS = frozenset({"mm", "bmm", "matmul", "batch_matmul", "mv", "dot", "vdot", "inner"})
_ADDED_PRODUCTS = frozenset(
    {"addmm", "baddbmm", "addbmm", "add_product", "add_scaled_product", "addmv"}
)
_CONVOLUTIONS = frozenset(
    {"conv", "conv1d", "conv2d", "conv3d", "convolution", "conv_input", "conv_weight"}
)
_TRANSPOSED = frozenset({"conv_transpose1d", "conv_transpose2d", "conv_transpose3d"})
_ATTENTION = frozenset({"scaled_dot_product_attention", "attend", "flash_attention"})
_ATTENTION_BACKWARD = "flash_attention_backward"


def flops(op: Op, inputs: Sequence[Any], outputs: Sequence[TensorMeta]) -> int:
    """Operations of a call on tensors of these metas (other arguments may be anything).

    Products, convolutions and attention count multiplications and additions; element-wise ops and
    reductions one operation an element; what only moves numbers none.
    """
    metas = [m for x in inputs for m in (x if isinstance(x, (tuple, list)) else (x,))]
    given = [m for m in metas if isinstance(m, TensorMeta)]
    if not outputs or not given:
        return 0
    return _counted(op, given, outputs)


def _counted(op: Op, given: list[TensorMeta], outputs: Sequence[TensorMeta]) -> int:
    name, made = op.name, outputs[0]
    if name in _PRODUCTS:
        return 2 * made.numel * (given[0].shape[-1] if len(given[0].shape) else 1)
    if name in _ADDED_PRODUCTS and len(given) > 1:
        return 2 * made.numel * given[1].shape[-1]
    if name == "linear":
        return 2 * made.numel * given[0].shape[-1]
    if name in _CONVOLUTIONS or name in _TRANSPOSED:
        return _convolution(name, given, made)
    if (name in _ATTENTION or name == _ATTENTION_BACKWARD) and len(given) > 2:
        query, key, value = given[:3]
        heads = math.prod(query.shape[:-2])
        both = query.shape[-1] + value.shape[-1]
        forward = 2 * heads * query.shape[-2] * key.shape[-2] * both
        return forward if name != _ATTENTION_BACKWARD else forward * 5 // 2  # five products
    if op.kind == op_.POINTWISE:
        return sum(m.numel for m in outputs)
    if op.kind == op_.REDUCTION:
        return max(m.numel for m in given)
    return 0


def _convolution(name: str, given: list[TensorMeta], made: TensorMeta) -> int:
    """Every output is a sum over a window: the sizes say how long. The gradients do as much."""
    if name in _TRANSPOSED and len(given) > 1:
        return 2 * given[0].numel * math.prod(given[1].shape[1:])
    if len(given) < 2:
        return 0
    if name == "conv_weight":  # gradient of the output, image -> gradient of the weight
        return 2 * given[0].numel * math.prod(made.shape[1:])
    if name == "conv_input":  # gradient of the output, weight -> gradient of the image
        return 2 * given[0].numel * math.prod(given[1].shape[1:])
    return 2 * made.numel * math.prod(given[1].shape[1:])


def flops_of_node(node: Node) -> int:
    """Operations of one node of a graph."""
    metas = [_metas(a) for a in node.args]
    outputs = [v.meta for v in node.outputs if isinstance(v.meta, TensorMeta)]
    return flops(node.op, metas, outputs)


def _metas(a: Any) -> Any:
    if isinstance(a, (tuple, list)):
        return [_metas(x) for x in a]
    return getattr(a, "meta", None)


def flops_of_graph(graph: Graph) -> int:
    """Operations of all nodes of a graph."""
    return sum(flops_of_node(node) for node in graph.nodes)


def bytes_of_step(step: Step) -> int:
    """Bytes that a step of a program must read and write: each place once."""
    found = {p for p in (*step.inputs, *step.outputs) if type(p) is Place}
    return sum(p.meta.numel * p.meta.dtype.itemsize for p in found)


def bytes_of_metas(metas: Iterable[TensorMeta]) -> int:
    return sum(m.numel * m.dtype.itemsize for m in metas)
