"""The element kinds a draw can produce, and how a result is rounded to them.

A kind is the dtype's plain name.  float16 and bfloat16 results travel as float32 arrays that are
already rounded to the narrow format, because NumPy has no bfloat16; the caller encodes them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

# spelled out: importing numpy.typing would cost a tenth of the package's import time
Array = np.ndarray[Any, np.dtype[Any]]
F32 = np.ndarray[Any, np.dtype[np.float32]]
F64 = np.ndarray[Any, np.dtype[np.float64]]
I64 = np.ndarray[Any, np.dtype[np.int64]]
U32 = np.ndarray[Any, np.dtype[np.uint32]]
U64 = np.ndarray[Any, np.dtype[np.uint64]]
U8 = np.ndarray[Any, np.dtype[np.uint8]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]

DIGITS = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}
LARGEST = {
    "float16": 65504.0,
    "bfloat16": 3.3895313892515355e38,
    "float32": 3.4028234663852886e38,
    "float64": 1.7976931348623157e308,
}
SMALLEST_NORMAL = {
    "float16": 2.0**-14,
    "bfloat16": 2.0**-126,
    "float32": 2.0**-126,
    "float64": 2.0**-1022,
}
INT_RANGE = {
    "bool": (0, 1),
    "uint8": (0, 2**8 - 1),
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "uint16": (0, 2**16 - 1),
    "uint32": (0, 2**32 - 1),
    "uint64": (0, 2**63 - 1),  # bounds travel as int64, so the upper half cannot be asked for
}
# How PyTorch spells the kinds in its messages: (C++ type, ScalarType).
SPELLING = {
    "float16": ("c10::Half", "Half"),
    "bfloat16": ("c10::BFloat16", "BFloat16"),
    "float32": ("float", "Float"),
    "float64": ("double", "Double"),
    "bool": ("bool", "Bool"),
    "uint8": ("unsigned char", "Byte"),
    "int8": ("signed char", "Char"),
    "int16": ("short int", "Short"),
    "int32": ("int", "Int"),
    "int64": ("long int", "Long"),
    "uint16": ("short unsigned int", "UInt16"),
    "uint32": ("unsigned int", "UInt32"),
    "uint64": ("long unsigned int", "UInt64"),
}


def check_float(kind: str, kernel: str) -> None:
    """Refuse integer kinds where the distribution is continuous."""
    if kind not in DIGITS:
        name = SPELLING.get(kind, (kind, kind))[1]
        raise NotImplementedError(f"\"{kernel}\" not implemented for '{name}'")


def round_bfloat16(values: F32) -> F32:
    """Round to the nearest bfloat16, ties to even; NaN stays NaN."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    carry = ((bits >> np.uint32(16)) & np.uint32(1)) + np.uint32(0x7FFF)
    rounded = ((bits + carry) & np.uint32(0xFFFF0000)).view(np.float32)
    return np.where(np.isnan(values), values, rounded)


def round_float(values: Array, kind: str) -> Array:
    """Round to `kind`; the narrow kinds round through float32, twice, as PyTorch's casts do."""
    if kind == "float64":
        return values.astype(np.float64, copy=False)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        single: F32 = values.astype(np.float32, copy=False)
        if kind == "float16":
            return single.astype(np.float16).astype(np.float32)
    return round_bfloat16(single) if kind == "bfloat16" else single


def round_scalar(value: float, kind: str) -> float:
    """`round_float` for one number."""
    return value if kind == "float64" else float(round_float(np.array([value]), kind)[0])


def store(values: Array, kind: str) -> Array:
    """Convert to the array that represents `kind`: floats rounded, integers cut as C casts do."""
    if kind in DIGITS:
        return round_float(values, kind)
    with np.errstate(invalid="ignore"):
        whole = values.astype(np.int64, copy=False)
    return whole != 0 if kind == "bool" else whole.astype(kind, copy=False)
