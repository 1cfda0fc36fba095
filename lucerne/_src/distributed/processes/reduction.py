"""What a collective computes: `ReduceOp`, and the sum (or another) of arrays, rank by rank."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

CHUNK = 1 << 16
"""Elements of 16-bit floats that are widened at a time."""


class RedOpType(enum.IntEnum):
    """Kinds of reductions, with torch's numbers."""

    SUM = 0
    AVG = 1
    PRODUCT = 2
    MIN = 3
    MAX = 4
    BAND = 5
    BOR = 6
    BXOR = 7
    PREMUL_SUM = 8
    UNUSED = 9


class ReduceOp:
    """How a collective makes one value of those of all ranks.

    >>> ReduceOp.SUM.name, ReduceOp("max") == ReduceOp.MAX
    ('SUM', True)
    """

    RedOpType = RedOpType
    SUM = RedOpType.SUM
    AVG = RedOpType.AVG
    PRODUCT = RedOpType.PRODUCT
    MIN = RedOpType.MIN
    MAX = RedOpType.MAX
    BAND = RedOpType.BAND
    BOR = RedOpType.BOR
    BXOR = RedOpType.BXOR
    PREMUL_SUM = RedOpType.PREMUL_SUM
    UNUSED = RedOpType.UNUSED

    def __init__(self, op: Any, factor: Any = None) -> None:
        if isinstance(op, str):
            op = RedOpType[op.upper()]
        other: ReduceOp | None = op if isinstance(op, ReduceOp) else None
        self.op: RedOpType = RedOpType(op) if other is None else other.op
        self.factor: Any = factor if other is None else other.factor

    @property
    def name(self) -> str:
        return self.op.name

    def __eq__(self, other: object) -> bool:
        if isinstance(other, ReduceOp):
            return self.op == other.op and self.factor == other.factor
        return isinstance(other, RedOpType) and self.op == other

    def __hash__(self) -> int:
        return hash(self.op)

    def __repr__(self) -> str:
        return f"<torch.distributed.ReduceOp.{self.op.name}>"


_PLAIN: dict[RedOpType, Any] = {
    RedOpType.SUM: np.add, RedOpType.AVG: np.add, RedOpType.PREMUL_SUM: np.add,
    RedOpType.PRODUCT: np.multiply, RedOpType.MIN: np.minimum, RedOpType.MAX: np.maximum,
    RedOpType.BAND: np.bitwise_and, RedOpType.BOR: np.bitwise_or, RedOpType.BXOR: np.bitwise_xor,
}  # fmt: skip
_BOOLEAN: dict[RedOpType, Any] = {
    RedOpType.SUM: np.logical_or, RedOpType.MAX: np.logical_or, RedOpType.BOR: np.logical_or,
    RedOpType.PRODUCT: np.logical_and, RedOpType.MIN: np.logical_and,
    RedOpType.BAND: np.logical_and, RedOpType.BXOR: np.logical_xor,
}  # fmt: skip
BITS = (RedOpType.BAND, RedOpType.BOR, RedOpType.BXOR)
SUMS = (RedOpType.SUM, RedOpType.AVG, RedOpType.PREMUL_SUM)


def check(op: ReduceOp, kind: str) -> None:
    """Raise if values of a dtype can't be reduced so."""
    whole = kind.startswith(("int", "uint", "bool"))
    if op.op == RedOpType.UNUSED or kind == "opaque":
        raise RuntimeError(
            f"{op.name} can't reduce values of this dtype: use a float or an integer"
        )
    if op.op in BITS and not whole:
        raise RuntimeError(f"Cannot use ReduceOp.{op.name} with non-integral dtype ({kind})")
    if kind == "bool" and op.op not in _BOOLEAN:
        raise RuntimeError(f"Cannot use ReduceOp.{op.name} with bool values")
    if kind.startswith("complex") and op.op not in SUMS:
        raise ValueError(f"all_reduce does not support {op.name} on complex tensors")
    if op.op == RedOpType.PREMUL_SUM and op.factor is None:
        raise ValueError("ReduceOp.PREMUL_SUM needs a factor: ReduceOp(ReduceOp.PREMUL_SUM, 0.5)")


def combine(op: ReduceOp, kind: str, arrays: Sequence[Array], out: Array) -> None:
    """`out` becomes the reduction of `arrays`, which are added in their order; it may be one of
    them, if only the first."""
    if kind in ("bfloat16", "float16"):
        widen, narrow = _WIDE[kind]
        for start in range(0, out.size, CHUNK):
            part = slice(start, start + CHUNK)
            total = widen(arrays[0][part])
            _reduce(op, [total, *(widen(a[part]) for a in arrays[1:])], total)
            out[part] = narrow(total)
        return
    _reduce(op, arrays, out)


@np.errstate(all="ignore")  # tensors overflow in silence
def _reduce(op: ReduceOp, arrays: Sequence[Array], out: Array) -> None:
    if op.op == RedOpType.PREMUL_SUM:
        np.multiply(arrays[0], out.dtype.type(op.factor), out=out)
        for other in arrays[1:]:
            out += other * out.dtype.type(op.factor)
        return
    function = (_BOOLEAN if out.dtype == np.bool_ else _PLAIN)[op.op]
    if len(arrays) == 1:
        if out is not arrays[0]:
            out[...] = arrays[0]
    else:
        function(arrays[0], arrays[1], out=out)
    for other in arrays[2:]:
        function(out, other, out=out)
    if op.op == RedOpType.AVG:
        if out.dtype.kind in "iu":
            np.floor_divide(out, len(arrays), out=out)
        else:
            np.divide(out, len(arrays), out=out)


def _from_bfloat16(raw: Array) -> Array:
    return (raw.astype(np.uint32) << np.uint32(16)).view(np.float32)


def _to_bfloat16(value: Array) -> Array:
    bits = value.view(np.uint32)
    odd = (bits >> np.uint32(16)) & np.uint32(1)
    rounded = ((bits + np.uint32(0x7FFF) + odd) >> np.uint32(16)).astype(np.uint16)
    return np.where(np.isnan(value), np.uint16(0x7FC0), rounded)


def _from_float16(raw: Array) -> Array:
    return raw.astype(np.float32)


def _to_float16(value: Array) -> Array:
    with np.errstate(over="ignore"):
        return value.astype(np.float16)


_WIDE: dict[str, tuple[Callable[[Array], Array], Callable[[Array], Array]]] = {
    "bfloat16": (_from_bfloat16, _to_bfloat16),
    "float16": (_from_float16, _to_float16),
}
