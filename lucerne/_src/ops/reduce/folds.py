"""Folds over dimensions: sum, product, any, all, and what follows from them."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from lucerne._src.base import dtype as dt
from lucerne._src.base import shape as sh
from lucerne._src.ir.convert import Dtype, IntList
from lucerne._src.ir.define import composite, front, reduced_dims, reduction
from lucerne._src.ir.op import Tensor
from lucerne._src.ir.symbolic.numbers import is_filled
from lucerne._src.ops.copy import join


def restore(g: Tensor, dim: Any, keepdim: bool, meta: Any) -> Tensor:
    """A reduced result with its folded dimensions back, at size one."""
    if not keepdim and meta.ndim:
        for d in sorted(reduced_dims(dim, meta.ndim)):
            g = g.unsqueeze(d)
    return g


def spread(g: Tensor, dim: Any, keepdim: bool, meta: Any) -> Tensor:
    """A reduced gradient stretched over the dimensions that were folded."""
    return restore(g, dim, keepdim, meta).expand(meta.shape)


def folded_count(shape: Any, dim: Any) -> int:
    """How many elements one result of a fold comes from."""
    return math.prod(shape[d] for d in reduced_dims(dim, len(shape)) if d < len(shape))


def _node(name: str) -> Callable[..., str]:
    """torch's backward node: that of the overload with dimensions is the second."""
    return lambda input, dim=None, *_: f"{name}Backward{0 if dim in (None, ()) else 1}"


@reduction(
    reduce="add",
    promote="int64",
    vjp={"input": lambda g, dim, keepdim, input_meta: spread(g, dim, keepdim, input_meta)},
    method=True,
    oracle=lambda input, dim, keepdim, dtype: np.sum(input, axis=dim, keepdims=keepdim),
    linear=True,
    grad_fn=_node("Sum"),
)
def sum(
    input: Tensor, dim: IntList | None = None, keepdim: bool = False, *, dtype: Dtype | None = None
) -> Tensor:
    """Sum over dimensions, or of all elements.

    >>> import lucerne
    >>> lucerne.ones(2, 3).sum(dim=1)
    tensor([3., 3.])
    """


def sum_dims_to(g: Tensor, shape: sh.Shape) -> Tensor:
    """Undo broadcasting: sum what was expanded."""
    lead = g.ndim - len(shape)
    dims = tuple(range(lead)) + tuple(
        lead + i for i, n in enumerate(shape) if n != g.shape[lead + i] and n == 1
    )
    folded = g.sum(dims, keepdim=True) if dims else g
    return folded.reshape(shape) if lead else folded


# ---- products ---------------------------------------------------------------------------------


def _prod_grad(g: Tensor, input: Tensor, dim: Any, keepdim: bool) -> Tensor:
    """Every factor's gradient is the product of all others: before it times after it.

    No division, so zeros need no special case, in second derivatives neither.
    """
    if not input.ndim:
        return g
    flat = dim is None and input.ndim > 1
    x = input.reshape(-1) if flat else input
    d = 0 if dim is None else dim
    others = others_product(x, d, reverse=False) * others_product(x, d, reverse=True)
    others = others.conj_physical() if others.is_complex() else others
    g = restore(g, dim, keepdim, input._meta)
    return g * (others.reshape(input.shape) if flat else others)


def others_product(x: Tensor, dim: int, *, reverse: bool) -> Tensor:
    """At each position the product of all elements before it (after it, when reversed)."""
    if reverse:
        return others_product(x.flip(dim), dim, reverse=False).flip(dim)
    one = x.new_ones([1 if d == dim % x.ndim else n for d, n in enumerate(x.shape)])
    before = x.narrow(dim, 0, builtins.max(x.shape[dim] - 1, 0)).cumprod(dim)
    return join.cat([one, before], dim) if x.shape[dim] else x


@reduction(
    internal=True,
    name="prod_dim",
    reduce="mul",
    promote="int64",
    vjp={"input": lambda g, input, dim, keepdim: _prod_grad(g, input, dim, keepdim)},
    oracle=lambda input, dim, keepdim, dtype: np.prod(input, axis=dim, keepdims=keepdim),
    autocast="full",
    torch="prod",
    grad_fn=_node("Prod"),
)
def prod_dim(
    input: Tensor, dim: int | None = None, keepdim: bool = False, *, dtype: Dtype | None = None
) -> Tensor:
    """Product over one dimension, or of all elements."""


@front(method=True)
def prod(
    input: Tensor,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    dtype: Any = None,
    out: Any = None,
) -> Tensor:
    """Product over a dimension, or of all elements.

    >>> import lucerne
    >>> lucerne.tensor([[1.0, 2.0], [3.0, 4.0]]).prod(1)
    tensor([ 2., 12.])
    """
    if dtype is not None and input.dtype is not dtype:
        input = input.to(dtype)
    return prod_dim(input, dim, keepdim, dtype=dtype, out=out)


# ---- logic ------------------------------------------------------------------------------------


@reduction(
    internal=True,
    name="any_dims",
    reduce="or",
    promote="bool",
    vjp={},
    oracle=lambda input, dim, keepdim: np.any(input, axis=dim, keepdims=keepdim),
    exact="choice",
    torch="any",
)
def any_dims(input: Tensor, dim: IntList | None = None, keepdim: bool = False) -> Tensor:
    """Whether some element is not zero."""


@reduction(
    internal=True,
    name="all_dims",
    reduce="and",
    promote="bool",
    vjp={},
    oracle=lambda input, dim, keepdim: np.all(input, axis=dim, keepdims=keepdim),
    exact="choice",
    torch="all",
)
def all_dims(input: Tensor, dim: IntList | None = None, keepdim: bool = False) -> Tensor:
    """Whether no element is zero."""


def _each_truth(input: Tensor) -> Tensor:
    """An empty list of dimensions folds nothing: each element is judged alone."""
    truth = input.ne(0)
    return truth.to(dt.uint8) if input.dtype is dt.uint8 else truth


def _check_truth(name: str, out: Any) -> None:
    if out is not None and out.dtype not in (dt.bool_, dt.uint8):
        raise RuntimeError(
            f"{name} only supports bool tensor for result, got: {dt.cxx_name(out.dtype)}"
        )


@front(name="any", method=True)
def any(input: Tensor, dim: Any = None, keepdim: bool = False, *, out: Any = None) -> Tensor:
    """Whether some element is not zero.

    >>> import lucerne
    >>> lucerne.tensor([[0, 1], [0, 0]]).any(dim=1)
    tensor([ True, False])
    """
    if isinstance(dim, (tuple, list)) and not dim and out is None:
        return _each_truth(input)
    _check_truth("any", out)
    return any_dims(input, dim, keepdim, out=out)


@front(name="all", method=True)
def all(input: Tensor, dim: Any = None, keepdim: bool = False, *, out: Any = None) -> Tensor:
    """Whether no element is zero.

    >>> import lucerne
    >>> lucerne.tensor([[0, 1], [2, 3]]).all(dim=1)
    tensor([False,  True])
    """
    if isinstance(dim, (tuple, list)) and not dim and out is None:
        return _each_truth(input)
    _check_truth("all", out)
    return all_dims(input, dim, keepdim, out=out)


# ---- counting and averages --------------------------------------------------------------------


@composite(
    method=True, out=False, oracle=lambda input, dim: np.count_nonzero(input, axis=dim), fuse=True
)
def count_nonzero(input: Tensor, dim: IntList | None = None) -> Tensor:
    """How many elements are not zero.

    >>> import lucerne
    >>> lucerne.tensor([[0, 1], [2, 3]]).count_nonzero(dim=0)
    tensor([1, 2])
    """
    return input.ne(0).sum(dim)


def _mean_dtype(input: Tensor, dtype: dt.dtype | None) -> dt.dtype:
    found: dt.dtype = dtype or input.dtype
    if found.category < dt.FLOAT:
        which = "Input" if dtype is None else "Optional"
        raise RuntimeError(
            f"mean(): could not infer output dtype. {which} dtype must be either a floating point "
            f"or complex dtype. Got: {dt.cxx_name(found)}"
        )
    return found


def _mean_grad(g: Tensor, dim: Any, keepdim: bool, meta: Any) -> Tensor:
    count = folded_count(meta.shape, dim)
    return spread(g / count if is_filled(count) else g, dim, keepdim, meta)


@composite(
    method=True,
    vjp={"input": lambda g, dim, keepdim, input_meta: _mean_grad(g, dim, keepdim, input_meta)},
    oracle=lambda input, dim, keepdim, dtype: np.mean(input, axis=dim, keepdims=keepdim),
    linear=True,
    fuse=True,
    grad_fn=_node("Mean"),
)
def mean(
    input: Tensor, dim: IntList | None = None, keepdim: bool = False, *, dtype: Dtype | None = None
) -> Tensor:
    """Average over dimensions, or of all elements.

    >>> import lucerne
    >>> lucerne.tensor([[1.0, 3.0], [5.0, 7.0]]).mean(dim=0)
    tensor([3., 5.])
    """
    result = _mean_dtype(input, dtype)
    # 16-bit floats are summed and divided in float32, and rounded once.
    total = input.sum(dim, keepdim, dtype=result.compute)
    return (total / folded_count(input.shape, dim)).to(result)


@composite(
    internal=True,
    name="nansum_dims",
    oracle=lambda input, dim, keepdim, dtype: np.nansum(input, axis=dim, keepdims=keepdim),
    fuse=True,
    torch="nansum",
)
def nansum_dims(
    input: Tensor, dim: IntList | None = None, keepdim: bool = False, *, dtype: Dtype | None = None
) -> Tensor:
    """Sum that counts nan as zero."""
    if input.is_floating_point():
        input = input.masked_fill(input.isnan(), 0)
    return input.sum(dim, keepdim, dtype=dtype)


def _check_nansum(input: Tensor, out: Any) -> None:
    if input.is_complex():
        raise RuntimeError("nansum on CPU does not support complex inputs")
    if out is not None and input.is_floating_point() and out.dtype.category < dt.FLOAT:
        raise NotImplementedError(f"\"nansum_cpu\" not implemented for '{dt.cxx_name(out.dtype)}'")


@front(method=True)
def nansum(
    input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None, out: Any = None
) -> Tensor:
    """Sum that counts nan as zero.

    >>> import lucerne
    >>> lucerne.tensor([1.0, float("nan")]).nansum()
    tensor(1.)
    """
    _check_nansum(input, out)
    return nansum_dims(input, dim, keepdim, dtype=dtype, out=out)


@composite(
    internal=True,
    name="nanmean_dims",
    oracle=lambda input, dim, keepdim, dtype: np.nanmean(input, axis=dim, keepdims=keepdim),
    fuse=True,
    torch="nanmean",
)
def nanmean_dims(
    input: Tensor, dim: IntList | None = None, keepdim: bool = False, *, dtype: Dtype | None = None
) -> Tensor:
    """Average of the elements that are not nan."""
    count = input.detach().isnan().logical_not().sum(dim, keepdim)
    return nansum_dims(input, dim, keepdim, dtype=dtype) / count


@front(method=True)
def nanmean(
    input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None, out: Any = None
) -> Tensor:
    """Average of the elements that are not nan."""
    if input.dtype.category < dt.FLOAT:
        raise RuntimeError(
            "nanmean(): expected input to have floating point or complex dtype but got "
            f"{dt.cxx_name(input.dtype)}"
        )
    _check_nansum(input, out)
    return nanmean_dims(input, dim, keepdim, dtype=dtype, out=out)
