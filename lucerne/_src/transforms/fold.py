"""Constant folding: what does not depend on the inputs is computed before the program runs.

Two kinds of values are known: tensors of any size with one value everywhere, and small tensors. A
node all of whose operands are known is computed by the reference backend; it gives way to `filled`
(or `counted`) when its result can be written so. A result that can't stays a node, but is known to
the nodes that read it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from lucerne._src.backends.contract.tensor_view import Spot
from lucerne._src.base import dtype as dt
from lucerne._src.base.unspecialized import GivenFloat
from lucerne._src.ir import op as op_
from lucerne._src.ir.define import reduced_dims
from lucerne._src.ir.graph import Graph, Node, Value, operands
from lucerne._src.ir.meta import TensorMeta, is_sized
from lucerne._src.ir.symbolic.numbers import is_symbolic
from lucerne._src.ops.copy.cast import counted
from lucerne._src.transforms import interpret
from lucerne._src.transforms.constants import (
    arithmetic,
    call_filled,
    element,
    filled_number,
    number_of,
    same_bits,
)
from lucerne._src.transforms.interpret import Array, blank
from lucerne._src.transforms.rewrite import PLAIN, GraphBuilder, nbytes

SMALL = 64
"""Elements up to which a tensor with different values is computed here."""

_COUNTED: op_.Op = counted.op  # type: ignore[attr-defined]
_Known = dict[int, Array]
"""Elements by value number, in the storage type; 0-dim: the same everywhere."""


def run(
    graph: Graph, *, bitwise: bool = False, constants: Mapping[int, Array] | None = None
) -> Graph:
    """The graph with known values written as constants.

    `bitwise`: only ops that give the same bits on every backend. `constants`: what inputs that
    never change hold, by the number of the input; larger ones than `SMALL` are of no use.
    """
    builder = GraphBuilder(graph)
    known: _Known = {k: a for k, a in (constants or {}).items() if a.size <= SMALL}
    for node in graph.nodes:
        kept = builder.keep(node)
        name = node.op.qualified
        if name == "filled":
            _note_filled(kept, known)
        elif name == "counted":
            _note_counted(kept, known)
        elif node.op.kind != op_.RANDOM and _all_known(kept, known):
            found = _attempt(kept, known, bitwise)
            if found is not None:
                known[kept.outputs[0].index] = found
                _written(builder, kept, found)
    return builder.finish()


def _note_filled(node: Node, known: _Known) -> None:
    number = filled_number(node)
    if number is None:
        return
    meta: TensorMeta = node.outputs[0].meta
    known[node.outputs[0].index] = element(number, meta.dtype)


def _note_counted(node: Node, known: _Known) -> None:
    numbers = type(node.args[0]) in PLAIN and type(node.args[1]) in PLAIN
    meta: TensorMeta = node.outputs[0].meta
    if numbers and not is_sized(meta) and meta.numel <= SMALL:
        known[node.outputs[0].index] = interpret.run_node(node, {})[0].array


def _all_known(node: Node, known: _Known) -> bool:
    """Whether all operands are known; a node without any is left alone, except element-wise."""
    if len(node.outputs) != 1 or is_sized(node.outputs[0].meta):
        return False  # (of a size that is not known yet)
    found = False
    for v in operands(node.args):
        if v.index not in known:
            return False
        found = True
    later = any(type(a) is GivenFloat for a in node.args) or is_symbolic(node.args)
    return not later and (found or node.op.kind == op_.POINTWISE)


def _attempt(node: Node, known: _Known, bitwise: bool) -> Array | None:
    """As `_computed`; what can't be computed fails when the program runs, with its own message."""
    try:
        return _computed(node, known, bitwise)
    except Exception:
        return None


def _computed(node: Node, known: _Known, bitwise: bool) -> Array | None:
    """The elements of the node's result, if they are to be known."""
    op, out = node.op, node.outputs[0]
    if op.kind == op_.REDUCTION and not op.exact:
        return _summed(node, known, bitwise)
    if op.kind == op_.POINTWISE:
        if bitwise and not same_bits(node):
            return None
    elif op.kind not in (op_.VIEW, op_.REDUCTION) and not op.folds:
        return None
    uniform = all(not known[v.index].ndim for v in operands(node.args))
    if uniform and _keeps_uniform(node):
        return _one_element(node, known)
    if out.meta.numel > SMALL or any(v.meta.numel > SMALL for v in operands(node.args)):
        return None
    values = {v.index: _tensor(known[v.index], v.meta) for v in operands(node.args)}
    return np.array(interpret.run_node(node, values)[0].array)


def _keeps_uniform(node: Node) -> bool:
    """Whether equal elements in make equal elements out, each of one element."""
    if node.op.kind == op_.VIEW:
        return node.outputs[0].meta.dtype is node.args[0].meta.dtype and bool(
            node.args[0].meta.numel
        )
    if node.op.kind == op_.REDUCTION:
        return bool(node.args[0].meta.numel)
    return node.op.kind == op_.POINTWISE or node.op.qualified in ("cast", "clone_as")


def _one_element(node: Node, known: _Known) -> Array:
    """The element of a result all of whose elements are equal."""
    if node.op.kind == op_.VIEW:
        return known[node.args[0].index]
    quick = arithmetic(node, known) if node.op.kind == op_.POINTWISE else None
    if quick is not None:
        return np.asarray(quick)
    values = {v.index: blank(_single(v.meta)) for v in operands(node.args)}
    for index, held in values.items():
        held.array[...] = known[index]
    args = tuple(Value(a.index, _single(a.meta)) if type(a) is Value else a for a in node.args)
    one = Node(node.op, args, (Value(0, _single(node.outputs[0].meta)),))
    return np.array(interpret.run_node(one, values)[0].array.reshape(())[()])


def _single(meta: Any) -> Any:
    """One element in as many dimensions: numbers of dimensions decide about promotion."""
    return meta.like(shape=(1,) * meta.ndim) if isinstance(meta, TensorMeta) else meta


def _tensor(elements: Array, meta: TensorMeta) -> Spot:
    return interpret.held(np.broadcast_to(elements, tuple(meta.shape)), meta)


def _summed(node: Node, known: _Known, bitwise: bool) -> Array | None:
    """A sum of equal elements: a product, where every partial sum is exact or bits may differ."""
    source = node.args[0]
    if node.op.qualified != "sum" or known[source.index].ndim or is_sized(source.meta):
        return None
    meta: TensorMeta = source.meta
    out: TensorMeta = node.outputs[0].meta
    if out.dtype.category not in (dt.INTEGER, dt.FLOAT):
        return None
    dims = reduced_dims(node.op.named(node.args)["dim"], meta.ndim)
    count = 1
    for d in dims:
        count *= meta.shape[d] if meta.ndim else 1
    each = number_of(known[source.index], meta.dtype)
    total = each * count if count else 0  # and not -0.0, or nan
    if out.dtype.category == dt.FLOAT:
        if bitwise and not _sums_exactly(each, total, out.dtype):
            return None
    elif abs(total) >= 2**31:
        return None
    return element(total, out.dtype)


def _sums_exactly(each: Any, total: Any, dtype: dt.dtype) -> bool:
    """Whether every partial sum is a whole number that the type holds.

    A sum of -0.0 depends on what it starts from.
    """
    if each != each or abs(total) >= 2.0**dtype.compute.digits or each != int(each):
        return False
    return bool(each) or math.copysign(1.0, each) > 0


def _written(builder: GraphBuilder, node: Node, elements: Array) -> None:
    """Put a constant in place of the node that was just kept, if it can be written as one."""
    out = node.outputs[0]
    meta: TensorMeta = out.meta
    builder.graph.place = node.place
    if node.op.kind == op_.VIEW or not nbytes(meta) or not meta.is_dense:
        return
    first = elements.reshape(-1)[:1]
    if not elements.ndim or bool((_bits(elements) == _bits(first)).all()):
        number = number_of(first[0], meta.dtype)
        if number != number and meta.dtype.category == dt.COMPLEX:
            return
        builder.graph.nodes.pop()
        builder.replace(out, call_filled(builder, number, meta))
    elif meta.ndim == 1 and meta.contiguous and meta.dtype.category == dt.INTEGER:
        steps = np.diff(elements.astype(np.int64))
        if bool((steps == steps[0]).all()):
            args = (int(elements[0]), int(steps[0]), meta.numel, meta.dtype, meta.device)
            builder.graph.nodes.pop()
            builder.replace(out, builder.call(_COUNTED, args, [meta])[0])


def _bits(elements: Array) -> Array:
    """As bytes, so that a nan equals itself and 0.0 does not equal -0.0."""
    flat = np.ascontiguousarray(elements).reshape(-1)
    return flat.view(np.uint8).reshape(flat.size, -1)
