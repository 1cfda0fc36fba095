"""Largest and smallest: over dimensions, of two tensors, and where they are."""

from __future__ import annotations

from typing import Any

import numpy as np

from lucerne._src.base import dtype as dt
from lucerne._src.base import shape as sh
from lucerne._src.ir.convert import IntList
from lucerne._src.ir.define import composite, front, reduction
from lucerne._src.ir.op import Tensor
from lucerne._src.ir.results import named
from lucerne._src.ops.pointwise import select
from lucerne._src.ops.reduce.folds import restore


def shared_grad(g: Tensor, y: Tensor, input: Tensor, dim: Any, keepdim: bool) -> Tensor:
    """Elements that tie for the extreme value share its gradient evenly."""
    y, g = (restore(t, dim, keepdim, input._meta) for t in (y, g))
    mask = input.eq(y)
    return g * mask / mask.sum(dim, True)


def picked_grad(g: Tensor, index: Tensor, dim: int, keepdim: bool, meta: Any) -> Tensor:
    """The gradient goes where the value was taken from."""
    if not meta.ndim:
        return g
    if not keepdim:
        g, index = g.unsqueeze(dim), index.unsqueeze(dim)
    return g.new_zeros(meta.shape).scatter(dim, index, g)


def even_grad(g: Tensor, y: Tensor, input: Tensor) -> Tensor:
    """As `shared_grad` for the extreme of all elements; a nan result belongs to the nans."""
    mask = input.eq(y).logical_or(input.isnan().logical_and(y.isnan()))
    return mask * (g / mask.sum())


@reduction(
    name="amax",
    reduce="max",
    vjp={"input": lambda g, y, input, dim, keepdim: shared_grad(g, y, input, dim, keepdim)},
    oracle=lambda input, dim, keepdim: np.max(input, axis=dim or None, keepdims=keepdim),
    exact="choice",
)
def amax_dims(input: Tensor, dim: IntList = (), keepdim: bool = False) -> Tensor:
    """Largest value over dimensions."""


@reduction(
    name="amin",
    reduce="min",
    vjp={"input": lambda g, y, input, dim, keepdim: shared_grad(g, y, input, dim, keepdim)},
    oracle=lambda input, dim, keepdim: np.min(input, axis=dim or None, keepdims=keepdim),
    exact="choice",
)
def amin_dims(input: Tensor, dim: IntList = (), keepdim: bool = False) -> Tensor:
    """Smallest value over dimensions."""


def _check_out(input: Tensor, out: Any) -> None:
    if out is not None and out.dtype is not input.dtype:
        raise RuntimeError(
            "Expected the dtype for input and out to match, but got "
            f"{dt.cxx_name(input.dtype)} for input's dtype and {dt.cxx_name(out.dtype)} for out's "
            "dtype."
        )


@front(method=True)
def amax(input: Tensor, dim: Any = (), keepdim: bool = False, *, out: Any = None) -> Tensor:
    """Largest value over dimensions; ties share the gradient.

    >>> import lucerne
    >>> lucerne.tensor([[1, 5], [3, 2]]).amax(dim=1)
    tensor([5, 3])
    """
    _check_out(input, out)
    return amax_dims(input, dim, keepdim, out=out)


@front(method=True)
def amin(input: Tensor, dim: Any = (), keepdim: bool = False, *, out: Any = None) -> Tensor:
    """Smallest value over dimensions; ties share the gradient."""
    _check_out(input, out)
    return amin_dims(input, dim, keepdim, out=out)


# ---- where the extreme is ----------------------------------------------------------------------


def _oracle_arg(fold: Any) -> Any:
    def oracle(input: Any, dim: Any, keepdim: bool) -> Any:
        return fold(input, axis=dim, keepdims=keepdim)

    return oracle


@reduction(
    name="argmax",
    reduce="argmax",
    promote="index",
    vjp={},
    out="exact",
    oracle=_oracle_arg(np.argmax),
    exact="choice",
)
def argmax_dim(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """Index of the first largest element along a dimension, or in the flattened input."""


@reduction(
    name="argmin",
    reduce="argmin",
    promote="index",
    vjp={},
    out="exact",
    oracle=_oracle_arg(np.argmin),
    exact="choice",
)
def argmin_dim(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """Index of the first smallest element along a dimension, or in the flattened input."""


def _refuse_bool(input: Tensor, name: str) -> None:
    if input.dtype is dt.bool_:
        raise RuntimeError(f"{name}(): does not support bool input")


@front(method=True)
def argmax(input: Tensor, dim: Any = None, keepdim: bool = False, *, out: Any = None) -> Tensor:
    """Index of the first largest element along `dim`, or in the flattened input.

    >>> import lucerne
    >>> lucerne.tensor([[1, 5], [3, 2]]).argmax(dim=1)
    tensor([1, 0])
    """
    _refuse_bool(input, "argmax")
    return argmax_dim(input, dim, keepdim, out=out)


@front(method=True)
def argmin(input: Tensor, dim: Any = None, keepdim: bool = False, *, out: Any = None) -> Tensor:
    """Index of the first smallest element along `dim`, or in the flattened input."""
    _refuse_bool(input, "argmin")
    return argmin_dim(input, dim, keepdim, out=out)


# ---- max and min -------------------------------------------------------------------------------


def _refuse_complex(input: Tensor, name: str) -> None:
    if input.is_complex():
        raise RuntimeError(f"{name}(): does not support complex input")


@composite(
    internal=True,
    name="max_all",
    oracle=np.max,
    vjp={"input": lambda g, y, input: even_grad(g, y, input)},
    torch="max",
    grad_fn="MaxBackward1",
)
def max_all(input: Tensor) -> Tensor:
    """The largest of all elements."""
    return amax_dims(input)


@composite(
    internal=True,
    name="min_all",
    oracle=np.min,
    vjp={"input": lambda g, y, input: even_grad(g, y, input)},
    torch="min",
    grad_fn="MinBackward1",
)
def min_all(input: Tensor) -> Tensor:
    """The smallest of all elements."""
    return amin_dims(input)


def _picked(g: Any, y1: Tensor, dim: int, keepdim: bool, input_meta: Any) -> Tensor:
    return picked_grad(g[0], y1, dim, keepdim, input_meta)


def _oracle_both(value: Any, position: Any) -> Any:
    def oracle(input: Any, dim: int, keepdim: bool) -> Any:
        found = position(input, axis=dim, keepdims=keepdim)
        return value(input, axis=dim, keepdims=keepdim), found

    return oracle


@composite(
    internal=True,
    name="max_dim",
    vjp={"input": _picked},
    out="exact",
    oracle=_oracle_both(np.max, np.argmax),
    torch="max",
)
def max_dim(input: Tensor, dim: int, keepdim: bool) -> Any:
    """The largest along a dimension, and where it is."""
    _refuse_complex(input, "max")
    index = argmax_dim(input, dim, keepdim)
    return named("max", "values indices")(amax_dims(input, dim, keepdim), index)


@composite(
    internal=True,
    name="min_dim",
    vjp={"input": _picked},
    out="exact",
    oracle=_oracle_both(np.min, np.argmin),
    torch="min",
)
def min_dim(input: Tensor, dim: int, keepdim: bool) -> Any:
    """The smallest along a dimension, and where it is."""
    _refuse_complex(input, "min")
    index = argmin_dim(input, dim, keepdim)
    return named("min", "values indices")(amin_dims(input, dim, keepdim), index)


def check_dim(input: Tensor, dim: int, name: str) -> int:
    """The dimension counted from the front; picking from an empty one is refused."""
    d = sh.wrap_dim(dim, input.ndim)
    if input.ndim and input.shape[d] == 0:
        raise IndexError(f"{name}(): Expected reduction dim {d} to have non-zero size.")
    return d


_UNSET: Any = object()


def _refuse_call(name: str, received: Any) -> TypeError:
    return TypeError(
        f"{name}() received an invalid combination of arguments - got {type(received).__name__}, "
        "but expected one of: (Tensor input), (Tensor input, Tensor other), (Tensor input, int "
        "dim, bool keepdim)"
    )


@front(method=True)
def max(
    input: Tensor,
    dim: Any = _UNSET,
    keepdim: bool = False,
    *,
    other: Any = None,
    out: Any = None,
) -> Any:
    """The largest element; along `dim` with its index; of two tensors, the larger one.

    >>> import lucerne
    >>> lucerne.tensor([[1, 5], [3, 2]]).max(dim=1)
    torch.return_types.max(
    values=tensor([5, 3]),
    indices=tensor([1, 0]))
    """
    return _extreme("max", input, dim, keepdim, other, out)


@front(method=True)
def min(
    input: Tensor,
    dim: Any = _UNSET,
    keepdim: bool = False,
    *,
    other: Any = None,
    out: Any = None,
) -> Any:
    """The smallest element; along `dim` with its index; of two tensors, the smaller."""
    return _extreme("min", input, dim, keepdim, other, out)


_FORMS: dict[str, tuple[Any, Any, Any]] = {
    "max": (max_all, max_dim, select.maximum),
    "min": (min_all, min_dim, select.minimum),
}


def _extreme(name: str, input: Any, dim: Any, keepdim: bool, other: Any, out: Any) -> Any:
    of_all, along, pairwise = _FORMS[name]
    if not hasattr(input, "_meta"):
        raise _refuse_call(name, input)
    if hasattr(dim, "_meta"):
        other = dim
    if other is not None:
        return pairwise(input, other, out=out)
    if dim is _UNSET:
        if not input.numel():
            raise RuntimeError(
                f"{name}(): Expected reduction dim to be specified for input.numel() == 0. Specify "
                "the reduction dim with the 'dim' argument."
            )
        return of_all(input, out=out)
    if dim is None or isinstance(dim, (float, tuple, list, str)):
        raise _refuse_call(name, dim)
    check_dim(input, dim, name)
    return along(input, dim, keepdim, out=out)


_empty_aminmax = (
    "aminmax(): cannot compute aminmax over an empty dimension as the operation has no identity."
)


@front(method=True)
def aminmax(input: Tensor, *, dim: Any = None, keepdim: bool = False, out: Any = None) -> Any:
    """Smallest and largest at once.

    >>> import lucerne
    >>> low, high = lucerne.tensor([3, 1, 2]).aminmax()
    >>> low, high
    (tensor(1), tensor(3))
    """
    if dim is None and not input.numel():
        raise RuntimeError(_empty_aminmax)
    return aminmax_dim(input, dim, keepdim, out=out)


@composite(internal=True, name="aminmax_dim", out="exact", torch="aminmax")
def aminmax_dim(input: Tensor, dim: int | None, keepdim: bool) -> Any:
    """Smallest and largest along one dimension, or of all elements."""
    dims = () if dim is None else (dim,)
    low, high = amin_dims(input, dims, keepdim), amax_dims(input, dims, keepdim)
    return named("aminmax", "min max")(low, high)
