"""Python objects between ranks: as bytes that can hold no code, in the format of `lucerne.save`."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from lucerne._src.io import files
from lucerne._src.io.errors import LoadError, SaveError

Array = np.ndarray[Any, Any]
MOST = 1 << 34
"""Bytes of one object."""


def to_bytes(value: Any) -> bytes:
    """An object of numbers, text, containers, tensors and classes the user vouches for."""
    file = io.BytesIO()
    try:
        files.save(value, file)
    except SaveError as error:
        raise TypeError(
            f"this object can't go to other ranks: {error}. (Objects travel as data that can run "
            "no code on the rank that reads them.)"
        ) from None
    return file.getvalue()


def from_bytes(raw: bytes) -> Any:
    """The object again, or an error: bytes of others run no code."""
    try:
        return files.load(io.BytesIO(raw))
    except LoadError as error:
        raise TypeError(f"an object of another rank is not taken: {error}") from None


def as_message(raw: bytes) -> tuple[Array, Array]:
    """Bytes as two messages: how many there are, and they."""
    return np.array([len(raw)], np.int64), np.frombuffer(raw, np.uint8)


def empty_length() -> Array:
    """Room for the first message."""
    return np.zeros(1, np.int64)


def empty_body(length: Array) -> Array:
    """Room for the second message."""
    count = int(length[0])
    if not 0 <= count <= MOST:
        raise TypeError(f"an object of {count} bytes is not taken: at most {MOST} are")
    return np.empty(count, np.uint8)
