"""Special functions that models use, for machines without SciPy: float64 formulas in NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
# Coefficients of the asymptotic series of digamma: -B(2k) / 2k for k = 1, 2, ...
_DIGAMMA = (-1 / 12, 1 / 120, -1 / 252, 1 / 240, -1 / 132, 691 / 32760, -1 / 12)


def elementwise(fn: Callable[[float], float]) -> Callable[[Any], Any]:
    """A function of one float, over an array, in the array's own floating type."""
    ufunc = np.frompyfunc(fn, 1, 1)

    def run(x: Any) -> Any:
        x = np.asarray(x)
        kind = x.dtype if x.dtype.kind == "f" else np.dtype(np.float64)
        return np.asarray(ufunc(x)).astype(kind)

    return run


def in_double(fn: Callable[[Array], Array]) -> Callable[[Any], Any]:
    """Compute in float64, return the operand's type."""

    def run(x: Any) -> Any:
        x = np.asarray(x)
        kind = x.dtype if x.dtype.kind == "f" else np.dtype(np.float64)
        return fn(x.astype(np.float64)).reshape(x.shape).astype(kind)

    return run


@in_double
def digamma(x: Array) -> Array:
    """Upwards by recurrence, then the asymptotic series; reflection below zero."""
    y = np.where(x < 0, 1 - x, x)
    found = np.zeros_like(y)
    for _ in range(10):
        small = y < 10
        found -= np.where(small, 1 / y, 0)
        y = np.where(small, y + 1, y)
    square = 1 / (y * y)
    series = np.zeros_like(y)
    for c in reversed(_DIGAMMA):
        series = (series + c) * square
    found += np.log(y) - 0.5 / y + series
    found = np.where(x < 0, found - np.pi / np.tan(np.pi * x), found)
    found = np.where((x < 0) & (x == np.floor(x)), np.nan, found)
    return np.where(x == 0, -np.copysign(np.inf, x), found)


_erf, _erfc = elementwise(math.erf), elementwise(math.erfc)


@in_double
def erfinv(x: Array) -> Array:
    """Winitzki's estimate, made exact by Newton steps (third order)."""
    inside = np.clip(np.abs(x), 0, 1 - 1e-16)
    a = 0.147
    log = np.log1p(-inside * inside)
    term = 2 / (np.pi * a) + log / 2
    y = np.sqrt(np.sqrt(term * term - log / a) - term)
    for _ in range(4):
        slope = 2 / math.sqrt(math.pi) * np.exp(-y * y)
        # near one the difference of complements keeps the digits that erf - x would lose
        error = np.where(inside > 0.5, (1 - inside) - _erfc(y), _erf(y) - inside)
        y = y - error / (slope + y * error)
    y = np.copysign(y, x)
    y = np.where(np.abs(x) == 1, np.copysign(np.inf, x), y)
    return np.where(np.abs(x) > 1, np.nan, np.where(x == 0, x, y))


@in_double
def i0(x: Array) -> Array:
    """NumPy's own."""
    return np.asarray(np.i0(x))


STANDINS = {"digamma": digamma, "erfinv": erfinv, "i0": i0}
