"""Tile kernels: the user's function in NumPy, program by program."""

from __future__ import annotations

from typing import Any

import numpy as np

from lucerne._src.backends.reference.table import rule

Array = np.ndarray[Any, Any]


@rule("tile_call")
def tile_call(tensors: tuple[Array, ...], program: Any, *numbers: Any) -> Any:
    given = [float(n) for n in numbers if n is not None]
    found = program.interpret([np.asarray(t) for t in tensors], given)
    return found[0] if len(found) == 1 else tuple(found)
