"""Draws of category numbers by weight."""

from __future__ import annotations

import numpy as np

from lucerne._src.tensor.random.draws import Words, exponential, unit_f64
from lucerne._src.tensor.random.kinds import I64, SPELLING, Array, round_float


def _check_shape(weights: Array, n: int, replacement: bool) -> None:
    if n <= 0:
        raise RuntimeError("cannot sample n_sample <= 0 samples")
    if not replacement and n > weights.shape[1]:
        raise RuntimeError(
            "cannot sample n_sample > prob_dist.size(-1) samples without replacement"
        )


def _check_weights(weights: Array) -> None:
    if not bool(np.all((weights >= 0) & (weights < np.inf))):
        raise RuntimeError("probability tensor contains either `inf`, `nan` or element < 0")
    if not bool(np.all(weights.sum(axis=1, dtype=np.float64) > 0)):
        raise RuntimeError("invalid multinomial distribution (sum of probabilities <= 0)")


def _check_row_entries(weights: Array) -> None:
    """The with-replacement path words its complaints differently."""
    where = "invalid multinomial distribution (encountering probability entry "
    if not bool(np.all(weights >= 0)):
        raise RuntimeError(where + "< 0)")
    if not bool(np.all(weights < np.inf)):
        raise RuntimeError(where + "= infinity or NaN)")


def _race(words: Words, weights: Array, n: int, kind: str) -> I64:
    """Largest weight / exponential first: the winners of a race are a sample."""
    clocks = exponential(words, weights.size, 1.0, kind).reshape(weights.shape)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
        speed = round_float(weights / clocks, kind)
    if n == 1:
        winners: I64 = np.argmax(speed, axis=1).astype(np.int64)
        return winners.reshape(-1, 1)
    order = np.argsort(-speed, axis=1, kind="stable")[:, :n]
    return np.ascontiguousarray(order).astype(np.int64, copy=False)


def _running_sums(weights: Array) -> Array:
    """The distribution function of each row, its last value forced to one."""
    sums = np.add.accumulate(weights, axis=1, dtype=weights.dtype)
    totals = sums[:, -1:]
    if not bool(np.all(totals > 0)):
        raise RuntimeError("invalid multinomial distribution (sum of probabilities <= 0)")
    sums = sums / totals
    sums[:, -1] = 1
    return sums


def multinomial(
    words: Words, weights: Array, n: int, replacement: bool = False, kind: str = "float32"
) -> I64:
    """Draw `n` categories from each row of `weights`, a 2-D array: -> (rows, n).

    For the narrow kinds `weights` is a float32 array of values that they can hold.
    """
    if kind not in ("float16", "bfloat16", "float32", "float64"):
        name = SPELLING.get(kind, (kind, kind))[1]
        raise RuntimeError(
            f"multinomial only supports floating-point dtypes for input, got: {name}"
        )
    values = np.ascontiguousarray(weights, np.float64 if kind == "float64" else np.float32)
    _check_shape(values, n, replacement)
    if not replacement or n == 1:
        _check_weights(values)
        return _race(words, values, n, kind)
    _check_row_entries(values)
    sums = _running_sums(values)
    u = unit_f64(words, len(values) * n).reshape(len(values), n)
    pairs = zip(sums.astype(np.float64), u, strict=True)
    rows = [np.searchsorted(row, at, side="left") for row, at in pairs]
    return np.array(rows, np.int64).reshape(len(values), n)
