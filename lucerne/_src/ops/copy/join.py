"""Tensors put together: cat, stack and their kin."""

from __future__ import annotations

from typing import Any

import numpy as np

from lucerne._src.base import dtype as dt
from lucerne._src.base import shape as sh
from lucerne._src.ir.convert import as_int, as_tensor_list
from lucerne._src.ir.define import common_device, front, structural
from lucerne._src.ir.meta import TensorMeta, make_meta
from lucerne._src.ir.op import Tensor, TensorList
from lucerne._src.ir.promote import result_type
from lucerne._src.ops.copy.cast import cast


def _cat_meta(tensors: tuple[TensorMeta, ...], dim: int) -> TensorMeta:
    first = tensors[0]
    total = 0
    for i, m in enumerate(tensors):
        same_rest = (
            m.shape[:dim] == first.shape[:dim] and m.shape[dim + 1 :] == first.shape[dim + 1 :]
        )
        if m.ndim != first.ndim:
            raise RuntimeError(
                f"Tensors must have same number of dimensions: got {first.ndim} and {m.ndim}"
            )
        if not same_rest:
            raise RuntimeError(_mismatch(first, m, dim, i))
        total += m.shape[dim]
    shape = (*first.shape[:dim], total, *first.shape[dim + 1 :])
    formats = {sh.suggested_format(m.shape, m.strides) for m in tensors}
    strides = sh.format_strides(shape, formats.pop()) if len(formats) == 1 else None
    return make_meta(first.dtype, shape, strides, common_device(list(tensors)))


def _mismatch(first: TensorMeta, other: TensorMeta, dim: int, at: int) -> str:
    d = next(d for d in range(first.ndim) if d != dim and first.shape[d] != other.shape[d])
    return (
        f"Sizes of tensors must match except in dimension {dim}. Expected size {first.shape[d]} "
        f"but got size {other.shape[d]} for tensor number {at} in the list."
    )


def _cat_vjp(g: Tensor, tensors_meta: Any, dim: int) -> tuple[Tensor, ...]:
    parts, at = [], 0
    for m in tensors_meta:
        parts.append(g.narrow(dim, at, m.shape[dim]))
        at += m.shape[dim]
    return tuple(parts)


@structural(
    meta=_cat_meta,
    vjp={"tensors": _cat_vjp},
    name="cat",
    oracle=lambda tensors, dim: np.concatenate(tensors, axis=dim),
    samples=[([(2, 3), (1, 3)], 0), ([(2, 3), (2, 2)], 1)],
    autocast="promote",
    exact="choice",
    folds=True,
)
def cat_same(tensors: TensorList, dim: int) -> Tensor:
    """Tensors of one dtype and number of dimensions, one after the other along `dim`."""


@front(aliases=("concat", "concatenate"))
def cat(tensors: Any, dim: int = 0, *, axis: Any = None, out: Any = None) -> Tensor:
    """Tensors one after the other along a dimension.

    >>> import lucerne
    >>> lucerne.cat([lucerne.zeros(2), lucerne.ones(1)])
    tensor([0., 0., 1.])
    """
    if hasattr(tensors, "_meta"):
        raise TypeError(
            "cat(): argument 'tensors' (position 1) must be tuple of Tensors, not Tensor"
        )
    given = as_tensor_list(tensors)
    dim = as_int(dim if axis is None else axis)
    _check_parts(given)
    dtype = result_type([t._meta for t in given])
    if out is not None and not dt.can_cast(dtype, out.dtype):
        raise TypeError(
            "torch.cat(): input types can't be cast to the desired output type "
            f"{dt.cxx_name(out.dtype)}"
        )
    # A 1-D tensor without elements joins anything, as in old code that grows lists from nothing.
    real = [t for t in given if t.ndim != 1 or t.shape[0]] or [given[0]]
    d = sh.wrap_dim(dim, real[0].ndim)
    if len(real) < len(given) and any(t.requires_grad for t in given):
        real = _with_empty(given, real[0], d)  # each gets its gradient, be it empty
    _check_overlap(given, out)
    return cat_same([t if t.dtype is dtype else cast(t, dtype) for t in real], d, out=out)


def _with_empty(given: tuple[Any, ...], like: Any, dim: int) -> list[Any]:
    """The parts, those without elements with as many dimensions as the others."""
    none = tuple(0 if d == dim else n for d, n in enumerate(like.shape))
    return [t if t.ndim != 1 or t.shape[0] else t.reshape(none) for t in given]


def _check_parts(given: tuple[Any, ...]) -> None:
    if not given:
        raise ValueError("expected a non-empty list of Tensors")
    for i, t in enumerate(given):
        if not hasattr(t, "_meta"):
            raise TypeError(
                f"expected Tensor as element {i} in argument 0, but got {type(t).__name__}"
            )
        if not t.ndim:
            raise RuntimeError(f"zero-dimensional tensor (at position {i}) cannot be concatenated")


def _check_overlap(parts: tuple[Any, ...], out: Any) -> None:
    """Refuse an `out` that shares memory with what is read: it would be overwritten on the way."""
    if out is None or not hasattr(out, "_meta"):
        return
    for t in parts:
        if t.untyped_storage().data_ptr() == out.untyped_storage().data_ptr():
            start, end = t.storage_offset(), t.storage_offset() + t._meta.span
            crossing = start < out.storage_offset() + out._meta.span and out.storage_offset() < end
            if crossing or t is out:
                raise RuntimeError(
                    "unsupported operation: some elements of the input tensor and the written-to "
                    "tensor refer to a single memory location. Please clone() the tensor before "
                    "performing the operation."
                )


@front()
def stack(tensors: Any, dim: int = 0, *, out: Any = None) -> Tensor:
    """Tensors of one shape side by side along a new dimension.

    >>> import lucerne
    >>> lucerne.stack([lucerne.zeros(2), lucerne.ones(2)])
    tensor([[0., 0.],
            [1., 1.]])
    """
    given = as_tensor_list(tensors)
    if not given:
        raise RuntimeError("stack expects a non-empty TensorList")
    first = given[0]
    d = sh.wrap_dim(as_int(dim), first.ndim + 1)
    for i, t in enumerate(given):
        if not hasattr(t, "_meta"):
            raise TypeError(
                f"expected Tensor as element {i} in argument 0, but got {type(t).__name__}"
            )
        if t.shape != first.shape:
            raise RuntimeError(
                f"stack expects each tensor to be equal size, but got {list(first.shape)} at entry "
                f"0 and {list(t.shape)} at entry {i}"
            )
    return cat([t.unsqueeze(d) for t in given], d, out=out)


# ---- by the number of dimensions --------------------------------------------------------------


def _each(tensors: tuple[Any, ...], one: Any) -> Any:
    if len(tensors) == 1 and not hasattr(tensors[0], "_meta"):
        return tuple(one(t) for t in tensors[0])
    return one(tensors[0]) if len(tensors) == 1 else tuple(one(t) for t in tensors)


@front()
def atleast_1d(*tensors: Any) -> Any:
    """Numbers become vectors of one element; the rest stays."""
    return _each(tensors, lambda t: t.reshape(1) if t.ndim == 0 else t)


@front()
def atleast_2d(*tensors: Any) -> Any:
    """At least a row: shapes () and (n,) become (1, 1) and (1, n)."""
    return _each(
        tensors, lambda t: t.reshape(1, 1) if t.ndim == 0 else t.unsqueeze(0) if t.ndim == 1 else t
    )


def _three_dims(t: Tensor) -> Tensor:
    if t.ndim == 0:
        return t.reshape(1, 1, 1)
    if t.ndim == 1:
        return t.unsqueeze(0).unsqueeze(-1)
    return t.unsqueeze(-1) if t.ndim == 2 else t


@front()
def atleast_3d(*tensors: Any) -> Any:
    """At least three dimensions: (n,) becomes (1, n, 1) and (m, n) becomes (m, n, 1)."""
    return _each(tensors, _three_dims)


def _parts(name: str, tensors: Any) -> tuple[Any, ...]:
    given = as_tensor_list(tensors)
    if not given:
        raise RuntimeError(f"{name} expects a non-empty TensorList")
    return given


@front()
def hstack(tensors: Any, *, out: Any = None) -> Tensor:
    """Side by side: along dimension 1, or 0 for vectors."""
    given = atleast_1d(_parts("hstack", tensors))
    return cat(given, 0 if given[0].ndim == 1 else 1, out=out)


@front(aliases=("row_stack",))
def vstack(tensors: Any, *, out: Any = None) -> Tensor:
    """On top of each other: along dimension 0."""
    return cat(atleast_2d(_parts("vstack", tensors)), 0, out=out)


@front()
def dstack(tensors: Any, *, out: Any = None) -> Tensor:
    """Behind each other: along dimension 2."""
    return cat(atleast_3d(_parts("dstack", tensors)), 2, out=out)


@front()
def column_stack(tensors: Any, *, out: Any = None) -> Tensor:
    """Vectors as columns, matrices as they are, side by side."""
    columns = [
        t.reshape(t.numel(), 1) if t.ndim <= 1 else t for t in _parts("column_stack", tensors)
    ]
    return hstack(columns, out=out)
