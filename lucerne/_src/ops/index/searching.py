"""Searching sorted sequences, and membership."""

from __future__ import annotations

from typing import Any

import numpy as np

from lucerne._src.base import dtype as dt
from lucerne._src.ir.define import composite, front, structural
from lucerne._src.ir.dispatch import every_value
from lucerne._src.ir.meta import TensorMeta, make_meta
from lucerne._src.ir.op import Tensor
from lucerne._src.ops.creation import fills
from lucerne._src.ops.index.sorting import sort_along


def _search_meta(sorted_sequence: TensorMeta, input: TensorMeta, right: bool) -> TensorMeta:
    return make_meta(dt.int64, tuple(input.shape), None, input.device)


@structural(
    internal=True,
    meta=_search_meta,
    vjp={},
    name="binary_search",
    oracle=lambda sorted_sequence, input, right: np.searchsorted(
        sorted_sequence, input, "right" if right else "left"
    ),
    samples=[([1.0, 2.0, 2.0, 3.0], [2.0, 0.5, 4.0], False), ([1.0, 2.0, 2.0], [2.0], True)],
    torch="searchsorted",
)
def binary_search(sorted_sequence: Tensor, input: Tensor, right: bool) -> Tensor:
    """Where each value would be inserted into the rows of a sorted sequence.

    The sequence is one row for all values, or has a row for each row of values. Equal values go
    before what is there, or after it when `right`; nan goes to the end.
    """


def _number_tensor(value: Any, like: Tensor) -> Tensor:
    if hasattr(value, "_meta"):
        return value
    kind = _number_dtype(value, like.dtype)
    wide = dt.int64 if type(value) is int else kind  # a number too large wraps, as in torch
    return fills.scalar_tensor(value, dtype=wide, device=like.device).to(kind)


def _number_dtype(value: Any, other: dt.dtype) -> dt.dtype:
    if isinstance(value, float) and other.category < dt.FLOAT:
        return dt.float64
    return other if other is not dt.bool_ else dt.int64


def _check_search(boundaries: Tensor, input: Tensor, sorter: Any) -> None:
    if boundaries.ndim == 0:
        raise RuntimeError(
            "torch.searchsorted(): boundaries tensor should have positive dimension, but got 0 "
            "dimension"
        )
    if boundaries.ndim != 1 and input.ndim == 0:
        raise RuntimeError(
            "torch.searchsorted(): input value can be a scalar only when boundaries tensor "
            f"dimension is 1, but we got boundaries tensor dim({boundaries.ndim}) and input "
            "value's dim(0) numel(1)"
        )
    rows = tuple(boundaries.shape[:-1])
    if boundaries.ndim != 1 and (boundaries.ndim != input.ndim or rows != tuple(input.shape[:-1])):
        raise RuntimeError(
            "torch.searchsorted(): boundaries tensor should be 1 dimension or the first N-1 "
            "dimensions of boundaries tensor and input value tensor must match, but we got "
            f"boundaries tensor {list(boundaries.shape)} and input value tensor {list(input.shape)}"
        )
    if sorter is None:
        return
    if sorter.shape != boundaries.shape:
        raise RuntimeError(
            "torch.searchsorted(): boundary and sorter must have the same size, but got boundary "
            f"tensor {list(boundaries.shape)}and got sorter tensor {list(sorter.shape)}"
        )
    if sorter.dtype is not dt.int64:
        raise RuntimeError(
            "torch.searchsorted(): sorter must be a tensor of long dtype but got dtype "
            f"{dt.cxx_name(sorter.dtype)}"
        )
    every = every_value(sorter)
    if every.numel() and not 0 <= int(every.min()) <= int(every.max()) < boundaries.shape[-1]:
        raise RuntimeError("torch.searchsorted(): sorter index out of range")


@composite(internal=True, name="search_rows", vjp={}, torch="searchsorted")
def search_rows(sorted_sequence: Tensor, input: Tensor, out_int32: bool, right: bool) -> Tensor:
    """Insertion points, in the common type of both."""
    common = dt.promote_types(sorted_sequence.dtype, input.dtype)
    found = binary_search(sorted_sequence.to(common), input.to(common), right)
    return found.to(dt.int32) if out_int32 else found


def _side(side: str | None, right: bool) -> bool:
    if side not in (None, "left", "right"):
        raise RuntimeError(
            f"torch.searchsorted(): side can only be 'left' or 'right' but got {side}"
        )
    if side == "left" and right:
        raise RuntimeError(
            "torch.searchsorted(): side and right can't be set to opposites, got side of left "
            "while right was True"
        )
    return right or side == "right"


def _check_out(out: Any, out_int32: bool) -> None:
    wanted = dt.int32 if out_int32 else dt.int64
    if out is not None and out.dtype is not wanted:
        raise RuntimeError(
            f"torch.searchsorted(): output tensor's dtype is wrong, it can only be Int(int32) or "
            f"Long(int64) depending on whether out_int32 flag is True, but we got output tensor's "
            f"dtype {dt.cxx_name(out.dtype)} and out_int32 flag is {out_int32}"
        )


@front()
def searchsorted(
    sorted_sequence: Tensor,
    input: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Any = None,
    out: Any = None,
) -> Tensor:
    """Where each value of `input` would be inserted into the sorted last dimension.

    >>> import lucerne
    >>> lucerne.searchsorted(lucerne.tensor([1, 3, 5]), lucerne.tensor([3, 6]))
    tensor([1, 3])
    """
    right = _side(side, right)
    input = _number_tensor(input, sorted_sequence)
    _check_search(sorted_sequence, input, sorter)
    _check_out(out, out_int32)
    if sorter is not None:
        sorted_sequence = sorted_sequence.gather(-1, sorter)
    return search_rows(sorted_sequence, input, out_int32, right, out=out)


@front()
def bucketize(
    input: Any, boundaries: Tensor, *, out_int32: bool = False, right: bool = False, out: Any = None
) -> Tensor:
    """Index of the bucket each value falls into.

    >>> import lucerne
    >>> lucerne.bucketize(lucerne.tensor([0.5, 2.5]), lucerne.tensor([1.0, 2.0]))
    tensor([0, 2])
    """
    if boundaries.ndim != 1:
        raise RuntimeError(f"boundaries tensor must be 1 dimension, but got dim({boundaries.ndim})")
    _check_out(out, out_int32)
    return search_rows(boundaries, _number_tensor(input, boundaries), out_int32, right, out=out)


@composite(
    internal=True,
    name="contained",
    vjp={},
    out="exact",
    oracle=lambda elements, test_elements, invert: np.isin(elements, test_elements, invert=invert),
    torch="isin",
)
def contained(elements: Tensor, test_elements: Tensor, invert: bool) -> Tensor:
    """Whether each element is among the test elements: found by search in their sorted order."""
    common = dt.promote_types(elements.dtype, test_elements.dtype)
    row = sort_along(test_elements.to(common).reshape(-1), 0, False, False)[0]
    wanted = elements.to(common)
    if not row.shape[0]:
        return fills.full_like(wanted, invert, dtype=dt.bool_)
    at = binary_search(row, wanted, False).clamp_max(row.shape[0] - 1)
    found = row.index_select(0, at.reshape(-1)).reshape(wanted.shape)
    return found.ne(wanted) if invert else found.eq(wanted)


@front()
def isin(
    elements: Any,
    test_elements: Any,
    *,
    assume_unique: bool = False,
    invert: bool = False,
    out: Any = None,
) -> Tensor:
    """Whether each element is among `test_elements`.

    >>> import lucerne
    >>> lucerne.isin(lucerne.tensor([1, 2, 3]), lucerne.tensor([3, 1]))
    tensor([ True, False,  True])
    """
    if not hasattr(elements, "_meta"):
        elements = _number_tensor(elements, test_elements)
    test_elements = _number_tensor(test_elements, elements)
    return contained(elements, test_elements, invert, out=out)
