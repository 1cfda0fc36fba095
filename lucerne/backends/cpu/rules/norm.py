"""Layer norm backward; batch norm forward and backward."""

from __future__ import annotations

import math
import struct
from typing import Any

from lucerne.backends.cpu.loops import channels as channels_
from lucerne.backends.cpu.loops.norm import Kind, lanes_of, write_norm_backward
from lucerne.backends.cpu.rules.table import rule
from lucerne.backends.cpu.runtime.code import compiled
from lucerne.backends.cpu.runtime.kernel import Kernel
from lucerne.base import dtype as dt
from lucerne.base import layout as lo
from lucerne.base import shape as sh
from lucerne.ir.graph import Node
from lucerne.ir.meta import TensorMeta

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
    kind = Kind(x.dtype.name, weight.dtype.name)
    code = compiled(("layer_norm_backward", kind), lambda m: write_norm_backward(m, kind))
    chunk = max(1, _CHUNK_ELEMENTS // length, -(-rows // _MOST_CHUNKS))
    chunks = -(-rows // chunk)
    compute = x.dtype.compute
    lanes = lanes_of(compute)
    padded = -(-length // lanes) * lanes
    return Kernel(
        code["entry"],
        outputs=3,
        tensors=3,
        extra=[rows, length, padded, chunk, chunks, struct.unpack("<q", struct.pack("<d", eps))[0]],
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


def _channel_kernel(
    x: TensorMeta, weight: TensorMeta, others: list[TensorMeta], eps: float, backward: bool
) -> Any:
    order = _order(x) if x.numel else None
    if order is None or x.dtype not in _FLOATS or weight.dtype.compute is not x.dtype.compute:
        return None
    if not all(t.contiguous for t in (weight, *others)):
        return None
    columns, outer, channels, plane = order
    kind = channels_.Kind(x.dtype.name, weight.dtype.name, backward, columns)
    code = compiled(("channel_norm", kind), lambda m: channels_.write_channel_norm(m, kind))
    units, length = (outer, channels) if columns else (channels, outer * plane)
    chunk = max(1, 2 * _CHUNK_ELEMENTS // length, -(-units // _MOST_CHUNKS))
    chunks = -(-units // chunk)
    compute = x.dtype.compute
    lanes = lanes_of(compute)
    padded = -(-channels // lanes) * lanes
    bits = struct.unpack("<q", struct.pack("<d", eps))[0]
    return Kernel(
        code["entry"],
        outputs=channels_.OUTPUTS,
        tensors=kind.inputs,
        extra=[outer, channels, plane, chunk, chunks, bits],
        workspace=chunks * 2 * padded * compute.itemsize if columns else 0,
        work=0.4 * x.numel,
    )


@rule("channel_norm")
def channel_norm(node: Node) -> Any:
    x, weight, bias = (a.meta for a in node.args[:3])
    if bias.dtype is not weight.dtype:
        return None
    return _channel_kernel(x, weight, [bias], node.args[3], backward=False)


@rule("channel_norm_backward")
def channel_norm_backward(node: Node) -> Any:
    g, x, weight, mean, var = (a.meta for a in node.args[:5])
    if g.dtype is not x.dtype or g.strides != x.strides:
        return None
    return _channel_kernel(x, weight, [mean, var], node.args[5], backward=True)
