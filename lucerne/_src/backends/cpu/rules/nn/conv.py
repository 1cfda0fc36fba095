"""Convolutions, alone and with element-wise ops on their result. The choice of an engine is in
`conv.select`."""

from __future__ import annotations

from typing import Any

from lucerne._src.backends.cpu.conv import epilogue as after_
from lucerne._src.backends.cpu.conv.choose import (
    conv_kernel,
    input_kernel,
    tailed_kernel,
    tailed_problem,
    weight_kernel,
)
from lucerne._src.backends.cpu.conv.direct_plan import ConvTail
from lucerne._src.backends.cpu.conv.launch import MAX_EXTRA, Given
from lucerne._src.backends.cpu.conv.problem import Array, ConvSetting, Gather, spread
from lucerne._src.backends.cpu.fused.elements import Elements, inputs_of
from lucerne._src.backends.cpu.math.number import NotTaken
from lucerne._src.backends.cpu.rules.table import rule
from lucerne._src.backends.cpu.runtime.kernel import NativeKernel
from lucerne._src.ir.checks.index_maps import LoopWalk
from lucerne._src.ir.graph import Graph, Node, Value
from lucerne._src.ir.meta import TensorMeta


def _bias_step(bias: Any) -> int | None:
    return None if bias is None else bias.meta.strides[0]


@rule("conv")
def conv(node: Node) -> Any:
    x, w, bias, *setting = node.args
    y = node.outputs[0]
    arrays = spread(x.meta), spread(w.meta), spread(y.meta)
    return conv_kernel(*arrays, ConvSetting.of(*setting), _bias_step(bias))


@rule("conv_input")
def conv_input(node: Node) -> Any:
    g, w, bias, _, *setting = node.args
    x = node.outputs[0]
    arrays = spread(g.meta), spread(w.meta), spread(x.meta)
    return input_kernel(*arrays, ConvSetting.of(*setting), _bias_step(bias))


@rule("conv_weight")
def conv_weight(node: Node) -> Any:
    g, x, _, *setting = node.args
    w = node.outputs[0]
    arrays = spread(g.meta), spread(x.meta), spread(w.meta)
    return weight_kernel(*arrays, ConvSetting.of(*setting))


# ---- with element-wise ops -----------------------------------------------------------------------


def fuse(graph: Graph) -> NativeKernel | None:
    """A convolution and the element-wise ops on its result, whose operands lie like it or have a
    number for each channel; None when the graph has another form."""
    try:
        return _Tailed(graph).kernel()
    except NotImplementedError:  # NotTaken, or a function the machine lacks
        return None


def walk(graph: Graph) -> tuple[Graph, LoopWalk]:
    """What that kernel goes through behind the convolution."""
    return _Tailed(graph).walk()


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

    def kernel(self) -> NativeKernel | None:
        problem, given = self._problem(), inputs_of(self.others)
        if problem is None:
            return None
        own = [v for v in self.conv.args[:3] if v is not None]
        extra = [v for v in given if v.index != self.result.index]
        if any(v.index not in self.inputs for v in extra):
            raise NotTaken("an operand from elsewhere")
        call = Given(
            tuple(self.inputs[v.index] for v in own),
            tuple(self.inputs[v.index] for v in extra),
        )
        if call.count != len(self.graph.inputs):
            raise NotTaken("an input that is not read")
        after = self._after(given, extra, problem.target)
        return tailed_kernel(problem, _bias_step(self.conv.args[2]), ConvTail(after, call))

    def walk(self) -> tuple[Graph, LoopWalk]:
        """The ops behind the convolution, and what their loops go through."""
        problem, given = self._problem(), inputs_of(self.others)
        assert problem is not None
        extra = [v for v in given if v.index != self.result.index]
        after = self._after(given, extra, problem.target)
        return after.elements.graph, after.walk(problem.target)

    def _problem(self) -> Gather | None:
        x, w, bias, *setting = self.conv.args
        if any(v is not None and v.index not in self.inputs for v in (x, w, bias)):
            raise NotTaken("a convolution of something computed here")
        arrays = spread(x.meta), spread(w.meta), spread(self.result.meta)
        return tailed_problem(*arrays, ConvSetting.of(*setting), bias is not None)

    def _after(self, given: list[Value], extra: list[Value], target: Array) -> after_.After:
        """The ops, run over the target as the engine cuts it: not always as the result's own
        dimensions do, so its strides say which neighbours a vector takes."""
        if len(given) > len(after_.AFTER) or len(extra) > MAX_EXTRA:
            raise NotTaken("too many operands")
        across = after_.runs_across(target)
        if across is None:
            raise NotTaken("a result of another layout")
        places = {v.index: k for k, v in enumerate(extra)}
        ways = [
            (after_.HERE, 0) if v.index == self.result.index else self._way(v, across)
            for v in given
        ]
        return after_.After(
            Elements(self.others, given, self.graph.outputs),
            tuple(way for way, _ in ways),
            tuple(places.get(v.index, -1) for v in given),
            tuple(step for _, step in ways),
            self.result.meta.dtype,
            across,
        )

    def _way(self, v: Value, across: bool) -> tuple[str, int]:
        """How an operand lies beside the result, and the stride of one number a channel."""
        y, meta = self.result.meta, v.meta
        if not isinstance(meta, TensorMeta):
            raise NotTaken("a number given at run time")
        missing = y.ndim - meta.ndim
        shape, strides = (1,) * missing + tuple(meta.shape), (0,) * missing + meta.strides
        if shape == tuple(y.shape) and strides == y.strides:
            return after_.FULL, 0
        others = [n for d, n in enumerate(shape) if d != 1]
        adjacent = strides[1] == 1 or shape[1] == 1
        if shape[1] == y.shape[1] and set(others) == {1} and (adjacent or not across):
            return after_.CHANNEL, strides[1]
        raise NotTaken("an operand of another shape or layout")
