"""Memory in terms of arrays: XLA sees no strides, so a view is worked out of a row of elements."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from lucerne._src.backends.xla.meshes import whole
from lucerne._src.backends.xla.types import jtype, retyped
from lucerne._src.base import dtype as dt
from lucerne._src.ir.meta import TensorMeta


def memory_order(meta: TensorMeta) -> list[int]:
    """The dimensions of a dense tensor from the outermost in memory to the innermost."""
    return sorted(range(meta.ndim), key=lambda d: (-meta.strides[d], meta.shape[d] == 1))


def memory_of(x: Any, meta: TensorMeta) -> Any:
    """A dense value as one row, as it lies in memory."""
    return jnp.transpose(x, memory_order(meta)).reshape(-1)


def from_memory(flat: Any, meta: TensorMeta) -> Any:
    """The value that lies so in memory."""
    order = memory_order(meta)
    shaped = flat[: meta.numel].reshape([meta.shape[d] for d in order])
    return jnp.transpose(shaped, tuple(np.argsort(order)))


def row_of(x: Any, have: TensorMeta, dtype: dt.dtype) -> Any:
    """Memory as a row of elements of a dtype (with more of them at its end, if need be)."""
    flat = memory_of(x, have)
    if have.dtype is dtype:
        return flat
    rest = -(flat.shape[0] * have.dtype.itemsize) % dtype.itemsize // have.dtype.itemsize
    return retyped(jnp.pad(flat, (0, rest)) if rest else flat, jtype(dtype))


def positions(size: Sequence[int], stride: Sequence[int], offset: int) -> Any:
    """Where in a row each element of a view is."""
    at = jnp.full(tuple(size), offset, jnp.int64)
    for d, step in enumerate(stride):
        at = at + lax.broadcasted_iota(jnp.int64, tuple(size), d) * step
    return at


def strided(flat: Any, size: Sequence[int], stride: Sequence[int], offset: int) -> Any:
    """`as_strided` of a row: slices and reshapes where they will do, else a gather."""
    size = tuple(size)
    if not math.prod(size):
        return jnp.zeros(size, flat.dtype)
    real = [d for d in range(len(size)) if size[d] > 1 and stride[d] != 0]
    order = sorted(real, key=lambda d: -stride[d])
    found = _sliced(flat, [size[d] for d in order], [stride[d] for d in order], offset)
    if found is None:
        return flat[positions(size, stride, offset)]
    found = jnp.transpose(found, tuple(np.argsort(order)))
    return jnp.broadcast_to(
        found.reshape([size[d] if d in real else 1 for d in range(len(size))]), size
    )


def _sliced(flat: Any, size: list[int], stride: list[int], offset: int) -> Any:
    """Dimensions whose strides divide each other are slices of a reshaped row."""
    if not size:
        return flat[offset]
    inner = list(zip(stride, size, strict=True))[1:]
    nested = all(outer % step == 0 for outer, step in itertools.pairwise(stride))
    if not nested or any(
        step * n > outer for outer, (step, n) in zip(stride[:-1], inner, strict=True)
    ):
        return None
    count = flat.shape[0]
    whole = -(-count // stride[0]) * stride[0]
    if whole != count:
        reach = sum((n - 1) * step for step, n in inner)
        if offset % stride[0] + (size[0] - 1) * stride[0] + reach > count:
            return None
        flat = jnp.pad(flat, (0, whole - count))
    shape = [whole // stride[0], *(a // b for a, b in itertools.pairwise(stride)), stride[-1]]
    starts, rest = [], offset
    for step in (*stride, 1):
        starts.append(rest // step)
        rest %= step
    ends = [a + n for a, n in zip(starts, (*size, 1), strict=True)]
    if any(e > n for e, n in zip(ends, shape, strict=True)):
        return None
    return lax.slice(flat.reshape(shape), starts, ends).reshape(size)


def read(array: Any, have: TensorMeta, meta: TensorMeta, offset: int) -> Any:
    """The elements of a tensor, out of an array that lies in memory as `have` says."""
    array = whole(array)
    if have is meta and not offset:
        return array
    if not meta.numel:
        return jnp.zeros(tuple(meta.shape), jtype(meta.dtype))
    if not offset and have.dtype is meta.dtype and _is_reshape(have, meta):
        # (Not by way of one row: what is cut over a mesh stays so.)
        return jnp.transpose(array, memory_order(have)).reshape(tuple(meta.shape))
    return strided(row_of(array, have, meta.dtype), tuple(meta.shape), meta.strides, offset)


def _is_reshape(have: TensorMeta, meta: TensorMeta) -> bool:
    return have.numel == meta.numel and have.is_dense and meta.contiguous


def write(array: Any, have: TensorMeta, meta: TensorMeta, offset: int, value: Any) -> Any:
    """The array with a tensor's elements written into it; it stays laid out as it was."""
    array = whole(array)
    if have.dtype is meta.dtype:
        return put(array, have, value, tuple(meta.shape), meta.strides, offset)
    row = row_of(array, have, meta.dtype)
    row = row.at[positions(meta.shape, meta.strides, offset)].set(value)
    return from_memory(retyped(row, jtype(have.dtype)), have)


def put(
    x: Any, meta: TensorMeta, src: Any, size: Sequence[int], stride: Sequence[int], offset: int
) -> Any:
    """`x`, which lies in memory as `meta` says, with a region of its memory replaced."""
    if not src.size:
        return x
    starts = _box(meta, size, stride, offset)
    if starts is not None:
        return lax.dynamic_update_slice(x, src, [np.int64(s) for s in starts])
    flat = memory_of(x, meta)
    return from_memory(flat.at[positions(size, stride, offset)].set(src), meta)


def _box(
    meta: TensorMeta, size: Sequence[int], stride: Sequence[int], offset: int
) -> list[int] | None:
    """Where a region starts that is a box of the tensor itself; None: it is none."""
    if len(set(meta.strides)) != meta.ndim or tuple(stride) != tuple(meta.strides):
        return None
    starts, rest = [0] * meta.ndim, offset
    for d in sorted(range(meta.ndim), key=lambda d: -meta.strides[d]):
        starts[d], rest = divmod(rest, meta.strides[d])
    fits = all(a + n <= m for a, n, m in zip(starts, size, meta.shape, strict=True))
    return starts if fits and not rest else None
