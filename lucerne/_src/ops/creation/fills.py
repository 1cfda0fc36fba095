"""Tensors out of nothing: zeros, ones, full, empty and their kin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucerne._src.base import dtype as dt
from lucerne._src.base import layout as lo
from lucerne._src.base import shape as sh
from lucerne._src.base.defaults import DefaultDevice, dtype_of_number, get_default_dtype
from lucerne._src.base.refusals import no_pinned_memory
from lucerne._src.ir.convert import as_device, as_int_list, as_optional_dtype
from lucerne._src.ir.define import front
from lucerne._src.ir.op import Tensor
from lucerne._src.ir.signature import refuse_unknown, takes
from lucerne._src.ops.copy.cast import filled, preserved_strides, uninitialized
from lucerne._src.ops.copy.place import inherit
from lucerne._src.ops.scalars import number_for
from lucerne._src.ops.view.reshape import sizes

# ---- the common part of all factories ---------------------------------------------------------


def shape_given(name: str, args: tuple[Any, ...], size: Any) -> sh.Shape:
    """The size of a factory call: numbers, or one list of numbers."""
    given = sizes(args, size)
    for n in given if isinstance(given, (tuple, list)) else ():
        if isinstance(n, (float, str, bool)) or n is None:
            raise TypeError(
                f"{name}(): argument 'size' (position 1) must be tuple of ints, not "
                f"{type(n).__name__}"
            )
    shape = as_int_list(given)
    if any(n < 0 for n in shape):
        if name == "zeros":
            raise RuntimeError("zeros: Dimension size must be non-negative.")
        negative = next(n for n in shape if n < 0)
        raise RuntimeError(
            f"Trying to create tensor with negative dimension {negative}: {list(shape)}"
        )
    return shape


SPARSE: dict[str, Callable[..., Any]] = {}
"""How a tensor of another layout without elements is made; tensor/sparse/create.py fills it."""


def is_other(layout: Any) -> bool:
    """Whether a layout is meant that stores no zeros."""
    return layout is not None and layout is not lo.strided and "empty" in SPARSE


def strided_only(name: str, layout: Any) -> None:
    if layout is not None and layout is not lo.strided:
        raise RuntimeError(f"{name}: only the strided layout is supported here, got {layout}")


def options_given(
    name: str,
    /,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    **unknown: Any,
) -> tuple[Any, Any, Any, bool]:
    """The keywords all factories share."""
    refuse_unknown(name, unknown)
    if pin_memory:
        no_pinned_memory()
    return dtype, layout, device, requires_grad


@takes(options_given)
def strided_options(name: str, /, **options: Any) -> tuple[Any, Any, bool]:
    """The same of a factory that knows no other layout: dtype, device, whether a gradient."""
    dtype, layout, device, requires_grad = options_given(name, **options)
    strided_only(name, layout)
    return dtype, device, requires_grad


@takes(options_given)
def new_options(name: str, input: Tensor, /, **options: Any) -> tuple[Any, Any, bool]:
    """The same of a factory that takes its dtype and device from a tensor unless told."""
    dtype, device, requires_grad = strided_options(name, **options)
    return dtype or input.dtype, device or input.device, requires_grad


def device_or_default(device: Any) -> Any:
    return DefaultDevice.get() if device is None else as_device(device)


def _strides(shape: sh.Shape, memory_format: Any) -> sh.Shape | None:
    if memory_format is None or memory_format is lo.contiguous_format:
        return None
    if memory_format is lo.preserve_format:
        raise RuntimeError("memory format option is only supported by strided tensors that exist")
    return sh.format_strides(shape, memory_format)


def sized_out(out: Any, shape: sh.Shape, dtype: Any) -> Any:
    """An `out=` tensor brought to the shape of the result."""
    if dtype is not None and dtype is not out.dtype:
        raise RuntimeError(
            f"dtype {dt.cxx_name(dtype)} does not match dtype of out parameter "
            f"({dt.cxx_name(out.dtype)})"
        )
    return out if tuple(out.shape) == shape else out.resize_(shape)


def make_filled(
    shape: sh.Shape,
    value: Any,
    dtype: Any,
    device: Any,
    requires_grad: bool,
    strides: Any = None,
    out: Any = None,
) -> Tensor:
    """A tensor of one value, by the options that factories share."""
    dtype = as_optional_dtype(dtype)
    if out is not None:
        return sized_out(out, shape, dtype).fill_(value)
    kind = dtype or get_default_dtype()
    made = filled(shape, number_for(value, kind), kind, device_or_default(device), strides)
    return made.requires_grad_() if requires_grad else made


def make_empty(
    shape: sh.Shape, dtype: Any, device: Any, requires_grad: bool, strides: Any = None
) -> Tensor:
    kind = as_optional_dtype(dtype) or get_default_dtype()
    made = uninitialized(shape, kind, device_or_default(device), strides)
    return made.requires_grad_() if requires_grad else made


# ---- by size ----------------------------------------------------------------------------------


@front(options=options_given)
def zeros(*args: Any, size: Any = None, out: Any = None, **options: Any) -> Tensor:
    """A tensor of zeros.

    >>> import lucerne
    >>> lucerne.zeros(2, 3)
    tensor([[0., 0., 0.],
            [0., 0., 0.]])
    """
    dtype, layout, device, requires_grad = options_given("zeros", **options)
    shape = shape_given("zeros", args, size)
    if is_other(layout):
        return SPARSE["empty"](shape, dtype, layout, device, requires_grad)
    return make_filled(shape, 0, dtype, device, requires_grad, None, out)


@front(options=strided_options)
def ones(*args: Any, size: Any = None, out: Any = None, **options: Any) -> Tensor:
    """A tensor of ones.

    >>> import lucerne
    >>> lucerne.ones(2, dtype=lucerne.int64)
    tensor([1, 1])
    """
    made = strided_options("ones", **options)
    return make_filled(shape_given("ones", args, size), 1, *made, out=out)


@front(options=strided_options)
def full(size: Any, fill_value: Any, *, out: Any = None, **options: Any) -> Tensor:
    """A tensor of one value; its dtype is that of the value unless told.

    >>> import lucerne
    >>> lucerne.full((2,), 7)
    tensor([7, 7])
    """
    dtype, device, requires_grad = strided_options("full", **options)
    value = fill_value.item() if hasattr(fill_value, "item") else fill_value
    if dtype is None and out is None:
        dtype = fill_value.dtype if hasattr(fill_value, "_meta") else dtype_of_number(value)
    shape = shape_given("full", (size,), None)
    return make_filled(shape, value, dtype, device, requires_grad, None, out)


@front(options=options_given)
def empty(
    *args: Any, size: Any = None, out: Any = None, memory_format: Any = None, **options: Any
) -> Tensor:
    """A tensor with undefined contents."""
    dtype, layout, device, requires_grad = options_given("empty", **options)
    shape = shape_given("empty", args, size)
    if is_other(layout):
        return SPARSE["empty"](shape, dtype, layout, device, requires_grad)
    if out is not None:
        return sized_out(out, shape, as_optional_dtype(dtype))
    return make_empty(shape, dtype, device, requires_grad, _strides(shape, memory_format))


@front(options=strided_options)
def empty_strided(size: Any, stride: Any, **options: Any) -> Tensor:
    """A tensor with undefined contents and the given strides."""
    made = strided_options("empty_strided", **options)
    shape, strides = as_int_list(size), as_int_list(stride)
    if len(shape) != len(strides):
        raise RuntimeError(
            f"dimensionality of sizes ({len(shape)}) must match dimensionality of strides "
            f"({len(strides)})"
        )
    return make_empty(shape, *made, strides=strides)


@front(options=strided_options)
def empty_permuted(size: Any, physical_layout: Any, **options: Any) -> Tensor:
    """Undefined contents; `physical_layout` lists the dimensions from the outermost in memory."""
    made = strided_options("empty_permuted", **options)
    shape, order = as_int_list(size), as_int_list(physical_layout)
    if len(shape) != len(order):
        raise RuntimeError(
            "Number of dimensions in size does not match the length of the physical_layout; i.e. "
            f"len(size) = {len(shape)} is not equal to len(physical_layout) = {len(order)}"
        )
    for at, d in enumerate(order):
        if not 0 <= d < len(shape):
            raise RuntimeError(
                f"Dimension out of range (expected to be between 0 and {len(shape) - 1}, but got "
                f"{d} at index {at}).  NB: negative dims not currently supported; file an issue if "
                "you want it."
            )
    if len(set(order)) != len(order):
        raise RuntimeError("Duplicate dim not allowed")
    strides = sh.ordered_strides(shape, order[::-1])
    return make_empty(shape, *made, strides=strides)


@front(options=strided_options)
def scalar_tensor(s: Any, **options: Any) -> Tensor:
    """A number as a 0-dim tensor (of the default float type unless told)."""
    return make_filled((), s, *strided_options("scalar_tensor", **options))


# ---- like another tensor ----------------------------------------------------------------------


@takes(options_given)
def like_options(
    name: str, input: Tensor, /, *, memory_format: Any = None, **options: Any
) -> tuple[Any, Any, bool, Any]:
    """The same of a factory that takes after a tensor: what is not told is as it is there."""
    dtype, device, requires_grad = new_options(name, input, **options)
    strides = preserved_strides(input._meta, memory_format or lo.preserve_format)
    return dtype, device, requires_grad, strides


def _filled_like(
    input: Tensor, value: Any, dtype: Any, device: Any, requires_grad: bool, strides: Any
) -> Tensor:
    """One value, laid out in memory and on a mesh as `input` is."""
    made = inherit(make_filled(tuple(input.shape), value, dtype, device, False, strides), input)
    return made.requires_grad_() if requires_grad else made


@front(options=like_options)
def zeros_like(input: Tensor, **options: Any) -> Tensor:
    """Zeros in the shape, dtype and memory order of `input`."""
    return _filled_like(input, 0, *like_options("zeros_like", input, **options))


@front(options=like_options)
def ones_like(input: Tensor, **options: Any) -> Tensor:
    """Ones in the shape, dtype and memory order of `input`."""
    return _filled_like(input, 1, *like_options("ones_like", input, **options))


@front(options=like_options)
def full_like(input: Tensor, fill_value: Any, **options: Any) -> Tensor:
    """One value in the shape, dtype and memory order of `input`."""
    return _filled_like(input, fill_value, *like_options("full_like", input, **options))


@front(options=like_options)
def empty_like(input: Tensor, **options: Any) -> Tensor:
    """Undefined contents in the shape, dtype and memory order of `input`."""
    dtype, device, requires_grad, strides = like_options("empty_like", input, **options)
    made = inherit(make_empty(tuple(input.shape), dtype, device, False, strides), input)
    return made.requires_grad_() if requires_grad else made


@front(namespace="Tensor", method=True, options=new_options)
def new_zeros(input: Tensor, *args: Any, size: Any = None, **options: Any) -> Tensor:
    """Zeros of another size with this tensor's dtype and device."""
    made = new_options("new_zeros", input, **options)
    return make_filled(shape_given("new_zeros", args, size), 0, *made)


@front(namespace="Tensor", method=True, options=new_options)
def new_ones(input: Tensor, *args: Any, size: Any = None, **options: Any) -> Tensor:
    """Ones of another size with this tensor's dtype and device."""
    made = new_options("new_ones", input, **options)
    return make_filled(shape_given("new_ones", args, size), 1, *made)


@front(namespace="Tensor", method=True, options=new_options)
def new_full(input: Tensor, size: Any, fill_value: Any, **options: Any) -> Tensor:
    """One value in another size with this tensor's dtype and device."""
    made = new_options("new_full", input, **options)
    shape = shape_given("new_full", (size,), None)
    return make_filled(shape, fill_value, *made)


@front(namespace="Tensor", method=True, options=new_options)
def new_empty(input: Tensor, *args: Any, size: Any = None, **options: Any) -> Tensor:
    """Undefined contents in another size with this tensor's dtype and device."""
    made = new_options("new_empty", input, **options)
    return make_empty(shape_given("new_empty", args, size), *made)


@front(namespace="Tensor", method=True, options=strided_options)
def new_empty_strided(
    input: Tensor, size: Any, stride: Any, *, dtype: Any = None, device: Any = None, **options: Any
) -> Tensor:
    """Undefined contents in another size and strides with this tensor's dtype and device."""
    return empty_strided(
        size, stride, dtype=dtype or input.dtype, device=device or input.device, **options
    )
