"""`jacrev`, `jacfwd` and `hessian`: all derivatives of all outputs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from lucerne._src.ir.dispatch import call_inside
from lucerne._src.tensor import api as lu
from lucerne.func.arguments import (
    check_outputs,
    chosen,
    leaves_of,
    put_back,
    refuse_complex,
    replaced,
)
from lucerne.func.forward import jvp
from lucerne.func.reverse import pulled_back
from lucerne.func.vmap import vmap


def jacrev(
    func: Callable[..., Any],
    argnums: int | tuple[int, ...] = 0,
    *,
    has_aux: bool = False,
    chunk_size: int | None = None,
    _preallocate_and_copy: bool = False,
) -> Callable[..., Any]:
    """A function that gives the Jacobian of `func`, row by row: good for few outputs.

    `chunk_size` rows are computed at a time, which bounds the memory of what lies between.

    >>> import lucerne as torch
    >>> torch.func.jacrev(torch.sin)(torch.zeros(2))
    tensor([[1., 0.],
            [0., 1.]])
    """
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError("jacrev: `chunk_size` should be greater than 0.")

    @functools.wraps(func)
    def wrapper(*args: Any) -> Any:
        refuse_complex("jacrev", args, "inputs")
        at, picked = chosen(args, argnums)
        inputs, shape = leaves_of(picked)
        output, pull_back, aux = pulled_back(func, args, at, has_aux)
        refuse_complex("jacrev", output, "outputs")
        outs, out_shape = leaves_of(output)

        def row(*cotangents: Any) -> Any:
            return tuple(leaves_of(pull_back(put_back(cotangents, out_shape)))[0])

        columns = _rows(row, outs, chunk_size, "error", _preallocate_and_copy)
        sizes = [o.numel() for o in outs]
        tables = [c.split(sizes, 0) for c in columns]
        found = []
        for i, o in enumerate(outs):
            pairs = zip(tables, inputs, strict=True)
            parts = [t[i].reshape((*o.shape, *x.shape)) for t, x in pairs]
            made = put_back(parts, shape)
            found.append(made if isinstance(argnums, tuple) else made[0])
        result = put_back(found, out_shape)
        return (result, aux) if has_aux else result

    return wrapper


def jacfwd(
    func: Callable[..., Any],
    argnums: int | tuple[int, ...] = 0,
    has_aux: bool = False,
    *,
    randomness: str = "error",
) -> Callable[..., Any]:
    """A function that gives the Jacobian of `func`, column by column: good for few inputs.

    >>> import lucerne as torch
    >>> torch.func.jacfwd(lambda x: x[0] * x)(torch.tensor([2.0, 3.0]))
    tensor([[4., 0.],
            [3., 2.]])
    """

    @functools.wraps(func)
    def wrapper(*args: Any) -> Any:
        refuse_complex("jacfwd", args, "inputs")
        at, picked = chosen(args, argnums)
        inputs, shape = leaves_of(picked)
        seen: dict[str, Any] = {}

        def column(*tangents: Any) -> Any:
            def of_chosen(*primals: Any) -> Any:
                return call_inside(func, *replaced(args, at, primals))

            given = put_back(tangents, shape)
            found = jvp(of_chosen, picked, given, has_aux=has_aux)
            outs, seen["shape"] = leaves_of(found[1])
            check_outputs(found[1], outs, "jacfwd")
            extra, seen["aux"] = leaves_of(found[2] if has_aux else ())
            seen["kept"] = [None if isinstance(x, lu.Tensor) else x for x in extra]
            return (*outs, *(x for x in extra if isinstance(x, lu.Tensor)))

        rows = _rows(column, inputs, None, randomness)
        count = len(rows) - sum(x is None for x in seen["kept"])
        refuse_complex("jacfwd", rows[:count], "outputs")
        sizes = [x.numel() for x in inputs]
        found = []
        for r in rows[:count]:
            out = tuple(r.shape[1:])
            parts = r.movedim(0, -1).split(sizes, -1)
            pairs = zip(parts, inputs, strict=True)
            made = put_back([p.reshape((*out, *x.shape)) for p, x in pairs], shape)
            found.append(made if isinstance(argnums, tuple) else made[0])
        result = put_back(found, seen["shape"])
        return (result, _aux(seen, rows[count:])) if has_aux else result

    return wrapper


def _aux(seen: dict[str, Any], rows: Sequence[Any]) -> Any:
    """What the function returned beside its output: the same in every column."""
    tensors = iter(rows)
    leaves = [next(tensors)[0] if x is None else x for x in seen["kept"]]
    return put_back(leaves, seen["aux"])


def hessian(func: Callable[..., Any], argnums: int | tuple[int, ...] = 0) -> Callable[..., Any]:
    """A function that gives the second derivatives of `func`: forward over reverse.

    >>> import lucerne as torch
    >>> torch.func.hessian(lambda x: (x**3).sum())(torch.tensor([1.0, 2.0]))
    tensor([[ 6.,  0.],
            [ 0., 12.]])
    """
    return jacfwd(jacrev(func, argnums), argnums)


def _rows(
    function: Callable[..., Any],
    like: Sequence[Any],
    chunk_size: int | None,
    randomness: str,
    in_place: bool = False,
) -> list[Any]:
    """`function` of every unit vector of the space of `like`: each result's rows, stacked. With
    `in_place` each chunk is copied to its place when it is there, not all at the end."""
    total = sum(x.numel() for x in like)
    step = chunk_size or max(total, 1)
    chunks: list[list[Any]] = []
    for start in range(0, max(total, 1), step):
        basis = _unit_vectors(like, start, min(start + step, total))
        if chunk_size == 1:
            found = [r.unsqueeze(0) for r in function(*[b.squeeze(0) for b in basis])]
        else:
            found = list(vmap(function, randomness=randomness)(*basis))
        if not in_place or step >= total:
            chunks.append(found)
            continue
        if not chunks:
            chunks.append([r.new_empty((total, *r.shape[1:])) for r in found])
        for whole, part in zip(chunks[0], found, strict=True):
            whole[start : start + part.shape[0]] = part
    if len(chunks) == 1:
        return chunks[0]
    return [lu.cat(parts) for parts in zip(*chunks, strict=True)]


def _unit_vectors(like: Sequence[Any], start: int, end: int) -> list[Any]:
    """The unit vectors `start` to `end` of the space that has all elements of `like`."""
    if len(like) == 1 and (start, end) == (0, like[0].numel()):
        (x,) = like
        return [lu.eye(end, dtype=x.dtype, device=x.device).reshape((end, *x.shape))]
    found, at = [], 0
    for x in like:
        ones = lu.zeros((end - start, x.numel()), dtype=x.dtype, device=x.device)
        low, high = max(start, at), min(end, at + x.numel())
        if low < high:
            places = lu.arange(low, high, device=x.device)
            ones[places - start, places - at] = 1
        found.append(ones.reshape((end - start, *x.shape)))
        at += x.numel()
    return found
