"""Layer norm backward; batch norm forward and backward, alone and with element-wise ops."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from lucerne._src.backends.cpu.fused.elements import Elements, inputs_of
from lucerne._src.backends.cpu.math.number import NotTaken
from lucerne._src.backends.cpu.rowwise import batch_norm as channels_
from lucerne._src.backends.cpu.rowwise.layer_norm import (
    LayerNormKind,
    lanes_of,
    write_norm_backward,
)
from lucerne._src.backends.cpu.rules.table import rule
from lucerne._src.backends.cpu.runtime.code import compiled
from lucerne._src.backends.cpu.runtime.kernel import NativeKernel, float_word
from lucerne._src.base import dtype as dt
from lucerne._src.base import layout as lo
from lucerne._src.base import shape as sh
from lucerne._src.ir.checks.index_maps import LoopWalk
from lucerne._src.ir.graph import Graph, Node, Value
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.ir.symbolic.numbers import most

_FLOATS = (dt.float32, dt.float64, dt.bfloat16, dt.float16)
_CHUNK_ELEMENTS = 8192
_MOST_CHUNKS = 64


@rule("layer_norm_backward")
def layer_norm_backward(node: Node) -> Any:
    g, x, weight = (a.meta for a in node.args[:3])
    eps = node.args[4]
    if x.dtype not in _FLOATS or g.dtype is not x.dtype or not x.numel:
        return None
    if weight.dtype.compute is not x.dtype.compute:
        return None
    if not (g.contiguous and x.contiguous and weight.contiguous):
        return None
    length = weight.numel
    rows = x.numel // length
    kind = LayerNormKind(x.dtype.name, weight.dtype.name)
    code = compiled(("layer_norm_backward", kind), lambda m: write_norm_backward(m, kind))
    chunk = most(1, _CHUNK_ELEMENTS // length, -(-rows // _MOST_CHUNKS))
    chunks = -(-rows // chunk)
    compute = x.dtype.compute
    lanes = lanes_of(compute)
    padded = -(-length // lanes) * lanes
    return NativeKernel(
        code["entry"],
        outputs=3,
        tensors=3,
        extra=[rows, length, padded, chunk, chunks, float_word(eps)],
        workspace=chunks * 2 * padded * compute.itemsize,
        work=0.4 * x.numel,
    )


# ---- batch norm ---------------------------------------------------------------------------------


def _order(x: TensorMeta) -> tuple[bool, int, int, int] | None:
    """(rows of channels?, outer, channels, plane length) of a dense tensor; None: another order."""
    n, channels, *rest = x.shape
    plane = math.prod(rest)
    if x.contiguous:
        return plane == 1, n, channels, plane
    if any(sh.is_format(x.shape, x.strides, f) for f in (lo.channels_last, lo.channels_last_3d)):
        return True, n * plane, channels, 1
    return None


_FORWARD, _BACKWARD = "channel_norm", "channel_norm_backward"
_TENSORS = {_FORWARD: 3, _BACKWARD: 5}


def _taken(node: Node) -> tuple[bool, int, int, int] | None:
    """The order of a batch norm's input, if types and layouts suit."""
    metas = [a.meta for a in node.args[: _TENSORS[node.op.qualified]]]
    if node.op.qualified == _FORWARD:
        x, weight, *others = metas
        if others[0].dtype is not weight.dtype:
            return None
    else:
        g, x, weight, *others = metas
        if g.dtype is not x.dtype or g.strides != x.strides:
            return None
    if x.dtype not in _FLOATS or weight.dtype.compute is not x.dtype.compute:
        return None
    if not all(t.contiguous for t in (weight, *others)):
        return None
    return _order(x) if x.numel else None


def _rows_of(node: Node) -> TensorMeta:
    """The input that is (or was) normalised."""
    meta: TensorMeta = node.args[int(node.op.qualified == _BACKWARD)].meta
    return meta


def _norm_code(kind: channels_.BatchNormKind, around: channels_.Around | None) -> int:
    key = ("channel_norm", kind) if around is None else ("channel_norm", kind, around.key)
    return compiled(key, lambda m: channels_.write_channel_norm(m, kind, around))["entry"]


def _norm_kernel(
    node: Node,
    kind: channels_.BatchNormKind,
    around: channels_.Around | None,
    outputs: int,
    still: Sequence[int] = (),
) -> NativeKernel:
    """The kernel of a batch norm; `still` are the strides of what stands still on a plane."""
    x, order = _rows_of(node), _taken(node)
    assert order is not None
    columns, outer, channels, plane = order
    units, length = (outer, channels) if columns else (channels, outer * plane)
    chunk = max(1, 2 * _CHUNK_ELEMENTS // length, -(-units // _MOST_CHUNKS))
    chunks = -(-units // chunk)
    compute = x.dtype.compute
    lanes = lanes_of(compute)
    padded = -(-channels // lanes) * lanes
    bits = float_word(node.args[-1])
    return NativeKernel(
        _norm_code(kind, around),
        outputs=outputs,
        tensors=kind.pointers - outputs,
        extra=[outer, channels, plane, chunk, chunks, bits, *still],
        workspace=(chunks + 1) * 2 * padded * compute.itemsize if columns else 0,
        work=0.4 * x.numel,
    )


@rule("channel_norm", "channel_norm_backward")
def channel_norm(node: Node) -> Any:
    order = _taken(node)
    if order is None:
        return None
    x, weight = _rows_of(node), node.args[_TENSORS[node.op.qualified] // 2].meta
    kind = channels_.BatchNormKind.alone(
        x.dtype.name, weight.dtype.name, node.op.qualified == _BACKWARD, order[0]
    )
    return _norm_kernel(node, kind, None, channels_.RESULTS)


# ---- batch norm and element-wise ops in one kernel ----------------------------------------------


def fuse(graph: Graph) -> NativeKernel | None:
    """A batch norm with the element-wise ops on its result, or a gradient with those that make the
    incoming one; None when the graph has another form."""
    try:
        return _Company(graph).kernel()
    except NotImplementedError:  # NotTaken, or a function the machine lacks
        return None


def walk(graph: Graph) -> tuple[Graph, LoopWalk]:
    """What the element-wise ops of that kernel go through."""
    return _Company(graph).walk()


class _Company:
    """One norm and its element-wise ops, found in a graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        norms = [n for n in graph.nodes if n.op.qualified in _TENSORS]
        if len(norms) != 1:
            raise NotTaken("not one batch norm")
        [self.norm] = norms
        self.others = [n for n in graph.nodes if n is not self.norm]
        self.backward = self.norm.op.qualified == _BACKWARD
        self.inputs = {v.index: k for k, v in enumerate(graph.inputs)}
        self.wanted: dict[int, int] = {}
        for k, v in enumerate(graph.outputs):
            if self.wanted.setdefault(v.index, k) != k:
                raise NotTaken("an output given twice")
        if not self.wanted.keys() <= {v.index for n in graph.nodes for v in n.outputs}:
            raise NotTaken("an output that is an input")
        order = _taken(self.norm)
        if order is None:
            raise NotTaken("a batch norm of another kind")
        self.order, self.columns = order, order[0]
        self.rows = _rows_of(self.norm)

    def kernel(self) -> NativeKernel:
        tensors = self.norm.args[: _TENSORS[self.norm.op.qualified]]
        made = {v.index for n in self.others for v in n.outputs}
        skipped = int(self.backward and tensors[0].index in made)
        if any(t.index not in self.inputs for t in tensors[skipped:]):
            raise NotTaken("a norm of something computed here")
        if self.backward and not (skipped and self.norm.outputs[0].index in self.wanted):
            raise NotTaken("a gradient without company, or without use")
        around, still = self._around(tensors[0] if self.backward else None)
        places = [self.wanted.get(v.index, -1) for v in self.norm.outputs]
        places += [-1 if v.index in made else self._word(v) for v in tensors]
        weight = tensors[len(tensors) // 2].meta.dtype
        kind = channels_.BatchNormKind(
            self.rows.dtype.name, weight.name, self.backward, self.columns, tuple(places),
            len(self.graph.outputs) + len(self.graph.inputs),
        )  # fmt: skip
        return _norm_kernel(self.norm, kind, around, len(self.graph.outputs), still)

    def walk(self) -> tuple[Graph, LoopWalk]:
        """The element-wise ops, and what the walks of the norm go through."""
        around, still = self._around(self.norm.args[0] if self.backward else None)
        _, *sizes = self.order
        pairs = iter(zip(still[::2], still[1::2], strict=True))
        full = [sizes[1] * sizes[2], sizes[2], 1]
        elements = around.elements
        given = [
            [*next(pairs), 0]
            if way == channels_.STILL
            else [n * v.meta.dtype.itemsize for n in full]
            for v, way in zip(elements.given, around.ways, strict=True)
        ]
        loops = [
            (n, [step * d.itemsize for d in elements.dtypes])
            for n, step in zip(sizes, full, strict=True)
        ]
        return elements.graph, elements.walk(loops, [list(x) for x in zip(*given, strict=True)])

    def _word(self, v: Value) -> int:
        return len(self.graph.outputs) + self.inputs[v.index]

    def _around(self, gradient: Value | None) -> tuple[channels_.Around, list[int]]:
        result = self.norm.outputs[0]
        results = [
            v
            for n in self.others
            for v in n.outputs
            if v.index in self.wanted or (gradient is not None and v.index == gradient.index)
        ]
        given = inputs_of(self.others)
        ways, words, still = [], [], []
        for v in given:
            if not self.backward and v.index == result.index:
                ways.append(channels_.HERE)
                words.append(-1)
                continue
            if v.index not in self.inputs:
                raise NotTaken("another result of the norm")
            ways.append(self._way(v.meta))
            words.append(self._word(v))
            if ways[-1] == channels_.STILL:
                still += [s * v.meta.dtype.itemsize for s in v.meta.strides[:2]]
        if any(self._way(v.meta) != channels_.FULL for v in results):
            raise NotTaken("a result of another layout")
        outputs = [self.wanted.get(v.index, -1) for v in results]
        at = -1 if gradient is None else [v.index for v in results].index(gradient.index)
        elements = Elements(self.others, given, results)
        made = channels_.Around(elements, tuple(ways), tuple(words), tuple(outputs), at)
        return made, still

    def _way(self, meta: Any) -> str:
        """How an operand lies beside the normalised tensor."""
        rows = self.rows
        if not isinstance(meta, TensorMeta) or tuple(meta.shape) != tuple(rows.shape):
            raise NotTaken("an operand of another shape")
        same = zip(meta.shape, meta.strides, rows.strides, strict=True)
        if all(a == b or n == 1 for n, a, b in same):
            return channels_.FULL
        flat = all(s == 0 or n == 1 for n, s in zip(meta.shape[2:], meta.strides[2:], strict=True))
        if flat and not self.columns:
            return channels_.STILL
        raise NotTaken("an operand of another layout")
