"""Limits of the number types: finfo and iinfo."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from lucerne._src.base import defaults
from lucerne._src.base import dtype as dt

# bits, eps, max, tiny (smallest normal), resolution, of types NumPy does not know
_FLOATS: dict[str, tuple[int, float, float, float, float]] = {
    "bfloat16": (16, 2.0**-7, 3.3895313892515355e38, 2.0**-126, 0.01),
    "float8_e4m3fn": (8, 0.125, 448.0, 2.0**-6, 1.0),
    "float8_e4m3fnuz": (8, 0.125, 240.0, 2.0**-7, 1.0),
    "float8_e5m2": (8, 0.25, 57344.0, 2.0**-14, 1.0),
    "float8_e5m2fnuz": (8, 0.125, 57344.0, 2.0**-15, 1.0),
    "float8_e8m0fnu": (8, 1.0, 2.0**127, 2.0**-127, 1.0),
}


class finfo:
    """Limits of a floating type.

    >>> import lucerne
    >>> lucerne.finfo(lucerne.float16).max
    65504.0
    """

    bits: int
    eps: float
    max: float
    min: float
    tiny: float
    smallest_normal: float
    resolution: float
    dtype: str

    def __init__(self, type: Any = None) -> None:
        given = defaults.get_default_dtype() if type is None else type
        if not isinstance(given, dt.dtype) or given.category not in (dt.FLOAT, dt.COMPLEX):
            raise TypeError(
                "torch.finfo() requires a floating point input type. Use torch.iinfo to handle "
                f"'{given}'"
            )
        real = given.to_real()
        self.dtype = real.name
        self.bits, self.eps, self.max, self.tiny, self.resolution = _float_limits(real)
        self.min = 2.0**-127 if real is dt.float8_e8m0fnu else -self.max
        self.smallest_normal = self.tiny

    def __repr__(self) -> str:
        return (
            f"finfo(resolution={self.resolution:g}, min={self.min:g}, max={self.max:g}, "
            f"eps={self.eps:g}, smallest_normal={self.smallest_normal:g}, tiny={self.tiny:g}, "
            f"dtype={self.dtype})"
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, finfo) and self.dtype == other.dtype

    def __hash__(self) -> int:
        return hash(self.dtype)


@functools.cache
def _float_limits(real: dt.dtype) -> tuple[int, float, float, float, float]:
    found = _FLOATS.get(real.name)
    if found is not None:
        return found
    known = np.finfo(real.storage)
    resolution = {"float16": 1e-3, "float32": 1e-6, "float64": 1e-15}[real.name]
    return known.bits, float(known.eps), float(known.max), float(known.tiny), resolution


class iinfo:
    """Limits of an integer type.

    >>> import lucerne
    >>> lucerne.iinfo(lucerne.int8).max
    127
    """

    bits: int
    min: int
    max: int
    dtype: str

    def __init__(self, type: Any) -> None:
        if not isinstance(type, dt.dtype) or type.category != dt.INTEGER:
            raise TypeError(
                f"torch.iinfo() requires an integer input type. Use torch.finfo to handle '{type}'"
            )
        known = np.iinfo(type.storage)
        self.dtype, self.bits = type.name, known.bits
        self.min, self.max = int(known.min), int(known.max)

    def __repr__(self) -> str:
        return f"iinfo(min={self.min}, max={self.max}, dtype={self.dtype})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, iinfo) and self.dtype == other.dtype

    def __hash__(self) -> int:
        return hash(self.dtype)
