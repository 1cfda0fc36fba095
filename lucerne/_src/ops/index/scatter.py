"""Elements read from, and written to, positions along one dimension."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lucerne._src.base import dtype as dt
from lucerne._src.base import shape as sh
from lucerne._src.ir import op as op_
from lucerne._src.ir.define import common_device, composite, front, structural
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.ir.op import Tensor
from lucerne._src.ops.copy.cast import filled
from lucerne._src.ops.index.advanced import INDEX_TYPES, zeros_like_meta
from lucerne._src.ops.scalars import number_for

# ---- gather --------------------------------------------------------------------------------------


def _padded(shape: sh.Shape) -> sh.Shape:
    """A 0-dim tensor counts as a vector of one element here."""
    return tuple(shape) or (1,)


def _gather_meta(input: TensorMeta, dim: int, index: TensorMeta, sparse_grad: bool) -> TensorMeta:
    d = sh.wrap_dim(dim, input.ndim)
    if index.numel:
        if index.dtype not in INDEX_TYPES:
            raise RuntimeError("gather(): Expected dtype int32/int64 for index")
        mine, theirs = _padded(input.shape), _padded(index.shape)
        if len(mine) != len(theirs):
            raise RuntimeError(
                "Index tensor must have the same number of dimensions as input tensor"
            )
        for i, (n, m) in enumerate(zip(theirs, mine, strict=True)):
            if i != d and n > m:
                raise RuntimeError(
                    f"Size does not match at dimension {i} expected index {list(index.shape)} to "
                    f"be no larger than self {list(input.shape)} apart from dimension {d}"
                )
    common_device([input, index])
    return input.like(shape=tuple(index.shape))


SPARSE: dict[str, Callable[..., Any]] = {}
"""How coordinates and values become a sparse tensor; tensor/sparse/create.py fills it."""


def _gather_vjp(
    g: Tensor, dim: int, index: Tensor, sparse_grad: bool, input_meta: TensorMeta
) -> Tensor:
    if not sparse_grad:
        return scatter_fold(zeros_like_meta(input_meta), dim, index, g, "add")
    return SPARSE["places"](g, sh.wrap_dim(dim, input_meta.ndim), index, tuple(input_meta.shape))


@structural(
    checks=op_.POSITIONS,
    meta=_gather_meta,
    vjp={
        "input": lambda g, dim, index, sparse_grad, input_meta: _gather_vjp(
            g, dim, index, sparse_grad, input_meta
        )
    },
    method=True,
    out="apart",
    oracle=lambda input, dim, index, sparse_grad: np.take_along_axis(input, index, dim),
    samples=[((2, 3), 1, [[0, 2], [1, 1]])],
    linear=True,
    exact="choice",
)
def gather(input: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Tensor:
    """The elements at `index` along `dim`: `out[i][j] = input[index[i][j]][j]` for `dim` 0.

    With `sparse_grad` the gradient of `input` is a sparse tensor of the elements that were taken.

    >>> import lucerne
    >>> lucerne.gather(lucerne.tensor([[1, 2], [3, 4]]), 1, lucerne.tensor([[0, 0], [1, 0]]))
    tensor([[1, 1],
            [4, 3]])
    """


# ---- scatter -------------------------------------------------------------------------------------


def _scatter_meta(
    input: TensorMeta, dim: int, index: TensorMeta, src: TensorMeta, mode: str
) -> TensorMeta:
    d = sh.wrap_dim(dim, input.ndim)
    if index.numel:
        _check_scatter(input, d, index, src)
    common_device([input, index, src])
    return input.like(shape=tuple(input.shape))


def _check_scatter(input: TensorMeta, dim: int, index: TensorMeta, src: TensorMeta) -> None:
    if index.dtype not in INDEX_TYPES:
        raise RuntimeError("scatter(): Expected dtype int32/int64 for index")
    if src.dtype is not input.dtype:
        raise RuntimeError("scatter(): Expected self.dtype to be equal to src.dtype")
    mine, theirs, given = _padded(input.shape), _padded(index.shape), _padded(src.shape)
    if len(mine) != len(theirs):
        raise RuntimeError("Index tensor must have the same number of dimensions as self tensor")
    if len(given) != len(theirs):
        raise RuntimeError("Index tensor must have the same number of dimensions as src tensor")
    fits_self = all(n <= m for i, (n, m) in enumerate(zip(theirs, mine, strict=True)) if i != dim)
    fits_src = all(n <= m for n, m in zip(theirs, given, strict=True))
    if not fits_self or not fits_src:
        raise RuntimeError(
            f"Expected index {list(index.shape)} to be no larger than self {list(input.shape)} "
            f"apart from dimension {dim} and to be no larger size than src {list(src.shape)}"
        )


def _scatter_input_vjp(g: Tensor, dim: int, index: Tensor, mode: str) -> Tensor:
    if mode == "set":
        return scatter_fold(g, dim, index, spread(0, g, index), "set")
    if mode != "add":
        raise NotImplementedError(f"derivative for scatter with reduction {mode!r}")
    return g


@structural(
    checks=op_.POSITIONS,
    meta=_scatter_meta,
    name="scatter",
    out="exact",
    vjp={
        "input": _scatter_input_vjp,
        "src": lambda g, dim, index, src_meta: gather(g, dim, index).reshape(src_meta.shape),
    },
)
def scatter_fold(input: Tensor, dim: int, index: Tensor, src: Tensor, mode: str) -> Tensor:
    """A copy of `input` with `src` folded into the positions `index` along `dim`.

    `mode` is "set", "add", "mul", "max" or "min"; `src` has the shape of `index`.
    """


def spread(value: Any, like: Tensor, index: Tensor) -> Tensor:
    """One number in the shape of an index, without memory for each."""
    number = number_for(value, like.dtype)
    return filled((), number, like.dtype, like.device, None).expand(index.shape)


def _cropped(src: Tensor, index: Tensor) -> Tensor:
    """The part of `src` that is read: its corner of the index's size."""
    if src.shape == index.shape or src.ndim != index.ndim:
        return src
    for d, n in enumerate(index.shape):
        if n < src.shape[d]:
            src = src.narrow(d, 0, n)
    return src


_NO_VALUE = object()


@front(method=True, inplace=True)
def scatter(
    input: Tensor,
    dim: int,
    index: Tensor,
    src: Any = _NO_VALUE,
    *,
    value: Any = _NO_VALUE,
    reduce: str | None = None,
    out: Any = None,
) -> Tensor:
    """`src` (a tensor or a number) written to the positions `index` along `dim`.

    >>> import lucerne
    >>> lucerne.zeros(3).scatter(0, lucerne.tensor([2, 0]), lucerne.tensor([5.0, 7.0]))
    tensor([7., 0., 5.])
    """
    given = src if value is _NO_VALUE else value
    if given is _NO_VALUE:
        raise TypeError("scatter(): missing required argument 'src' or 'value'")
    if not hasattr(given, "_meta"):
        given = spread(given, input, index)
    if reduce is None:
        return scatter_fold(input, dim, index, _cropped(given, index), "set", out=out)
    if reduce == "add":
        return scatter_fold(input, dim, index, _cropped(given, index), "add", out=out)
    if reduce == "multiply":
        return scatter_fold(input, dim, index, _cropped(given, index), "mul", out=out)
    raise RuntimeError("reduce argument must be either add or multiply.")


@front(method=True, inplace=True)
def scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor, *, out: Any = None) -> Tensor:
    """`src` added to the positions `index` along `dim`; repeated positions add up."""
    return scatter_fold(input, dim, index, _cropped(src, index), "add", out=out)


# ---- scatter_reduce ------------------------------------------------------------------------------

_MODES = {"sum": "add", "prod": "mul", "mean": "add", "amax": "max", "amin": "min"}


def lowest(dtype: dt.dtype) -> Any:
    """The identity of a maximum."""
    if dtype.category == dt.FLOAT:
        return float("-inf")
    return False if dtype is dt.bool_ else int(np.iinfo(dtype.storage).min)


def highest(dtype: dt.dtype) -> Any:
    """The identity of a minimum."""
    if dtype.category == dt.FLOAT:
        return float("inf")
    return True if dtype is dt.bool_ else int(np.iinfo(dtype.storage).max)


def _identity(reduce: str, dtype: dt.dtype) -> Any:
    if reduce == "amax":
        return lowest(dtype)
    if reduce == "amin":
        return highest(dtype)
    return 1 if reduce == "prod" else 0


def _counts(input: Tensor, dim: int, index: Tensor, include_self: bool) -> Tensor:
    """How many values meet in each element (at least one)."""
    start = filled(tuple(input.shape), int(include_self), input.dtype, input.device, None)
    found = scatter_fold(start, dim, index, spread(1, input, index), "add")
    return found.masked_fill(found == 0, 1)


def _scatter_reduce_vjp(
    g: Tensor, y: Tensor, input: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str,
    include_self: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Gradients of both `input` and `src`."""
    if reduce == "prod":
        mine, theirs = _prod_vjp(g, y, input, dim, index, src, include_self)
    elif reduce in ("amax", "amin"):
        is_mine = (input == y).to(g.dtype)
        is_theirs = (src == y.gather(dim, index)).to(g.dtype)
        share = g / scatter_fold(is_mine, dim, index, is_theirs, "add")
        mine, theirs = is_mine * share, is_theirs * share.gather(dim, index)
    else:
        mine = g / _counts(input, dim, index, include_self) if reduce == "mean" else g
        theirs = mine.gather(dim, index)
    if not include_self:
        mine = scatter_fold(mine, dim, index, spread(0, mine, index), "set")
    return mine, theirs


def _prod_vjp(
    g: Tensor, y: Tensor, input: Tensor, dim: int, index: Tensor, src: Tensor, include_self: bool
) -> tuple[Tensor, Tensor]:
    """Each factor's gradient is the product of the others: a single zero needs its own product."""
    masked = input.masked_fill(input == 0, 1)
    others = scatter_reduce_op(masked, dim, index, src, "prod", include_self)
    mine = g * others / masked
    is_zero = src == 0
    nowhere = filled(tuple(input.shape), 0, input.dtype, input.device, None)
    zeros = scatter_fold(nowhere, dim, index, is_zero.to(src.dtype), "add").gather(dim, index)
    alone = is_zero & (zeros == 1)
    rest = scatter_reduce_op(input, dim, index, src.masked_fill(alone, 1), "prod", include_self)
    usual = (g * y).gather(dim, index) / src.masked_fill(is_zero, 1)
    return mine, (g * rest).gather(dim, index).where(alone, usual)


@composite(
    name="scatter_reduce",
    opmath=True,
    out="exact",
    vjp={
        "input": lambda g, y, input, dim, index, src, reduce, include_self: _scatter_reduce_vjp(
            g, y, input, dim, index, src, reduce, include_self
        )[0],
        "src": lambda g, y, input, dim, index, src, reduce, include_self: _scatter_reduce_vjp(
            g, y, input, dim, index, src, reduce, include_self
        )[1],
    },
)
def scatter_reduce_op(
    input: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, include_self: bool
) -> Tensor:
    """`src`, in the shape of `index`, folded into `input` by sum, prod, mean, amax or amin."""
    if reduce not in _MODES:
        raise RuntimeError(
            f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}."
        )
    if not include_self:
        start = spread(_identity(reduce, input.dtype), input, index)
        base = scatter_fold(input, dim, index, start, "set")
    else:
        base = input
    found = scatter_fold(base, dim, index, src, _MODES[reduce])
    if reduce != "mean":
        return found
    counts = _counts(input, dim, index, include_self)
    if input.dtype.category < dt.FLOAT:
        return found.div(counts, rounding_mode="floor")
    return found / counts


@front(method=True, inplace=True)
def scatter_reduce(
    input: Tensor,
    dim: int,
    index: Tensor,
    src: Tensor,
    reduce: str,
    *,
    include_self: bool = True,
    out: Any = None,
) -> Tensor:
    """`src` folded into `input` at `index` along `dim`; `reduce` says how values that meet combine.

    >>> import lucerne
    >>> i = lucerne.tensor([0, 0, 1])
    >>> lucerne.zeros(2).scatter_reduce(0, i, lucerne.tensor([1.0, 5.0, 3.0]), "amax")
    tensor([5., 3.])
    """
    return scatter_reduce_op(input, dim, index, _cropped(src, index), reduce, include_self, out=out)
