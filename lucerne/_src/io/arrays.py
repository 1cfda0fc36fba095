"""NumPy arrays, scalars and dtypes in pickles: read from plain bytes, written as NumPy does."""

from __future__ import annotations

import math
import re
import sys
from typing import Any

import numpy as np

from lucerne._src.io.errors import CorruptFileError, UnsupportedFileError

KINDS = "biufcSU"
CODE = re.compile(r"(?:b1|[iu][1248]|f(?:2|4|8|16)|c(?:8|16|32)|[SU](?:0|[1-9][0-9]{0,6}))")


def is_scalar(value: Any) -> bool:
    return isinstance(value, np.generic) and value.dtype.kind in KINDS


def make_dtype(args: tuple[Any, ...]) -> np.dtype[Any]:
    """`numpy.dtype(code, align, copy)` for numbers, bools and text of fixed length."""
    code = args[0] if args else None
    if type(code) is not str or args[1:] not in ((), (False, True), (0, 1)):
        raise CorruptFileError("a NumPy dtype is made in an unknown way")
    if not CODE.fullmatch(code):
        raise UnsupportedFileError(
            f"a NumPy array of dtype {code[:40]!r}: only numbers, bools and plain text are loaded"
        )
    return np.dtype(code, copy=True)  # a new object: its byte order may still be set


def set_dtype_state(target: np.dtype[Any], state: Any) -> np.dtype[Any]:
    """Byte order; everything else that a state can say belongs to records and objects."""
    plain = type(state) is tuple and len(state) == 8 and state[0] == 3
    if not plain or state[2:5] != (None, None, None) or state[1] not in ("<", ">", "|", "="):
        raise CorruptFileError("a NumPy dtype has a state that NumPy does not write")
    if state[5:] not in ((-1, -1, 0), _text_state(target)):
        raise CorruptFileError("a NumPy dtype has a state that NumPy does not write")
    return target.newbyteorder(">") if state[1] == ">" and target.itemsize > 1 else target


def _text_state(target: np.dtype[Any]) -> tuple[int, ...]:
    if target.kind == "U":
        return (target.itemsize, 4, 8)
    return (target.itemsize, 1, 0)


def reconstruct(args: tuple[Any, ...], array_type: Any) -> np.ndarray[Any, Any]:
    """The empty array that a state is then given to."""
    if len(args) != 3 or args[0] is not array_type or args[1] != (0,) or args[2] not in (b"b", "b"):
        raise CorruptFileError("a NumPy array is made in an unknown way")
    return np.ndarray((0,), np.int8)


def set_array_state(target: np.ndarray[Any, Any], state: Any) -> None:
    """Shape, dtype, order and bytes; they must fit each other exactly."""
    if type(state) is tuple and len(state) == 5:
        version, *fields = state
    else:
        version, fields = 1, list(state) if type(state) is tuple else []
    if version != 1 or len(fields) != 4 or target.size or target.dtype != np.int8:
        raise CorruptFileError("a NumPy array has a state that NumPy does not write")
    shape, dtype, fortran, raw = fields
    if type(raw) is str:  # written by Python 2
        raw = raw.encode("latin1", "replace")
    check_array(shape, dtype, raw)
    if dtype.kind == "U":
        _check_text(raw, dtype)
    state = (1, shape, dtype, bool(fortran), raw)
    target.__setstate__(state)


def check_array(shape: Any, dtype: Any, raw: Any) -> None:
    fits = (
        isinstance(dtype, np.dtype)
        and dtype.kind in KINDS
        and type(shape) is tuple
        and len(shape) <= 32
        and all(type(n) is int and 0 <= n < 1 << 62 for n in shape)
        and type(raw) is bytes
        and math.prod(shape) * dtype.itemsize == len(raw)
        and math.prod(n for n in shape if n) < 1 << 62
    )
    if not fits:
        raise CorruptFileError("a NumPy array has a shape, dtype and bytes that don't fit together")


def _check_text(raw: bytes, dtype: np.dtype[Any]) -> None:
    codes = np.frombuffer(raw, np.dtype("u4").newbyteorder(dtype.byteorder))
    if codes.size and int(codes.max()) > sys.maxunicode:
        raise CorruptFileError("a NumPy array has text that is not Unicode")


def make_scalar(args: tuple[Any, ...]) -> Any:
    """`numpy._core.multiarray.scalar(dtype, bytes)`."""
    if len(args) != 2:
        raise CorruptFileError("a NumPy scalar needs a dtype and its bytes")
    dtype, raw = args
    if type(raw) is str:
        raw = raw.encode("latin1", "replace")
    check_array((), dtype, raw)
    if dtype.kind == "U":
        _check_text(raw, dtype)
    return np.ndarray((), dtype, raw)[()]


# ---- writing ----------------------------------------------------------------------------------


def dtype_code(dtype: np.dtype[Any]) -> tuple[str, tuple[Any, ...]]:
    """The code and the state that NumPy pickles for a plain dtype."""
    text = dtype.str  # byte order, kind, size
    order = text[0] if text[0] in "<>" else "|"
    tail: tuple[Any, ...] = (-1, -1, 0)
    if dtype.kind == "U":
        tail = (dtype.itemsize, 4, 8)
    elif dtype.kind == "S":
        tail = (dtype.itemsize, 1, 0)
    return text[1:], (3, order, None, None, None, *tail)
