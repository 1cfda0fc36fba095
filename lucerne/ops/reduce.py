"""Folds over dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np

from lucerne.base import shape as sh
from lucerne.ir.convert import Dtype, IntList
from lucerne.ir.define import reduced_dims, reduction
from lucerne.ir.op import Tensor


def spread(g: Tensor, dim: Any, keepdim: bool, meta: Any) -> Tensor:
    """A reduced gradient stretched over the dimensions that were folded."""
    if not keepdim and meta.ndim:
        for d in sorted(reduced_dims(dim, meta.ndim)):
            g = g.unsqueeze(d)
    return g.expand(meta.shape)


@reduction(
    reduce="add",
    promote="int64",
    vjp={"input": lambda g, dim, keepdim, input_meta: spread(g, dim, keepdim, input_meta)},
    method=True,
    oracle=lambda input, dim, keepdim, dtype: np.sum(input, axis=dim, keepdims=keepdim),
)
def sum(input: Tensor, dim: IntList | None = None, keepdim: bool = False, *, dtype: Dtype | None = None) -> Tensor:
    """Sum over dimensions, or of all elements.

    >>> import lucerne
    >>> lucerne.ones(2, 3).sum(dim=1)
    tensor([3., 3.])
    """


def sum_dims_to(g: Tensor, shape: sh.Shape) -> Tensor:
    """Undo broadcasting: sum what was expanded."""
    lead = g.ndim - len(shape)
    dims = tuple(range(lead)) + tuple(
        lead + i for i, n in enumerate(shape) if n == 1 and g.shape[lead + i] != 1
    )
    folded = g.sum(dims, keepdim=True) if dims else g
    return folded.reshape(shape) if lead else folded
