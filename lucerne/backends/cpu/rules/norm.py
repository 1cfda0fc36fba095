"""Layer norm backward."""

from __future__ import annotations

import struct
from typing import Any

from lucerne.backends.cpu.loops.norm import Kind, lanes_of, write_norm_backward
from lucerne.backends.cpu.rules.table import rule
from lucerne.backends.cpu.runtime.code import compiled
from lucerne.backends.cpu.runtime.kernel import Kernel
from lucerne.base import dtype as dt
from lucerne.ir.graph import Node

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
