"""Parts of a tensor as views: select, slice, narrow, split, diagonal, windows, raw strides."""

from __future__ import annotations

from typing import Any

import numpy as np

from lucerne._src.base import dtype as dt
from lucerne._src.base import shape as sh
from lucerne._src.ir.convert import IntList, as_int, as_int_list
from lucerne._src.ir.define import Geometry, front
from lucerne._src.ir.define import view as view_op
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.ir.op import Tensor
from lucerne._src.ops.checks import zeros_of
from lucerne._src.ops.copy.cast import counted, filled
from lucerne._src.ops.spatial.padding import embed_diagonal, embed_slice
from lucerne._src.ops.view.reshape import permuted

_slice = slice


# ---- one dimension ----------------------------------------------------------------------------


def _select_vjp(g: Tensor, input_meta: TensorMeta, dim: int, index: int) -> Tensor:
    d = dim % input_meta.ndim
    start = index % input_meta.shape[d]
    return embed_slice(g.unsqueeze(d), input_meta.shape, d, start, 1)


@view_op(
    name="select",
    vjp={"input": _select_vjp},
    oracle=lambda input, dim, index: np.take(input, index, axis=dim),
)
def select_at(input: Tensor, dim: int, index: int) -> Any:
    """One index of a dimension, which disappears."""
    meta: TensorMeta = input
    if not meta.ndim:
        raise IndexError("select() cannot be applied to a 0-dim tensor.")
    d = sh.wrap_dim(dim, meta.ndim)
    n = meta.shape[d]
    if not -n <= index < n:
        raise IndexError(
            f"select(): index {index} out of range for tensor of size {list(meta.shape)} at "
            f"dimension {d}"
        )
    at = permuted(meta, [k for k in range(meta.ndim) if k != d])
    at.offset = (index % n) * meta.strides[d]
    return at


@front(method=True)
def select(input: Tensor, dim: int, index: int) -> Tensor:
    """One index of a dimension, which disappears: `x.select(0, i)` is `x[i]`."""
    return select_at(input, dim, index)


def bounds(n: int, start: int | None, end: int | None) -> tuple[int, int]:
    """Start and end of a slice within a dimension of size `n`, as Python clamps them."""
    first = 0 if start is None else start
    last = n if end is None else end
    first = max(first + n, 0) if first < 0 else min(first, n)
    last = max(last + n, 0) if last < 0 else min(last, n)
    return first, max(first, last)


_FAR = 1 << 48
"""A step of this length is never taken: no dimension has a second element there."""


def _slice_vjp(g: Tensor, input_meta: TensorMeta, dim: int, start: Any, step: int) -> Tensor:
    d = dim % input_meta.ndim
    return embed_slice(g, input_meta.shape, d, bounds(input_meta.shape[d], start, None)[0], step)


def _slice_oracle(input: Any, dim: int, start: Any, end: Any, step: int) -> Any:
    index = [_slice(None)] * input.ndim
    index[dim] = _slice(start, end, step)
    return input[tuple(index)]


@view_op(vjp={"input": _slice_vjp}, name="slice", namespace="ops.aten", oracle=_slice_oracle)
def slice_dim(
    input: Tensor,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Any:
    """`x[start:end:step]` along one dimension."""
    meta: TensorMeta = input
    if not meta.ndim:
        raise RuntimeError("slice() cannot be applied to a 0-dim tensor.")
    if step <= 0:
        raise RuntimeError("slice step must be positive")
    d = sh.wrap_dim(dim, meta.ndim)
    first, last = bounds(meta.shape[d], start, end)
    shape, strides = list(meta.shape), list(meta.strides)
    shape[d] = (last - first + step - 1) // step
    if type(step) is not int or step < _FAR:
        strides[d] *= step
    return Geometry(tuple(shape), tuple(strides), first * meta.strides[d])


@front(method=True)
def narrow(input: Tensor, dim: int, start: Any, length: int) -> Tensor:
    """`length` elements of a dimension from `start` on.

    >>> import lucerne
    >>> lucerne.arange(5).narrow(0, 1, 3)
    tensor([1, 2, 3])
    """
    if not input.ndim:
        raise RuntimeError("narrow() cannot be applied to a 0-dim tensor.")
    if hasattr(start, "_meta") and (start.ndim or start.dtype.category != dt.INTEGER):
        raise RuntimeError("start must be an 0-dim integral Tensor.")
    if length < 0:
        raise RuntimeError("narrow(): length must be non-negative.")
    start, length = as_int(start), as_int(length)
    d = sh.wrap_dim(dim, input.ndim)
    n = input.shape[d]
    if not -n <= start <= n:
        raise IndexError(
            f"start out of range (expected to be in range of [{-n}, {n}], but got {start})"
        )
    start = start + n if start < 0 else start
    if start > n - length:
        raise RuntimeError(f"start ({start}) + length ({length}) exceeds dimension size ({n}).")
    return slice_dim(input, d, start, start + length, 1)


# ---- diagonals and windows --------------------------------------------------------------------


def _diagonal_vjp(g: Tensor, input_meta: TensorMeta, offset: int, dim1: int, dim2: int) -> Tensor:
    return embed_diagonal(g, input_meta.shape, offset, dim1, dim2)


@view_op(
    method=True,
    vjp={"input": _diagonal_vjp},
    oracle=lambda input, offset, dim1, dim2: np.diagonal(input, offset, dim1, dim2),
)
def diagonal(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    """The diagonal of two dimensions, as the last dimension."""
    meta: TensorMeta = input
    a, b = sh.wrap_dim(dim1, meta.ndim), sh.wrap_dim(dim2, meta.ndim)
    if a == b:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    rows, cols = meta.shape[a], meta.shape[b]
    size = max(min(rows, cols - offset) if offset >= 0 else min(rows + offset, cols), 0)
    start = offset * meta.strides[b] if offset >= 0 else -offset * meta.strides[a]
    rest = permuted(meta, [k for k in range(meta.ndim) if k not in (a, b)])
    step = meta.strides[a] + meta.strides[b]
    return Geometry((*rest.shape, size), (*rest.strides, step), start if size else 0)


def _unfold_vjp(g: Tensor, input_meta: TensorMeta, dimension: int, size: int, step: int) -> Tensor:
    if not input_meta.ndim:
        return g.reshape(())
    d = dimension % input_meta.ndim
    # (..., windows, ..., size) -> windows and their elements side by side
    spread = g.movedim(-1, d + 1)
    shape = tuple(input_meta.shape)
    spread = spread.reshape(*shape[:d], spread.shape[d] * size, *shape[d + 1 :])
    index = _counted(shape[d], input_meta).unfold(0, size, step).reshape(-1)
    return zeros_of(input_meta).index_add(d, index, spread)


def _counted(n: int, meta: TensorMeta) -> Tensor:
    """0, 1, ..., n - 1 on the device of `meta`."""
    return counted(0, 1, n, dt.int64, meta.device)


@view_op(method=True, vjp={"input": _unfold_vjp}, name="unfold", namespace="Tensor")
def unfold(input: Tensor, dimension: int, size: int, step: int) -> Any:
    """All windows of `size` elements along a dimension, `step` apart, as a new last dimension."""
    meta: TensorMeta = input
    d = sh.wrap_dim(dimension, meta.ndim)
    n = meta.shape[d] if meta.ndim else 1
    stride = meta.strides[d] if meta.ndim else 1
    if size < 0:
        raise RuntimeError(f"size is {size} but must be >= 0")
    if size > n:
        raise RuntimeError(f"maximum size for tensor at dimension {d} is {n} but size is {size}")
    if step <= 0:
        raise RuntimeError(f"step is {step} but must be > 0")
    if not meta.ndim:
        return Geometry((size,), (stride,))
    shape, strides = list(meta.shape), list(meta.strides)
    shape[d] = (n - size) // step + 1
    strides[d] = step * stride
    return Geometry((*shape, size), (*strides, stride))


# ---- raw strides ------------------------------------------------------------------------------


def _strided_vjp(g: Tensor, input_meta: TensorMeta, size: Any, stride: Any, offset: int) -> Tensor:
    """Add the gradient up in memory order, then read it as the input reads its memory."""
    start = min(offset, 0)
    flat = max(_span(size, stride) + offset, input_meta.span) - start
    if not input_meta.numel:
        return zeros_of(input_meta)
    places = _counted(flat, input_meta)
    index = strided_view(places, size, stride, offset - start).reshape(-1)
    memory = zeros_of(input_meta.like(shape=(flat,))).index_add(0, index, g.reshape(-1))
    if not _overlaps(input_meta):
        return strided_view(memory, input_meta.shape, input_meta.strides, -start)
    mine = strided_view(places, input_meta.shape, input_meta.strides, -start).reshape(-1)
    ones = filled((input_meta.numel,), 1, input_meta.dtype, input_meta.device, None)
    count = zeros_of(input_meta.like(shape=(flat,))).index_add(0, mine, ones)
    shared = memory.index_select(0, mine) / count.index_select(0, mine)
    return shared.reshape(input_meta.shape)


def _span(size: sh.Shape, stride: sh.Shape) -> int:
    if 0 in size:
        return 0
    return 1 + sum((n - 1) * st for n, st in zip(size, stride, strict=True))


def _overlaps(meta: TensorMeta) -> bool:
    """Whether two elements may share a memory location."""
    reach = 0
    pairs = sorted((st, n) for st, n in zip(meta.strides, meta.shape, strict=True) if n > 1)
    for st, n in pairs:
        if st <= reach:
            return True
        reach += st * (n - 1)
    return False


@view_op(name="as_strided", vjp={"input": _strided_vjp})
def strided_view(input: Tensor, size: IntList, stride: IntList, offset: int) -> Any:
    """Any shape and strides over the storage; `offset` counts from the input's first element."""
    if len(size) != len(stride):
        raise RuntimeError("mismatch in length of strides and shape")
    bad = next((n for n in size if n < 0), None)
    if bad is not None:
        raise RuntimeError(f"as_strided: Trying to create tensor with negative dimension {bad}")
    if any(st < 0 for st in stride):
        raise RuntimeError(
            "as_strided: Negative strides are not supported at the moment, got strides: "
            f"{list(stride)}"
        )
    return Geometry(tuple(size), tuple(stride), offset)


def lies_within(size: Any, stride: Any, input: Tensor, start: int = 0) -> bool:
    """Whether a view reaches no further than the input: whatever storage there is, it fits."""
    if len(size) != len(stride) or min((*size, *stride), default=0) < 0 or 0 in input.shape:
        return False
    return bool(start + _span(size, stride) <= _span(input.shape, input.stride()))


@front(method=True)
def as_strided(input: Tensor, size: Any, stride: Any, storage_offset: Any = None) -> Tensor:
    """Any shape and strides over the input's storage.

    >>> import lucerne
    >>> lucerne.arange(4).as_strided((2, 2), (1, 1))
    tensor([[0, 1],
            [1, 2]])
    """
    size, stride = as_int_list(size), as_int_list(stride)
    if storage_offset is None and lies_within(size, stride, input):
        return strided_view(input, size, stride, 0)
    here = input.storage_offset()
    at = here if storage_offset is None else as_int(storage_offset)
    if at < 0:
        raise RuntimeError(f"Tensor: invalid storage offset {at}")
    if len(size) == len(stride):
        need = (_span(size, stride) + at) * input.itemsize if 0 not in size else 0
        have = input.untyped_storage().nbytes()
        if need > have:
            raise RuntimeError(
                f"setStorage: sizes {list(size)}, strides {list(stride)}, storage offset {at}, and "
                f"itemsize {input.itemsize} requiring a storage size of {need} are out of bounds "
                f"for storage of size {have}"
            )
    return strided_view(input, size, stride, at - here)
