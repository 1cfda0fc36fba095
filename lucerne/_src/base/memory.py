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
    return np.asarray(_Memory(interface, owner))


class _Memory:
    """What an array asks for its memory; the array keeps it, and it keeps the owner."""

    __slots__ = ("__array_interface__", "owner")

    def __init__(self, interface: dict[str, Any], owner: Any) -> None:
        self.__array_interface__ = interface
        self.owner = owner
