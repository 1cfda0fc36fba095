"""Views as copies (`permute_copy`, ...), copies with a part replaced (`*_scatter`), fills."""

from __future__ import annotations

from typing import Any

from lucerne._src.base import dtype as dt
from lucerne._src.base import layout as lo
from lucerne._src.base import shape as sh
from lucerne._src.ir.convert import Dtype, IntList, as_int_list
from lucerne._src.ir.define import composite, front
from lucerne._src.ir.op import Tensor, TensorList
from lucerne._src.ops.copy.cast import filled
from lucerne._src.ops.copy.join import cat
from lucerne._src.ops.scalars import number_for
from lucerne._src.ops.view.reshape import check_offset, view_dtype
from lucerne._src.ops.view.slicing import as_strided, bounds, lies_within, slice_dim


def _own(x: Any) -> Any:
    """A view (or several) as contiguous tensors with memory of their own."""
    if isinstance(x, tuple):
        return tuple(_own(part) for part in x)
    return x.clone(memory_format=lo.contiguous_format)


# ---- fills ------------------------------------------------------------------------------------


@front()
def fill(input: Tensor, value: Any) -> Tensor:
    """A tensor like `input` with every element `value`."""
    return input.clone().fill_(value)


@front(namespace="Tensor", method=True)
def fill_(input: Tensor, value: Any) -> Tensor:
    """Write `value` over every element.

    >>> import lucerne
    >>> lucerne.zeros(2).fill_(3)
    tensor([3., 3.])
    """
    if hasattr(value, "_meta"):
        if value.ndim:
            raise RuntimeError(
                "fill_ only supports 0-dimension value tensor but got tensor with "
                f"{value.ndim} dimensions."
            )
        _each_place_once(input).copy_(value)
    else:
        _each_place_once(input).copy_(number_for(value, input.dtype))
    return input


@front(method=True)
def zero_(input: Tensor) -> Tensor:
    """Write zeros over every element."""
    _each_place_once(input).copy_(0)
    return input


def _each_place_once(x: Tensor) -> Tensor:
    """The view of an expanded tensor that holds each memory location once."""
    for d, (n, st) in enumerate(zip(x.shape, x.stride(), strict=True)):
        if st == 0 and n > 1:
            x = x.narrow(d, 0, 1)
    return x


# ---- views as copies --------------------------------------------------------------------------


@composite(out="exact")
def alias_copy(input: Tensor) -> Tensor:
    """A copy."""
    return _own(input)


@composite(name="view_copy", out="exact")
def view_copy_shape(input: Tensor, size: IntList) -> Tensor:
    """`view` as a copy."""
    return input.reshape(size).clone()


@composite(internal=True, name="view_copy_dtype", out="exact", torch="view_copy")
def view_copy_dtype(input: Tensor, dtype: Dtype) -> Tensor:
    """`view(dtype)` as a copy."""
    return _own(view_dtype(input, dtype))


@front()
def view_copy(input: Tensor, size: Any = None, *, dtype: Any = None, out: Any = None) -> Tensor:
    """`view` as a copy."""
    kind = size if isinstance(size, dt.dtype) else dtype
    if kind is not None:
        check_offset(input, kind)
        return view_copy_dtype(input, kind, out=out)
    return view_copy_shape(input, size, out=out)


@front()
def as_strided_copy(
    input: Tensor, size: Any, stride: Any, storage_offset: int | None = None, *, out: Any = None
) -> Tensor:
    """`as_strided` as a copy."""
    return alias_copy(as_strided(input, size, stride, storage_offset), out=out)


@composite(out="exact")
def diagonal_copy(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """`diagonal` as a copy."""
    return _own(input.diagonal(offset, dim1, dim2))


@composite(out="exact")
def expand_copy(input: Tensor, size: IntList, *, implicit: bool = False) -> Tensor:
    """`expand` as a copy."""
    return _own(input.expand(size))


@composite(method=True, out="exact")
def narrow_copy(input: Tensor, dim: int, start: int, length: int) -> Tensor:
    """`narrow` as a copy."""
    return _own(input.narrow(dim, start, length))


@composite(out="exact")
def permute_copy(input: Tensor, dims: IntList) -> Tensor:
    """`permute` as a copy."""
    return _own(input.permute(dims))


@composite(out="exact")
def select_copy(input: Tensor, dim: int, index: int) -> Tensor:
    """`select` as a copy."""
    return _own(input.select(dim, index))


@composite(out="exact")
def slice_copy(
    input: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Tensor:
    """A slice as a copy."""
    return _own(slice_dim(input, dim, start, end, step))


@composite(out="exact")
def squeeze_copy(input: Tensor, dim: IntList | None = None) -> Tensor:
    """`squeeze` as a copy."""
    return _own(input.squeeze(dim))


@composite(out="exact")
def unsqueeze_copy(input: Tensor, dim: int) -> Tensor:
    """`unsqueeze` as a copy."""
    return _own(input.unsqueeze(dim))


@composite(out="exact")
def t_copy(input: Tensor) -> Tensor:
    """`t` as a copy."""
    return _own(input.t())


@composite(out="exact")
def transpose_copy(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """`transpose` as a copy."""
    return _own(input.transpose(dim0, dim1))


@composite(out="exact")
def unfold_copy(input: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """`unfold` as a copy."""
    return _own(input.unfold(dimension, size, step))


@composite(name="unbind_copy", out=False)
def unbind_copy_op(input: Tensor, dim: int = 0) -> Any:
    """`unbind` as copies."""
    return _own(input.unbind(dim))


@composite(name="split_copy", out=False)
def split_copy_op(input: Tensor, split_size: int, dim: int = 0) -> Any:
    """`split` as copies."""
    return _own(input.split(split_size, dim))


@composite(name="split_with_sizes_copy", out=False)
def split_with_sizes_copy_op(input: Tensor, split_sizes: IntList, dim: int = 0) -> Any:
    """`split_with_sizes` as copies."""
    return _own(input.split_with_sizes(split_sizes, dim))


def _delivered(parts: Any, out: Any) -> Any:
    """Several copies, or (as torch has it) nothing when they were written to `out`."""
    if out is None:
        return parts
    for part, target in zip(parts, out, strict=True):
        alias_copy(part, out=target)
    return None


@front()
def unbind_copy(input: Tensor, dim: int = 0, *, out: Any = None) -> Any:
    """`unbind` as copies."""
    return _delivered(unbind_copy_op(input, dim), out)


@front()
def split_copy(input: Tensor, split_size: int, dim: int = 0, *, out: Any = None) -> Any:
    """`split` as copies."""
    return _delivered(split_copy_op(input, split_size, dim), out)


@front()
def split_with_sizes_copy(input: Tensor, split_sizes: Any, dim: int = 0, *, out: Any = None) -> Any:
    """`split_with_sizes` as copies."""
    return _delivered(split_with_sizes_copy_op(input, split_sizes, dim), out)


@front()
def detach(input: Tensor) -> Tensor:
    """The same values, cut off from the graph."""
    return input.detach()


@composite(out="exact")
def detach_copy(input: Tensor) -> Tensor:
    """`detach` as a copy."""
    return _own(input.detach())


# ---- a copy with a part replaced --------------------------------------------------------------


def _with_part(input: Tensor, part: Any, src: Tensor, memory_format: Any = None) -> Tensor:
    """A copy of `input` where the view that `part` takes holds `src`."""
    made = input.clone(memory_format=memory_format or lo.contiguous_format)
    view = part(made)
    if view.shape != src.shape:
        raise RuntimeError(
            f"expected src to have a size equal to the slice of self. src size = "
            f"{list(src.shape)}, slice size = {list(view.shape)}"
        )
    view.copy_(src)
    return made


@composite(method=True, out="exact")
def diagonal_scatter(
    input: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Tensor:
    """A copy with a diagonal replaced by `src`."""
    return _with_part(input, lambda x: x.diagonal(offset, dim1, dim2), src)


@composite(method=True, out="exact")
def select_scatter(input: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    """A copy with one index of a dimension replaced by `src`."""
    return _with_part(input, lambda x: x.select(dim, index), src)


@composite(method=True, out="exact")
def slice_scatter(
    input: Tensor,
    src: Tensor,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Tensor:
    """A copy with a slice of a dimension replaced by `src`."""
    first, last = bounds(input.shape[sh.wrap_dim(dim, input.ndim)], start, end)
    return _with_part(input, lambda x: slice_dim(x, dim, first, last, step), src)


@front(method=True)
def as_strided_scatter(
    input: Tensor,
    src: Tensor,
    size: Any,
    stride: Any,
    storage_offset: int | None = None,
    *,
    out: Any = None,
) -> Tensor:
    """A copy with the elements that `as_strided` would read replaced by `src`."""
    size, stride = as_int_list(size), as_int_list(stride)
    start = 0 if storage_offset is None else storage_offset - input.storage_offset()
    if start >= 0 and lies_within(size, stride, input, start):
        return _scattered(input, src, size, stride, start, out=out)
    length, here = input.untyped_storage().nbytes() // input.itemsize, input.storage_offset()
    around = as_strided(input, (length,), (1,), 0).clone()  # what falls outside is not seen
    replaced = _with_part(around, lambda x: as_strided(x, size, stride, here + start), src)
    found = as_strided(replaced, input.shape, input.stride(), here)
    return found if out is None else alias_copy(found, out=out)


@composite(internal=True, name="as_strided_scatter", out="exact")
def _scattered(input: Tensor, src: Tensor, size: IntList, stride: IntList, start: int) -> Tensor:
    """`start` counts from the input's first element: the copy lies elsewhere."""
    return _with_part(input, lambda x: x.as_strided(size, stride, start), src, lo.preserve_format)


# ---- joined with padding ----------------------------------------------------------------------


@composite(name="_chunk_cat", out=False)
def chunk_cat(tensors: TensorList, dim: int, num_chunks: int) -> Tensor:
    """Each tensor in `num_chunks` padded chunks; the i-th chunks of all side by side."""
    d = _check_chunks(tensors, dim, num_chunks)
    rows = []
    for x in tensors:
        size = (x.shape[d] + num_chunks - 1) // num_chunks
        missing = size * num_chunks - x.shape[d]
        if missing:
            pad = filled((*x.shape[:d], missing, *x.shape[d + 1 :]), 0, x.dtype, x.device, None)
            x = cat([x, pad], d)
        rows.append(x.reshape(*x.shape[:d], num_chunks, -1))
    return cat(rows, d + 1)


def _check_chunks(tensors: Any, dim: int, num_chunks: int) -> int:
    if not tensors:
        raise RuntimeError("_chunk_cat expects a non-empty input tensor list")
    if num_chunks < 1:
        raise RuntimeError("_chunk_cat expects positive num_chunks")
    first = tensors[0]
    if dim < 0 and any(x.ndim != first.ndim for x in tensors):
        raise RuntimeError(
            "_chunk_cat expects non-negative dim when input tensors have different ndims"
        )
    d = sh.wrap_dim(dim, first.ndim) if dim < 0 else dim
    for x in tensors:
        if d >= x.ndim:
            raise RuntimeError("_chunk_cat expects dim < ndim for all input tensors")
        if not x.numel():
            raise RuntimeError("_chunk_cat expects non-empty tensor")
        if x.shape[:d] != first.shape[:d]:
            raise RuntimeError(
                "_chunk_cat expects same sizes of 0,...,dim-1 dimensions for all tensors"
            )
        if x.dtype is not first.dtype:
            raise RuntimeError("_chunk_cat expects same dtype for all input tensors")
    return d


@front()
def _chunk_cat(tensors: Any, dim: int, num_chunks: int, *, out: Any = None) -> Tensor:
    """Each tensor in `num_chunks` padded chunks; the i-th chunks of all side by side."""
    made = chunk_cat(tensors, dim, num_chunks)
    return made if out is None else cat([made], 0, out=out)
