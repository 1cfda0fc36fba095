"""Values by rank: median, quantiles, the most frequent value."""

from __future__ import annotations

from typing import Any

import numpy as np

from lucerne._src.base import dtype as dt
from lucerne._src.base import shape as sh
from lucerne._src.ir.define import composite, front
from lucerne._src.ir.dispatch import every_value
from lucerne._src.ir.op import Tensor
from lucerne._src.ir.results import named
from lucerne._src.ops.copy import join
from lucerne._src.ops.creation import ranges
from lucerne._src.ops.index.sorting import sort_along
from lucerne._src.ops.pointwise import select
from lucerne._src.ops.reduce.extrema import check_dim, even_grad, picked_grad

# ---- median ------------------------------------------------------------------------------------


def _check_median(input: Tensor) -> None:
    if input.dtype is dt.bool_ or input.is_complex():
        raise NotImplementedError(
            f"\"median_cpu\" not implemented for '{dt.cxx_name(input.dtype)}'"
        )


def _median_rank(values: Tensor, dim: int, ignore_nan: bool) -> Tensor:
    """Rank of the median among sorted values, where nan stands last.

    A nan makes the median nan (the first of them), unless nans are ignored.
    """
    size = values.shape[dim]
    nans = values.isnan().sum(dim, True)
    if ignore_nan:
        return (size - 1 - nans).clamp_min(0).div(2, rounding_mode="floor")
    return select.where(nans.gt(0), size - nans, (size - 1) // 2)


def _median_along(
    input: Tensor, dim: int, keepdim: bool, ignore_nan: bool
) -> tuple[Tensor, Tensor]:
    values, order = sort_along(input, dim, False, True)
    if not input.ndim:
        return values, order
    rank = _median_rank(values, dim, ignore_nan)
    shape = [n for i, n in enumerate(input.shape) if keepdim or i != dim]
    shape = list(rank.shape) if keepdim else shape
    found = (t.gather(dim, rank).reshape(shape).clone() for t in (values, order))
    return next(found), next(found)


def _picked(g: Any, y1: Tensor, dim: int, keepdim: bool, input_meta: Any) -> Tensor:
    return picked_grad(g[0], y1, dim, keepdim, input_meta)


@composite(
    internal=True,
    name="median_dim",
    vjp={"input": _picked},
    torch="median",
    grad_fn="MedianBackward1",
)
def median_dim(input: Tensor, dim: int, keepdim: bool) -> Any:
    """The lower median along a dimension, and where it is."""
    d = check_dim(input, dim, "median")
    return named("median", "values indices")(*_median_along(input, d, keepdim, False))


@composite(
    internal=True,
    name="nanmedian_dim",
    vjp={"input": _picked},
    torch="nanmedian",
    grad_fn="NanmedianBackward1",
)
def nanmedian_dim(input: Tensor, dim: int, keepdim: bool) -> Any:
    """The lower median of what is not nan along a dimension, and where it is."""
    d = check_dim(input, dim, "nanmedian")
    return named("nanmedian", "values indices")(*_median_along(input, d, keepdim, True))


def _median_of_all(input: Tensor, ignore_nan: bool) -> Tensor:
    if not input.numel():
        floating = input.is_floating_point()
        return input.new_full((), float("nan") if floating else _lowest(input.dtype))
    return _median_along(input.reshape(-1), 0, False, ignore_nan)[0]


def _lowest(dtype: dt.dtype) -> int:
    return int(np.iinfo(dtype.storage).min)


@composite(
    internal=True,
    name="median_all",
    vjp={"input": lambda g, y, input: even_grad(g, y, input)},
    torch="median",
)
def median_all(input: Tensor) -> Tensor:
    """The lower median of all elements."""
    return _median_of_all(input, ignore_nan=False)


@composite(
    internal=True,
    name="nanmedian_all",
    vjp={"input": lambda g, y, input: even_grad(g, y, input)},
    torch="nanmedian",
)
def nanmedian_all(input: Tensor) -> Tensor:
    """The lower median of all elements that are not nan."""
    return _median_of_all(input, ignore_nan=True)


@front(method=True)
def median(input: Tensor, dim: Any = None, keepdim: bool = False, *, out: Any = None) -> Any:
    """The middle value (the lower of two); along `dim` with its position.

    >>> import lucerne
    >>> lucerne.tensor([4.0, 1.0, 3.0, 2.0]).median()
    tensor(2.)
    """
    _check_median(input)
    return median_all(input, out=out) if dim is None else median_dim(input, dim, keepdim, out=out)


@front(method=True)
def nanmedian(input: Tensor, dim: Any = None, keepdim: bool = False, *, out: Any = None) -> Any:
    """The middle value of the elements that are not nan."""
    _check_median(input)
    if dim is None:
        return nanmedian_all(input, out=out)
    return nanmedian_dim(input, dim, keepdim, out=out)


# ---- quantiles ---------------------------------------------------------------------------------

_INTERPOLATIONS = ("linear", "lower", "higher", "midpoint", "nearest")


def _check_quantile(name: str, input: Tensor, q: Any, interpolation: str) -> None:
    if not input.numel():
        raise RuntimeError(f"{name}() input tensor must be non-empty")
    if input.dtype not in (dt.float32, dt.float64):
        raise RuntimeError(f"{name}() input tensor must be either float or double dtype")
    if interpolation not in _INTERPOLATIONS:
        raise RuntimeError(
            f"{name}() interpolation must be one of linear, lower, higher, midpoint or nearest, "
            f"but got {interpolation}"
        )
    if not hasattr(q, "_meta"):
        if not 0 <= q <= 1:
            raise RuntimeError(f"{name}() q must be in the range [0, 1] but got {q:g}")
        return
    if q.ndim > 1:
        raise RuntimeError(f"{name}() q must be a scalar or 1D tensor")
    if q.dtype is not input.dtype:
        raise RuntimeError(f"{name}() q tensor must be same dtype as the input tensor")
    if not q.is_meta and not bool(every_value(q.ge(0) & q.le(1)).all()):
        raise RuntimeError(f"{name}() q values must be in the range [0, 1]")


def _ranks(values: Tensor, q: Tensor, ignore_nan: bool) -> Tensor:
    """For each row of sorted values and each `q`, the (fractional) rank to read; nan wins a row."""
    nans = values.isnan()
    last = values.shape[-1] - 1
    if ignore_nan:
        return q * (last - nans.sum(-1, True)).clamp_min(0)
    spoiled = nans.any(-1, True)
    shape = sh.broadcast_shapes(spoiled.shape, q.shape)
    return (q * last).expand(shape).masked_fill(spoiled, last)


def _rounded(rank: Tensor, interpolation: str) -> Tensor:
    if interpolation == "lower":
        return rank.floor()
    if interpolation == "higher":
        return rank.ceil()
    return rank.round() if interpolation == "nearest" else rank


def _quantile_of_rows(rows: Tensor, q: Tensor, interpolation: str, ignore_nan: bool) -> Tensor:
    """Quantiles of the last dimension: shape `rows.shape[:-1] + (number of q,)`."""
    values = sort_along(rows, -1, False, False)[0]
    rank = _rounded(_ranks(values.detach(), q, ignore_nan), interpolation)
    below = rank.to(dt.int64)
    low = values.gather(-1, below)
    if interpolation not in ("linear", "midpoint"):
        return low
    weight = rank - below if interpolation == "linear" else rank.new_full(rank.shape, 0.5)
    high = values.gather(-1, rank.detach().ceil().to(dt.int64))
    return low.lerp(high, weight)


@composite(
    internal=True,
    name="quantile_rows",
    oracle=lambda input, q, dim, keepdim, interpolation, ignore_nan, packed: (
        np.nanquantile if ignore_nan else np.quantile
    )(input, q, axis=dim, keepdims=keepdim, method=interpolation),
    samples=[((3, 3), [0.25, 0.5], 1, False, "linear", False, False)],
    autocast="full",
    torch="quantile",
)
def quantile_rows(
    input: Tensor,
    q: Tensor,
    dim: int | None,
    keepdim: bool,
    interpolation: str,
    ignore_nan: bool,
    packed: bool,
) -> Tensor:
    """Quantiles along a dimension (of all elements when it is None), first dimension over `q`."""
    if dim is None or not input.ndim:
        rows, kept = input.reshape(-1), [1] * input.ndim
    else:
        rows = input.movedim(dim, -1)
        kept = [1 if i == dim % input.ndim else n for i, n in enumerate(input.shape)]
    found = _quantile_of_rows(rows, q.reshape(-1), interpolation, ignore_nan)
    if not keepdim:
        kept = list(rows.shape[:-1])
    found = found.movedim(-1, 0)
    found = found.reshape([*q.shape, *kept])
    return found.contiguous() if packed else found.clone()


def _quantile(
    name: str, input: Tensor, q: Any, dim: Any, keepdim: bool, interpolation: str, out: Any
) -> Tensor:
    _check_quantile(name, input, q, interpolation)
    if dim is not None:
        sh.wrap_dim(dim, input.ndim)
    if out is not None and out.dtype is not input.dtype:
        raise RuntimeError(f"{name}() out tensor must be same dtype as the input tensor")
    q = q if hasattr(q, "_meta") else input.new_full((), q)
    ignore_nan, packed = name == "nanquantile", out is not None
    return quantile_rows(input, q, dim, keepdim, interpolation, ignore_nan, packed, out=out)


@front(method=True, autocast="full")
def quantile(
    input: Tensor,
    q: Any,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
    out: Any = None,
) -> Tensor:
    """The value below which a share `q` of the elements lies.

    >>> import lucerne
    >>> lucerne.tensor([1.0, 2.0, 3.0, 4.0]).quantile(0.5)
    tensor(2.5000)
    """
    return _quantile("quantile", input, q, dim, keepdim, interpolation, out)


@front(method=True, autocast="full")
def nanquantile(
    input: Tensor,
    q: Any,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
    out: Any = None,
) -> Tensor:
    """`quantile` of the elements that are not nan."""
    return _quantile("nanquantile", input, q, dim, keepdim, interpolation, out)


# ---- mode --------------------------------------------------------------------------------------


@composite(method=True, vjp={"input": _picked}, out="exact")
def mode(input: Tensor, dim: int = -1, keepdim: bool = False) -> Any:
    """The most frequent value along `dim` (the smallest of several), and its last position."""
    d = check_dim(input, dim, "mode")
    values, order = sort_along(input, dim, False, True)
    result = named("mode", "values indices")
    if not input.ndim:
        return result(values, order)
    size = input.shape[d]
    place = ranges.arange(size, device=input.device)
    place = place.reshape([size if i == d else 1 for i in range(input.ndim)])
    starts = join.cat(
        [values.narrow(d, 0, 1).eq(values.narrow(d, 0, 1)),
         values.narrow(d, 1, size - 1).ne(values.narrow(d, 0, size - 1))], d
    )  # fmt: skip
    first = (starts * place).cummax(d).values
    # The longest run so far grows by one with each equal value: its first maximum ends the mode.
    end = (place - first).argmax(d, True)
    index = order.gather(d, end)
    shape = list(index.shape) if keepdim else [n for i, n in enumerate(input.shape) if i != d]
    return result(input.gather(d, index).reshape(shape).clone(), index.reshape(shape).clone())
