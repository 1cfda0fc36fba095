"""LAPACK's functions as kernels call them: addresses in the library that NumPy brings along.

The wheels of NumPy carry OpenBLAS with integers of 64 bits, under names of its own. Where NumPy is
built otherwise, SciPy's table for C callers (integers of 32 bits) is asked; without either there is
no address, and the reference backend does the work.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from lucerne._src.base.process import forks

_INNER = getattr(np.linalg, "_umath_linalg", None)
_NAMES = ("scipy_{}_64_", "{}_64_")


class Routine(NamedTuple):
    """Where a routine is, and whether its integers have 64 bits."""

    address: int
    wide: bool


@cache
def routine(name: str) -> Routine | None:
    """A routine by its Fortran name ("dgetrf"); None: this process has none."""
    library = _numpy_library()
    for pattern in _NAMES if library is not None else ():
        try:
            found = ctypes.cast(getattr(library, pattern.format(name)), ctypes.c_void_p).value
        except AttributeError:
            continue
        if found:
            return Routine(found, True)
    return _scipy_routine(name)


@cache
def thread_setting() -> tuple[int, int] | None:
    """Functions that tell and set how many threads NumPy's library uses (`int get(void)`, `void
    set(int)`); None: it has none."""
    library = _numpy_library()
    for pattern in ("scipy_openblas_{}_num_threads64_", "openblas_{}_num_threads64_"):
        try:
            pair = [getattr(library, pattern.format(word)) for word in ("get", "set")]
        except AttributeError:
            continue
        get, set_ = (ctypes.cast(function, ctypes.c_void_p).value for function in pair)
        if get and set_:
            return get, set_
    return None


@cache
def _numpy_library() -> Any:
    path = getattr(_INNER, "__file__", None)
    try:
        return None if path is None else ctypes.CDLL(path)
    except OSError:
        return None


def _scipy_routine(name: str) -> Routine | None:
    for table in _scipy_tables():
        if name in table:
            return Routine(_pointer_in(table[name]), False)
    return None


@cache
def _scipy_tables() -> tuple[dict[str, Any], ...]:
    """What SciPy offers to C callers; imported only where NumPy's library is not usable."""
    try:
        lapack = forks.import_module("scipy.linalg.cython_lapack")
        blas = forks.import_module("scipy.linalg.cython_blas")
    except ImportError:
        return ()
    return lapack.__pyx_capi__, blas.__pyx_capi__


def _pointer_in(capsule: Any) -> int:
    api = ctypes.pythonapi
    api.PyCapsule_GetName.restype, api.PyCapsule_GetName.argtypes = (
        ctypes.c_char_p,
        [ctypes.py_object],
    )
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    return int(api.PyCapsule_GetPointer(capsule, api.PyCapsule_GetName(capsule)))
