"""Row sums of float64 in the order PyTorch's CPU kernel adds, for draws that divide by one.

Four lanes across, four rows of lanes at a time, and partial sums passed up through levels of
sixteen or more: a cascade, after N. Higham's analysis of blocked summation.
"""

from __future__ import annotations

import numpy as np

from lucerne._src.tensor.random.kinds import F64

_LANES = 4
_ROWS = 4
_LEVELS = 4


def _cascade(items: F64) -> F64:
    """Add along axis 0, handing each full block of sums to the level above."""
    size = len(items)
    power = max(4, (max(size, 1) - 1).bit_length() // _LEVELS)
    step = 1 << power
    levels = [np.zeros_like(items[0]) for _ in range(_LEVELS)]
    i = 0
    while i + step <= size:
        for item in items[i : i + step]:
            levels[0] = levels[0] + item
        i += step
        for level in range(1, _LEVELS):
            levels[level] = levels[level] + levels[level - 1]
            levels[level - 1] = np.zeros_like(items[0])
            if i & ((step - 1) << (level * power)):
                break
    for item in items[i:]:
        levels[0] = levels[0] + item
    for level in levels[1:]:
        levels[0] = levels[0] + level
    total: F64 = levels[0]
    return total


def row_sums(values: F64) -> F64:
    """Sum each row of a C-contiguous 2-D array: (rows, n) -> (rows, 1)."""
    rows, n = values.shape
    count = n // _LANES
    lanes = values[:, : count * _LANES].reshape(rows, count, _LANES).transpose(1, 0, 2)
    whole = count // _ROWS * _ROWS
    grouped = lanes[:whole].reshape(count // _ROWS, _ROWS, rows, _LANES)
    partial = _cascade(grouped) if whole else np.zeros((_ROWS, rows, _LANES))
    first = partial[0]
    for lane in lanes[whole:]:
        first = first + lane
    for other in partial[1:]:
        first = first + other
    total = np.zeros(rows)
    for column in values[:, count * _LANES :].T:
        total = total + column
    if count:
        for column in first.T:
            total = total + column
    return total.reshape(rows, 1)
