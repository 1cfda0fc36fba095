"""SciPy, where it is installed: loaded by the first op that uses it. Loading takes longer than a
small program takes to compile, and compiling folds constants with this backend."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from lucerne._src.base.process import forks

_LOADS: dict[str, Callable[[], Any]] = {
    "special": lambda: forks.import_module("scipy.special"),
    "fft": lambda: forks.import_module("scipy.fft"),
    "blas": lambda: forks.import_module("scipy.linalg.blas"),
    "lapack": lambda: forks.import_module("scipy.linalg.lapack"),
}


@cache
def scipy(name: str) -> Any:
    """A module of SciPy; None: it is not installed."""
    try:
        return _LOADS[name]()
    except ImportError:
        return None
