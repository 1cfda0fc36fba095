"""Spread and middle of data: variance, standard deviation, covariance."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

from lucerne.base import dtype as dt
from lucerne.ir.convert import IntList
from lucerne.ir.define import composite, front
from lucerne.ir.op import Tensor
from lucerne.ops.reduce import folded_count, restore


def _check_float(input: Tensor, name: str) -> None:
    if input.dtype.category < dt.FLOAT:
        raise RuntimeError(f"{name} only support floating point and complex dtypes")


def _divided(x: Tensor, by: float) -> Tensor:
    return x / by if by else x * float("inf")


def _var_grad(
    g: Tensor, input: Tensor, dim: Any, correction: float, keepdim: bool
) -> Tensor:
    freedom = folded_count(input.shape, dim) - correction
    g = restore(g, dim, keepdim, input._meta)
    return _divided(g * 2, freedom) * (input - input.mean(dim, True))


def _std_grad(
    g: Tensor, y: Tensor, input: Tensor, dim: Any, correction: float, keepdim: bool
) -> Tensor:
    scaled = (g / (y * 2)).masked_fill(y.eq(0), 0)
    return _var_grad(scaled, input, dim, correction, keepdim)


def _spread_of(input: Tensor, dim: Any, correction: float, keepdim: bool) -> Tensor:
    """Mean squared distance from the mean, in the computing type."""
    wide = input.to(input.dtype.compute)
    away = wide - wide.mean(dim, True)
    squares = (away * away.conj_physical()).real if away.is_complex() else away * away
    freedom = builtins.max(folded_count(input.shape, dim) - correction, 0)
    return squares.sum(dim, keepdim) / freedom


def _oracle_var(input: Any, dim: Any, correction: float, keepdim: bool) -> Any:
    return np.var(input, axis=dim, ddof=correction, keepdims=keepdim)


@composite(name="variance", vjp={"input": _var_grad}, oracle=_oracle_var)
def variance(input: Tensor, dim: IntList | None, correction: float, keepdim: bool) -> Tensor:
    """Mean squared distance from the mean, divided by the count less `correction`."""
    return _spread_of(input, dim, correction, keepdim).to(input.dtype.to_real())


@composite(
    name="deviation",
    vjp={"input": _std_grad},
    oracle=lambda input, dim, correction, keepdim: np.sqrt(
        _oracle_var(input, dim, correction, keepdim)
    ),
)
def deviation(input: Tensor, dim: IntList | None, correction: float, keepdim: bool) -> Tensor:
    """Square root of the variance."""
    return _spread_of(input, dim, correction, keepdim).sqrt().to(input.dtype.to_real())


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
