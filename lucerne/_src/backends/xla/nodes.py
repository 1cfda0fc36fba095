"""Pointwise ops and reductions: their meaning is in the op table, so there is no rule for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from lucerne._src.backends.xla.machine import MACHINE
from lucerne._src.backends.xla.types import cast, fit, is_array, jtype
from lucerne._src.base import dtype as dt
from lucerne._src.ir import op as op_
from lucerne._src.ir import promote
from lucerne._src.ir.define import reduced_dims
from lucerne._src.ir.graph import Node, Value
from lucerne._src.ir.meta import NUMBER_METAS, NumberMeta, TensorMeta
from lucerne._src.ir.scalar.protocol import ScalarValue as Operand


def pointwise(node: Node, args: Sequence[Any]) -> Any:
    """The body of an op, run once on whole arrays."""
    op = node.op
    metas = [_promotable(a) for a, k in zip(node.args, op.kinds, strict=True) if k == op_.TENSOR]
    operands = [m for m in metas if m is not None]
    common = promote.common_type(op.promote, operands)
    types = iter(promote.operand_types(op.promote, operands))
    fed: list[Any] = []
    for place, (a, x, k) in enumerate(zip(node.args, args, op.kinds, strict=True)):
        if k not in (op_.TENSOR, op_.SCALAR) or x is None:
            fed.append(x)
            continue
        kind = next(types) if k == op_.TENSOR else common.compute
        meta = a.meta if type(a) is Value else a
        fed.append(_operand(x, meta, kind, k, promote.rounding(op, place, common, meta)))
    named = {p.name: x for p, x in zip(op.params, fed, strict=True) if p.keyword_only}
    found = op.body(*fed[: len(fed) - len(named)], **named)
    found = found.raw if type(found) is Operand else found
    out = node.outputs[0].meta
    return jnp.broadcast_to(cast(jnp.asarray(found), jtype(out.dtype)), tuple(out.shape))


def _operand(x: Any, meta: Any, kind: dt.dtype, k: str, rounded: dt.dtype | None) -> Any:
    """One operand as the body reads it."""
    if k == op_.SCALAR and _stays(meta, kind):
        return Operand(MACHINE, x) if is_array(x) else x
    x = cast(x, jtype(kind)) if is_array(x) else fit(x, kind.storage)
    if rounded is not None and not (isinstance(meta, TensorMeta) and meta.dtype is rounded):
        x = cast(cast(x, jtype(rounded)), jtype(kind))
    return Operand(MACHINE, x)


def _promotable(a: Any) -> Any:
    if type(a) is Value:
        return NUMBER_METAS[a.meta] if isinstance(a.meta, type) else a.meta
    return NUMBER_METAS.get(type(a))


def _stays(meta: Any, kind: dt.dtype) -> bool:
    """Whether a number is taken as it is, because it does not fit the dtype."""
    if isinstance(meta, NumberMeta):
        number = meta.kind
    else:
        number = meta if isinstance(meta, type) else type(meta)
    if number is complex:
        return kind.category != dt.COMPLEX
    return number is float and kind.category <= dt.INTEGER


_FOLDS: dict[str, Any] = {
    "add": jnp.sum,
    "mul": jnp.prod,
    "max": jnp.max,
    "min": jnp.min,
    "or": jnp.any,
    "and": jnp.all,
}
_POSITIONS: dict[str, Any] = {"argmax": jnp.argmax, "argmin": jnp.argmin}


def reduction(node: Node, args: Sequence[Any]) -> Any:
    """A fold over dimensions, in the computing type of the result."""
    named = node.op.named(tuple(args))
    x, source, out = named["input"], node.args[0].meta, node.outputs[0].meta
    fold, shape = node.op.reduce, tuple(out.shape)
    if fold in _POSITIONS:
        if not out.numel:
            return jnp.zeros(shape, np.int64)
        found = _POSITIONS[fold](x, axis=named.get("dim") if source.ndim else None)
        return jnp.reshape(found, shape).astype(np.int64)
    dims = reduced_dims(named.get("dim"), source.ndim)
    compute = source.dtype.compute if node.op.promote == "bool" else out.dtype.compute
    x = cast(x, jtype(compute))
    found = _FOLDS[fold](x, axis=dims if source.ndim else None)
    return cast(jnp.reshape(found, shape), jtype(out.dtype))
