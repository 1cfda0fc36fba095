"""Index maps: the same memory under another shape. Bodies take a TensorMeta, return Geometry."""

from __future__ import annotations

from typing import Any

import numpy as np

from lucerne._src.base import dtype as dt
from lucerne._src.base import shape as sh
from lucerne._src.ir.convert import Dtype, IntList, as_int_list, is_zero_dim
from lucerne._src.ir.define import Geometry, front
from lucerne._src.ir.define import view as view_op
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.ir.op import Tensor
from lucerne._src.ir.symbolic.numbers import generic, is_one, is_symbolic
from lucerne._src.ops.reduce.folds import sum_dims_to


def sizes(args: tuple[Any, ...], keyword: Any = None) -> Any:
    """`x.view(2, 3)` and `x.view((2, 3))` mean the same."""
    if keyword is not None and not args:
        return keyword
    if len(args) == 1 and not isinstance(args[0], int) and hasattr(args[0], "__iter__"):
        return args if is_zero_dim(args[0]) else args[0]
    return args


# ---- shape ------------------------------------------------------------------------------------


def _strides_in_order(meta: TensorMeta, target: sh.Shape) -> sh.Shape | None:
    """The strides of a shape whose sizes only a run tells, if the memory is in order: whatever they
    are, it can be read so; None: that has to be decided."""
    if not is_symbolic(meta.shape):
        return None
    if meta.shape == target:
        return meta.strides
    with generic():
        same = meta.strides == sh.contiguous_strides(meta.shape)
        return sh.contiguous_strides(target) if same else None


@view_op(
    internal=True,
    name="view",
    vjp={"input": lambda g, input_meta: g.reshape(input_meta.shape)},
    keeps_order=True,
    torch="view",
)
def view_shape(input: Tensor, size: IntList) -> Any:
    """The same elements under another shape; strides must allow it."""
    meta: TensorMeta = input
    shape = sh.infer_size(size, meta.numel)
    strides = _strides_in_order(meta, shape) or sh.view_strides(
        tuple(meta.shape), meta.strides, shape
    )
    if strides is None:
        raise RuntimeError(
            "view size is not compatible with input tensor's size and stride (at least one "
            "dimension spans across two contiguous subspaces). Use .reshape(...) instead."
        )
    return Geometry(shape, strides)


@view_op(internal=True, name="view_dtype", vjp={}, torch="view")
def view_dtype(input: Tensor, dtype: Dtype) -> Any:
    """The same bytes read as another dtype."""
    meta: TensorMeta = input
    if meta.flipped:
        kind = "conjugate view tensors" if meta.dtype.category == dt.COMPLEX else (
            "tensors with negative bit set"
        )  # fmt: skip
        raise RuntimeError(
            f"torch.Tensor.view is not supported for {kind} when converting to a different dtype."
        )
    have, want = meta.dtype.itemsize, dtype.itemsize
    if have == want:
        return Geometry(tuple(meta.shape), meta.strides, 0, dtype)
    what = f"to view {dt.cxx_name(meta.dtype)} as {dt.cxx_name(dtype)} (different element sizes)"
    if not meta.ndim:
        raise RuntimeError(f"self.dim() cannot be 0 {what}")
    if meta.strides[-1] != 1:
        raise RuntimeError(f"self.stride(-1) must be 1 {what}, but got {meta.strides[-1]}")
    lead, outer = tuple(meta.shape[:-1]), meta.strides[:-1]
    if have > want:
        ratio = have // want
        return Geometry(
            (*lead, meta.shape[-1] * ratio), (*(st * ratio for st in outer), 1), 0, dtype
        )
    ratio = want // have
    if meta.shape[-1] % ratio:
        raise RuntimeError(
            f"self.size(-1) must be divisible by {ratio} {what}, but got {meta.shape[-1]}"
        )
    for d, st in enumerate(outer):
        if st % ratio:
            raise RuntimeError(
                f"self.stride({d}) must be divisible by {ratio} {what}, but got {st}"
            )
    return Geometry((*lead, meta.shape[-1] // ratio), (*(st // ratio for st in outer), 1), 0, dtype)


def check_offset(input: Tensor, dtype: dt.dtype) -> None:
    ratio, rest = divmod(dtype.itemsize, input.dtype.itemsize)
    if ratio > 1 and not rest and input.storage_offset() % ratio:
        raise RuntimeError(
            f"self.storage_offset() must be divisible by {ratio} to view "
            f"{dt.cxx_name(input.dtype)} as {dt.cxx_name(dtype)} (different element sizes), but "
            f"got {input.storage_offset()}"
        )


@front(name="view", namespace="Tensor", method=True)
def view_method(input: Tensor, *shape: Any, size: Any = None, dtype: Any = None) -> Tensor:
    """The same memory under another shape, or as another dtype.

    >>> import lucerne
    >>> lucerne.arange(6).view(2, 3)
    tensor([[0, 1, 2],
            [3, 4, 5]])
    """
    given = shape[0] if len(shape) == 1 else dtype
    if isinstance(given, dt.dtype):
        check_offset(input, given)
        return view_dtype(input, given)
    return view_shape(input, sizes(shape, size))


@front(namespace="Tensor", method=True)
def view_as(input: Tensor, other: Tensor) -> Tensor:
    """The same memory under the shape of `other`."""
    return view_shape(input, other.shape)


@front(method=True)
def reshape(input: Tensor, *args: Any, shape: Any = None) -> Tensor:
    """Another shape: a view where the strides allow it, else a copy.

    >>> import lucerne
    >>> lucerne.arange(4).reshape(2, -1)
    tensor([[0, 1],
            [2, 3]])
    """
    target = sh.infer_size(as_int_list(sizes(args, shape)), input.numel())
    easy = tuple(input.shape) == target or input._meta.contiguous  # (a view, whatever the sizes)
    if not easy and sh.view_strides(tuple(input.shape), input.stride(), target) is None:
        return view_shape(input.contiguous(), target)
    return view_shape(input, target)


@front(namespace="Tensor", method=True)
def reshape_as(input: Tensor, other: Tensor) -> Tensor:
    """`reshape` to the shape of `other`."""
    return input.reshape(other.shape)


@front(method=True)
def ravel(input: Tensor) -> Tensor:
    """All elements in one dimension."""
    return input.contiguous().view(-1)


@front(method=True)
def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Dimensions `start_dim` to `end_dim` as one."""
    ndim = input.ndim
    first, last = sh.wrap_dim(start_dim, ndim), sh.wrap_dim(end_dim, ndim)
    if first > last:
        raise RuntimeError("flatten() has invalid args: start_dim cannot come after end_dim")
    if not ndim:
        return input.reshape(1)
    if first == last:
        return input
    shape = tuple(input.shape)
    return input.reshape(*shape[:first], sh.numel(shape[first : last + 1]), *shape[last + 1 :])


@front(method=True)
def unflatten(input: Tensor, dim: int, sizes: Any) -> Tensor:
    """One dimension as several of the given sizes (one may be -1)."""
    shape = as_int_list(sizes)
    d = sh.wrap_dim(dim, input.ndim)
    if not shape:
        raise RuntimeError("unflatten: sizes must be non-empty")
    have = input.shape[d]
    try:
        inner = sh.infer_size(shape, have)
    except RuntimeError as e:
        if "invalid for input of size" not in str(e):
            raise
        raise RuntimeError(
            f"unflatten: Provided sizes {list(shape)} don't multiply up to the size of dim {d} "
            f"({have}) in the input tensor"
        ) from None
    return input.view((*input.shape[:d], *inner, *input.shape[d + 1 :]))


# ---- order of dimensions ----------------------------------------------------------------------


def permuted(meta: TensorMeta, order: Any) -> Geometry:
    return Geometry(tuple(meta.shape[d] for d in order), tuple(meta.strides[d] for d in order))


@view_op(
    vjp={"input": lambda g, dim0, dim1: g.transpose(dim0, dim1)},
    method=True,
    aliases=("swapaxes", "swapdims"),
    oracle=lambda input, dim0, dim1: np.swapaxes(input, dim0, dim1) if input.ndim else input,
)
def transpose(input: Tensor, dim0: int, dim1: int) -> Any:
    """Two dimensions exchanged."""
    meta: TensorMeta = input
    a, b = sh.wrap_dim(dim0, meta.ndim), sh.wrap_dim(dim1, meta.ndim)
    order = list(range(meta.ndim))
    if order:
        order[a], order[b] = order[b], order[a]
    return permuted(meta, order)


def _inverse(dims: Any, ndim: int) -> list[int]:
    order = [0] * ndim
    for at, d in enumerate(dims):
        order[d % ndim] = at
    return order


@view_op(
    name="permute",
    vjp={"input": lambda g, dims: g.permute(_inverse(dims, g.ndim))},
    oracle=lambda input, dims: np.transpose(input, dims),
)
def permute_dims(input: Tensor, dims: IntList) -> Any:
    """The dimensions in another order."""
    meta: TensorMeta = input
    if len(dims) != meta.ndim:
        raise RuntimeError(
            "permute(sparse_coo): number of dimensions in the tensor input does not match the "
            f"length of the desired ordering of dimensions i.e. input.dim() = {meta.ndim} is "
            f"not equal to len(dims) = {len(dims)}"
        )
    order = tuple(sh.wrap_dim(d, meta.ndim) for d in dims)
    if len(set(order)) != len(order):
        raise RuntimeError("permute(): duplicate dims are not allowed.")
    return permuted(meta, order)


@front(method=True)
def permute(input: Tensor, *args: Any, dims: Any = None) -> Tensor:
    """The dimensions in another order.

    >>> import lucerne
    >>> lucerne.zeros(2, 3, 4).permute(2, 0, 1).shape
    torch.Size([4, 2, 3])
    """
    return permute_dims(input, sizes(args, dims))


@front(method=True, aliases=("moveaxis",))
def movedim(input: Tensor, source: Any, destination: Any) -> Tensor:
    """Dimensions moved to other places; the rest keep their order."""
    src, dst = as_int_list(source), as_int_list(destination)
    if len(src) != len(dst):
        raise RuntimeError(
            f"movedim: Invalid source or destination dims: source ({list(src)} dims) should "
            f"contain the same number of dims as destination ({list(dst)} dims)"
        )
    ndim = input.ndim
    src, dst = (tuple(sh.wrap_dim(d, ndim) for d in ds) for ds in (src, dst))
    for what, given, dims in (("source", source, src), ("destination", destination, dst)):
        if len(set(dims)) != len(dims):
            raise RuntimeError(f"movedim: repeated dim in `{what}` ({list(as_int_list(given))})")
    if not ndim:
        return view_shape(input, ())
    order = [-1] * ndim
    for s, d in zip(src, dst, strict=True):
        order[d] = s
    rest = iter([d for d in range(ndim) if d not in src])
    return permute_dims(input, [next(rest) if d < 0 else d for d in order])


@view_op(vjp={"input": lambda g: g.t()}, method=True, oracle=np.transpose)
def t(input: Tensor) -> Any:
    """The transpose of a matrix; vectors and numbers as they are."""
    meta: TensorMeta = input
    if meta.ndim > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {meta.ndim}D")
    return permuted(meta, range(meta.ndim)[::-1])


@front(method=True)
def adjoint(input: Tensor) -> Tensor:
    """The conjugate transpose of the last two dimensions."""
    if input.ndim < 2:
        raise RuntimeError(
            "tensor.adjoint() is only supported on matrices or batches of matrices. Got "
            f"{input.ndim}-D tensor."
        )
    flipped = input.transpose(-2, -1)
    return flipped.conj() if input.is_complex() else flipped


# ---- size one ---------------------------------------------------------------------------------


@view_op(
    internal=True,
    name="expand",
    vjp={"input": lambda g, input_meta: sum_dims_to(g, input_meta.shape)},
    keeps_order=True,
    torch="expand",
)
def expand_shape(input: Tensor, size: IntList) -> Any:
    """Dimensions of size one read again and again (stride zero)."""
    meta: TensorMeta = input
    lead = len(size) - meta.ndim
    if lead < 0:
        raise RuntimeError(
            f"expand({_torch_type(meta)}{{{list(meta.shape)}}}, size={list(size)}): the number of "
            f"sizes provided ({len(size)}) must be greater or equal to the number of dimensions in "
            f"the tensor ({meta.ndim})"
        )
    shape, strides = [0] * len(size), [0] * len(size)
    step = 1
    for i in reversed(range(len(size))):
        have = meta.shape[i - lead] if i >= lead else 1
        step = meta.strides[i - lead] if i >= lead else step
        shape[i] = _expanded(size, i, lead, have, meta)
        same = is_one(shape[i]) if type(have) is int and have == 1 else shape[i] == have
        strides[i] = step if same else 0
        step = shape[i] * strides[i]
    return Geometry(tuple(shape), tuple(strides))


def _expanded(size: Any, i: int, lead: int, have: int, meta: TensorMeta) -> int:
    n: int = size[i]
    if n == -1:
        if i < lead:
            raise RuntimeError(
                f"The expanded size of the tensor ({n}) isn't allowed in a leading, non-existing "
                f"dimension {i}"
            )
        return have
    if have != 1 and n != have:
        raise RuntimeError(
            f"The expanded size of the tensor ({n}) must match the existing size ({have}) at "
            f"non-singleton dimension {i}.  Target sizes: {list(size)}.  Tensor sizes: "
            f"{list(meta.shape)}"
        )
    if n < 0:
        raise RuntimeError(
            f"expand(...): the size {n} at dimension {i} is negative; only -1 (keep) is allowed"
        )
    return n


def _torch_type(meta: TensorMeta) -> str:
    return f"torch.{dt.cxx_name(meta.dtype)}Tensor"


@front(namespace="Tensor", method=True)
def expand(input: Tensor, *args: Any, size: Any = None, implicit: bool = False) -> Tensor:
    """Broadcast to a larger shape without a copy; -1 keeps a size.

    >>> import lucerne
    >>> lucerne.tensor([[1], [2]]).expand(2, 3)
    tensor([[1, 1, 1],
            [2, 2, 2]])
    """
    return expand_shape(input, sizes(args, size))


@front(namespace="Tensor", method=True)
def expand_as(input: Tensor, other: Tensor) -> Tensor:
    """Broadcast to the shape of `other`."""
    return expand_shape(input, other.shape)


@front(method=True)
def broadcast_to(input: Tensor, *args: Any, size: Any = None) -> Tensor:
    """`expand` under NumPy's name."""
    return expand_shape(input, sizes(args, size))


@front()
def broadcast_tensors(*tensors: Any) -> Any:
    """All tensors expanded to their common shape."""
    given = sizes(tensors) if tensors and not hasattr(tensors[0], "_meta") else tensors
    shape = sh.broadcast_shapes(*(x.shape for x in given))
    return tuple(x if x.shape == shape else expand_shape(x, shape) for x in given)


@front(torch=None)
def broadcast_shapes(*shapes: Any) -> sh.Size:
    """The shape that tensors of these shapes broadcast to.

    >>> import lucerne
    >>> lucerne.broadcast_shapes((2, 1), (3,))
    torch.Size([2, 3])
    """
    given = [as_int_list(s) for s in shapes]
    for shape in given:
        for n in shape:
            if n < 0:
                raise RuntimeError(f"Trying to create tensor with negative dimension ({n}): ({n})")
    try:
        return sh.Size(sh.broadcast_shapes(*given))
    except RuntimeError:
        raise RuntimeError(
            "Shape mismatch: objects cannot be broadcast to a single shape"
        ) from None


@view_op(
    vjp={"input": lambda g, dim: g.squeeze(dim)},
    method=True,
    oracle=lambda input, dim: np.expand_dims(input, dim),
    keeps_order=True,
)
def unsqueeze(input: Tensor, dim: int) -> Any:
    """A new dimension of size one."""
    meta: TensorMeta = input
    d = sh.wrap_dim(dim, meta.ndim + 1)
    step = meta.shape[d] * meta.strides[d] if d < meta.ndim else 1
    shape, strides = list(meta.shape), list(meta.strides)
    shape.insert(d, 1)
    strides.insert(d, step)
    return Geometry(tuple(shape), tuple(strides))


@view_op(
    name="squeeze",
    vjp={"input": lambda g, input_meta: g.reshape(input_meta.shape)},
    keeps_order=True,
)
def squeeze_dims(input: Tensor, dim: IntList | None) -> Any:
    """Dimensions of size one gone (all of them when `dim` is None)."""
    meta: TensorMeta = input
    chosen = range(meta.ndim) if dim is None else sh.wrap_dims(dim, meta.ndim)
    keep = [d for d in range(meta.ndim) if not (d in chosen and meta.shape[d] == 1)]
    return permuted(meta, keep)


@front(method=True)
def squeeze(input: Tensor, dim: Any = None) -> Tensor:
    """Remove dimensions of size one: all of them, or those named.

    >>> import lucerne
    >>> lucerne.zeros(1, 2, 1).squeeze(0).shape
    torch.Size([2, 1])
    """
    return squeeze_dims(input, dim)


@front(namespace="Tensor", method=True)
def sum_to_size(input: Tensor, *args: Any, size: Any = None) -> Tensor:
    """Sum until the shape is `size`: the reverse of broadcasting."""
    shape = as_int_list(sizes(args, size))
    have = tuple(input.shape)
    if not shape:
        return input.sum()
    if have == shape:
        return input
    lead = len(have) - len(shape)
    if lead < 0 or any(n not in (h, 1) for n, h in zip(shape, have[lead:], strict=True)):
        raise RuntimeError(f"size {{{list(shape)}}} is not expandable to size {{{list(have)}}}.")
    return sum_dims_to(input, shape)


@view_op(internal=True, vjp={"input": lambda g: g}, name="alias", keeps_order=True, torch="alias")
def alias(input: Tensor) -> Any:
    """The tensor again, as a view of itself."""
    return Geometry(tuple(input.shape), input.strides)
