"""Many tensors as one flat one, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lucerne._src.tensor import api as lu


def flatten_dense_tensors(tensors: Sequence[Any]) -> Any:
    """The elements of all tensors in a row; they have one dtype.

    >>> import lucerne
    >>> flatten_dense_tensors([lucerne.ones(1, 2), lucerne.zeros(1)])
    tensor([1., 1., 0.])
    """
    return lu.cat([t.contiguous().view(-1) for t in tensors])


def unflatten_dense_tensors(flat: Any, tensors: Sequence[Any]) -> tuple[Any, ...]:
    """Views of a flat tensor with the shapes of these."""
    found, start = [], 0
    for t in tensors:
        found.append(flat.narrow(0, start, t.numel()).view_as(t))
        start += t.numel()
    return tuple(found)
