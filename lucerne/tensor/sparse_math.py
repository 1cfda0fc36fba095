"""What can be computed with sparse tensors: products with dense matrices, sums, scaling."""

from __future__ import annotations

from typing import Any

from lucerne.base import dtype as dt
from lucerne.base import layout as lo
from lucerne.ops.join import cat
from lucerne.tensor.sparse import OPS, SparseTensor, make, refuse
from lucerne.tensor.tensor import Tensor

_LOW = (dt.float16, dt.bfloat16)


def mm(input: Any, mat2: Any, reduce: str = "sum") -> Any:
    """Sparse matrix times dense matrix; `reduce` says how a row's products are joined.

    >>> import lucerne
    >>> lucerne.sparse.mm(lucerne.eye(2).to_sparse(), lucerne.ones(2, 1))
    tensor([[1.],
            [1.]])
    """
    if not isinstance(input, SparseTensor) or isinstance(mat2, SparseTensor):
        raise NotImplementedError("sparse.mm: expected a sparse and then a dense matrix")
    if input.ndim != 2 or mat2.ndim != 2 or input.shape[1] != mat2.shape[0]:
        raise RuntimeError(
            f"mat1 and mat2 shapes cannot be multiplied ({'x'.join(map(str, input.shape))} and "
            f"{'x'.join(map(str, mat2.shape))})"
        )
    values, wide = input._values(), mat2
    if values.dtype in _LOW:
        values, wide = values.to(dt.float32), wide.to(dt.float32)
    row, col = input._index[0], input._index[1]
    products = values.unsqueeze(1) * wide[col]
    zeros = products.new_zeros((input.shape[0], mat2.shape[1]))
    if reduce == "sum":
        result = zeros.index_add(0, row, products)
    elif reduce in ("mean", "amax", "amin"):
        result = zeros.index_reduce(0, row, products, reduce, include_self=False)
    else:
        raise ValueError(f"sparse.mm: expected reduce sum, mean, amax or amin, got {reduce!r}")
    return result.to(input.dtype)


def matmul(input: Any, other: Any) -> Any:
    if isinstance(input, SparseTensor) and other.ndim == 1:
        return mm(input, other.unsqueeze(1)).squeeze(1)
    return mm(input, other)


def addmm(input: Any, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    return input * beta + mm(mat1, mat2) * alpha


def sampled_addmm(
    input: Any, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1, out: Any = None
) -> Any:
    """`mat1 @ mat2` only where `input` stores something, plus `beta * input`."""
    if out is not None:
        raise RuntimeError(
            f"sampled_addmm: Expected result to have sparse csr layout, but got {_layout_name(out)}"
        )
    row, col = input._index[0], input._index[1]
    products = (mat1[row] * mat2.t()[col]).sum(-1)
    values = input._values() * beta + products * alpha
    return make(input._index, values, input.shape, input._layout, input._sorted)


def _layout_name(t: Any) -> str:
    return "Strided" if t.layout is lo.strided else str(t.layout)


def sum(input: Any, dim: Any = None, dtype: Any = None) -> Any:
    """The sum of all elements (over some dimensions: use to_dense)."""
    if dim is not None:
        refuse("sum over dimensions", input)
    return input._values().sum() if dtype is None else input._values().sum(dtype=dtype)


def _with_values(input: Any, values: Any) -> Any:
    return make(input._index, values, input.shape, input._layout, input._sorted)


def _add(input: Any, other: Any, *, alpha: Any = 1, out: Any = None) -> Any:
    if out is not None:
        refuse("add with out=", input)
    a, b = input, other
    if not isinstance(a, SparseTensor) or not isinstance(b, SparseTensor):
        if not isinstance(b, SparseTensor):
            refuse("sparse + dense", a)
        return a + b.to_dense() * alpha
    if a._index.shape == b._index.shape and bool((a._index == b._index).all()):
        return _with_values(a, a._values() + b._values() * alpha)
    if a._layout is not lo.sparse_coo:
        refuse("the sum of two patterns", a)
    index = cat([a._index, b._index], 1)
    values = cat([a._values(), b._values() * alpha])
    return make(index, values, a.shape, a._layout, is_sorted=False).coalesce()


def _add_in_place(input: Any, other: Any, *, alpha: Any = 1) -> Any:
    made = _add(input.detach(), other.detach(), alpha=alpha)
    input._index, input._vals, input._sorted = made._index, made._vals, made._sorted
    return input


def _scaled(input: Any, other: Any) -> Any:
    a, b = (input, other) if isinstance(input, SparseTensor) else (other, input)
    if isinstance(b, SparseTensor) or (isinstance(b, Tensor) and b.ndim):
        refuse("the elementwise product with a tensor", a)
    return _with_values(a, a._values() * b)


def _divided(input: Any, other: Any) -> Any:
    if not isinstance(input, SparseTensor) or (isinstance(other, Tensor) and other.ndim):
        refuse("division by a tensor", input)
    return _with_values(input, input._values() / other)


def _transposed(input: Any, dim0: int = 0, dim1: int = 1) -> Any:
    if input._layout is not lo.sparse_coo or input.dense_dim() or input.ndim > 2:
        refuse("transpose", input)
    size = (input.shape[1], input.shape[0])
    return make(input._index.flip(0), input._values(), size, lo.sparse_coo, is_sorted=False)


def _negated(input: Any) -> Any:
    return _with_values(input, -input._values())


def _cloned(input: Any, *, memory_format: Any = None) -> Any:
    return _with_values(input, input._values().clone())


OPS.update({
    "add": _add, "add2": _add, "add_scaled": _add, "add_": _add_in_place, "mul": _scaled,
    "div": _divided, "true_divide": _divided, "neg": _negated, "mm": mm, "matmul": matmul,
    "addmm": addmm, "t": _transposed, "transpose": _transposed, "sum": sum, "clone": _cloned,
})  # fmt: skip
for _name in ("clone", "sum", "t", "neg", "mm", "matmul", "add_"):
    setattr(SparseTensor, _name, OPS[_name])
