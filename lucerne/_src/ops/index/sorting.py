"""Order: sort, and what is read off a sorted tensor."""

from __future__ import annotations

from typing import Any

import numpy as np

from lucerne._src.base import dtype as dt
from lucerne._src.base import shape as sh
from lucerne._src.ir.define import composite, front, structural
from lucerne._src.ir.meta import TensorMeta, make_meta
from lucerne._src.ir.op import Tensor
from lucerne._src.ir.results import named
from lucerne._src.ops.reduce.extrema import picked_grad


def _sort_meta(
    input: TensorMeta, dim: int, descending: bool, stable: bool
) -> tuple[TensorMeta, TensorMeta]:
    sh.wrap_dim(dim, input.ndim)
    if input.dtype.is_complex:
        raise RuntimeError(" Sort does not support complex dtypes on CPU")
    strides = input.strides if input.is_dense else None
    values = make_meta(input.dtype, tuple(input.shape), strides, input.device)
    return values, values.like(dtype=dt.int64)


def _unsorted(g: Any, y1: Tensor, dim: int, input_meta: TensorMeta) -> Tensor:
    if not input_meta.ndim:
        return g[0]
    return g[0].new_zeros(input_meta.shape).scatter(dim, y1, g[0])


def _oracle_sort(input: Any, dim: int, descending: bool, stable: bool) -> Any:
    order = np.argsort(-input if descending else input, axis=dim, kind="stable")
    return np.take_along_axis(input, order, dim), order


@structural(
    internal=True,
    meta=_sort_meta,
    vjp={"input": _unsorted},
    name="sort_along",
    out="exact",
    oracle=_oracle_sort,
    torch="sort",
)
def sort_along(input: Tensor, dim: int, descending: bool, stable: bool) -> Any:
    """Values in order along `dim` and where they came from; nan counts as the largest."""


@front(method=True)
def sort(
    input: Tensor,
    dim: int = -1,
    descending: bool = False,
    *,
    stable: bool = False,
    out: Any = None,
) -> Any:
    """Values in order along `dim`, and their positions in the input. Equal values keep their order.

    >>> import lucerne
    >>> lucerne.tensor([3, 1, 2]).sort()
    torch.return_types.sort(
    values=tensor([1, 2, 3]),
    indices=tensor([1, 2, 0]))
    """
    if type(dim) is bool:
        raise TypeError("sort() received an invalid combination of arguments - got (Tensor, bool)")
    return _SORTED(*sort_along(input, dim, descending, bool(stable), out=out))


_SORTED = named("sort", "values indices")


@front(method=True)
def argsort(
    input: Tensor,
    dim: int = -1,
    descending: bool = False,
    *,
    stable: bool = False,
    out: Any = None,
) -> Tensor:
    """Positions that would put the input in order along `dim`.

    >>> import lucerne
    >>> lucerne.tensor([3, 1, 2]).argsort()
    tensor([1, 2, 0])
    """
    if type(dim) is bool:
        raise TypeError(
            "argsort() received an invalid combination of arguments - got (Tensor, bool)"
        )
    return order_along(input, dim, descending, out=out)


@composite(internal=True, name="order_along", vjp={}, out="exact", torch="argsort")
def order_along(input: Tensor, dim: int, descending: bool) -> Tensor:
    """Positions that put the input in order; equal values keep theirs."""
    return sort_along(input, dim, descending, True)[1]


@composite(method=True, out="exact", oracle=lambda input: np.sort(input, axis=0))
def msort(input: Tensor) -> Tensor:
    """The input sorted along its first dimension."""
    return sort_along(input, 0, False, False)[0]


def _top_meta(input: TensorMeta, k: int, dim: int, largest: bool) -> TensorMeta:
    shape = list(input.shape)
    if shape:
        shape[dim] = k
    return make_meta(dt.int64, tuple(shape), None, input.device)


@composite(internal=True, name="top_positions", meta=_top_meta, vjp={}, out=False, torch="topk")
def top_positions(input: Tensor, k: int, dim: int, largest: bool) -> Tensor:
    """Where the `k` largest (or smallest) along `dim` are; among equals the first come first."""
    order = sort_along(input, dim, largest, True)[1]
    return order.narrow(dim, 0, k).clone().contiguous() if input.ndim else order


@composite(method=True, out="exact", grad_fn="TopkBackward0")
def topk(input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    """The `k` largest (or smallest) elements along `dim`, and where they are.

    >>> import lucerne
    >>> lucerne.tensor([1, 4, 2, 3]).topk(2).values
    tensor([4, 3])
    """
    size = input.shape[sh.wrap_dim(dim, input.ndim)] if input.ndim else 1
    if not 0 <= k <= size:
        raise RuntimeError("selected index k out of range")
    index = top_positions(input.detach(), k, dim, largest)
    return named("topk", "values indices")(input.gather(dim, index), index)


def _picked(g: Any, y1: Tensor, dim: int, keepdim: bool, input_meta: Any) -> Tensor:
    return picked_grad(g[0], y1, dim, keepdim, input_meta)


def ranked(sorted: Any, rank: int, dim: int, keepdim: bool) -> tuple[Tensor, Tensor]:
    """Value and position of one rank of `(values, indices)` as `sort_along` gives them."""
    values, order = sorted
    if not values.ndim:
        return values, order
    found = tuple(t.narrow(dim, rank, 1) for t in (values, order))
    picked = found if keepdim else tuple(t.squeeze(dim) for t in found)
    return picked[0].clone(), picked[1].clone()


@composite(method=True, vjp={"input": _picked}, out="apart")
def kthvalue(input: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    """The `k`-th smallest element along `dim` (from 1), and where it is."""
    size = input.shape[sh.wrap_dim(dim, input.ndim)] if input.ndim else 1
    if not 1 <= k <= size:
        d = sh.wrap_dim(dim, input.ndim)
        raise RuntimeError(f"kthvalue(): selected number k out of range for dimension {d}")
    found = ranked(sort_along(input, dim, False, True), k - 1, dim, keepdim)
    return named("kthvalue", "values indices")(*found)
