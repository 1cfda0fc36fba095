"""Rules about views. A view is an address map: shape, strides, offset; equal maps are the same."""

from __future__ import annotations

from lucerne._src.ir import op as op_
from lucerne._src.ir.graph import Node, Value, geometries
from lucerne._src.ir.op import Op
from lucerne._src.ops.view.reshape import expand_shape, permute_dims, view_shape
from lucerne._src.transforms.rules.rule import Answer, Look, NewNode, Rule

_VIEW: Op = view_shape.op  # type: ignore[attr-defined]
_PERMUTE: Op = permute_dims.op  # type: ignore[attr-defined]
_EXPAND: Op = expand_shape.op  # type: ignore[attr-defined]

_RESHAPES = ("view", "squeeze", "unsqueeze")
_ORDERS = ("transpose", "permute", "t")


def _view_same(look: Look, node: Node) -> Answer:
    source: Value = node.args[0]
    if len(node.outputs) != 1 or node.outputs[0].meta is not source.meta:
        return None
    return None if geometries(node)[0].offset else source


def _view_view(look: Look, node: Node) -> Answer:
    inner = look.producer(node.args[0], *_RESHAPES)
    if inner is None:
        return None
    return NewNode(_VIEW, (inner.args[0], tuple(node.outputs[0].meta.shape)))


def _order(node: Node) -> list[int]:
    """Which dimension of its input each dimension of the result is."""
    ndim = node.args[0].meta.ndim
    if node.op.name == "permute":
        return [d % ndim for d in node.args[1]] if ndim else []
    order = list(range(ndim))
    if node.op.name == "t":
        return order[::-1]
    if ndim:
        a, b = (d % ndim for d in node.args[1:])
        order[a], order[b] = order[b], order[a]
    return order


def _permute_permute(look: Look, node: Node) -> Answer:
    inner = look.producer(node.args[0], *_ORDERS)
    if inner is None:
        return None
    before = _order(inner)
    order = tuple(before[d] for d in _order(node))
    source: Value = inner.args[0]
    return source if order == tuple(range(len(order))) else NewNode(_PERMUTE, (source, order))


def _expand_expand(look: Look, node: Node) -> Answer:
    inner = look.producer(node.args[0], "expand")
    if inner is None:
        return None
    return NewNode(_EXPAND, (inner.args[0], tuple(node.outputs[0].meta.shape)))


def _plain_view(look: Look, node: Node) -> Answer:
    """Raw strides over all elements, as the view that a person would have written."""
    source, size, stride, offset = node.args
    meta, out = source.meta, node.outputs[0].meta
    if offset or out.numel != meta.numel or not meta.is_dense:
        return None
    if len(size) == meta.ndim and sorted(stride) == sorted(meta.strides):
        order = [meta.strides.index(st) for st in stride]
        if len(set(order)) == meta.ndim:
            return NewNode(_PERMUTE, (source, tuple(order)))
    return NewNode(_VIEW, (source, tuple(size)))


RULES = (
    Rule("view_same", (op_.VIEW,), _view_same, True,
         "the same shape, strides and offset read the same elements"),
    Rule("plain_view", ("as_strided",), _plain_view, True,
         "the same shape and strides by a view that says more: kernels can see through it"),
    Rule("view_view", _RESHAPES, _view_view, True,
         "all of these keep the elements in order; the strides of the result must come out equal"),
    Rule("permute_permute", _ORDERS, _permute_permute, True,
         "two orders of dimensions make one, often the original"),
    Rule("expand_expand", ("expand",), _expand_expand, True, "only the last size counts"),
)  # fmt: skip
