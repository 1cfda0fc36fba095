"""In-place ops on tensors several of whose elements are one number in memory (`expand`).

Most refuse them. Some of torch's go from element to element and take them: where they fill, a
number is filled when one of the elements that share it is; where they add, all is added up.
"""

from __future__ import annotations

from typing import Any

from lucerne._src.base import dtype as dt
from lucerne._src.base.process import notices
from lucerne._src.ir.op import Op
from lucerne._src.ir.symbolic.numbers import is_filled
from lucerne._src.ops.copy.cast import counted, filled
from lucerne._src.ops.index.advanced import index_put_nd
from lucerne._src.ops.pointwise.select import choose

_FILL, _ADD = "fill", "add"
_DEPRECATED = ("masked_fill", "index_fill", "index_put")


def shared_dims(meta: Any) -> list[int]:
    """The dimensions along which all elements are one."""
    if not is_filled(meta.numel):
        return []
    pairs = zip(meta.strides, meta.shape, strict=True)
    return [d for d, (s, n) in enumerate(pairs) if s == 0 and n > 1]


def way_of(op: Op, args: tuple[Any, ...]) -> str | None:
    """What an op does with elements that are one; None: it refuses them."""
    if op.name == "index_put":
        return _ADD if args[3] else _FILL
    if op.expanded == _ADD:
        return _ADD if type(args[3]) in (int, float) and args[3] == 1 else None
    return op.expanded or None


def met(way: str, op: Op, args: tuple[Any, ...], result: Any) -> tuple[Any, Any]:
    """The part of the target that has every number once, and what is to be written there."""
    target = args[0]
    if op.name in _DEPRECATED:
        notices.warn(
            f"Use of {op.name}_ on expanded tensors is deprecated. Please clone() the tensor "
            "before performing this operation.",
            stacklevel=4,
        )
    dims = shared_dims(target._meta)
    place = target
    for d in dims:
        place = place.narrow(d, 0, 1)
    if way == _ADD and target.dtype is dt.bool_:  # the sum of bools is whether one is true
        return place, result.any(tuple(dims), keepdim=True)
    if way == _ADD:
        return place, place + (result - target).sum(tuple(dims), keepdim=True)
    written = _written(op, args, result)
    for d in reversed(dims):
        result, written = _last(result, written, d)
    return place, choose(written, result, place)


def _written(op: Op, args: tuple[Any, ...], result: Any) -> Any:
    target = args[0]
    if op.name != "index_put":
        return result != target  # one number is filled in: where it stood before, nothing changes
    nowhere = filled(tuple(target.shape), False, dt.bool_, target.device, None)
    truth = filled((), True, dt.bool_, target.device, None)
    return index_put_nd(nowhere, args[1], truth, False)


def _last(result: Any, written: Any, dim: int) -> tuple[Any, Any]:
    """Of the elements along a dimension the last that was written."""
    n = result.shape[dim]
    shape = [n if d == dim else 1 for d in range(result.ndim)]
    order = counted(0, 1, n, dt.int64, result.device).reshape(shape)
    at = choose(written, order, -1).amax((dim,), keepdim=True)
    return result.gather(dim, at.clamp(min=0)), at >= 0
