"""All that sparse tensors answer: the families enter their ops, which become methods here."""

from __future__ import annotations

from typing import Any

from lucerne._src.tensor.sparse import elementwise
from lucerne._src.tensor.sparse import folds as folds
from lucerne._src.tensor.sparse import products as products
from lucerne._src.tensor.sparse import shapes as shapes
from lucerne._src.tensor.sparse.convert import dense_of, sparse_mask
from lucerne._src.tensor.sparse.kinds import INTO, OPS, QUESTIONS, SparseTensor, refuse, written
from lucerne._src.tensor.subclasses.by_table import refuse_other_methods
from lucerne._src.tensor.tensor import Tensor


def _over(name: str) -> Any:
    function = OPS[name]

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return written(self, function(self, *args, **kwargs))

    method.__name__ = f"{name}_"
    method.__doc__ = f"`{name}` in place."
    return method


def install() -> None:
    """Methods of sparse tensors go to the table and not through the fronts of dense ones."""
    OPS.update(sparse_mask=sparse_mask, to_dense=dense_of)
    INTO.update(dict.fromkeys(("add", "add2", "add_scaled"), elementwise.add_to_dense))
    INTO.update({"sub": _subtracted, "sub2": _subtracted})
    for name, function in list(OPS.items()):
        if callable(getattr(Tensor, name, None)):
            setattr(SparseTensor, name, function)
        if callable(getattr(Tensor, f"{name}_", None)):
            setattr(SparseTensor, f"{name}_", _over(name))
    refuse_other_methods(SparseTensor, {*OPS, *QUESTIONS, "is_same_size"}, refuse)
    for symbol, name in (("add", "add"), ("sub", "sub"), ("mul", "mul"), ("pow", "pow")):
        setattr(SparseTensor, f"__{symbol}__", OPS[name])


def _subtracted(target: Any, other: Any, *, alpha: Any = 1) -> Any:
    return elementwise.add_to_dense(target, other, alpha=-alpha)


install()
