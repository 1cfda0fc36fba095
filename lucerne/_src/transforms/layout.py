"""Layout: where convolutions are faster on images whose channels lie side by side in memory.

Images (N, C, H, W) usually lie channel by channel. Nodes that work on images in either order
(convolutions, batch norm, pooling, element-wise ops) form regions; the backend says for each
convolution of a region which order it prefers, and the heavier side wins. A region that changes
gets copies where images enter it, and copies back where somebody outside reads them: outputs of
the graph keep the strides that eager gives them.

Sums inside a convolution may come in another order, so this is not for the bitwise mode.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucerne._src.base import layout as lo
from lucerne._src.base import shape as sh
from lucerne._src.ir import op as op_
from lucerne._src.ir.graph import Graph, Node, Value
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.ir.op import Op
from lucerne._src.ir.symbolic.numbers import most, to_float
from lucerne._src.ops.copy.cast import clone_as
from lucerne._src.transforms.rewrite import GraphBuilder, result_metas

Prefers = Callable[[Node], bool]
"""Whether a convolution had better work on images with channels last."""

_CLONE: Op = clone_as.op  # type: ignore[attr-defined]
_CONVOLUTIONS = ("conv", "conv_input", "conv_weight")


def run(graph: Graph, prefers: Prefers | None) -> Graph:
    """The graph with images in the order that the backend prefers; None: it prefers none."""
    if prefers is None or not any(n.op.qualified in _CONVOLUTIONS for n in graph.nodes):
        return graph
    chosen = _chosen(graph, prefers)
    return _Rewrite(graph, chosen).run() if chosen else graph


def image_arguments(node: Node) -> tuple[int, ...]:
    """The positions of the arguments that are images in the usual order; none: leave it alone."""
    positions = node.op.images
    if not positions:
        if node.op.kind != op_.POINTWISE or not _is_image(node.outputs[0]):
            return ()
        shape = node.outputs[0].meta.shape
        return tuple(
            k
            for k, a in enumerate(node.args)
            if type(a) is Value and _is_image(a) and a.meta.shape == shape
        )
    return positions if all(_is_image(node.args[k]) for k in positions) else ()


def _is_image(value: Any) -> bool:
    meta = value.meta if type(value) is Value else None
    return isinstance(meta, TensorMeta) and meta.ndim == 4 and meta.contiguous and meta.numel > 0


# ---- which regions ------------------------------------------------------------------------------


def _chosen(graph: Graph, prefers: Prefers) -> set[int]:
    """The nodes (by their first output) of all regions that change."""
    above: dict[int, int] = {}

    def region(k: int) -> int:
        while above.setdefault(k, k) != k:
            above[k] = above[above[k]]
            k = above[k]
        return k

    members: list[Node] = []
    for node in graph.nodes:
        positions = image_arguments(node)
        if positions:
            members.append(node)
            mine = node.outputs[0].index
            near = [node.args[k].index for k in positions]
            near += [v.index for v in node.outputs if _is_image(v)]
            for k in near:
                above[region(k)] = region(mine)
    votes: dict[int, float] = {}
    for node in members:
        if node.op.qualified in _CONVOLUTIONS:
            at = region(node.outputs[0].index)
            votes[at] = votes.get(at, 0.0) + (_work(node) if prefers(node) else -_work(node))
    return {
        node.outputs[0].index
        for node in members
        if votes.get(region(node.outputs[0].index), 0.0) > 0
    }


def _work(node: Node) -> float:
    """Products a convolution makes."""
    a, b, out = node.args[0].meta, node.args[1].meta, node.outputs[0].meta
    image, weight = (a, out) if node.op.qualified == "conv_weight" else (a, b)
    if node.op.qualified == "conv":
        image = out
    found: float = to_float(image.numel) * weight.numel / most(image.shape[1], 1)
    return found


# ---- the graph ----------------------------------------------------------------------------------


class _Rewrite:
    """Two versions of an image may exist: as the old graph had it, and with channels last."""

    def __init__(self, graph: Graph, chosen: set[int]) -> None:
        self.graph, self.chosen, self.builder = graph, chosen, GraphBuilder(graph)
        self.last: dict[int, Value] = {}
        """By the number of the old value: the one with channels last."""
        self.gone: set[int] = set()
        """Old values that only exist with channels last so far."""

    def run(self) -> Graph:
        for node in self.graph.nodes:
            self.builder.graph.place = node.place
            if node.outputs[0].index not in self.chosen or not self._changed(node):
                self._usual(node.args)
                self.builder.keep(node)
        self._usual((*self.graph.outputs, *(v for _, v in self.graph.writes)))
        return self.builder.finish()

    def _changed(self, node: Node) -> bool:
        """Write a node over images with channels last, if it gives such."""
        positions = image_arguments(node)
        args = list(node.args)
        for k in positions:
            args[k] = Value(-1, _last(args[k].meta))
        metas = result_metas(node.op, tuple(args))
        for v, m in zip(node.outputs, metas, strict=True):
            if m is not v.meta and m is not _last(v.meta):
                return False
        rest = tuple(a for k, a in enumerate(node.args) if k not in positions)
        self._usual(rest)
        args = list(self.builder.args(node.args))
        for k in positions:
            args[k] = self._with_channels_last(node.args[k])
        made = self.builder.call(node.op, tuple(args), metas)
        for old, new in zip(node.outputs, made, strict=True):
            if new.meta is old.meta:
                self.builder.replace(old, new)
            else:
                self.last[old.index] = new
                self.gone.add(old.index)
        return True

    def _with_channels_last(self, value: Value) -> Value:
        found = self.last.get(value.index)
        if found is None:
            source = self.builder.read(value)
            found = self.builder.call(_CLONE, (source, lo.channels_last), [_last(value.meta)])[0]
            self.last[value.index] = found
        return found

    def _usual(self, args: tuple[Any, ...]) -> None:
        """Make sure that values exist as the old graph had them."""
        for a in args:
            for v in a if type(a) is tuple else (a,):
                if type(v) is Value and v.index in self.gone:
                    self.gone.discard(v.index)
                    source = self.last[v.index]
                    made = self.builder.call(_CLONE, (source, lo.contiguous_format), [v.meta])
                    self.builder.replace(v, made[0])


def _last(meta: TensorMeta) -> TensorMeta:
    if meta.ndim != 4:
        return meta
    return meta.like(strides=sh.format_strides(meta.shape, lo.channels_last))
