"""Folds within pools of rows: `pool[i]` says which pool row `i` belongs to."""

from __future__ import annotations

from typing import Any


def pooled_sum(values: Any, pool: Any, count: int) -> Any:
    """The sum of each pool's rows.

    >>> import lucerne
    >>> pooled_sum(lucerne.tensor([1.0, 2.0, 3.0]), lucerne.tensor([0, 0, 1]), 2)
    tensor([3., 3.])
    """
    zeros = values.new_zeros((count, *values.shape[1:]))
    return zeros.index_put((pool,), values, accumulate=True)


def pooled_extreme(values: Any, pool: Any, count: int, name: str) -> Any:
    """The largest ("amax"), smallest ("amin") or product ("prod") of each pool's rows."""
    empty = values.new_zeros((count, *values.shape[1:]))
    return empty.index_reduce(0, pool, values, name, include_self=False)


def pooled_softmax(values: Any, pool: Any, count: int, log: bool = False) -> Any:
    """Softmax along the rows of each pool, or its logarithm."""
    top = pooled_extreme(values.detach(), pool, count, "amax")
    shifted = values - top[pool]
    powers = shifted.exp()
    total = pooled_sum(powers, pool, count)
    return shifted - total.log()[pool] if log else powers / total[pool]
