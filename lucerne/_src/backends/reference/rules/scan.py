"""Running folds along a dimension."""

from __future__ import annotations

from typing import Any

import numpy as np

from lucerne._src.backends.reference import codec
from lucerne._src.backends.reference.table import rule

Array = np.ndarray[Any, Any]


@rule("scan")
def scan(input: Array, dim: int, mode: str, reverse: bool, dtype: Any) -> Array:
    x = np.atleast_1d(input)
    if dtype is not None:
        x = codec.cast(x, dtype.compute.storage)
    elif x.dtype == np.float16:
        x = x.astype(np.float32)
    if reverse:
        x = np.flip(x, dim)
    y = _scanned(x, dim, mode) if x.size else x
    if reverse:
        y = np.flip(y, dim)
        y = x.shape[dim] - 1 - y if mode in _BETTER else y
    return y.reshape(input.shape)


_FOLDS = {"add": np.add, "mul": np.multiply}
_BETTER = {"argmax": np.greater_equal, "argmin": np.less_equal}


def _scanned(x: Array, dim: int, mode: str) -> Array:
    if mode in _BETTER:
        return _positions(x, dim, _BETTER[mode])
    return _FOLDS[mode].accumulate(x, axis=dim) if mode in _FOLDS else _log_add_exp(x, dim)


def _log_add_exp(x: Array, dim: int) -> Array:
    if x.dtype.kind != "c":
        return np.logaddexp.accumulate(x, axis=dim)
    return np.moveaxis(_accumulate(np.moveaxis(x, dim, 0), _log_add_exp_complex), 0, dim)


def _log_add_exp_complex(a: Array, b: Array) -> Array:
    """log(exp(a) + exp(b)) with the larger real part taken out first."""
    high = np.where(a.real >= b.real, a, b)
    low = np.where(a.real >= b.real, b, a)
    shift = np.where(np.isfinite(high.real), high, 0)
    return np.where(
        low.real == -np.inf, high, shift + np.log(np.exp(high - shift) + np.exp(low - shift))
    )


def _accumulate(x: Array, fold: Any) -> Array:
    y = np.empty_like(x)
    y[0] = x[0]
    for i in range(1, len(x)):
        y[i] = fold(y[i - 1], x[i])
    return y


def _positions(x: Array, dim: int, better: Any) -> Array:
    """The last position of the best value so far; nan is better than every number."""
    rows = np.moveaxis(x, dim, 0)
    best, at = rows[0].copy(), np.zeros(rows.shape, np.int64)
    for i in range(1, len(rows)):
        row = rows[i]
        wins = better(row, best)
        if row.dtype.kind == "f":
            wins = (wins & ~np.isnan(best)) | np.isnan(row)
        best = np.where(wins, row, best)
        at[i] = np.where(wins, i, at[i - 1])
    return np.moveaxis(at, 0, dim)


@rule("linear_scan")
def linear_scan(decay: Array, input: Array, dim: int, reverse: bool) -> Array:
    if not input.ndim or not input.size:
        return input
    a, x = np.moveaxis(decay, dim, 0), np.moveaxis(input, dim, 0)
    y = np.empty(x.shape, np.result_type(a, x, np.float32))
    last = len(x) - 1
    if reverse:
        y[last] = x[last]
        for i in range(last - 1, -1, -1):
            y[i] = x[i] + a[i + 1] * y[i + 1]
    else:
        y[0] = x[0]
        for i in range(1, last + 1):
            y[i] = x[i] + a[i] * y[i - 1]
    return np.moveaxis(y, 0, dim)
