"""Elements moved as they are: copies, casts, fills."""

from __future__ import annotations

from typing import Any

from lucerne._src.base import layout as lo
from lucerne._src.base import shape as sh
from lucerne._src.ir.convert import Device, Dtype, IntList
from lucerne._src.ir.define import front, structural
from lucerne._src.ir.meta import TensorMeta, make_meta
from lucerne._src.ir.op import Scalar, Tensor


def _copy_meta(input: TensorMeta, src: Any) -> TensorMeta:
    if isinstance(src, TensorMeta) and src.shape != input.shape:
        shape = sh.broadcast_shapes(input.shape, src.shape)
        if shape != tuple(input.shape):
            raise RuntimeError(
                f"output with shape {list(input.shape)} doesn't match the broadcast shape "
                f"{list(shape)}"
            )
    return input


@structural(
    internal=True,
    meta=_copy_meta,
    # What is overwritten has no part in the result: its gradient is nought, and not missing.
    vjp={"input": lambda g: g.new_zeros(g.shape), "src": lambda g: g},
    name="copy",
    exact="choice",
    cost="memory",
    elementwise=True,
    torch="copy",
    grad_fn="CopyBackwards",
)
def copy(input: Tensor, src: Tensor) -> Tensor:
    """`src` in the shape, dtype and layout of `input`."""


def _region_meta(input: TensorMeta, src: Any, size: Any, stride: Any, offset: int) -> TensorMeta:
    return input


@structural(
    internal=True,
    meta=_region_meta,
    out=False,
    exact="choice",
    cost="memory",
    torch="slice_scatter",
)
def put_region(input: Tensor, src: Tensor, size: IntList, stride: IntList, offset: int) -> Tensor:
    """`input` with the elements that a view of it reads (as in `as_strided`) replaced by `src`."""


def _cast_meta(input: TensorMeta, dtype: Any) -> TensorMeta:
    strides = (
        input.strides
        if input.is_dense
        else sh.elementwise_strides(tuple(input.shape), ((tuple(input.shape), input.strides),))
    )
    return make_meta(dtype, tuple(input.shape), strides, input.device)


@structural(
    internal=True,
    meta=_cast_meta,
    vjp={"input": lambda g: g},
    out=False,
    linear=True,
    exact="choice",
    cost="memory",
    elementwise=True,
    images=(0,),
    folds=True,
    torch="_to_copy",
)
def cast(input: Tensor, dtype: Dtype) -> Tensor:
    """The values converted to another dtype."""


def preserved_strides(meta: TensorMeta, memory_format: Any) -> sh.Shape:
    """Strides of a copy: dense memory keeps its order, the rest becomes contiguous."""
    if memory_format is not lo.preserve_format:
        return sh.format_strides(meta.shape, memory_format)
    if meta.is_dense:
        return meta.strides
    return sh.elementwise_strides(tuple(meta.shape), ((tuple(meta.shape), meta.strides),))


def _clone_meta(input: TensorMeta, memory_format: Any) -> TensorMeta:
    return input.like(strides=preserved_strides(input, memory_format))


@structural(
    internal=True,
    meta=_clone_meta,
    vjp={"input": lambda g: g},
    name="clone_as",
    out=False,
    linear=True,
    exact="choice",
    cost="memory",
    elementwise=True,
    folds=True,
    torch="clone",
)
def clone_as(input: Tensor, memory_format: Any) -> Tensor:
    """A copy in a memory format."""


@front(method=True, sparse=True, linear=True)
def clone(input: Tensor, *, memory_format: Any = lo.preserve_format) -> Tensor:
    """A copy with its own memory; gradients flow through."""
    return clone_as(input, memory_format)


@front(method=True)
def contiguous(input: Tensor, memory_format: Any = lo.contiguous_format) -> Tensor:
    """The tensor itself when its memory is in order, else a copy that is."""
    if memory_format is lo.preserve_format:
        raise RuntimeError("preserve memory format is unsupported by the contiguous operator")
    return (
        input
        if input.is_contiguous(memory_format=memory_format)
        else clone_as(input, memory_format)
    )


def _full_meta(size: Any, value: Any, dtype: Any, device: Any, strides: Any) -> TensorMeta:
    for n in size:
        if n < 0:
            raise RuntimeError(f"Trying to create tensor with negative dimension {n}: {list(size)}")
    return make_meta(dtype, tuple(size), strides, device)


@structural(
    internal=True, meta=_full_meta, out=False, cost="memory", elementwise=True, torch="full"
)
def filled(
    size: IntList, value: Scalar, dtype: Dtype, device: Device, strides: IntList | None
) -> Tensor:
    """A new tensor with every element `value`."""


def _empty_meta(size: Any, dtype: Any, device: Any, strides: Any) -> TensorMeta:
    return _full_meta(size, 0, dtype, device, strides)


@structural(internal=True, meta=_empty_meta, out=False, torch="empty")
def uninitialized(size: IntList, dtype: Dtype, device: Device, strides: IntList | None) -> Tensor:
    """A new tensor whose contents are undefined."""


def _counted_meta(start: Any, step: Any, length: int, dtype: Any, device: Any) -> TensorMeta:
    return make_meta(dtype, (length,), None, device)


@structural(internal=True, meta=_counted_meta, out=False, cost="memory", torch="arange")
def counted(start: Scalar, step: Scalar, length: int, dtype: Dtype, device: Device) -> Tensor:
    """`start`, `start + step`, ...: `length` numbers."""
