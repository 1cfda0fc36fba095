"""A tensor in several parts, all views: unbind, split, chunk and their kin."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from lucerne._src.base import dtype as dt
from lucerne._src.base import shape as sh
from lucerne._src.base.device import HOST
from lucerne._src.ir.convert import IntList, as_int, as_int_list, is_zero_dim
from lucerne._src.ir.define import Geometry, front
from lucerne._src.ir.define import view as view_op
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.ir.op import Tensor
from lucerne._src.ops.copy.join import cat
from lucerne._src.ops.view.reshape import permuted, sizes
from lucerne._src.ops.view.slicing import slice_dim


@view_op(
    method=True,
    vjp={"input": lambda g, dim: _stack(g, dim)},
    oracle=lambda input, dim: list(np.moveaxis(input, dim, 0)),
)
def unbind(input: Tensor, dim: int = 0) -> Any:
    """Every index of a dimension as a tensor of its own."""
    meta: TensorMeta = input
    d = sh.wrap_dim(dim, meta.ndim, allow_scalar=False)
    rest = permuted(meta, [k for k in range(meta.ndim) if k != d])
    return [Geometry(rest.shape, rest.strides, i * meta.strides[d]) for i in range(meta.shape[d])]


def _stack(g: Any, dim: int) -> Tensor:
    parts = g if isinstance(g, tuple) else (g,)
    d = dim if dim >= 0 else dim + parts[0].ndim + 1
    return parts[0].unsqueeze(d) if len(parts) == 1 else cat([p.unsqueeze(d) for p in parts], d)


def _split_vjp(g: Any, dim: int) -> Tensor:
    return cat(g, dim) if isinstance(g, tuple) and len(g) > 1 else _only(g)


def _only(g: Any) -> Tensor:
    return g[0] if isinstance(g, tuple) else g


def _split_oracle(input: Any, split_sizes: Any, dim: int) -> Any:
    return np.split(input, np.cumsum(split_sizes)[:-1], axis=dim)


@view_op(
    method=True,
    vjp={"input": _split_vjp},
    aliases=("unsafe_split_with_sizes",),
    oracle=_split_oracle,
    samples=[((5, 2), (2, 3), 0)],
    grad_fn="SplitBackward0",
)
def split_with_sizes(input: Tensor, split_sizes: IntList, dim: int = 0) -> Any:
    """Parts of the given sizes along a dimension."""
    meta: TensorMeta = input
    if not meta.ndim:
        raise RuntimeError("split expects at least a 1-dimensional tensor")
    d = sh.wrap_dim(dim, meta.ndim)
    if any(n < 0 for n in split_sizes):
        raise RuntimeError(
            "split_with_sizes expects split_sizes have only non-negative entries, but got "
            f"split_sizes={list(split_sizes)}"
        )
    if sum(split_sizes) != meta.shape[d]:
        raise RuntimeError(
            f"split_with_sizes expects split_sizes to sum exactly to {meta.shape[d]} (input "
            f"tensor's size at dimension {d}), but got split_sizes={list(split_sizes)}"
        )
    parts, at = [], 0
    for n in split_sizes:
        shape = (*meta.shape[:d], n, *meta.shape[d + 1 :])
        parts.append(Geometry(shape, meta.strides, at * meta.strides[d]))
        at += n
    return parts


@front(method=True, aliases=("unsafe_split",))
def split(
    tensor: Tensor,
    split_size_or_sections: Any = None,
    dim: int = 0,
    *,
    split_size: Any = None,
) -> Any:
    """Parts of one size (the last may be smaller), or of the sizes in a list.

    >>> import lucerne
    >>> lucerne.arange(5).split(2)
    (tensor([0, 1]), tensor([2, 3]), tensor([4]))
    """
    size = split_size if split_size_or_sections is None else split_size_or_sections
    if not isinstance(size, int) and hasattr(size, "__len__") and not is_zero_dim(size):
        return split_with_sizes(tensor, size, dim)
    size = as_int(size)
    if not tensor.ndim:
        raise RuntimeError("split expects at least a 1-dimensional tensor")
    if size < 0:
        raise RuntimeError(f"split expects split_size be non-negative, but got split_size={size}")
    n = tensor.shape[sh.wrap_dim(dim, tensor.ndim)]
    if size == 0 and n:
        raise RuntimeError(
            f"split_size can only be 0 if dimension size is 0, but got dimension size of {n}"
        )
    parts = [size] * (n // size) if size else [0]
    if size and (n % size or not n):
        parts.append(n % size)
    return split_with_sizes(tensor, parts, dim)


@front(method=True, aliases=("unsafe_chunk",))
def chunk(input: Tensor, chunks: int, dim: int = 0) -> Any:
    """At most `chunks` parts of equal size; the last may be smaller.

    >>> import lucerne
    >>> [len(c) for c in lucerne.arange(10).chunk(4)]
    [3, 3, 3, 1]
    """
    if not input.ndim:
        raise RuntimeError("chunk expects at least a 1-dimensional tensor")
    if chunks <= 0:
        raise RuntimeError(f"chunk expects `chunks` to be greater than 0, got: {chunks}")
    n = input.shape[sh.wrap_dim(dim, input.ndim)]
    size = (n + chunks - 1) // chunks
    if size == 0:
        return split_with_sizes(input, [0] * chunks, dim)
    return split(input, size, dim)


@front(method=True)
def tensor_split(
    input: Tensor,
    indices_or_sections: Any = None,
    dim: int = 0,
    *,
    indices: Any = None,
    sections: Any = None,
    tensor_indices_or_sections: Any = None,
) -> Any:
    """Parts of nearly equal size, or parts that begin at the given indices."""
    for other in (indices, sections, tensor_indices_or_sections):
        indices_or_sections = other if indices_or_sections is None else indices_or_sections
    if not input.ndim:
        raise RuntimeError(
            "tensor_split expected at least a 1-dimensional tensor, but got a tensor with 0 dims"
        )
    d = sh.wrap_dim(dim, input.ndim)
    n = input.shape[d]
    given = _split_points(indices_or_sections)
    if isinstance(given, int):
        if given <= 0:
            raise RuntimeError(f"number of sections must be larger than 0, got {given}")
        small, more = divmod(n, given)
        ends, at = [], 0
        for i in range(given):
            at += small + (i < more)
            ends.append(at)
        return tuple(slice_dim(input, d, e - small - (i < more), e, 1) for i, e in enumerate(ends))
    edges = [0, *given, n]
    return tuple(slice_dim(input, d, a, b, 1) for a, b in itertools.pairwise(edges))


def _split_points(given: Any) -> Any:
    if hasattr(given, "_meta"):
        if given.device.type != HOST:
            raise RuntimeError(
                "tensor_split expected tensor_indices_or_sections to be on cpu, but it's on "
                f"{given.device}"
            )
        if given.dtype is not dt.int64:
            raise RuntimeError(
                "tensor_split expected tensor_indices_or_sections to have dtype of long, but got "
                f"{dt.cxx_name(given.dtype)}"
            )
        if given.ndim > 1:
            raise RuntimeError(
                "tensor_split expected tensor_indices_or_sections to be a zero-dimensional or "
                f"one-dimensional tensor, but got a tensor with {given.ndim} dims"
            )
        return given.tolist()
    return given if isinstance(given, int) else list(as_int_list(given))


def _dim_split(name: str, input: Tensor, dim: int, least: int, given: Any) -> Any:
    if isinstance(given, str):
        raise TypeError(f"{name}() received an invalid combination of arguments - got a str")
    if input.ndim < least:
        raise RuntimeError(
            f"torch.{name} requires a tensor with at least {least} dimension, but got a tensor "
            f"with {input.ndim} dimensions!"
        )
    if isinstance(given, int) and (given == 0 or input.shape[dim] % given):
        raise RuntimeError(
            f"torch.{name} attempted to split along dimension {dim}, but the size of the dimension "
            f"{input.shape[dim]} is not divisible by the split_size {given}!"
        )
    return tensor_split(input, given, dim)


def _points(args: tuple[Any, ...], indices: Any, sections: Any) -> Any:
    if not args:
        return sections if indices is None else indices
    return args[0] if len(args) == 1 and isinstance(args[0], (int, str)) else sizes(args)


@front(method=True)
def hsplit(input: Tensor, *args: Any, indices: Any = None, sections: Any = None) -> Any:
    """Parts along dimension 1 (0 for 1-D tensors)."""
    dim = 0 if input.ndim == 1 else 1
    return _dim_split("hsplit", input, dim, 1, _points(args, indices, sections))


@front(method=True)
def vsplit(input: Tensor, *args: Any, indices: Any = None, sections: Any = None) -> Any:
    """Parts along dimension 0 of a tensor with at least two dimensions."""
    return _dim_split("vsplit", input, 0, 2, _points(args, indices, sections))


@front(method=True)
def dsplit(input: Tensor, *args: Any, indices: Any = None, sections: Any = None) -> Any:
    """Parts along dimension 2."""
    return _dim_split("dsplit", input, 2, 3, _points(args, indices, sections))
