"""Cast, and the types of few bits.

Floats of 8 bits are dtypes of ours. Integers of 2 and 4 bits are held in int8: a cast to one keeps
its bits, and what computes with them sees plain numbers.
"""

from __future__ import annotations

from typing import Any

from lucerne._src.tensor import api as lu
from lucerne.export.onnx.errors import OnnxImportError
from lucerne.export.onnx.reading.step import Step
from lucerne.export.onnx.reading.table import operator
from lucerne.export.onnx.types import DTYPES

_FLOATS = {17: "float8_e4m3fn", 18: "float8_e4m3fnuz", 19: "float8_e5m2", 20: "float8_e5m2fnuz"}
_LARGEST = {17: 448.0, 18: 240.0, 19: 57344.0, 20: 57344.0}
_WITHOUT_INFINITY = (17, 18, 20)
_NARROW = {21: (4, False), 22: (4, True), 25: (2, False), 26: (2, True)}
"""Bits, and whether there is a sign."""


def converted(n: Step, x: Any, to: int, saturate: bool = True) -> Any:
    """A tensor as ONNX's type number `to`."""
    if to in DTYPES:
        return x.to(DTYPES[to])
    if to in _NARROW:
        bits, signed = _NARROW[to]
        whole = x.to(lu.int64) & (2**bits - 1)
        if signed:
            whole = lu.where(whole >= 2 ** (bits - 1), whole - 2**bits, whole)
        return whole.to(lu.int8)
    kind = getattr(lu, _FLOATS.get(to, ""), None)
    if kind is None:
        raise OnnxImportError(f"{n.where()}: to a type that is not read here ({to})")
    wide = x.to(lu.float32)
    if saturate:
        most = _LARGEST[to]
        wide = lu.where(lu.isnan(wide), wide, lu.clamp(wide, -most, most))
    elif to in _WITHOUT_INFINITY:
        wide = lu.where(lu.isinf(wide), lu.tensor(float("nan")), wide)
    return wide.to(kind)


@operator("Cast")
def cast(n: Step, x: Any, *, to: int, saturate: int = 1, round_mode: str = "up") -> Any:
    return converted(n, x, to, bool(saturate))


@operator("CastLike")
def cast_like(n: Step, x: Any, like: Any, *, saturate: int = 1, round_mode: str = "up") -> Any:
    to = n.owner.types.get(n.inputs[1]) if n.owner is not None else None
    if to in _NARROW or to in _FLOATS:
        return converted(n, x, to, bool(saturate))
    return x.to(like.dtype)
