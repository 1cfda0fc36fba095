"""Lengths of vectors, and distances made of them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lucerne._src.base import dtype as dt
from lucerne._src.ir.convert import IntList
from lucerne._src.ir.define import composite, front, reduced_dims
from lucerne._src.ir.op import Tensor
from lucerne._src.ops.linalg import matrix_functions
from lucerne._src.ops.reduce.folds import restore
from lucerne._src.ops.reduce.squares import root_of_squares, without_folded

INF = math.inf


def _norm_grad(
    g: Tensor, y: Tensor, input: Tensor, ord: float, dim: Any, keepdim: bool
) -> Tensor | None:
    """Gradient of `(sum |x|^p)^(1/p)`; zero where the norm is zero."""
    if ord == 0:
        return None  # a count, which has none (as torch says it: not one of noughts)
    g, y = (restore(t, dim, keepdim, input._meta) for t in (g, y))
    if ord == 1:
        return input.sgn() * g
    if ord == 2:
        return g * (input / y).masked_fill(y.eq(0), 0)
    if math.isinf(ord):
        size = input.abs()
        mask = size.eq(y).logical_or(size.isnan())
        return input.sgn() * ((g / mask.sum(dim, True)) * mask)
    if ord < 1:
        scaled = input.sgn() * input.abs().pow(ord - 1).masked_fill(input.eq(0), 0)
        return scaled * g * y.pow(1 - ord)
    scale = (g / y.pow(ord - 1)).masked_fill(y.eq(0), 0)
    if ord < 2:
        return input.sgn() * input.abs().pow(ord - 1) * scale
    return input * input.abs().pow(ord - 2) * scale


def _check_norm_dtype(name: str, input: Tensor, dtype: dt.dtype | None) -> None:
    if input.dtype.category < dt.FLOAT:
        raise RuntimeError(
            f"{name}: Expected a floating point or complex tensor as input. Got "
            f"{dt.cxx_name(input.dtype)}"
        )
    if dtype is None:
        return
    if dtype.category < dt.FLOAT:
        raise RuntimeError(
            f"{name}: dtype should be floating point or complex, but got {dt.cxx_name(dtype)}"
        )
    if dtype.is_complex != input.is_complex():
        kind = "complex" if input.is_complex() else "real"
        raise RuntimeError(
            f"{name}: dtype should be {kind} for {kind} inputs, but got {dt.cxx_name(dtype)}"
        )
    if dt.promote_types(input.dtype, dtype) is not dtype:
        raise RuntimeError(
            f"{name}: the dtype of the input ({dt.cxx_name(input.dtype)}) should be convertible "
            f"without narrowing to the specified dtype ({dt.cxx_name(dtype)})"
        )


def _check_norm_size(input: Tensor, ord: float, dim: Any) -> None:
    """Norms that are extremes (or negative powers) have no value for nothing."""
    if input.numel() or not (ord < 0 or ord == INF):
        return
    told = repr(int(ord)) if math.isfinite(ord) and ord == int(ord) else repr(ord)
    if dim is None or dim == ():
        raise RuntimeError(
            f"linalg.vector_norm cannot compute the {told} norm on an empty tensor because the "
            "operation does not have an identity"
        )
    for d in reduced_dims(dim, input.ndim):
        if input.shape[d] == 0:
            raise RuntimeError(
                f"linalg.vector_norm cannot compute the {told} norm on the dimension {d}because "
                "this dimension is empty and the operation does not have an identity"
            )


def _oracle_norm(input: Any, ord: float, dim: Any, keepdim: bool) -> Any:
    size = np.abs(input)
    if math.isinf(ord):
        return (np.max if ord > 0 else np.min)(size, axis=dim, keepdims=keepdim)
    if ord == 0:
        return np.sum(size != 0, axis=dim, keepdims=keepdim)
    return np.sum(size**ord, axis=dim, keepdims=keepdim) ** (1 / ord)


@composite(
    internal=True,
    name="p_norm",
    vjp={"input": _norm_grad},
    out="exact",
    oracle=_oracle_norm,
    fuse=True,
    torch="linalg_vector_norm",
)
def p_norm(input: Tensor, ord: float, dim: IntList | None, keepdim: bool) -> Tensor:
    """`(sum |x|^ord)^(1/ord)` with its limits at 0 and infinity."""
    size = input.to(input.dtype.compute).abs()
    return _folded(size, ord, dim, keepdim).to(input.dtype.to_real())


def _folded(size: Tensor, ord: float, dim: Any, keepdim: bool) -> Tensor:
    if ord == 0:
        return size.ne(0).sum(dim, keepdim)
    if ord == INF:
        return size.amax(() if dim is None else dim, keepdim)
    if ord == -INF:
        return size.amin(() if dim is None else dim, keepdim)
    if ord == 1:
        return size.sum(dim, keepdim)
    if ord == 2:
        return without_folded(root_of_squares(size, dim), reduced_dims(dim, size.ndim), keepdim)
    if not size.ndim or all(size.shape[d] == 1 for d in reduced_dims(dim, size.ndim)):
        return size.sum(dim, keepdim)  # a power of one number need not fit
    return size.pow(ord).sum(dim, keepdim).pow(1 / ord)


@front(namespace="linalg")
def vector_norm(
    x: Tensor,
    ord: Any = 2,
    dim: Any = None,
    keepdim: bool = False,
    *,
    dtype: Any = None,
    out: Any = None,
) -> Tensor:
    """Length of vectors: `(sum |x|^ord)^(1/ord)`.

    >>> import lucerne
    >>> lucerne.linalg.vector_norm(lucerne.tensor([3.0, 4.0]))
    tensor(5.)
    """
    if isinstance(ord, str):
        raise TypeError("linalg_vector_norm(): argument 'ord' (position 2) must be Number, not str")
    _check_norm_dtype("linalg.vector_norm", x, dtype)
    _check_norm_size(x, ord, dim)
    x = x if dtype is None else x.to(dtype)
    return p_norm(x, ord, dim, keepdim, out=out)


def _norm_dims(input: Tensor, dim: Any) -> Any:
    if dim is None:
        return None
    return (dim,) if isinstance(dim, int) else tuple(dim)


@front(method=True, torch="linalg_vector_norm")
def norm(
    input: Tensor,
    p: Any = "fro",
    dim: Any = None,
    keepdim: bool = False,
    out: Any = None,
    dtype: Any = None,
) -> Tensor:
    """Norm of vectors; with `p="nuc"` the sum of singular values of matrices.

    >>> import lucerne
    >>> lucerne.tensor([3.0, 4.0]).norm()
    tensor(5.)
    """
    if isinstance(p, str) and p != "fro":
        dims = tuple(range(input.ndim)) if dim is None else _norm_dims(input, dim)
        return matrix_functions.matrix_norm(input, p, dims, keepdim, dtype=dtype, out=out)
    order = 2.0 if p is None or p == "fro" else p
    return vector_norm(input, order, _norm_dims(input, dim), keepdim, dtype=dtype, out=out)


@front()
def frobenius_norm(input: Tensor, dim: Any, keepdim: bool = False, *, out: Any = None) -> Tensor:
    """Root of the sum of squares over one or two dimensions."""
    return vector_norm(input, 2, _norm_dims(input, dim) or None, keepdim, out=out)


@front()
def nuclear_norm(
    input: Tensor, dim: Any = (-2, -1), keepdim: bool = False, *, out: Any = None
) -> Tensor:
    """Sum of the singular values of matrices."""
    if isinstance(dim, bool):
        dim, keepdim = (-2, -1), dim
    return matrix_functions.matrix_norm(input, "nuc", dim, keepdim, out=out)


@front(name="norm", namespace="linalg")
def linalg_norm(
    A: Tensor,
    ord: Any = None,
    dim: Any = None,
    keepdim: bool = False,
    *,
    out: Any = None,
    dtype: Any = None,
) -> Tensor:
    """Vector or matrix norm, told by `dim` and `ord`."""
    dims = _norm_dims(A, dim)
    if dims is not None and len(dims) not in (1, 2) and ord is not None:
        raise RuntimeError(
            "linalg.norm: If dim is specified, it must be of length 1 or 2. Got "
            f"[{', '.join(map(str, dims))}]"
        )
    if ord is not None and dims is None and A.ndim not in (1, 2):
        raise RuntimeError(
            "linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D. Got "
            f"{A.ndim}D."
        )
    matrix = ord is not None and (len(dims) == 2 if dims is not None else A.ndim == 2)
    if matrix:
        dims = (0, 1) if dims is None else dims
        return matrix_functions.matrix_norm(A, ord, dims, keepdim, dtype=dtype, out=out)
    return vector_norm(A, 2 if ord is None else ord, dims, keepdim, dtype=dtype, out=out)


@front(namespace="nn.functional", torch=None)
def normalize(
    input: Tensor, p: float = 2.0, dim: Any = 1, eps: float = 1e-12, out: Any = None
) -> Tensor:
    """Vectors along `dim` scaled to length one.

    >>> import lucerne
    >>> lucerne.nn.functional.normalize(lucerne.tensor([[3.0, 4.0]]))
    tensor([[0.6000, 0.8000]])
    """
    length = norm(input, p, dim, True).clamp_min(eps).expand(input.shape)
    return input.div(length, out=out) if out is not None else input / length
