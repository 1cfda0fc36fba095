"""LAPACK as NumPy wraps it, in the precision of the matrices.

`numpy.linalg` computes in double precision whatever it is given. The functions it is made of know
single precision as well and take half the time then; they are not public, so the public ones stand
in wherever a NumPy has others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
_INNER = getattr(np.linalg, "_umath_linalg", None)


def single(a: Array) -> bool:
    return a.dtype.char in "fF"


def run(name: str, public: Callable[[Array], Any], a: Array) -> Any:
    """A factorisation of each matrix; raises `np.linalg.LinAlgError` where one fails."""
    inner = getattr(_INNER, name, None)
    if inner is None or not single(a) or not a.size:
        return public(a)
    try:
        with np.errstate(invalid="raise", over="ignore", divide="ignore", under="ignore"):
            return inner(a)
    except FloatingPointError as error:
        raise np.linalg.LinAlgError(f"{name} failed") from error
