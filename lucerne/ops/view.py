"""Index maps: the same memory read with another shape. Bodies take a TensorMeta and return Geometry."""

from __future__ import annotations

from typing import Any

from lucerne.base import shape as sh
from lucerne.ir.convert import IntList
from lucerne.ir.define import Geometry, front, view as view_op
from lucerne.ir.meta import TensorMeta
from lucerne.ir.op import Tensor
from lucerne.ops.reduce import sum_dims_to


def sizes(args: tuple[Any, ...]) -> Any:
    """`x.view(2, 3)` and `x.view((2, 3))` mean the same."""
    if len(args) == 1 and not isinstance(args[0], int) and hasattr(args[0], "__iter__"):
        return args[0]
    return args


@view_op(name="view_shape", vjp={"input": lambda g, input_meta: g.reshape(input_meta.shape)})
def view_shape(input: Tensor, size: IntList) -> Any:
    """The same elements under another shape; strides must allow it."""
    meta: TensorMeta = input
    shape = sh.infer_size(size, meta.numel)
    strides = sh.view_strides(tuple(meta.shape), meta.strides, shape)
    if strides is None:
        raise RuntimeError(
            "view size is not compatible with input tensor's size and stride (at least one dimension "
            "spans across two contiguous subspaces). Use .reshape(...) instead."
        )
    return Geometry(shape, strides)


@view_op(vjp={"input": lambda g, dim0, dim1: g.transpose(dim0, dim1)}, method=True, aliases=("swapaxes", "swapdims"))
def transpose(input: Tensor, dim0: int, dim1: int) -> Any:
    """Two dimensions exchanged."""
    meta: TensorMeta = input
    a, b = sh.wrap_dim(dim0, meta.ndim), sh.wrap_dim(dim1, meta.ndim)
    order = list(range(meta.ndim))
    if order:
        order[a], order[b] = order[b], order[a]
    return permuted(meta, order)


def permuted(meta: TensorMeta, order: Any) -> Geometry:
    return Geometry(tuple(meta.shape[d] for d in order), tuple(meta.strides[d] for d in order))


@view_op(name="expand_shape", vjp={"input": lambda g, input_meta: sum_dims_to(g, input_meta.shape)})
def expand_shape(input: Tensor, size: IntList) -> Any:
    """Dimensions of size one read again and again (stride zero)."""
    meta: TensorMeta = input
    lead = len(size) - meta.ndim
    if lead < 0:
        raise RuntimeError(
            f"expand: the number of sizes provided ({len(size)}) must be greater or equal to the "
            f"number of dimensions in the tensor ({meta.ndim})"
        )
    shape, strides = [], []
    for i, n in enumerate(size):
        have = meta.shape[i - lead] if i >= lead else 1
        step = meta.strides[i - lead] if i >= lead else 0
        if n == -1:
            if i < lead:
                raise RuntimeError(
                    f"The expanded size of the tensor ({n}) isn't allowed in a leading, non-existing "
                    f"dimension {i}"
                )
            n = have
        if n != have and have != 1:
            raise RuntimeError(
                f"The expanded size of the tensor ({n}) must match the existing size ({have}) at "
                f"non-singleton dimension {i}.  Target sizes: {list(size)}.  Tensor sizes: "
                f"{list(meta.shape)}"
            )
        shape.append(n)
        strides.append(step if n == have and i >= lead else 0)
    return Geometry(tuple(shape), tuple(strides))


@view_op(vjp={"input": lambda g, dim: g.squeeze(dim)}, method=True)
def unsqueeze(input: Tensor, dim: int) -> Any:
    """A new dimension of size one."""
    meta: TensorMeta = input
    d = sh.wrap_dim(dim, meta.ndim + 1)
    step = meta.shape[d] * meta.strides[d] if d < meta.ndim else 1
    shape, strides = list(meta.shape), list(meta.strides)
    shape.insert(d, 1)
    strides.insert(d, step)
    return Geometry(tuple(shape), tuple(strides))


@view_op(name="squeeze_dims", vjp={"input": lambda g, input_meta: g.reshape(input_meta.shape)})
def squeeze_dims(input: Tensor, dim: IntList | None) -> Any:
    """Dimensions of size one gone (all of them when `dim` is None)."""
    meta: TensorMeta = input
    chosen = range(meta.ndim) if dim is None else sh.wrap_dims(dim, meta.ndim)
    keep = [d for d in range(meta.ndim) if not (d in chosen and meta.shape[d] == 1)]
    return permuted(meta, keep)


@front(method=True)
def squeeze(input: Tensor, dim: Any = None) -> Tensor:
    """Remove dimensions of size one."""
    return squeeze_dims(input, dim)


@front(name="view", method=True)
def view_method(input: Tensor, *shape: Any) -> Tensor:
    """The same memory under another shape, or as another dtype."""
    return view_shape(input, sizes(shape))


@front(method=True)
def expand(input: Tensor, *size: Any, implicit: bool = False) -> Tensor:
    """Broadcast to a larger shape without a copy."""
    return expand_shape(input, sizes(size))


@front(method=True)
def reshape(input: Tensor, *shape: Any) -> Tensor:
    """Another shape: a view where the strides allow it, else a copy."""
    target = sh.infer_size(tuple(int(n) for n in sizes(shape)), input.numel())
    if sh.view_strides(tuple(input.shape), input.stride(), target) is None:
        return view_shape(input.contiguous(), target)
    return view_shape(input, target)


@front(method=True)
def sum_to_size(input: Tensor, *size: Any) -> Tensor:
    """Sum until the shape is `size`: the reverse of broadcasting."""
    shape = tuple(sizes(size))
    return sum_dims_to(input, shape) if tuple(input.shape) != shape else input
