"""vmap: a function of one example, called for a whole batch at once."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from lucerne._src.base.tree import tree_leaves, tree_map
from lucerne._src.ir.dispatch import call_inside
from lucerne._src.ops.copy.join import cat_same
from lucerne._src.tensor.base import TensorBase, plain_types
from lucerne._src.tensor.nested.kinds import make_list
from lucerne._src.tensor.random.api import get_rng_state, set_rng_state
from lucerne.func.batching import (
    convolution,
    draws,
    elementwise,
    functions,
    indexing,
    loop,
    views,
    whole,
)
from lucerne.func.batching.level import BatchLevel
from lucerne.func.batching.quick import QuickLevel

RULES_OF = (convolution, draws, elementwise, functions, indexing, loop, views, whole)
"""Modules that fill the tables of rules."""


def vmap(
    func: Callable[..., Any],
    in_dims: Any = 0,
    out_dims: Any = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """A function that does `func` for each slice of its inputs, all at once.

    `in_dims` says along which dimension each input is sliced (None: all get the whole of it),
    `out_dims` where the batch stands in the results; both may be containers like the inputs and the
    results. `randomness` is "error", "same" (one draw for all) or "different". With `chunk_size`
    so many slices are done at a time. Keyword arguments are passed as they are.

    >>> import lucerne as torch
    >>> torch.vmap(torch.dot)(torch.ones(2, 3), torch.arange(6.0).view(2, 3))
    tensor([ 3., 12.])
    """
    if randomness not in ("error", "different", "same"):
        raise RuntimeError(
            "Only allowed values for randomness are 'error', 'different', or 'same'. Got "
            f"{randomness}"
        )
    if chunk_size is not None and not chunk_size > 0:
        raise ValueError(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})")

    @functools.wraps(func)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        dims = _input_dims(func, in_dims, args)
        leaves = tree_leaves(args)
        size = _batch_size(dims, leaves)
        if any(d is not None and x.is_nested for d, x in zip(dims, leaves, strict=True)):
            return _entry_by_entry(func, dims, out_dims, randomness, args, kwargs, size)
        if chunk_size is not None:
            return _in_chunks(func, dims, out_dims, randomness, args, kwargs, size, chunk_size)
        return _run(func, dims, out_dims, randomness, args, kwargs, size)

    return mapped


def _run(
    func: Any, dims: list[Any], out_dims: Any, randomness: str, args: Any, kwargs: Any, size: int
) -> Any:
    """One call of the function, for the whole batch."""
    level = QuickLevel(size, randomness)
    left = iter(dims)
    with level:
        given = tree_map(lambda x: _entered(level, x, next(left)), args)
        result = call_inside(func, *given, **kwargs)
        places = iter(_output_dims(func, out_dims, result))
        return tree_map(lambda x: _left(level, func, x, next(places)), result)


def _entered(level: BatchLevel, x: Any, dim: int | None) -> Any:
    if dim is None:  # what is recorded of it outside has no part in what is recorded inside
        return level.lift(x) if isinstance(x, TensorBase) and x._needs_grad else x
    with level.aside():
        value = x if dim == 0 or x.ndim == 1 else _batch_first(x, dim)
    return level.batched(value, own=False)


def _batch_first(x: Any, dim: int) -> Any:
    if type(x) in plain_types:
        return x.movedim(dim, 0)
    return x.permute(dim, *(d for d in range(x.ndim) if d != dim))  # sparse tensors have that


def _left(level: BatchLevel, func: Any, x: Any, dim: int | None) -> Any:
    """A result as the caller gets it."""
    name = name_of(func)
    if not isinstance(x, TensorBase):
        if dim is None:
            return x
        raise ValueError(
            f"vmap({name}, ...): `{name}` must only return Tensors, got type {type(x)}. Did you "
            "mean to set out_dims= to None for output?"
        )
    value, batched = level.batch_of(x)
    if dim is None:
        if batched:
            raise ValueError(
                f"vmap({name}, ...): `{name}` can not return a BatchedTensor when out_dim is None"
            )
        return value
    with level.aside():
        if not batched:
            value = level.full(value)
        return value.movedim(0, dim) if dim else value


# ---- in_dims and out_dims ------------------------------------------------------------------------


def name_of(func: Any) -> str:
    return getattr(func, "__name__", None) or repr(func)


def spread_dims(dims: Any, tree: Any) -> list[Any] | None:
    """`dims` for each leaf of `tree`, if it is like the tree as far as it goes; else None."""
    if not isinstance(dims, (tuple, list, dict)):
        return [dims] * len(tree_leaves(tree))
    if type(dims) is not type(tree) or len(dims) != len(tree):
        return None
    if isinstance(dims, dict):
        if list(dims) != list(tree) and set(dims) != set(tree):
            return None
        pairs = [(dims[k], tree[k]) for k in tree]
    else:
        pairs = list(zip(dims, tree, strict=True))
    found: list[Any] = []
    for d, t in pairs:
        part = spread_dims(d, t)
        if part is None:
            return None
        found += part
    return found


def structure(tree: Any) -> str:
    """The containers of a tree, for messages."""
    return repr(tree_map(lambda _: _Leaf(), tree))


class _Leaf:
    def __repr__(self) -> str:
        return "*"


def _input_dims(func: Any, in_dims: Any, args: tuple[Any, ...]) -> list[Any]:
    """The dimension of each leaf among the inputs, counted from the front."""
    what = f"vmap({name_of(func)}, in_dims={in_dims}, ...)(<inputs>): "
    if not isinstance(in_dims, (int, tuple)):
        raise ValueError(
            f"{what}expected `in_dims` to be int or a (potentially nested) tuple matching the "
            f"structure of inputs, got: {type(in_dims)}."
        )
    if not args:
        raise ValueError(
            f"vmap({name_of(func)})(<inputs>): got no inputs. Maybe you forgot to add inputs, or "
            "you are trying to vmap over a function with no inputs. The latter is unsupported."
        )
    dims = spread_dims(in_dims, args)
    if dims is None:
        raise ValueError(
            f"{what}in_dims is not compatible with the structure of `inputs`. in_dims has "
            f"structure {structure(in_dims)} but inputs has structure {structure(args)}."
        )
    leaves = tree_leaves(args)
    return [_input_dim(what, d, x) for d, x in zip(dims, leaves, strict=True)]


def _input_dim(what: str, dim: Any, x: Any) -> int | None:
    if dim is None:
        return None
    if not isinstance(dim, int):
        raise ValueError(
            f"{what}Got in_dim={dim} for an input but in_dim must be either an integer dimension "
            "or None."
        )
    if not isinstance(x, TensorBase):
        raise ValueError(
            f"{what}Got in_dim={dim} for an input but the input is of type {type(x)}. We cannot "
            "vmap over non-Tensor arguments, please use None as the respective in_dim"
        )
    if x.is_nested:  # type: ignore[attr-defined]
        if dim != 0:
            raise RuntimeError(
                f"Given dimension {dim} is irregular and does not have a size. vmap goes over the "
                "entries of a nested tensor: in_dims=0."
            )
        return 0
    ndim = x._meta.ndim
    if not -ndim <= dim < ndim:
        raise ValueError(
            f"{what}Got in_dim={dim} for some input, but that input is a Tensor of dimensionality "
            f"{ndim} so expected in_dim to satisfy -{ndim} <= in_dim < {ndim}."
        )
    return dim % ndim


def _batch_size(dims: list[Any], leaves: list[Any]) -> int:
    sizes = [
        len(x.unbind()) if x.is_nested else x._meta.shape[d]
        for d, x in zip(dims, leaves, strict=True)
        if d is not None
    ]
    if not sizes:
        raise ValueError("vmap: Expected at least one Tensor to vmap over")
    if any(n != sizes[0] for n in sizes):
        raise ValueError(
            "vmap: Expected all tensors to have the same size in the mapped dimension, got sizes "
            f"{sizes} for the mapped dimension"
        )
    return sizes[0]


def _output_dims(func: Any, out_dims: Any, result: Any) -> list[Any]:
    """The dimension of each leaf among the results."""
    what = f"vmap({name_of(func)}, ..., out_dims={out_dims})"
    if not all(d is None or isinstance(d, int) for d in tree_leaves(out_dims)):
        raise ValueError(
            f"{what}: `out_dims` must be an int, None or a python collection of ints representing "
            "where in the outputs the vmapped dimension should appear."
        )
    if isinstance(result, TensorBase):
        if isinstance(out_dims, int) or out_dims is None:
            return [out_dims]
        if isinstance(out_dims, tuple) and len(out_dims) == 1:
            return [out_dims[0]]
    dims = spread_dims(out_dims, result)
    if dims is None:
        raise ValueError(
            f"{what}(<inputs>): out_dims is not compatible with the structure of `outputs`. "
            f"out_dims has structure {structure(out_dims)} but outputs has structure "
            f"{structure(result)}."
        )
    return dims


# ---- a part at a time ----------------------------------------------------------------------------


def _in_chunks(
    func: Any, dims: list[Any], out_dims: Any, randomness: str, args: Any, kwargs: Any, size: int,
    chunk_size: int,
) -> Any:  # fmt: skip
    """The batch in parts, and the results one after the other."""
    state = get_rng_state() if randomness == "same" else None
    parts = []
    for start in range(0, size, chunk_size):
        count = min(chunk_size, size - start)
        left = iter(dims)
        given = tree_map(lambda x: _part(x, next(left), start, count), args)  # noqa: B023
        if state is not None:
            set_rng_state(state)
        parts.append(_run(func, dims, out_dims, randomness, given, kwargs, count))
    if len(parts) == 1:
        return parts[0]
    places = iter(_output_dims(func, out_dims, parts[0]))
    columns = iter(list(zip(*map(tree_leaves, parts), strict=True)))
    return tree_map(lambda _: _joined(next(columns), next(places)), parts[0])


def _part(x: Any, dim: int | None, start: int, count: int) -> Any:
    return x if dim is None else x.narrow(dim, start, count)


def _entry_by_entry(
    func: Any, dims: list[Any], out_dims: Any, randomness: str, args: Any, kwargs: Any, size: int
) -> Any:
    """The entries of nested tensors have sizes of their own: a batch of one for each of them. What
    comes out is nested."""
    state = get_rng_state() if randomness == "same" else None
    parts = []
    for i in range(size):
        left = iter(dims)
        given = tree_map(lambda x: _entry(x, next(left), i), args)  # noqa: B023
        if state is not None:
            set_rng_state(state)
        parts.append(_run(func, dims, out_dims, randomness, given, kwargs, 1))
    shapes = sorted({structure(p) for p in parts})
    if len(shapes) > 1:
        raise RuntimeError(
            f"vmap({name_of(func)}) over a nested tensor: the function returned {shapes[0]} for "
            f"one entry and {shapes[1]} for another"
        )
    places = iter(_output_dims(func, out_dims, parts[0]))
    columns = iter(list(zip(*map(tree_leaves, parts), strict=True)))
    return tree_map(lambda _: _nested(next(columns), next(places)), parts[0])


def _entry(x: Any, dim: int | None, i: int) -> Any:
    if dim is None:
        return x
    return x.unbind()[i].unsqueeze(0) if x.is_nested else x.narrow(dim, i, 1)


def _nested(parts: tuple[Any, ...], dim: int | None) -> Any:
    if dim is None:
        return parts[0]
    if dim != 0:
        raise RuntimeError(
            f"vmap over a nested tensor gives nested tensors, whose batch is in front: out_dims "
            f"must be 0 or None, got {dim}"
        )
    return make_list([p.squeeze(0) for p in parts])


def _joined(parts: tuple[Any, ...], dim: int | None) -> Any:
    if dim is None:
        return parts[0]
    return cat_same(parts, dim)
