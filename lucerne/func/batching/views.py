"""Views of batched values: the same view, with dimensions counted from one further on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucerne._src.base import shape as sh
from lucerne._src.ops.pointwise import complexes
from lucerne._src.ops.view import reshape as views
from lucerne._src.ops.view import slicing, splitting
from lucerne.func.batching.level import VIEWS, padded_rank

Args = tuple[Any, ...]


def _view(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def decorate(fn: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            VIEWS[name] = fn
        return fn

    return decorate


def _dim(value: Any, dim: int, extra: int = 0) -> int:
    """A dimension of the tensor the function sees, as one of the value."""
    return sh.wrap_dim(dim, value._meta.ndim - 1 + extra) + 1


@_view("view")
def view(value: Any, args: Args, results: Args) -> Any:
    return views.view_shape(value, (value.shape[0], *results[0]._meta.shape))


@_view("view_dtype")
def view_dtype(value: Any, args: Args, results: Args) -> Any:
    return views.view_dtype(value, args[1])


@_view("alias")
def alias(value: Any, args: Args, results: Args) -> Any:
    return views.alias(value)


@_view("transpose")
def transpose(value: Any, args: Args, results: Args) -> Any:
    if value._meta.ndim == 1:
        return views.alias(value)
    return views.transpose(value, _dim(value, args[1]), _dim(value, args[2]))


@_view("t")
def t(value: Any, args: Args, results: Args) -> Any:
    return views.transpose(value, 1, 2) if value._meta.ndim == 3 else views.alias(value)


@_view("permute")
def permute(value: Any, args: Args, results: Args) -> Any:
    return views.permute_dims(value, (0, *(_dim(value, d) for d in args[1])))


@_view("expand")
def expand(value: Any, args: Args, results: Args) -> Any:
    shape = results[0]._meta.shape
    return views.expand_shape(padded_rank(value, len(shape)), (value.shape[0], *shape))


@_view("unsqueeze")
def unsqueeze(value: Any, args: Args, results: Args) -> Any:
    return views.unsqueeze(value, _dim(value, args[1], 1))


@_view("squeeze")
def squeeze(value: Any, args: Args, results: Args) -> Any:
    dims = args[1]
    if dims is None:
        return views.squeeze_dims(value, tuple(range(1, value._meta.ndim)))
    if value._meta.ndim == 1:
        return views.alias(value)
    return views.squeeze_dims(value, tuple(_dim(value, d) for d in dims))


@_view("select")
def select(value: Any, args: Args, results: Args) -> Any:
    return slicing.select_at(value, _dim(value, args[1]), args[2])


@_view("ops.aten.slice")
def slice_dim(value: Any, args: Args, results: Args) -> Any:
    return slicing.slice_dim(value, _dim(value, args[1]), *args[2:])


@_view("diagonal")
def diagonal(value: Any, args: Args, results: Args) -> Any:
    _, offset, dim1, dim2 = args
    return slicing.diagonal(value, offset, _dim(value, dim1), _dim(value, dim2))


@_view("Tensor.unfold")
def unfold(value: Any, args: Args, results: Args) -> Any:
    _, dimension, size, step = args
    if value._meta.ndim == 1:
        return _strided(value, results[0], 0)
    return slicing.unfold(value, _dim(value, dimension), size, step)


@_view("as_strided")
def as_strided(value: Any, args: Args, results: Args) -> Any:
    return _strided(value, results[0], args[3])


def _strided(value: Any, result: Any, offset: int) -> Any:
    meta = result._meta
    shape = (value.shape[0], *meta.shape)
    return slicing.strided_view(value, shape, (value._meta.strides[0], *meta.strides), offset)


@_view("real_part")
def real_part(value: Any, args: Args, results: Args) -> Any:
    return complexes.real_part(value)


@_view("imag_part")
def imag_part(value: Any, args: Args, results: Args) -> Any:
    return complexes.imag_part(value)


@_view("view_as_real")
def view_as_real(value: Any, args: Args, results: Args) -> Any:
    return complexes.view_as_real(value)


@_view("view_as_complex")
def view_as_complex(value: Any, args: Args, results: Args) -> Any:
    return complexes.view_as_complex(value)


@_view("unbind")
def unbind(value: Any, args: Args, results: Args) -> Any:
    return splitting.unbind(value, _dim(value, args[1]))


@_view("split_with_sizes")
def split_with_sizes(value: Any, args: Args, results: Args) -> Any:
    return splitting.split_with_sizes(value, args[1], _dim(value, args[2]))
