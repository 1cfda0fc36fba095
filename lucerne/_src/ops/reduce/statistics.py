"""Spread and middle of data: variance, standard deviation, covariance."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

from lucerne._src.base import dtype as dt
from lucerne._src.base.process import notices
from lucerne._src.ir.convert import IntList
from lucerne._src.ir.define import composite, front, reduced_dims
from lucerne._src.ir.dispatch import every_value
from lucerne._src.ir.op import Tensor
from lucerne._src.ops.pointwise import complexes
from lucerne._src.ops.reduce.folds import folded_count, restore
from lucerne._src.ops.reduce.squares import centred_squares, root_of_centred_squares, without_folded


def _check_float(input: Tensor, name: str) -> None:
    if input.dtype.category < dt.FLOAT:
        raise RuntimeError(f"{name} only support floating point and complex dtypes")


def _divided(x: Tensor, by: float) -> Tensor:
    return x / by if by else x * float("inf")


def _var_grad(g: Tensor, input: Tensor, dim: Any, correction: float, keepdim: bool) -> Tensor:
    freedom = folded_count(input.shape, dim) - correction
    g = restore(g, dim, keepdim, input._meta)
    return _divided(g * 2, freedom) * (input - input.mean(dim, True))


def _std_grad(
    g: Tensor, y: Tensor, input: Tensor, dim: Any, correction: float, keepdim: bool
) -> Tensor:
    scaled = (g / (y * 2)).masked_fill(y.eq(0), 0)
    return _var_grad(scaled, input, dim, correction, keepdim)


def _degrees(input: Tensor, dim: Any, correction: float) -> float:
    return builtins.max(folded_count(input.shape, dim) - correction, 0)


def _oracle_var(input: Any, dim: Any, correction: float, keepdim: bool) -> Any:
    return np.var(input, axis=dim, ddof=correction, keepdims=keepdim)


@composite(
    internal=True,
    name="variance",
    vjp={"input": _var_grad},
    oracle=_oracle_var,
    fuse=True,
    torch="var",
)
def variance(input: Tensor, dim: IntList | None, correction: float, keepdim: bool) -> Tensor:
    """Mean squared distance from the mean, divided by the count less `correction`."""
    found = centred_squares(input.to(input.dtype.compute), dim) / _degrees(input, dim, correction)
    return without_folded(found, reduced_dims(dim, input.ndim), keepdim).to(input.dtype.to_real())


@composite(
    internal=True,
    name="deviation",
    vjp={"input": _std_grad},
    oracle=lambda input, dim, correction, keepdim: np.sqrt(
        _oracle_var(input, dim, correction, keepdim)
    ),
    fuse=True,
    torch="std",
)
def deviation(input: Tensor, dim: IntList | None, correction: float, keepdim: bool) -> Tensor:
    """Square root of the variance."""
    wide = input.to(input.dtype.compute)
    found = root_of_centred_squares(wide, dim, _degrees(input, dim, correction))
    return without_folded(found, reduced_dims(dim, input.ndim), keepdim).to(input.dtype.to_real())


def _arguments(dim: Any, unbiased: Any, correction: Any) -> tuple[Any, float]:
    """torch's three spellings: `(dim, correction=)`, `(dim, unbiased)` and `(unbiased)`."""
    if type(dim) is bool:
        dim, unbiased = None, dim
    if correction is None:
        correction = 1 if unbiased is None else int(unbiased)
    return dim, correction


@front(method=True)
def var(
    input: Tensor,
    dim: Any = None,
    unbiased: Any = None,
    keepdim: bool = False,
    *,
    correction: Any = None,
    out: Any = None,
) -> Tensor:
    """Variance over dimensions; `correction` is subtracted from the count (1: unbiased).

    >>> import lucerne
    >>> lucerne.tensor([1.0, 2.0, 3.0]).var()
    tensor(1.)
    """
    _check_float(input, "std and var")
    dim, correction = _arguments(dim, unbiased, correction)
    return variance(input, dim, correction, keepdim, out=out)


@front(method=True)
def std(
    input: Tensor,
    dim: Any = None,
    unbiased: Any = None,
    keepdim: bool = False,
    *,
    correction: Any = None,
    out: Any = None,
) -> Tensor:
    """Standard deviation over dimensions.

    >>> import lucerne
    >>> lucerne.tensor([1.0, 2.0, 3.0]).std(correction=1)
    tensor(1.)
    """
    _check_float(input, "std and var")
    dim, correction = _arguments(dim, unbiased, correction)
    return deviation(input, dim, correction, keepdim, out=out)


@front()
def var_mean(
    input: Tensor,
    dim: Any = None,
    unbiased: Any = None,
    keepdim: bool = False,
    *,
    correction: Any = None,
) -> tuple[Tensor, Tensor]:
    """Variance and mean."""
    _check_float(input, "var_mean")
    dim, correction = _arguments(dim, unbiased, correction)
    return variance(input, dim, correction, keepdim), input.mean(dim, keepdim)


@front()
def std_mean(
    input: Tensor,
    dim: Any = None,
    unbiased: Any = None,
    keepdim: bool = False,
    *,
    correction: Any = None,
) -> tuple[Tensor, Tensor]:
    """Standard deviation and mean."""
    _check_float(input, "std_mean")
    dim, correction = _arguments(dim, unbiased, correction)
    return deviation(input, dim, correction, keepdim), input.mean(dim, keepdim)


# ---- covariance --------------------------------------------------------------------------------


def _check_weights(name: str, weights: Tensor, count: int, kind: int) -> None:
    if weights.ndim > 1:
        raise RuntimeError(
            f"cov(): expected {name} to have one or fewer dimensions but got {name} with "
            f"{weights.ndim} dimensions"
        )
    if weights.dtype.category != kind:
        told = "integral dtype" if kind == dt.INTEGER else "floating point dtype"
        raise RuntimeError(
            f"cov(): expected {name} to have {told} but got {name} with "
            f"{dt.cxx_name(weights.dtype)} dtype"
        )
    if weights.numel() != count:
        raise RuntimeError(
            f"cov(): expected {name} to have the same numel as there are observations in the input "
            f"but got {weights.numel()} != {count}"
        )
    if count and not weights.is_meta and bool(every_value(weights.lt(0)).any()):
        raise RuntimeError(f"cov(): {name} cannot be negative")


def _covariance_weights(count: int, fweights: Any, aweights: Any) -> Any:
    if fweights is not None:
        _check_weights("fweights", fweights, count, dt.INTEGER)
    if aweights is not None:
        _check_weights("aweights", aweights, count, dt.FLOAT)
    if fweights is None or aweights is None:
        return fweights if aweights is None else aweights
    return fweights * aweights


def _freedom(weights: Any, aweights: Any, total: Any, correction: float) -> Any:
    if weights is not None and aweights is not None and correction != 0:
        found = total - correction * (weights * aweights).sum() / total
    else:
        found = total - correction
    if found <= 0:
        notices.warn("cov(): degrees of freedom is <= 0. Correction should be strictly less than "
                      "the number of observations.", stacklevel=4)  # fmt: skip
        return found * 0
    return found


@front(method=True)
def cov(
    input: Tensor, *, correction: float = 1, fweights: Any = None, aweights: Any = None
) -> Tensor:
    """Covariance of variables (rows) over observations (columns).

    >>> import lucerne
    >>> lucerne.tensor([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]]).cov()
    tensor([[ 1., -1.],
            [-1.,  1.]])
    """
    if input.ndim > 2:
        raise RuntimeError(
            f"cov(): expected input to have two or fewer dimensions but got an input with "
            f"{input.ndim} dimensions"
        )
    if input.dtype is dt.bool_:
        raise RuntimeError("cov(): bool dtype is not supported for input")
    rows = input.reshape(1, -1) if input.ndim < 2 else input
    weights = _covariance_weights(rows.shape[1], fweights, aweights)
    total = rows.shape[1] if weights is None else weights.sum()
    if weights is not None and not rows.is_meta and not bool(total):
        raise RuntimeError("cov(): weights sum to zero, can't be normalized")
    average = (rows if weights is None else rows * weights).sum(1) / total
    freedom = _freedom(weights, aweights, total, correction)
    away = rows - average.unsqueeze(1)
    weighted = (away if weights is None else away * weights).transpose(0, 1)
    weighted = weighted.conj_physical() if weighted.is_complex() else weighted
    return (away.matmul(weighted.to(away.dtype)) / freedom).squeeze()


@front(method=True)
def corrcoef(input: Tensor) -> Tensor:
    """Correlation of variables (rows): covariance scaled to ones on the diagonal."""
    if input.ndim > 2:
        raise RuntimeError(
            "corrcoef(): expected input to have two or fewer dimensions but got an input with "
            f"{input.ndim} dimensions"
        )
    c = cov(input)
    if not c.ndim:
        return c / c
    deviations = c.diagonal()
    deviations = (deviations.real if deviations.is_complex() else deviations).sqrt()
    c = c / deviations.reshape(-1, 1) / deviations.reshape(1, -1)
    if c.is_complex():
        return complexes.complex(c.real.clamp(-1, 1), c.imag.clamp(-1, 1))
    return c.clamp(-1, 1)
