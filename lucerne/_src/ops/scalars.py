"""Python numbers on their way into tensors: what does not fit is refused, with torch's text."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lucerne._src.base import dtype as dt
from lucerne._src.base.defaults import get_default_dtype
from lucerne._src.base.numeric import finfo
from lucerne._src.base.unspecialized import GivenFloat, bare
from lucerne._src.ir.op import RANDOM, SCALAR, Op
from lucerne._src.ir.symbolic.numbers import to_int

C_NAMES = {
    dt.uint8: "uint8_t", dt.int8: "int8_t", dt.int16: "int16_t", dt.int32: "int",
    dt.int64: "int64_t", dt.uint16: "uint16_t", dt.uint32: "uint32_t", dt.uint64: "uint64_t",
    dt.float32: "float", dt.float64: "double", dt.float16: "c10::Half",
    dt.bfloat16: "c10::BFloat16", dt.bool_: "bool",
}  # fmt: skip
"""Types as torch's texts have them."""


def number_for(value: Any, dtype: dt.dtype) -> Any:
    """A number that `dtype` holds, for a tensor of that type: one out of range is refused.

    >>> from lucerne._src.base import dtype as dt
    >>> number_for(-1, dt.uint8), number_for(2.5, dt.int8)
    (-1, 2)
    """
    if hasattr(value, "item"):
        value = value.item()
    check_int(value)
    if dtype is dt.bool_:
        return bool(value)
    if isinstance(value, complex) and dtype.category != dt.COMPLEX:
        if value.imag:
            raise _refusal(dtype)
        value = value.real
    check_fits(value, dtype)
    if dtype.category != dt.INTEGER:
        return value
    whole = to_int(value)
    if type(value) not in (int, float, bool) and not _holds_int(whole, dtype):  # of a size
        raise _refusal(dtype)
    return whole


def check_fits(value: Any, dtype: dt.dtype) -> None:
    """Refuse a real Python number that `dtype` can't hold."""
    check_int(value)
    if isinstance(value, float):
        fits = _holds_float(bare(value) if type(value) is GivenFloat else value, dtype)
    else:
        fits = type(value) is not int or _holds_int(value, dtype)
    if not fits:
        raise _refusal(dtype)


def check_beside(value: Any, x: Any) -> None:
    """Refuse a number beside a tensor, if the type that both have in common can't hold it."""
    if isinstance(value, float):
        check_fits(value, x.dtype if x.dtype.category >= dt.FLOAT else get_default_dtype())
    elif type(value) is int:
        check_fits(value, dt.int64 if x.dtype is dt.bool_ else x.dtype)


def has_scalars_to_check(op: Op, dtype: dt.dtype) -> bool:
    """Whether scalars of a call become numbers of an integer type. Those of a draw do not: they are
    bounds, which the public functions check, and an upper one lies past the last number."""
    return dtype.category == dt.INTEGER and SCALAR in op.kinds and op.kind != RANDOM


def check_scalars(op: Op, args: tuple[Any, ...], dtype: dt.dtype) -> None:
    """Refuse scalars of a call whose result is of an integer type that does not hold them."""
    for kind, a in zip(op.kinds, args, strict=True):
        if kind == SCALAR:
            check_fits(a, dtype)


def check_int(value: Any) -> None:
    """Refuse a Python int that no type of integers holds."""
    if type(value) is int and not -(1 << 63) <= value < 1 << 64:
        sign = "can't convert negative int to unsigned"
        raise OverflowError(sign if value < 0 else "int too big to convert")


def _refusal(dtype: dt.dtype) -> RuntimeError:
    name = C_NAMES.get(dtype, dtype.name)
    return RuntimeError(f"value cannot be converted to type {name} without overflow")


def _holds_int(value: int, dtype: dt.dtype) -> bool:
    if dtype.category == dt.INTEGER:
        limits = np.iinfo(dtype.storage)
        # As in C, small negative numbers wrap in unsigned types.
        lowest = int(limits.min) if dtype.is_signed else -int(limits.max)
        return lowest <= value <= int(limits.max)
    return dtype.category != dt.FLOAT or abs(value) <= finfo(dtype).max


def _holds_float(value: float, dtype: dt.dtype) -> bool:
    if dtype.category == dt.INTEGER:
        limits = np.iinfo(dtype.storage)
        return int(limits.min) <= value <= int(limits.max)  # nan is not
    if dtype.category != dt.FLOAT or abs(value) <= finfo(dtype).max:  # (asked first: of a size it
        return True  # is a relation, and `isfinite` takes it by value)
    return not math.isfinite(value)
