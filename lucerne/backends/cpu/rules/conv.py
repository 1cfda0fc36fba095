"""Convolutions, alone and with element-wise ops on their result. The choice of an engine is in
`conv.select`."""

from __future__ import annotations

from typing import Any

from lucerne.backends.cpu.conv import after as after_
from lucerne.backends.cpu.conv.gather_plan import Tail
from lucerne.backends.cpu.conv.launch import MAX_EXTRA, Given
from lucerne.backends.cpu.conv.problem import Setting, spread
from lucerne.backends.cpu.conv.select import (
    conv_kernel,
    input_kernel,
    tailed_kernel,
    weight_kernel,
)
from lucerne.backends.cpu.loops.elements import Elements, inputs_of
from lucerne.backends.cpu.math.number import NotTaken
from lucerne.backends.cpu.rules.table import rule
from lucerne.backends.cpu.runtime.kernel import Kernel
from lucerne.ir.graph import Graph, Node, Value
from lucerne.ir.meta import TensorMeta


def _bias_step(bias: Any) -> int | None:
    return None if bias is None else bias.meta.strides[0]


@rule("conv")
def conv(node: Node) -> Any:
    x, w, bias, *setting = node.args
    y = node.outputs[0]
    arrays = spread(x.meta), spread(w.meta), spread(y.meta)
    return conv_kernel(*arrays, Setting.of(*setting), _bias_step(bias))


@rule("conv_input")
def conv_input(node: Node) -> Any:
    g, w, bias, _, *setting = node.args
    x = node.outputs[0]
    arrays = spread(g.meta), spread(w.meta), spread(x.meta)
    return input_kernel(*arrays, Setting.of(*setting), _bias_step(bias))


@rule("conv_weight")
def conv_weight(node: Node) -> Any:
    g, x, _, *setting = node.args
    w = node.outputs[0]
    arrays = spread(g.meta), spread(x.meta), spread(w.meta)
    return weight_kernel(*arrays, Setting.of(*setting))


# ---- with element-wise ops -----------------------------------------------------------------------


def fuse(graph: Graph) -> Kernel | None:
    """A convolution and the element-wise ops on its result, whose operands lie like it or have a
    number for each channel; None when the graph has another form."""
    try:
        return _Tailed(graph).kernel()
    except NotImplementedError:  # NotTaken, or a function the machine lacks
        return None


class _Tailed:
    """One convolution and its element-wise ops, found in a graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        convs = [n for n in graph.nodes if n.op.qualified == "conv"]
        if len(convs) != 1 or len(graph.outputs) != 1:
            raise NotTaken("not one convolution with one result")
        [self.conv] = convs
        self.others = [n for n in graph.nodes if n is not self.conv]
        self.inputs = {v.index: k for k, v in enumerate(graph.inputs)}
        self.result = self.conv.outputs[0]
        [out] = graph.outputs
        meta: TensorMeta = self.result.meta
        if (out.meta.dtype, out.meta.strides) != (meta.dtype, meta.strides):
            raise NotTaken("a result of another type or layout")
        if out.index not in {v.index for n in self.others for v in n.outputs}:
            raise NotTaken("the result of the convolution itself")
        if not meta.dtype.is_floating_point or meta.shape != out.meta.shape:
            raise NotTaken("not floating numbers")

    def kernel(self) -> Kernel | None:
        x, w, bias, *setting = self.conv.args
        own = [v for v in (x, w, bias) if v is not None]
        if any(v.index not in self.inputs for v in own):
            raise NotTaken("a convolution of something computed here")
        y = self.result
        given = inputs_of(self.others)
        extra = [v for v in given if v.index != y.index]
        if len(given) > len(after_.AFTER) or len(extra) > MAX_EXTRA:
            raise NotTaken("too many operands")
        if any(v.index not in self.inputs for v in extra):
            raise NotTaken("an operand from elsewhere")
        across = y.meta.strides[1] == 1 and y.meta.strides[-1] != 1
        if not across and y.meta.strides[-1] != 1:
            raise NotTaken("a result of another layout")
        places = {v.index: k for k, v in enumerate(extra)}
        ways = [(after_.HERE, 0) if v.index == y.index else self._way(v, across) for v in given]
        tail = Tail(
            after_.After(
                Elements(self.others, given, self.graph.outputs),
                tuple(way for way, _ in ways),
                tuple(places.get(v.index, -1) for v in given),
                tuple(step for _, step in ways),
                y.meta.dtype,
                across,
            ),
            Given(
                tuple(self.inputs[v.index] for v in own),
                tuple(self.inputs[v.index] for v in extra),
            ),
        )
        if len(set(tail.given.operands + tail.given.extra)) != len(self.graph.inputs):
            raise NotTaken("an input that is read in two ways, or not at all")
        arrays = spread(x.meta), spread(w.meta), spread(y.meta)
        return tailed_kernel(*arrays, Setting.of(*setting), _bias_step(bias), tail)

    def _way(self, v: Value, across: bool) -> tuple[str, int]:
        """How an operand lies beside the result, and the stride of one number a channel."""
        y, meta = self.result.meta, v.meta
        if not isinstance(meta, TensorMeta):
            raise NotTaken("a number given at run time")
        shape = (1,) * (y.ndim - meta.ndim) + tuple(meta.shape)
        if shape == tuple(y.shape) and meta.strides == y.strides:
            return after_.FULL, 0
        others = [n for d, n in enumerate(shape) if d != 1]
        if shape[1] == y.shape[1] and set(others) == {1}:
            step = meta.strides[meta.ndim - y.ndim + 1]
            if step == 1 or not across:
                return after_.CHANNEL, step
        raise NotTaken("an operand of another shape or layout")
