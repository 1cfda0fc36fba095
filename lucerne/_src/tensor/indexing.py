"""`x[...]` and `x[...] = v`: Python's index expressions, read left to right as torch reads them.

Integers, slices, None and `...` are views. Tensors, lists and arrays among them are collected and
handed to the `index` primitive at the end, one per dimension of the view that is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lucerne._src.base import dtype as dt
from lucerne._src.base.process import notices
from lucerne._src.ir import dispatch, namespaces
from lucerne._src.ir.convert import Unknown, as_int
from lucerne._src.ir.symbolic.numbers import SymInt, is_one
from lucerne._src.ops.copy.cast import copy, filled
from lucerne._src.ops.index.advanced import index as index_op
from lucerne._src.ops.scalars import number_for
from lucerne._src.ops.view.reshape import alias, expand_shape, unsqueeze
from lucerne._src.ops.view.slicing import select_at, slice_dim
from lucerne._src.tensor.base import Maker, TensorBase
from lucerne._src.tensor.eager.inplace import InPlace
from lucerne._src.tensor.interop import construct
from lucerne._src.tensor.subclasses.torch_function import ask

_AS_TUPLE_LIMIT = 32


def getitem(x: Any, index: Any) -> Any:
    """`x[index]`."""
    kind = type(index)
    if kind is int:
        return _select(x, 0, index, 0)
    if dispatch.state.active:
        unknown = _unknown(index)
        if unknown is not None:  # a proxy: a tracer is to record this
            return ask([unknown], Maker.cls.__getitem__, (x, index), {})
    if kind is slice:
        return _slice(x, 0, index)
    if index is None:
        return unsqueeze(x, 0)
    if index is Ellipsis:
        return alias(x)
    view, tensors = _apply(x, _items(index))
    if not tensors:
        return alias(x) if view is x else view
    return index_op(view, tensors)


def _unknown(index: Any) -> Any:
    """A part of an index whose value is not known yet."""
    for part in index if isinstance(index, tuple) else (index,):
        ends = (part.start, part.stop, part.step) if isinstance(part, slice) else (part,)
        for end in ends:
            if isinstance(end, Unknown):
                return end
    return None


def setitem(x: Any, index: Any, value: Any) -> None:
    """`x[index] = value`, broadcasting the value."""
    if index is False:
        return
    source = _value(x, value)
    if index is True:
        _assign(unsqueeze(x, 0), source)
        return
    view, tensors = _apply(x, _items(index))
    if not tensors:
        _assign(view, source)
        return
    if source.ndim == 0 and _is_one_mask(tensors):
        mask = tensors[-1]
        trailing = view.ndim - (len(tensors) - 1) - mask.ndim
        if mask.shape == view.shape[len(tensors) - 1 : view.ndim - trailing]:
            view.masked_fill_(mask.reshape(*mask.shape, *(1,) * trailing), source.to(x.dtype))
            return
    view.index_put_(tensors, _without_leading_ones(source))


def delitem(x: Any, index: Any) -> None:
    raise TypeError("Tensor does not support deleting items")


# ---- reading the index ------------------------------------------------------------------------


def _items(index: Any) -> tuple[Any, ...]:
    """The index as a tuple of parts."""
    if isinstance(index, tuple):
        return tuple(index)
    if _means_tuple(index):
        notices.warn(
            "Using a non-tuple sequence for multidimensional indexing is deprecated and will be "
            "changed in pytorch 2.9; use x[tuple(seq)] instead of x[seq]. In pytorch 2.9 this will "
            "be interpreted as tensor index, x[torch.tensor(seq)], which will result either in an "
            "error or a different result",
            stacklevel=4,
        )
        return tuple(index)
    return (index,)


def _means_tuple(index: Any) -> bool:
    """Whether a list of indices stands for a tuple of them, as in old NumPy."""
    if not isinstance(index, (list, range)) or len(index) >= _AS_TUPLE_LIMIT:
        return False
    return any(
        isinstance(i, (TensorBase, slice, Sequence, np.ndarray)) or i is None or i is Ellipsis
        for i in index
    )


def _specified(item: Any) -> int:
    """How many dimensions a part of the index takes."""
    if isinstance(item, TensorBase):
        return item._meta.ndim if item._meta.dtype in (dt.bool_, dt.uint8) else 1
    if isinstance(item, np.ndarray) and item.dtype == np.bool_:
        return item.ndim
    if item is None or item is Ellipsis or isinstance(item, (bool, np.bool_)):
        return 0
    return 1


def _apply(x: Any, items: tuple[Any, ...]) -> tuple[Any, list[Any]]:
    """Apply the views; returns what is left to index with tensors, and those tensors."""
    items = tuple(_converted(x, i) for i in items)
    taken = sum(map(_specified, items))
    if taken > x.ndim:
        raise IndexError(f"too many indices for tensor of dimension {x.ndim}")
    view, dim, tensors = x, 0, {}
    for at, item in enumerate(items):
        if item is Ellipsis:
            dim += x.ndim - taken
        elif item is None:
            view = unsqueeze(view, dim)
            dim += 1
        elif isinstance(item, slice):
            view = _slice(view, dim, item)
            dim += 1
        elif isinstance(item, bool):
            view = unsqueeze(view, dim)
            tensors[dim] = _truth_index(x, item)
            dim += 1
        elif isinstance(item, TensorBase):
            tensors[dim] = item
            dim += _specified(item)
        else:
            view = _select(view, dim, item, at)
    if not tensors:
        return view, []
    return view, _placed(tensors)


def _placed(tensors: dict[int, Any]) -> list[Any]:
    """Index tensors by dimension as a list: masks of several dimensions take several places."""
    found: list[Any] = []
    dim = 0
    for at, t in tensors.items():
        found.extend([None] * (at - dim))
        found.append(t)
        dim = at + _specified(t)
    return found


def _converted(x: Any, item: Any) -> Any:
    """A part of the index as int, bool, slice, None, Ellipsis or tensor with dimensions."""
    if item is None or item is Ellipsis or type(item) in (int, bool, slice, SymInt):
        return item
    if isinstance(item, np.bool_):
        return bool(item)
    if isinstance(item, (str, bytes)):
        raise TypeError(f"new(): invalid data type '{type(item).__name__}'")
    if isinstance(item, (Sequence, np.ndarray)) and not isinstance(item, TensorBase):
        item = _index_tensor(x, item)
    if isinstance(item, TensorBase):
        return _zero_dim(item) if not item._meta.ndim else item
    if hasattr(item, "__index__"):
        return item.__index__()
    raise IndexError(
        "only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid "
        f"indices (got {type(item).__name__})"
    )


def _zero_dim(item: Any) -> Any:
    kind = item._meta.dtype
    if kind is not dt.uint8 and dispatch.varies(item):
        return item
    if kind in (dt.bool_, dt.uint8):
        return bool(item.item())
    return int(item.item()) if kind.category == dt.INTEGER else item


def _index_tensor(x: Any, data: Any) -> Any:
    made = construct.build(data, None, None)
    if made.dtype not in (dt.bool_, dt.uint8, dt.int64):
        made = made.to(dt.int64)
    return made if made.device == x.device else made.to(x.device)


def _truth_index(x: Any, value: bool) -> Any:
    """`x[True]` takes the one element of a new dimension, `x[False]` none."""
    return filled((1 if value else 0,), 0, dt.int64, x.device, None)


def _select(view: Any, dim: int, index: int, at: int) -> Any:
    if not view.ndim:
        raise IndexError(
            "invalid index of a 0-dim tensor. Use `tensor.item()` in Python or `tensor.item<T>()` "
            "in C++ to convert a 0-dim tensor to a number"
        )
    n = view.shape[dim]
    if not -n <= index < n:
        raise IndexError(f"index {index} is out of bounds for dimension {at} with size {n}")
    return select_at(view, dim, index)


def _slice(view: Any, dim: int, item: slice) -> Any:
    if not view.ndim:
        raise IndexError("slice() cannot be applied to a 0-dim tensor.")
    step = 1 if item.step is None else as_int(item.step)
    if step == 0:
        raise ValueError("slice step cannot be zero")
    if step < 0:
        raise ValueError("step must be greater than zero")
    return slice_dim(view, dim, item.start, item.stop, step)


# ---- writing ----------------------------------------------------------------------------------


def _value(x: Any, value: Any) -> Any:
    if isinstance(value, TensorBase):
        return value
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, (bool, int, float, complex)):
        return filled((), _stored_number(value, x.dtype), x.dtype, x.device, None)
    kind = type(value)
    name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
    raise TypeError(f"can't assign a {name} to a torch.{dt.cxx_name(x.dtype)}Tensor")


def _without_leading_ones(source: Any) -> Any:
    """Leading dimensions of size one say nothing: `x[0] = v` takes v of shape (1, 1, n) too."""
    lead = 0
    while lead < source.ndim and is_one(source.shape[lead]):  # (broadcasting takes 1 as well)
        lead += 1
    return source.reshape(source.shape[lead:]) if lead else source


def _assign(view: Any, source: Any) -> None:
    if source.shape != view.shape:
        source = expand_shape(_without_leading_ones(source), view.shape)
    copy(view, source, out=InPlace(view))


def _is_one_mask(tensors: list[Any]) -> bool:
    given = [t for t in tensors if t is not None]
    return len(given) == 1 and given[0].dtype in (dt.bool_, dt.uint8)


def turned_around(x: Any) -> Any:
    """`reversed(x)`: the first dimension from its end, as a copy."""
    return x.flip(0) if x.ndim else x


_METHODS = {
    "__getitem__": getitem,
    "__setitem__": setitem,
    "__delitem__": delitem,
    "__reversed__": turned_around,
}


def install() -> None:
    """Give Tensor its square brackets."""
    for name, fn in _METHODS.items():
        setattr(Maker.cls, name, namespaces.wrapped(fn) if fn is getitem else fn)


def _stored_number(value: Any, dtype: dt.dtype) -> Any:
    """Integers that don't fit are refused; floats become infinite."""
    if type(value) is int and not -(1 << 63) <= value < 1 << 63:
        raise ValueError("Overflow when unpacking long long")
    plain = dtype.category == dt.FLOAT and type(value) in (int, float)
    return value if plain else number_for(value, dtype)
