"""Values that are known before the program runs, and numbers as a dtype holds them."""

from __future__ import annotations

import functools
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from lucerne._src.base import dtype as dt
from lucerne._src.base.device import HOST, device
from lucerne._src.ir import op as op_
from lucerne._src.ir.graph import Graph, Node, Value
from lucerne._src.ir.meta import TensorMeta, make_meta
from lucerne._src.ops.copy.cast import cast, filled
from lucerne._src.transforms import interpret
from lucerne._src.transforms.rewrite import PLAIN, GraphBuilder, layout_of

CAST: op_.Op = cast.op  # type: ignore[attr-defined]
FILLED: op_.Op = filled.op  # type: ignore[attr-defined]


def same_bits(node: Node) -> bool:
    """Whether all backends give the same bits for an element-wise node."""
    return bool(node.op.exact) and all(
        a.meta.dtype.category < dt.COMPLEX
        for a in (*node.args, *node.outputs)
        if type(a) is Value and isinstance(a.meta, TensorMeta)
    )


_ORDINARY = frozenset((dt.float32, dt.float64, dt.int64, dt.int32))


def arithmetic(node: Node, known: Mapping[int, Any]) -> Any:
    """The element of a common node whose operands have one value each; None: not one of those.

    Nearly all constants of a program are such, and the reference backend takes half a second to
    load.
    """
    compute, out = node.op.ufunc, node.outputs[0].meta.dtype
    if compute is None or not node.op.exact or out not in _ORDINARY:
        return None
    elements = []
    for a in node.args:
        dtype = None if type(a) is not Value else getattr(a.meta, "dtype", None)
        if type(a) is Value and dtype not in _ORDINARY:
            return None
        if type(a) is not Value and type(a) not in (int, float):
            return None
        elements.append(known[a.index] if type(a) is Value else a)
    with np.errstate(all="ignore"):
        return np.asarray(compute(*[np.asarray(x).astype(out.storage) for x in elements]))


def stored(number: Any, dtype: dt.dtype) -> Any:
    """A Python number after it went into a tensor of `dtype` and out again."""
    if type(number) is float and dtype in _REAL:
        with np.errstate(all="ignore"):
            return dtype.storage.type(number).item()
    if type(number) in (bool, int) and dtype in _REAL and abs(number) < 1 << 24:
        return float(number)
    if type(number) in (bool, int) and dtype in _ORDINARY and abs(number) < 1 << 31:
        return int(number)
    if type(number) is bool and dtype is dt.bool_:
        return number
    if type(number) is int and 0 <= number <= _SMALL and dtype.category in (dt.INTEGER, dt.FLOAT):
        return number if dtype.category == dt.INTEGER else float(number)  # exact in all of them
    if dtype is dt.float32 and type(number) is float and abs(number) < _IN_FLOAT32:
        return float(np.float32(number))
    bits = struct.pack("dd", number.real, number.imag) if type(number) in _FLOATS else number
    return _stored(type(number).__name__, bits, dtype)


_FLOATS = (float, complex)
_REAL = (dt.float32, dt.float64)
_IN_FLOAT32 = 3e38
_SMALL = 7
"""Whole numbers up to this are the same in every type of numbers (float8 included)."""


@functools.lru_cache(maxsize=1024)
def _stored(kind: str, bits: Any, dtype: dt.dtype) -> Any:
    number = bits
    if type(bits) is bytes:
        real, imaginary = struct.unpack("dd", bits)
        number = real if kind == "float" else complex(real, imaginary)
    return number_of(element(number, dtype), dtype)


def element(number: Any, dtype: dt.dtype) -> Any:
    """A Python number as a 0-dim array of the dtype's storage type."""
    if dtype in _REAL or dtype is dt.bool_ or (dtype in _ORDINARY and abs(number) < 1 << 31):
        with np.errstate(all="ignore"):
            return np.asarray(number).astype(dtype.storage)
    meta = make_meta(dtype, (), None, device(HOST))
    node = Node(FILLED, ((), number, dtype, meta.device, None), (Value(0, meta),))
    return interpret.run_node(node, {})[0].array


def number_of(bits: Any, dtype: dt.dtype) -> Any:
    """One element (in the storage type of its dtype) as a Python number."""
    if dtype.native:
        return np.asarray(bits).item()
    wide = dt.complex128 if dtype.category == dt.COMPLEX else dt.float64
    graph = Graph()
    source = graph.input(make_meta(dtype, (), None, device(HOST)))
    graph.outputs = graph.call(CAST, (source, wide), [source.meta.like(dtype=wide)])
    return interpret.run(graph, [np.asarray(bits)])[0][0].array.item()


def call_filled(builder: GraphBuilder, number: Any, meta: TensorMeta) -> Value:
    """A node that makes a tensor with one value everywhere."""
    args = filled_args(number, meta)
    return builder.call(FILLED, args, [meta])[0]


def filled_args(number: Any, meta: TensorMeta) -> tuple[Any, ...]:
    strides = layout_of(meta.shape, meta.strides)
    return tuple(meta.shape), number, meta.dtype, meta.device, strides


def filled_number(node: Node) -> Any:
    """The value of a `filled` node as its dtype holds it; None when it comes at run time."""
    number, dtype = node.args[1], node.args[2]
    if type(number) not in PLAIN or dtype.category == dt.OPAQUE:
        return None
    return stored(number, dtype)
