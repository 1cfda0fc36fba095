"""From a graph node to a function on arrays: `kernel(inputs, outputs)` writes outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lucerne._src.backends.reference import codec
from lucerne._src.backends.reference.machine import MACHINE
from lucerne._src.backends.reference.table import RULES
from lucerne._src.base import dtype as dt
from lucerne._src.ir import op as op_
from lucerne._src.ir import promote
from lucerne._src.ir.define import reduced_dims
from lucerne._src.ir.graph import Node, Value
from lucerne._src.ir.meta import NumberMeta, TensorMeta
from lucerne._src.ir.scalar.protocol import ScalarValue as Operand

Array = np.ndarray[Any, Any]
Kernel = Callable[[Sequence[Any], Sequence[Array]], Any]


def make_kernel(node: Node) -> Kernel:
    """The array function of a node."""
    if node.op.qualified in RULES:
        return _rule_kernel(node)
    if node.op.kind == op_.POINTWISE:
        return _pointwise_kernel(node)
    if node.op.kind == op_.REDUCTION:
        return _reduction_kernel(node)
    raise NotImplementedError(
        f"the reference backend has no rule for {node.op.qualified!r}; add one in "
        "lucerne/_src/backends/reference/rules"
    )


def store(result: Any, out: Array, dtype: dt.dtype) -> None:
    """Round a result to the output's dtype and write it."""
    out[...] = codec.narrow(np.asarray(result), dtype)


# ---- pointwise --------------------------------------------------------------------------------


def _pointwise_kernel(node: Node) -> Kernel:
    op = node.op
    metas = [_promotable(a) for a, k in zip(node.args, op.kinds, strict=True) if k == op_.TENSOR]
    operands = [m for m in metas if m is not None]
    common = promote.common_type(op.promote, operands)
    compute = common.compute
    out_dtype = node.outputs[0].meta.dtype
    if op.ufunc is not None and _all_native(node, compute):  # it writes straight into the result
        return _direct_kernel(op.ufunc, compute)
    types = iter(promote.operand_types(op.promote, operands))
    readers = [
        _reader(
            a,
            k,
            next(types) if k == op_.TENSOR and type(a) is Value else compute,
            promote.rounding(op, place, common, a.meta if type(a) is Value else a),
        )
        for place, (a, k) in enumerate(zip(node.args, op.kinds, strict=True))
    ]
    body = op_.positional_body(op)

    def kernel(inputs: Sequence[Any], outputs: Sequence[Array]) -> None:
        feed = iter(inputs)
        result = body(*[read(feed) for read in readers])
        store(result.raw if type(result) is Operand else result, outputs[0], out_dtype)

    return kernel


def _promotable(a: Any) -> Any:
    return a.meta if type(a) is Value else None


def _all_native(node: Node, compute: dt.dtype) -> bool:
    metas = [a.meta for a in node.args if type(a) is Value]
    return (
        len(metas) == len(node.args)
        and compute.category != dt.BOOL
        and node.outputs[0].meta.dtype is compute
        and all(isinstance(m, NumberMeta) or m.dtype is compute for m in metas)
    )


def _direct_kernel(ufunc: Any, compute: dt.dtype) -> Kernel:
    storage = compute.storage
    if storage.kind in "fc":  # NumPy rounds a Python number to the array's floating type by itself
        return lambda inputs, outputs: ufunc(*inputs, outputs[0])

    def kernel(inputs: Sequence[Any], outputs: Sequence[Array]) -> None:
        ufunc(*[x if type(x) is np.ndarray else number(x, storage) for x in inputs], out=outputs[0])

    return kernel


def number(value: Any, storage: np.dtype[Any]) -> Any:
    """A Python number as a NumPy scalar of the computing type; integers wrap as in C."""
    if storage.kind in "iu" and type(value) is int:
        return np.array(value & ((1 << 64) - 1), np.uint64).astype(storage)[()]
    return np.asarray(value).astype(storage)[()]


Reader = Callable[[Any], Any]


def _reader(arg: Any, kind: str, compute: dt.dtype, rounded: dt.dtype | None = None) -> Reader:
    """How one parameter of a pointwise body is fetched from the inputs."""
    if type(arg) is not Value:
        return lambda feed: arg
    storage = compute.storage
    if kind == op_.SCALAR:
        return lambda feed: _scalar_operand(next(feed), storage, rounded)
    meta = arg.meta
    if isinstance(meta, NumberMeta):
        if rounded is not None:
            return lambda feed: Operand(MACHINE, _round(number(next(feed), storage), rounded))
        return lambda feed: Operand(MACHINE, number(next(feed), storage))
    dtype = meta.dtype
    if rounded is not None and dtype is not rounded:
        return lambda feed: Operand(
            MACHINE, _round(codec.cast(codec.widen(next(feed), dtype), storage), rounded)
        )
    if dtype is compute:
        return lambda feed: Operand(MACHINE, next(feed))
    return lambda feed: Operand(MACHINE, codec.cast(codec.widen(next(feed), dtype), storage))


def _round(value: Any, dtype: dt.dtype) -> Any:
    """A value of the compute type as `dtype` would hold it."""
    narrow = codec.narrow(np.asarray(value), dtype)
    return codec.cast(codec.widen(narrow, dtype), dtype.compute.storage)


def _scalar_operand(value: Any, storage: np.dtype[Any], rounded: dt.dtype | None) -> Any:
    """A runtime number: as the computing type when it fits there, else as it is."""
    if isinstance(value, complex) and storage.kind != "c":
        return value
    if isinstance(value, float) and storage.kind in "iub":
        return value
    made = number(value, storage)
    return Operand(MACHINE, made if rounded is None else _round(made, rounded))


# ---- reductions -------------------------------------------------------------------------------

_MONOIDS: dict[str, Any] = {
    "add": np.add.reduce,
    "mul": np.multiply.reduce,
    "max": np.maximum.reduce,
    "min": np.minimum.reduce,
    "or": np.logical_or.reduce,
    "and": np.logical_and.reduce,
}
_POSITIONS: dict[str, Any] = {"argmax": np.argmax, "argmin": np.argmin}


def _reduction_kernel(node: Node) -> Kernel:
    """Fold over the reduced dimensions, at least in the computing type of the result."""
    named = node.op.named(node.args)
    source: TensorMeta = named["input"].meta
    out = node.outputs[0].meta
    dims = reduced_dims(named.get("dim"), source.ndim)
    if node.op.reduce in _POSITIONS:
        return _position_kernel(_POSITIONS[node.op.reduce], source.dtype, named.get("dim"))
    fold = _MONOIDS[node.op.reduce]
    compute = source.dtype.compute if node.op.promote == "bool" else out.dtype.compute

    def kernel(inputs: Sequence[Any], outputs: Sequence[Array]) -> None:
        x = codec.cast(codec.widen(inputs[0], source.dtype), compute.storage)
        result = fold(x, axis=dims) if source.ndim else fold(x[None], axis=0)
        store(np.reshape(result, outputs[0].shape), outputs[0], out.dtype)

    return kernel


def _position_kernel(find: Any, dtype: dt.dtype, dim: int | None) -> Kernel:
    """Where the extreme is; the first one when several tie, a nan before all others."""

    def kernel(inputs: Sequence[Any], outputs: Sequence[Array]) -> None:
        x = codec.widen(inputs[0], dtype)
        if outputs[0].size:
            found = find(x, axis=dim if x.ndim else None)
            outputs[0][...] = np.reshape(found, outputs[0].shape)

    return kernel


# ---- rules ------------------------------------------------------------------------------------


def _rule_kernel(node: Node) -> Kernel:
    fn, raw = RULES[node.op.qualified]
    readers = [_rule_reader(a, k, raw) for a, k in zip(node.args, node.op.kinds, strict=True)]
    dtypes = [v.meta.dtype for v in node.outputs]

    def kernel(inputs: Sequence[Any], outputs: Sequence[Array]) -> Any:
        feed = iter(inputs)
        result = fn(*[read(feed) for read in readers])
        if not outputs:
            return result
        results = result if isinstance(result, tuple) else (result,)
        for r, o, d in zip(results, outputs, dtypes, strict=True):
            if raw:
                o[...] = r
            else:
                store(r, o, d)
        return None

    return kernel


def _rule_reader(arg: Any, kind: str, raw: bool) -> Reader:
    if kind == op_.TENSOR_LIST and type(arg) is tuple:
        parts = [_rule_reader(a, op_.TENSOR, raw) for a in arg]
        return lambda feed: tuple([p(feed) for p in parts])
    if type(arg) is not Value:
        return lambda feed: arg
    meta = arg.meta
    if raw or not isinstance(meta, TensorMeta) or meta.dtype.native:
        return next
    dtype = meta.dtype
    return lambda feed: codec.widen(next(feed), dtype)
