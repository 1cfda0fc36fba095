"""Reductions and normalisations that leave out masked elements (`lucerne.masked`).

An element whose mask is False is replaced by the value that does not count: zero for a sum, one
for a product, minus infinity for a maximum.
"""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

from lucerne._src.base import dtype as dt
from lucerne._src.ir.define import front
from lucerne._src.ir.dispatch import every_value
from lucerne._src.ir.op import Tensor
from lucerne._src.ops.creation import fills
from lucerne._src.ops.pointwise import select
from lucerne._src.ops.reduce import norms

_LOWEST = frozenset(("amax", "argmax", "logaddexp", "logsumexp"))
_HIGHEST = frozenset(("amin", "argmin"))
_FILLS = {"sum": 0, "prod": 1, "median": float("nan")}
_REDUCTIONS = frozenset(
    ("sum", "prod", "amax", "amin", "argmax", "argmin", "mean", "median", "norm", "var", "std",
     "logsumexp")
)  # fmt: skip


def _bound(dtype: dt.dtype, highest: bool) -> Any:
    if dtype.category in (dt.FLOAT, dt.COMPLEX):
        return float("inf") if highest else float("-inf")
    limits = np.iinfo(dtype.storage)
    return int(limits.max if highest else limits.min)


def _fill(kind: str, input: Tensor) -> Any:
    if kind in _LOWEST or kind in _HIGHEST:
        return _bound(input.dtype, kind in _HIGHEST)
    return _FILLS[kind]


def _dims(dim: Any, ndim: int) -> tuple[int, ...]:
    """Sorted dimensions counted from the front; None and () mean all."""
    if dim is None or dim == ():
        return tuple(range(ndim))
    found: list[int] = []
    span = builtins.max(ndim, 1)
    for d in (dim,) if isinstance(dim, int) else dim:
        if d in found:
            raise RuntimeError(f"dim={d} appears multiple times in the list of dims")
        if not -span <= d < span:
            raise IndexError(
                f"Dimension out of range (expected to be in range of [{-span}, {span - 1}], but "
                f"got {d})"
            )
        found.append(d % span)
    return tuple(sorted(found))


@front(namespace="masked", torch=None)
def _input_mask(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """The mask of a call, broadcast to the input's shape."""
    mask = kwargs.get("mask")
    if mask is None:
        raise ValueError("_input_mask requires explicit mask")
    if mask.ndim > input.ndim:
        raise IndexError(
            "_input_mask expected broadcastable mask (got mask dimensionality higher than of the "
            "input)"
        )
    return mask.expand(input.shape).to(dt.bool_)


@front(namespace="masked", torch=None)
def _output_mask(op: Any, input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Which results of a masked call come from at least one element."""
    name = op.__name__
    mask = _input_mask(input, **kwargs)
    if name not in _REDUCTIONS:
        return mask
    if name == "norm":
        args = args[1:]
    dim = args[0] if args else kwargs.get("dim")
    keepdim = builtins.bool(kwargs.get("keepdim", False))
    return mask.any(_dims(dim, input.ndim), keepdim) if input.ndim else mask.any()


def _masked(kind: str, input: Tensor, mask: Any) -> Tensor:
    if mask is None:
        return input
    fill = input.new_full((), _fill(kind, input))
    return select.where(_input_mask(input, mask=mask), input, fill)


def _sum_dtype(input: Tensor, dtype: Any) -> dt.dtype:
    if dtype is not None:
        return dtype
    found: dt.dtype = input.dtype
    return dt.int64 if found.category < dt.FLOAT else found


@front(namespace="masked")
def sum(
    input: Tensor, dim: Any = None, *, keepdim: bool = False, dtype: Any = None, mask: Any = None
) -> Tensor:
    """Sum of the elements that are not masked out."""
    x = _masked("sum", input, mask)
    return x.sum(_dims(dim, input.ndim), keepdim, dtype=_sum_dtype(input, dtype))


@front(namespace="masked")
def prod(
    input: Tensor, dim: Any = None, *, keepdim: bool = False, dtype: Any = None, mask: Any = None
) -> Tensor:
    """Product of the elements that are not masked out."""
    x = _masked("prod", input, mask).to(_sum_dtype(input, dtype))
    for d in reversed(_dims(dim, input.ndim)):
        x = x.prod(d, keepdim)
    return x


@front(namespace="masked")
def cumsum(input: Tensor, dim: int, *, dtype: Any = None, mask: Any = None) -> Tensor:
    """Running sum that skips masked elements."""
    dtype = dtype or input.dtype
    d = _dims(dim, input.ndim)[0]
    return _masked("sum", input, mask).cumsum(d, dtype=dtype).to(dtype)


@front(namespace="masked")
def cumprod(input: Tensor, dim: int, *, dtype: Any = None, mask: Any = None) -> Tensor:
    """Running product that skips masked elements."""
    dtype = dtype or input.dtype
    d = _dims(dim, input.ndim)[0]
    return _masked("prod", input, mask).cumprod(d, dtype=dtype).to(dtype)


@front(namespace="masked")
def amax(
    input: Tensor, dim: Any = None, *, keepdim: bool = False, dtype: Any = None, mask: Any = None
) -> Tensor:
    """Largest of the elements that are not masked out."""
    x = _masked("amax", input, mask)
    return x.amax(_dims(dim, input.ndim), keepdim).to(dtype or input.dtype)


@front(namespace="masked")
def amin(
    input: Tensor, dim: Any = None, *, keepdim: bool = False, dtype: Any = None, mask: Any = None
) -> Tensor:
    """Smallest of the elements that are not masked out."""
    x = _masked("amin", input, mask)
    return x.amin(_dims(dim, input.ndim), keepdim).to(dtype or input.dtype)


@front(namespace="masked")
def argmax(
    input: Tensor, dim: Any = None, *, keepdim: bool = False, dtype: Any = None, mask: Any = None
) -> Tensor:
    """Position of the largest element that is not masked out."""
    return _masked("argmax", input, mask).argmax(dim, keepdim).to(dtype or input.dtype)


@front(namespace="masked")
def argmin(
    input: Tensor, dim: Any = None, *, keepdim: bool = False, dtype: Any = None, mask: Any = None
) -> Tensor:
    """Position of the smallest element that is not masked out."""
    return _masked("argmin", input, mask).argmin(dim, keepdim).to(dtype or input.dtype)


def _count(input: Tensor, dim: Any, keepdim: bool, mask: Any) -> Tensor:
    here = fills.ones_like(input, dtype=dt.int64) if mask is None else _input_mask(input, mask=mask)
    return here.sum(_dims(dim, input.ndim), keepdim)


@front(namespace="masked")
def mean(
    input: Tensor, dim: Any = None, *, keepdim: bool = False, dtype: Any = None, mask: Any = None
) -> Tensor:
    """Average of the elements that are not masked out."""
    found = dtype or input.dtype
    if found.category < dt.FLOAT:
        which = "Input" if dtype is None else "Optional"
        raise ValueError(
            f"mean(): Could not infer output dtype. {which} dtype must be either a floating point "
            f"or complex dtype. Got: {found}"
        )
    total = sum(input, dim, keepdim=keepdim, dtype=found, mask=mask)
    return total / _count(input, dim, keepdim, mask)


@front(namespace="masked")
def median(
    input: Tensor, dim: int = -1, *, keepdim: bool = False, dtype: Any = None, mask: Any = None
) -> Tensor:
    """Lower median of the elements that are not masked out."""
    floating = input.is_floating_point()
    x = _masked("median", input if floating else input.to(dt.float32), mask)
    found = x.nanmedian(_dims(dim, input.ndim)[0], keepdim).values
    if floating:
        return found
    if builtins.bool(every_value(found.isnan()).any()):
        raise ValueError(
            "masked median expects no fully masked out rows if dtype is not floating point"
        )
    return found.to(dtype or input.dtype)


@front(namespace="masked")
def logsumexp(
    input: Tensor, dim: Any = None, *, keepdim: bool = False, dtype: Any = None, mask: Any = None
) -> Tensor:
    """Logarithm of the sum of exponentials of the elements that are not masked out."""
    x = _masked("logsumexp", input, mask)
    return x.logsumexp(_dims(dim, input.ndim), keepdim).to(dtype or input.dtype)


@front(namespace="masked")
def logaddexp(
    input: Tensor,
    other: Tensor,
    *,
    dtype: Any = None,
    input_mask: Any = None,
    other_mask: Any = None,
) -> Tensor:
    """Logarithm of the sum of two exponentials, without those masked out."""
    a, b = _masked("logaddexp", input, input_mask), _masked("logaddexp", other, other_mask)
    return a.logaddexp(b).to(dtype or input.dtype)


@front(namespace="masked")
def norm(
    input: Tensor,
    ord: float = 2.0,
    dim: Any = None,
    *,
    keepdim: bool = False,
    dtype: Any = None,
    mask: Any = None,
) -> Tensor:
    """Norm of vectors without their masked elements."""
    x = _masked("amin" if ord == float("-inf") else "sum", input, mask)
    return norms.vector_norm(x, ord, _dims(dim, input.ndim), keepdim, dtype=dtype or input.dtype)


def _spread(
    input: Tensor, dim: Any, correction: float, keepdim: bool, dtype: Any, mask: Any
) -> Tensor:
    """Sum of squared distances from the mean, over the count less `correction`."""
    compute = dtype if dtype.category >= dt.FLOAT else dt.float32
    count = _count(input, dim, True, mask)
    average = sum(input, dim, keepdim=True, dtype=dtype, mask=mask) / count
    away = input - average
    squares = away * away.conj() if away.is_complex() else away * away
    total = sum(squares, dim, keepdim=keepdim, dtype=compute, mask=mask)
    count = count if keepdim else count.reshape(total.shape)
    if correction != 0:
        count = (count.to(compute.to_real()) - correction).clamp_min(0)
    return (total / count).to(dtype)


def _spread_arguments(
    input: Tensor, unbiased: Any, correction: Any, dtype: Any
) -> tuple[float, Any]:
    if correction is None:
        correction = 1.0 if unbiased is None or unbiased else 0.0
    if dtype is None:
        dtype = input.dtype if input.dtype.category >= dt.FLOAT else dt.float32
    return correction, dtype


@front(namespace="masked")
def var(
    input: Tensor,
    dim: Any = None,
    unbiased: Any = None,
    *,
    correction: Any = None,
    keepdim: bool = False,
    dtype: Any = None,
    mask: Any = None,
) -> Tensor:
    """Variance of the elements that are not masked out."""
    correction, dtype = _spread_arguments(input, unbiased, correction, dtype)
    return _spread(input, dim, correction, keepdim, dtype, mask)


@front(namespace="masked")
def std(
    input: Tensor,
    dim: Any = None,
    unbiased: Any = None,
    *,
    correction: Any = None,
    keepdim: bool = False,
    dtype: Any = None,
    mask: Any = None,
) -> Tensor:
    """Standard deviation of the elements that are not masked out."""
    correction, dtype = _spread_arguments(input, unbiased, correction, dtype)
    return _spread(input, dim, correction, keepdim, dtype, mask).sqrt()


@front(namespace="masked")
def softmax(input: Tensor, dim: int, *, dtype: Any = None, mask: Any = None) -> Tensor:
    """Softmax in which masked elements get no weight."""
    d = _dims(dim, input.ndim)[0]
    return _masked("amax", input, mask).softmax(d, dtype or input.dtype)


@front(namespace="masked")
def log_softmax(input: Tensor, dim: int, *, dtype: Any = None, mask: Any = None) -> Tensor:
    """Logarithm of softmax in which masked elements get no weight."""
    d = _dims(dim, input.ndim)[0]
    return _masked("amax", input, mask).log_softmax(d, dtype or input.dtype)


@front(namespace="masked")
def softmin(input: Tensor, dim: int, *, dtype: Any = None, mask: Any = None) -> Tensor:
    """Softmin in which masked elements get no weight."""
    d = _dims(dim, input.ndim)[0]
    return (-_masked("amin", input, mask)).softmax(d, dtype or input.dtype)


@front(namespace="masked")
def normalize(
    input: Tensor,
    ord: float,
    dim: int,
    *,
    eps: float = 1e-12,
    dtype: Any = None,
    mask: Any = None,
) -> Tensor:
    """Vectors along `dim` scaled to length one, without their masked elements."""
    length = norm(input, ord, dim, keepdim=True, dtype=dtype or input.dtype, mask=mask)
    return _masked("sum", input, mask) / length.maximum(length.new_full((), eps))
