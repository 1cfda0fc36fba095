"""Folds: sums over all or some dimensions, norms, softmax over what is stored."""

from __future__ import annotations

from typing import Any

from lucerne._src.base import dtype as dt
from lucerne._src.base import shape as sh
from lucerne._src.tensor.pools import pooled_softmax
from lucerne._src.tensor.sparse.kinds import OPS, CooTensor, make_coo, refuse


def sum(input: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    """The sum of all elements, or over some dimensions. What is left of sparse dimensions stays
    sparse; without any, the result is dense.

    >>> import lucerne
    >>> s = lucerne.eye(3).to_sparse()
    >>> lucerne.sparse.sum(s), lucerne.sparse.sum(s, 0).to_dense()
    (tensor(3.), tensor([1., 1., 1.]))
    """
    values = input._values()
    if dtype is not None:
        values = values.to(dtype)
    dims = () if dim is None else tuple(dim) if isinstance(dim, (tuple, list)) else (dim,)
    dims = tuple(sh.wrap_dim(d, input.ndim) for d in dims)
    if not dims:
        total = values.sum()
        return total.reshape((1,) * input.ndim) if keepdim else total
    if not input.is_sparse:
        refuse("sum over some dimensions", input)
    if keepdim:
        made = sum(input, dims, dtype=dtype)
        for d in sorted(dims):
            made = made.unsqueeze(d)
        return made
    return _summed(input, values, dims)


def _summed(input: Any, values: Any, dims: tuple[int, ...]) -> Any:
    count = input.sparse_dim()
    inner = [d - count + 1 for d in dims if d >= count]
    values = values.sum(inner) if inner else values
    if values.dtype is not input.dtype and input.dtype.category != dt.BOOL:
        values = values.to(input.dtype) if inner and input.is_floating_point() else values
    left = [d for d in range(count) if d not in dims]
    if not left:
        return values.sum(0)
    shape = (*(input.shape[d] for d in left), *values.shape[1:])
    if len(left) == count:
        return make_coo(input._index, values, shape, input._sorted)
    return make_coo(input._index[left], values, shape, is_sorted=False).coalesce()


def mean(input: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    """The mean over all elements, those not stored included."""
    if dim is not None or keepdim:
        refuse("mean over some dimensions", input)
    return sum(input, dtype=dtype) / input.numel()


def norm(
    input: Any, p: Any = "fro", dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> Any:
    """The norm of all elements."""
    dims = input.ndim if dim is None else len(dim) if isinstance(dim, (tuple, list)) else 1
    if keepdim or dims != input.ndim:
        refuse("norm over some dimensions", input)
    done = input.coalesce() if input.is_sparse else input
    return done._values().norm(2 if p in (None, "fro") else p, dtype=dtype)


def any(input: Any) -> Any:
    """Whether some element is not zero."""
    return OPS["abs"](input)._values().to(dt.bool_).any()


def softmax(input: Any, dim: int, *, dtype: Any = None) -> Any:
    """The softmax over the stored elements of a dimension; the others count as minus infinity.

    >>> import lucerne
    >>> s = lucerne.tensor([[0.0, 5.0], [2.0, 2.0]]).to_sparse()
    >>> lucerne.sparse.softmax(s, 1).to_dense()
    tensor([[0.0000, 1.0000],
            [0.5000, 0.5000]])
    """
    return _softmax(input, dim, dtype, "softmax")


def log_softmax(input: Any, dim: int, *, dtype: Any = None) -> Any:
    """The logarithm of `softmax`, computed without taking it."""
    return _softmax(input, dim, dtype, "log_softmax")


def _softmax(input: Any, dim: int, dtype: Any, name: str) -> Any:
    if not isinstance(input, CooTensor):
        refuse(name, input)
    dim = sh.wrap_dim(dim, input.ndim)
    done = (input if dtype is None else OPS["to"](input, dtype)).coalesce()
    values, count = done._values(), done.sparse_dim()
    if dim >= count:
        return done.with_values(getattr(values, name)(dim - count + 1))
    rest = done._index.new_zeros((done._nnz(),))
    for d in range(count):
        if d != dim:
            rest = rest * done.shape[d] + done._index[d]
    pools, pool = rest.unique(return_inverse=True)
    return done.with_values(pooled_softmax(values, pool, pools.numel(), name == "log_softmax"))


OPS.update({"sum": sum, "mean": mean, "norm": norm, "any": any, "softmax": softmax,
            "log_softmax": log_softmax, "p_norm": norm})  # fmt: skip
