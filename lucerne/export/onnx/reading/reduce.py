"""Folds over dimensions, and losses made of them."""

from __future__ import annotations

from typing import Any

from lucerne._src.base import dtype as dt
from lucerne._src.tensor import api
from lucerne.export.onnx.reading.step import Step
from lucerne.export.onnx.reading.table import operator

lu: Any = api  # (functions made by the table have no types while a module is read)


def _sum(x: Any, dims: Any, keep: bool) -> Any:
    return lu.sum(x, dims, keepdim=keep, dtype=x.dtype)


def _product(x: Any, dims: Any, keep: bool) -> Any:
    for d in sorted((d % x.ndim for d in dims), reverse=True):
        x = lu.prod(x, d, keepdim=keep, dtype=x.dtype)
    return x


def _extreme(fn: Any) -> Any:
    def run(x: Any, dims: Any, keep: bool) -> Any:
        if x.numel() == 0:
            return _of_nothing(x, dims, keep, fn is lu.amax)
        return (
            fn(x.to(lu.uint8), dims, keep).to(x.dtype) if x.dtype is dt.bool_ else fn(x, dims, keep)
        )

    return run


def _of_nothing(x: Any, dims: Any, keep: bool, largest: bool) -> Any:
    """The fold of no elements: below (or above) every number."""
    low = x.dtype.category == dt.FLOAT
    limits = (-float("inf"), float("inf")) if low else (
        (0, 1) if x.dtype is dt.bool_ else (lu.iinfo(x.dtype).min, lu.iinfo(x.dtype).max)
    )  # fmt: skip
    shape = _sum(lu.zeros(x.shape), dims, keep).shape
    return lu.full(shape, limits[0 if largest else 1], dtype=x.dtype)


_FOLDS: dict[str, Any] = {
    "ReduceSum": _sum,
    "ReduceMean": lambda x, dims, keep: lu.mean(x, dims, keepdim=keep),
    "ReduceProd": _product,
    "ReduceMax": _extreme(lu.amax),
    "ReduceMin": _extreme(lu.amin),
    "ReduceL1": lambda x, dims, keep: _sum(lu.abs(x), dims, keep),
    "ReduceL2": lambda x, dims, keep: lu.sqrt(_sum(x * x, dims, keep)).to(x.dtype),
    "ReduceSumSquare": lambda x, dims, keep: _sum(x * x, dims, keep),
    "ReduceLogSum": lambda x, dims, keep: lu.log(_sum(x, dims, keep)),
    "ReduceLogSumExp": lambda x, dims, keep: lu.logsumexp(x, dims, keepdim=keep),
}


@operator(*_FOLDS, numbers=(1,))
def fold(n: Step, x: Any, axes: Any = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0,
         **old: Any) -> Any:  # fmt: skip
    dims = old.get("axes") if axes is None else n.ints(axes)
    if not dims and noop_with_empty_axes:
        dims = ()
        if n.kind in ("ReduceSum", "ReduceMean", "ReduceProd", "ReduceMax", "ReduceMin"):
            return x
        x = x.unsqueeze(-1)  # of one element each
        return _FOLDS[n.kind](x, (x.ndim - 1,), False)
    dims = tuple(dims) if dims else tuple(range(x.ndim))
    return (
        _FOLDS[n.kind](x, dims, bool(keepdims))
        if dims
        else _FOLDS[n.kind](x.reshape(1), (0,), False)
    )


@operator("ArgMax", "ArgMin")
def position(n: Step, x: Any, *, axis: int = 0, keepdims: int = 1,
             select_last_index: int = 0) -> Any:  # fmt: skip
    fn = lu.argmax if n.kind == "ArgMax" else lu.argmin
    if not select_last_index:
        return fn(x, axis, bool(keepdims))
    return x.shape[axis] - 1 - fn(x.flip(axis), axis, bool(keepdims))


@operator("Einsum")
def einsum(n: Step, *xs: Any, equation: str) -> Any:
    return lu.einsum(equation, *xs)


@operator("Gemm")
def gemm(n: Step, a: Any, b: Any, c: Any = None, *, alpha: float = 1.0, beta: float = 1.0,
         transA: int = 0, transB: int = 0) -> Any:  # fmt: skip
    a, b = (a.t() if transA else a), (b.t() if transB else b)
    made = a @ b if alpha == 1.0 else alpha * (a @ b)
    return made if c is None else made + (c if beta == 1.0 else beta * c)
