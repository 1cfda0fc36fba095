"""What a call gives, from the metas of its arguments alone."""

from __future__ import annotations

from typing import Any

from lucerne._src.ir import op as op_
from lucerne._src.ir.meta import NUMBER_METAS, TensorMeta, make_meta
from lucerne._src.ir.op import Op


def argument(kind: str, meta: Any, is_value: bool) -> Any:
    """An argument as `Op.meta` wants it: `meta` is that of a value, or the literal itself."""
    if is_value and isinstance(meta, type):  # a number that is given anew for each call
        return NUMBER_METAS[meta] if kind == op_.TENSOR else meta()
    if kind == op_.TENSOR and type(meta) in NUMBER_METAS and not is_value:
        return NUMBER_METAS[type(meta)]
    return meta


def results(op: Op, args: tuple[Any, ...]) -> tuple[TensorMeta, ...] | None:
    """The metas of the results; None when only running the op (or its body) would tell."""
    if op.kind == op_.VIEW:
        found = op.body(*args)
        source: TensorMeta = args[0]
        return tuple(
            make_meta(g.dtype or source.dtype, tuple(g.shape), tuple(g.strides), source.device)
            for g in (found if isinstance(found, (list, tuple)) else [found])
        )
    if op.meta is None or op.data_dependent:
        return None
    found = op.meta(*args)
    if found is None:
        return None
    return (found,) if isinstance(found, TensorMeta) else tuple(found)
