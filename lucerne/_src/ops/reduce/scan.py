"""Running folds along a dimension: cumulative sum, product, maximum, log-sum-exp."""

from __future__ import annotations

from typing import Any

import numpy as np

from lucerne._src.base import dtype as dt
from lucerne._src.base import shape as sh
from lucerne._src.ir.convert import Dtype
from lucerne._src.ir.define import composite, front, structural
from lucerne._src.ir.meta import TensorMeta, make_meta
from lucerne._src.ir.op import Tensor
from lucerne._src.ir.results import named
from lucerne._src.ops.checks import conj_of, need
from lucerne._src.ops.copy import join

POSITIONS = ("argmax", "argmin")
MODES = (*POSITIONS, "add", "mul", "logaddexp")


def _scan_meta(
    input: TensorMeta, dim: int, mode: str, reverse: bool, dtype: dt.dtype | None
) -> TensorMeta:
    sh.wrap_dim(dim, input.ndim)
    need(mode in MODES, lambda: f"a scan by {mode!r}, which is none of {', '.join(MODES)}")
    if mode in POSITIONS:
        return make_meta(dt.int64, tuple(input.shape), None, input.device)
    strides = sh.elementwise_strides(tuple(input.shape), ((tuple(input.shape), input.strides),))
    return make_meta(dtype or input.dtype, tuple(input.shape), strides, input.device)


def _scan_grad(g: Tensor, y: Tensor, input: Tensor, dim: int, mode: str, reverse: bool) -> Tensor:
    if mode == "add":
        return scan(g, dim, "add", not reverse, None)
    if not input.ndim:
        return g
    if reverse:
        g, y, input = (t.flip(dim) for t in (g, y, input))
    found = _GRADS[mode](g, y, input, dim)
    return found.flip(dim) if reverse else found


def shifted(x: Tensor, dim: int, fill: Any) -> Tensor:
    """Every element one place later along `dim`; the first place gets `fill`."""
    if not x.shape[dim]:
        return x
    first = x.narrow(dim, 0, 1)
    rest = x.narrow(dim, 0, x.shape[dim] - 1)
    return join.cat([first.new_full(first.shape, fill), rest], dim)


def _product_grad(g: Tensor, y: Tensor, input: Tensor, dim: int) -> Tensor:
    # y[t] = input[t] * y[t-1], so what reaches y[t] is g[t] + input[t+1] * (what reaches y[t+1]).
    # A linear recurrence: no division by the input, hence right for zeros too.
    input = input.to(y.dtype)
    arriving = linear_scan(conj_of(input), g, dim, True)
    return arriving * conj_of(shifted(scan(input, dim, "mul", False, None), dim, 1))


def _logaddexp_grad(g: Tensor, y: Tensor, input: Tensor, dim: int) -> Tensor:
    # y grows along dim, so exp(y[t-1] - y[t]) is at most one and nothing overflows.
    decay = (shifted(y, dim, 0) - y).exp()
    arriving = linear_scan(conj_of(decay), g, dim, True)
    return arriving * conj_of((input - y).exp())


_GRADS: dict[str, Any] = {"mul": _product_grad, "logaddexp": _logaddexp_grad}


@structural(internal=True, meta=_scan_meta, vjp={"input": _scan_grad}, out=False)
def scan(input: Tensor, dim: int, mode: str, reverse: bool, dtype: Dtype | None) -> Tensor:
    """Running fold along `dim`: "add", "mul", "logaddexp", or the position of the extreme so far.

    "argmax" and "argmin" give the last position that holds the extreme; a nan beats every number.
    """


def _linear_meta(decay: TensorMeta, input: TensorMeta, dim: int, reverse: bool) -> TensorMeta:
    sh.wrap_dim(dim, input.ndim)
    return make_meta(input.dtype, tuple(input.shape), None, input.device)


def _decay_grad(g: Tensor, y: Tensor, decay: Tensor, dim: int, reverse: bool) -> Tensor:
    arriving = linear_scan(conj_of(decay), g, dim, not reverse)
    if reverse:
        return shifted(arriving, dim, 0) * conj_of(y)
    return arriving * conj_of(shifted(y, dim, 0))


@structural(
    internal=True,
    meta=_linear_meta,
    vjp={
        "decay": _decay_grad,
        "input": lambda g, decay, dim, reverse: linear_scan(conj_of(decay), g, dim, not reverse),
    },
    out=False,
)
def linear_scan(decay: Tensor, input: Tensor, dim: int, reverse: bool) -> Tensor:
    """The recurrence `y[t] = input[t] + decay[t] * y[t-1]`.

    Reversed it is the transpose of that: `y[t] = input[t] + decay[t+1] * y[t+1]`.
    """


# ---- sums and products -------------------------------------------------------------------------


def _running_dtype(input: Tensor, dtype: dt.dtype | None, out: Any) -> dt.dtype | None:
    """Integers accumulate in int64, unless a result of another type is asked for."""
    if dtype is not None:
        return dtype
    target = getattr(out, "target", out)
    if target is not None:
        if target.dtype is dt.bool_:
            raise NotImplementedError("\"cumsum_out_cpu\" not implemented for 'Bool'")
        found: dt.dtype = target.dtype
        return found
    return dt.int64 if input.dtype.category < dt.FLOAT else None


@composite(
    internal=True,
    name="running_sum",
    out="exact",
    vjp={"input": lambda g, dim: scan(g, dim, "add", True, None)},
    oracle=lambda input, dim, dtype: np.cumsum(input, axis=dim),
    linear=True,
    torch="cumsum",
)
def running_sum(input: Tensor, dim: int, dtype: Dtype | None) -> Tensor:
    """Sums of all elements up to each place."""
    return scan(input if dtype is None else input.to(dtype), dim, "add", False, None)


@composite(
    internal=True,
    name="running_product",
    out="exact",
    oracle=lambda input, dim, dtype: np.cumprod(input, axis=dim),
    torch="cumprod",
)
def running_product(input: Tensor, dim: int, dtype: Dtype | None) -> Tensor:
    """Products of all elements up to each place."""
    return scan(input if dtype is None else input.to(dtype), dim, "mul", False, None)


@front(method=True, inplace=True)
def cumsum(input: Tensor, dim: int, *, dtype: Any = None, out: Any = None) -> Tensor:
    """Sum of all elements up to each place along `dim`.

    >>> import lucerne
    >>> lucerne.tensor([1, 2, 3]).cumsum(0)
    tensor([1, 3, 6])
    """
    return running_sum(input, dim, _running_dtype(input, dtype, out), out=out)


@front(method=True, inplace=True)
def cumprod(input: Tensor, dim: int, *, dtype: Any = None, out: Any = None) -> Tensor:
    """Product of all elements up to each place along `dim`.

    >>> import lucerne
    >>> lucerne.tensor([1, 2, 3]).cumprod(0)
    tensor([1, 2, 6])
    """
    return running_product(input, dim, _running_dtype(input, dtype, out), out=out)


@composite(
    method=True,
    out="exact",
    oracle=lambda input, dim: np.logaddexp.accumulate(input, axis=dim),
)
def logcumsumexp(input: Tensor, dim: int) -> Tensor:
    """Logarithm of the running sum of exponentials."""
    if input.dtype.category < dt.FLOAT:
        sh.wrap_dim(dim, input.ndim)
        raise NotImplementedError(
            f"\"logcumsumexp_out_cpu\" not implemented for '{dt.cxx_name(input.dtype)}'"
        )
    return scan(input, dim, "logaddexp", False, None)


# ---- running extremes --------------------------------------------------------------------------


def _refuse_complex(input: Tensor, name: str) -> None:
    if input.is_complex():
        raise NotImplementedError(
            f"\"{name}_cpu\" not implemented for '{dt.cxx_name(input.dtype)}'"
        )


@composite(method=True, out="exact")
def cummax(input: Tensor, dim: int) -> Any:
    """The largest element so far along `dim`, and where it is.

    >>> import lucerne
    >>> lucerne.tensor([1, 3, 2]).cummax(0).values
    tensor([1, 3, 3])
    """
    _refuse_complex(input, "cummax")
    index = scan(input.detach(), dim, "argmax", False, None)
    return named("cummax", "values indices")(input.gather(dim, index), index)


@composite(method=True, out="exact")
def cummin(input: Tensor, dim: int) -> Any:
    """The smallest element so far along `dim`, and where it is."""
    _refuse_complex(input, "cummin")
    index = scan(input.detach(), dim, "argmin", False, None)
    return named("cummin", "values indices")(input.gather(dim, index), index)
