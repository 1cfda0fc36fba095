"""Functions of the top module for sparse tensors: old names of products, copies of parts."""

from __future__ import annotations

from typing import Any

from lucerne._src.tensor.sparse.convert import resize_as_sparse_ as resize_as_sparse_
from lucerne._src.tensor.sparse.kinds import OPS, SparseTensor, refuse
from lucerne._src.tensor.tensor import Tensor


def _product(name: str, first: int) -> Any:
    """`first`: which argument must be sparse."""

    def function(*args: Any, **kwargs: Any) -> Any:
        if not isinstance(args[first], SparseTensor):
            refuse(name, args[first])
        return OPS[name](*args, **kwargs)

    function.__name__ = function.__qualname__ = name
    return function


smm = _product("smm", 0)
smm.__doc__ = "A sparse matrix times a dense one, as a sparse matrix."
sspaddmm = _product("sspaddmm", 1)
sspaddmm.__doc__ = "`beta * input + alpha * (mat1 @ mat2)`, where all but `mat2` is sparse."
hspmm = _product("hspmm", 0)
hspmm.__doc__ = "A sparse matrix times a dense one, as a sparse tensor of whole rows."


def _copied(name: str) -> Any:
    def function(input: Any, *, out: Any = None) -> Any:
        made = getattr(input, name)().clone()
        return made if out is None else out.resize_(made.shape).copy_(made)

    function.__name__ = function.__qualname__ = f"{name}_copy"
    function.__doc__ = f"A copy of `input.{name}()`."
    return function


indices_copy = _copied("indices")
values_copy = _copied("values")
crow_indices_copy = _copied("crow_indices")
col_indices_copy = _copied("col_indices")
ccol_indices_copy = _copied("ccol_indices")
row_indices_copy = _copied("row_indices")


def install() -> None:
    cls: Any = Tensor
    cls.smm, cls.sspaddmm = smm, sspaddmm


install()
