"""Arrays over memory that somebody else owns."""

from __future__ import annotations

from typing import Any

import numpy as np


def array_over(
    address: int,
    shape: tuple[int, ...],
    storage: np.dtype[Any],
    strides: tuple[int, ...] | None,
    owner: Any,
) -> np.ndarray[Any, Any]:
    """A writable array at an address (strides in bytes), which keeps `owner` alive."""
    interface = {
        "data": (address, False),
        "shape": shape,
        "strides": strides,
        "typestr": storage.str,
        "version": 3,
    }
    holder = type("_Memory", (), {"__array_interface__": interface, "owner": owner})()
    return np.asarray(holder)
