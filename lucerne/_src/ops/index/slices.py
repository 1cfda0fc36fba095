"""Whole slices read and written: `index` is a vector of positions along one dimension."""

from __future__ import annotations

from typing import Any

import numpy as np

from lucerne._src.base import dtype as dt
from lucerne._src.base import shape as sh
from lucerne._src.ir.define import composite
from lucerne._src.ir.op import Tensor
from lucerne._src.ops.copy.cast import filled
from lucerne._src.ops.index.advanced import INDEX_TYPES, index_nd, index_put_nd
from lucerne._src.ops.index.scatter import scatter_reduce_op
from lucerne._src.ops.pointwise.select import choose
from lucerne._src.ops.scalars import number_for


def _at(dim: int, index: Tensor) -> tuple[Any, ...]:
    """The index list that reads `index` along `dim` and everything elsewhere."""
    return (None,) * dim + (index.reshape(-1),)


def _check_vector(name: str, index: Tensor) -> None:
    if index.ndim > 1:
        raise IndexError(
            f"{name}: Index is supposed to be a vector, but got dim: {index.ndim} with type: "
            f"{dt.cxx_name(index.dtype)} and size: {list(index.shape)}"
        )
    if index.dtype not in INDEX_TYPES:
        raise RuntimeError(
            f"{name}: Expected dtype int32/int64 for index but got: {dt.cxx_name(index.dtype)}"
        )


@composite(
    method=True,
    out="apart",
    oracle=lambda input, dim, index: np.take(input, index, axis=dim),
    samples=[((3, 3), 1, [2, 0, 0])],
    exact="choice",
    grad_fn="IndexSelectBackward0",
)
def index_select(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """The slices of `input` at the positions `index` along `dim`.

    >>> import lucerne
    >>> lucerne.index_select(lucerne.tensor([1, 2, 3]), 0, lucerne.tensor([2, 0]))
    tensor([3, 1])
    """
    if index.ndim > 1:
        raise IndexError("index_select(): Index is supposed to be a vector")
    if index.dtype not in INDEX_TYPES:
        raise RuntimeError("index_select(): Expected dtype int32 or int64 for index")
    d = sh.wrap_dim(dim, input.ndim)
    if not input.ndim:
        if index.numel() != 1:
            raise RuntimeError(
                "index_select(): Index to scalar can have only 1 value, got "
                f"{index.numel()} value(s)"
            )
        return index_nd(input.reshape(1), (index.reshape(-1),), False).reshape(())
    return index_nd(input, _at(d, index), False).contiguous()


def _slices(x: Tensor, dim: int) -> list[int]:
    """The shape of one slice along `dim`."""
    return [n for d, n in enumerate(x.shape) if d != dim]


def _check_source(name: str, input: Tensor, dim: int, index: Tensor, source: Tensor) -> None:
    _check_vector(name, index)
    if source.dtype is not input.dtype:
        raise RuntimeError(
            f"{name}: self ({dt.cxx_name(input.dtype)}) and source ({dt.cxx_name(source.dtype)}) "
            "must have the same scalar type"
        )
    if input.ndim != source.ndim or _slices(input, dim) != _slices(source, dim):
        raise RuntimeError(
            "source tensor shape must match self tensor shape, excluding the specified dimension. "
            f"Got self.shape = {list(input.shape)} source.shape = {list(source.shape)}"
        )
    count = source.shape[dim] if source.ndim else 1
    if index.numel() != count:
        raise RuntimeError(
            f"{name}: Number of indices ({index.numel()}) should be equal to source.size(dim): "
            f"({count}), for dim: {dim}"
        )


def _write(input: Tensor, dim: int, index: Tensor, source: Tensor, accumulate: bool) -> Tensor:
    if not input.ndim:
        made = index_put_nd(
            input.reshape(1), (index.reshape(-1),), source.reshape(-1), accumulate, False
        )
        return made.reshape(())
    if not source.ndim:
        source = source.reshape((1,) * input.ndim)
    return index_put_nd(input, _at(dim, index), source, accumulate, False).contiguous()


@composite(method=True, inplace=True, out="exact")
def index_add(input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Any = 1) -> Tensor:
    """`alpha * source` added to the slices at `index`; repeated positions add up.

    >>> import lucerne
    >>> lucerne.zeros(2).index_add(0, lucerne.tensor([1, 1]), lucerne.tensor([1.0, 2.0]))
    tensor([0., 3.])
    """
    d = sh.wrap_dim(dim, input.ndim)
    _check_source("index_add_()", input, d, index, source)
    if alpha != 1:
        source = source * number_for(alpha, input.dtype)
    return _write(input, d, index, source, True)


@composite(method=True, inplace=True, out="exact", autocast="promote")
def index_copy(input: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """The slices at `index` replaced by those of `source`."""
    d = sh.wrap_dim(dim, input.ndim)
    _check_copy(input, d, index, source)
    return _write(input, d, index, source, False)


def _check_copy(input: Tensor, dim: int, index: Tensor, source: Tensor) -> None:
    if index.ndim > 1:
        raise IndexError(f"index_copy_(): Index should have dimension 1 or 0 (got {index.ndim})")
    if not source.ndim and index.numel() != 1:
        raise IndexError(
            "index_copy_(): When source is scalar, index should have one element (got "
            f"{index.numel()})"
        )
    if source.ndim and input.ndim and source.ndim != input.ndim:
        raise IndexError(
            "index_copy_(): When source and destination are not scalars, their dimensionality "
            f"must match. Source dimensionality ({source.ndim}), destination dimensionality "
            f"({input.ndim})"
        )
    if index.dtype is not dt.int64:
        raise RuntimeError(
            f"index_copy_(): Expected a long tensor for index, but got {dt.cxx_name(index.dtype)}"
        )
    if source.dtype is not input.dtype:
        raise RuntimeError(
            "index_copy_(): self and source expected to have the same dtype, but got (self) "
            f"{dt.cxx_name(input.dtype)} and (source) {dt.cxx_name(source.dtype)}"
        )
    mine, theirs = _slices(input, dim), _slices(source, dim)
    if mine != theirs:
        raise RuntimeError(
            "index_copy_(): Source/destination tensor must have same slice shapes. Destination "
            f"slice shape: {' '.join(map(str, mine))} at dimension {dim} and source slice shape: "
            f"{' '.join(map(str, theirs))} at dimension 0."
        )
    if source.ndim and index.numel() != source.shape[dim]:
        raise IndexError(
            f"index_copy_(): Number of indices ({index.numel()}) should be equal to "
            f"source.size(dim) ({source.shape[dim]})"
        )


@composite(method=True, inplace=True, expanded="fill")
def index_fill(input: Tensor, dim: int, index: Tensor, value: Tensor) -> Tensor:
    """The slices at `index` filled with one value (a number or a 0-dim tensor)."""
    d = sh.wrap_dim(dim, input.ndim)
    if index.dtype is not dt.int64:
        raise IndexError("index_fill_(): Expected dtype int64 for index.")
    if index.ndim > 1:
        raise IndexError("Index has to be a vector/scalar")
    if not hasattr(value, "_meta"):
        value = number_for(value, input.dtype)
    elif value.ndim:
        raise RuntimeError(
            "index_fill_ only supports a 0-dimensional value tensor, but got tensor with "
            f"{value.ndim} dimension(s)."
        )
    else:
        value = value.to(input.dtype)
    count = input.shape[d] if input.ndim else 1
    nowhere = filled((count,), False, dt.bool_, input.device, None)
    truth = filled((), True, dt.bool_, input.device, None)
    chosen = index_put_nd(nowhere, (index.reshape(-1),), truth, False)
    shape = tuple(-1 if i == d else 1 for i in range(input.ndim))
    return choose(chosen.reshape(shape), value, input)


@composite(method=True, inplace=True, out="exact")
def index_reduce(
    input: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *,
    include_self: bool = True,
) -> Tensor:  # fmt: skip
    """`source` folded into the slices at `index` by prod, mean, amax or amin."""
    if reduce not in ("prod", "mean", "amax", "amin"):
        raise RuntimeError(
            "index_reduce(): Expected reduce to be one of prod, mean, amax or amin but got "
            f"{reduce}."
        )
    d = sh.wrap_dim(dim, input.ndim)
    _check_source("index_reduce_()", input, d, index, source)
    if not input.ndim:
        source = source.reshape(-1)
        made = scatter_reduce_op(
            input.reshape(1), 0, index.reshape(-1), source, reduce, include_self
        )
        return made.reshape(())
    if not source.ndim:
        source = source.reshape((1,) * input.ndim)
    shape = tuple(-1 if i == d else 1 for i in range(input.ndim))
    spread = index.reshape(shape).expand(source.shape)
    return scatter_reduce_op(input, d, spread, source, reduce, include_self)


@composite(method=True, out="apart", oracle=np.take, samples=[((3, 3), [8, 0, 4])])
def take(input: Tensor, index: Tensor) -> Tensor:
    """The elements at `index`, counted as if `input` were one-dimensional.

    >>> import lucerne
    >>> lucerne.take(lucerne.tensor([[1, 2], [3, 4]]), lucerne.tensor([3, 0]))
    tensor([4, 1])
    """
    if index.dtype is not dt.int64:
        raise RuntimeError(
            f"take(): Expected a long tensor for index, but got {dt.cxx_name(index.dtype)}"
        )
    if not input.numel() and index.numel():
        raise IndexError("take(): tried to take from an empty tensor")
    try:
        return index_nd(input.reshape(-1), (index,)).contiguous()
    except IndexError as error:
        raise _beyond(input, index, error) from None


def _beyond(input: Tensor, index: Tensor, error: IndexError) -> IndexError:
    """Torch's words for a place that a flattened tensor lacks."""
    count = input.numel()
    wrong = index.masked_select((index >= count) | (index < -count))
    if not wrong.numel():
        return error
    return IndexError(
        f"out of range: tried to access index {int(wrong.select(0, 0))} on a tensor of {count} "
        "elements."
    )


@composite(method=True, inplace=True)
def put(input: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """`source` written to the elements at `index`, counted as if `input` were one-dimensional."""
    if index.dtype is not dt.int64:
        raise RuntimeError(
            f"put_(): Expected a long tensor for index, but got {dt.cxx_name(index.dtype)}"
        )
    if source.dtype is not input.dtype:
        raise RuntimeError(
            "put_(): self and source expected to have the same dtype, but got self.dtype = "
            f"{dt.cxx_name(input.dtype)} and source.dtype = {dt.cxx_name(source.dtype)}"
        )
    if index.numel() != source.numel():
        raise RuntimeError(
            "put_(): Expected source and index to have the same number of elements, but got "
            f"source.numel() = {source.numel()}, index.numel() = {index.numel()}"
        )
    if not input.numel() and index.numel():
        raise IndexError("put_(): cannot put elements into an empty tensor")
    try:
        flat = index_put_nd(input.reshape(-1), (index.reshape(-1),), source.reshape(-1), accumulate)
    except IndexError as error:
        raise _beyond(input, index, error) from None
    return flat.reshape(input.shape)


@composite(
    method=True,
    out="exact",
    oracle=lambda input, indices, dim: np.take_along_axis(input, indices, dim),
    samples=[((2, 3), [[2, 0], [1, 1]], 1)],
)
def take_along_dim(input: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    """The elements at `indices` along `dim`, other dimensions broadcast; flat when `dim` is None.

    >>> import lucerne
    >>> x = lucerne.tensor([[3, 1, 2]])
    >>> lucerne.take_along_dim(x, x.argsort(1), 1)
    tensor([[1, 2, 3]])
    """
    if indices.dtype is not dt.int64:
        raise RuntimeError(
            "torch.take_along_dim(): dtype of indices should be Long but got "
            f"{dt.cxx_name(indices.dtype)}"
        )
    if dim is None:
        return input.reshape(-1).gather(0, indices.reshape(-1))
    if input.ndim != indices.ndim:
        raise RuntimeError(
            "torch.take_along_dim(): input and indices should have the same number of dimensions, "
            f"but got {input.ndim} dimensions for input, and {indices.ndim} dimensions for indices"
        )
    d = sh.wrap_dim(dim, input.ndim)
    mine = [1 if i == d else n for i, n in enumerate(input.shape)]
    theirs = [1 if i == d else n for i, n in enumerate(indices.shape)]
    common = list(sh.broadcast_shapes(mine, theirs))
    wide, narrow = list(common), list(common)
    if common:
        wide[d], narrow[d] = input.shape[d], indices.shape[d]
    count = input.shape[d] if input.ndim else 1
    return input.expand(wide).gather(d, _from_front(indices, count).expand(narrow))


def _from_front(indices: Tensor, count: int) -> Tensor:
    """Positions that count from the end as positions from the front."""
    return (indices + count).where(indices < 0, indices)
