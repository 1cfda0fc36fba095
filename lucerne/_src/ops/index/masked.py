"""Choosing by masks: masked_fill, masked_select, masked_scatter."""

from __future__ import annotations

from typing import Any

import numpy as np

from lucerne._src.base import dtype as dt
from lucerne._src.base import shape as sh
from lucerne._src.ir.define import composite
from lucerne._src.ir.dispatch import raise_if, recording
from lucerne._src.ir.op import Tensor
from lucerne._src.ops.copy.cast import filled
from lucerne._src.ops.index.advanced import index_nd, index_put_nd, integer_indices, nonzero_rows
from lucerne._src.ops.pointwise.select import choose
from lucerne._src.ops.scalars import number_for

# ---- masked_fill ---------------------------------------------------------------------------------


@composite(
    method=True,
    inplace=True,
    out=True,
    oracle=lambda input, mask, value: np.where(mask, np.asarray(value, input.dtype), input),
    samples=[((2, 3), [[True, False, True]], 1)],
    expanded="fill",
    grad_fn="MaskedFillBackward0",
)
def masked_fill(input: Tensor, mask: Tensor, value: Tensor) -> Tensor:
    """`value` (a number or a 0-dim tensor) where the mask is true.

    >>> import lucerne
    >>> x = lucerne.tensor([1.0, 2.0])
    >>> x.masked_fill(x > 1, 0)
    tensor([1., 0.])
    """
    if mask.dtype is not dt.bool_:
        raise RuntimeError(
            "masked_fill_ only supports boolean masks, but got mask with dtype "
            f"{dt.c_name(mask.dtype)}"
        )
    if hasattr(value, "_meta") and value.is_complex() and not input.is_complex() and not value.ndim:
        value = value.item()
    if not hasattr(value, "_meta"):
        value = number_for(value, input.dtype)
    elif value.ndim:
        raise RuntimeError(
            "masked_fill_ only supports a 0-dimensional value tensor, but got tensor with "
            f"{value.ndim} dimension(s)."
        )
    elif value.dtype is not input.dtype:
        value = value.to(input.dtype)
    return choose(mask, value, input).contiguous()


# ---- masked_select and masked_scatter ------------------------------------------------------------


def _check_mask(name: str, mask: Tensor) -> None:
    if mask.dtype is not dt.bool_:
        raise RuntimeError(
            f"{name} only supports boolean masks, but got mask with dtype {dt.cxx_name(mask.dtype)}"
        )


@composite(
    method=True,
    out="apart",
    oracle=lambda input, mask: np.broadcast_arrays(input, mask)[0][mask],
    samples=[((2, 3), [[True, False, True], [False, False, True]])],
)
def masked_select(input: Tensor, mask: Tensor) -> Tensor:
    """The elements where the mask is true, in order, as a vector.

    >>> import lucerne
    >>> lucerne.masked_select(lucerne.tensor([1, 2, 3]), lucerne.tensor([True, False, True]))
    tensor([1, 3])
    """
    if mask.dtype is not dt.bool_:
        raise RuntimeError("masked_select: expected BoolTensor for mask")
    shape = sh.broadcast_shapes(input.shape, mask.shape) or (1,)
    full = input.expand(shape)
    return index_nd(full, integer_indices(full, (mask.expand(shape),)))


def _scattered(full: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """`masked_scatter` of flat tensors in shapes that do not depend on the mask."""
    at = mask.cumsum(0) - 1
    raise_if(
        (at >= source.shape[0]).any(),
        lambda: RuntimeError("Number of elements of source < number of ones in mask"),
    )
    return choose(mask, index_nd(source, (at.clamp(0, source.shape[0] - 1),)), full)


@composite(method=True, inplace=True)
def masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """The elements where the mask is true replaced by those of `source`, in order."""
    _check_mask("masked_scatter_", mask)
    if source.dtype is not input.dtype:
        raise RuntimeError(
            "masked_scatter_: expected self and source to have same dtypes but got "
            f"{dt.cxx_name(input.dtype)} and {dt.cxx_name(source.dtype)}"
        )
    shape = sh.broadcast_shapes(input.shape, mask.shape)
    full, flat = input.expand(shape).reshape(-1), source.reshape(-1)
    if recording() and flat.shape[0]:
        return _scattered(full, mask.expand(shape).reshape(-1), flat).reshape(shape)
    where = nonzero_rows(mask.expand(shape).reshape(-1)).reshape(-1)
    count = where.shape[0]
    if count > flat.shape[0]:
        raise RuntimeError("Number of elements of source < number of ones in mask")
    return index_put_nd(full, (where,), flat.narrow(0, 0, count), False).reshape(shape)


@composite(method=True, oracle=np.argwhere, out=False, samples=[([[0, 1, 2], [3, 0, 0]],)])
def argwhere(input: Tensor) -> Tensor:
    """The positions of the elements that aren't zero, one row each."""
    return nonzero_rows(input)


@composite(method=True, oracle=None)
def nonzero_static(input: Tensor, *, size: int, fill_value: int = -1) -> Tensor:
    """`nonzero` with a fixed number of rows: cut off, or filled up with `fill_value`."""
    if size < 0:
        raise RuntimeError("nonzero_static: 'size' must be an non-negative integer")
    rows = nonzero_rows(input)
    made = filled((size, input.ndim), fill_value, dt.int64, input.device, None)
    count = min(size, rows.shape[0])
    if count and input.ndim:
        made.narrow(0, 0, count).copy_(rows.narrow(0, 0, count))
    return made


@composite(name="_unsafe_masked_index", out=False)
def unsafe_masked_index(input: Tensor, mask: Tensor, indices: Any, fill: Any) -> Tensor:
    """`input[indices]` where the mask is true, else `fill`; masked positions may be invalid."""
    safe = _clamped(input, indices)
    return index_nd(input, safe).masked_fill(~mask, fill)


@composite(name="_unsafe_masked_index_put_accumulate", out=False)
def unsafe_masked_index_put_accumulate(
    input: Tensor, mask: Tensor, indices: Any, values: Tensor
) -> Tensor:
    """`values` added at `indices` where the mask is true; masked positions may be invalid."""
    safe = _clamped(input, indices)
    return index_put_nd(input, safe, values.masked_fill(~mask, 0), True)


def _clamped(input: Tensor, indices: Any) -> tuple[Any, ...]:
    return tuple(
        None if i is None else i.clamp(-input.shape[d], input.shape[d] - 1)
        for d, i in enumerate(indices)
    )
