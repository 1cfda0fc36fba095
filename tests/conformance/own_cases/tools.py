"""Helpers for rows: fixed inputs, and refusals as values."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.conformance.outcome import shared_type

Row = Callable[[Any], Any]
Rows = dict[str, Row]

INTEGERS = ("bool", "uint8", "int8", "int16", "int32", "int64")
FLOATS = ("float16", "bfloat16", "float32", "float64")
DTYPES = (*INTEGERS, *FLOATS, "complex64", "complex128")


def numbers(t: Any, *shape: int, seed: int = 0, grad: bool = False) -> Any:
    """Fixed normal numbers in float32."""
    drawn = np.random.RandomState(seed).standard_normal(shape).astype(np.float32)
    made = t.tensor(drawn.tolist()) if shape else t.tensor(float(drawn))
    return made.requires_grad_() if grad else made


def counted(t: Any, *shape: int) -> Any:
    """0, 1, 2 ... as float32 in a shape."""
    size = int(np.prod(shape))
    return t.arange(size, dtype=t.float32).reshape(shape)


def raises(call: Callable[[], Any], says: str = "") -> tuple[str, bool]:
    """The kind of error a call ends in, and whether its text matches; ("no error", ...) if none."""
    try:
        call()
    except Exception as error:
        kind = shared_type(type(error)).__name__
        return kind, re.search(says, str(error)) is not None
    return "no error", False


NOT_IMPLEMENTED = "not implemented"


def attempt(call: Callable[[], Any]) -> Any:
    """The result of a call, or the kind of error it ends in.

    Where torch merely lacks a kernel (NotImplementedError), the other side may have one.
    """
    try:
        return call()
    except NotImplementedError:
        return NOT_IMPLEMENTED
    except Exception as error:
        return f"raises {shared_type(type(error)).__name__}"


def after(x: Any, *changes: Callable[[Any], Any]) -> Any:
    """`x` after some statements that change it."""
    for change in changes:
        change(x)
    return x


def put(key: Any, value: Any) -> Callable[[Any], None]:
    """`x[key] = value` as a function."""

    def assign(x: Any) -> None:
        x[key] = value

    return assign


def facts(x: Any) -> dict[str, Any]:
    """What a tensor says of itself."""
    return {
        "shape": tuple(x.shape),
        "stride": tuple(x.stride()),
        "offset": x.storage_offset(),
        "dtype": str(x.dtype),
        "contiguous": x.is_contiguous(),
        "leaf": x.is_leaf,
        "requires_grad": x.requires_grad,
    }
