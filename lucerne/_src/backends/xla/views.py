"""Views as functions of values. Those that need memory (`as_strided`, `unfold`) are left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax

from lucerne._src.backends.xla.types import jtype, retyped
from lucerne._src.ir.define import Geometry
from lucerne._src.ops.view.slicing import bounds

Parts = Sequence[Geometry]
ViewRule = Callable[[Any, Sequence[Any], Parts], list[Any]]


def _reshaped(x: Any, args: Sequence[Any], parts: Parts) -> list[Any]:
    return [x.reshape(tuple(parts[0].shape))]


def _transposed(x: Any, args: Sequence[Any], parts: Parts) -> list[Any]:
    return [jnp.swapaxes(x, args[0], args[1]) if x.ndim > 1 else x]


def _permuted(x: Any, args: Sequence[Any], parts: Parts) -> list[Any]:
    return [jnp.transpose(x, [d % x.ndim for d in args[0]]) if x.ndim > 1 else x]


def _expanded(x: Any, args: Sequence[Any], parts: Parts) -> list[Any]:
    return [jnp.broadcast_to(x, tuple(parts[0].shape))]


def _selected(x: Any, args: Sequence[Any], parts: Parts) -> list[Any]:
    dim, index = args
    return [lax.index_in_dim(x, index % x.shape[dim], dim % x.ndim, keepdims=False)]


def _sliced(x: Any, args: Sequence[Any], parts: Parts) -> list[Any]:
    dim, start, end, step = args
    dim %= x.ndim
    first, last = bounds(x.shape[dim], start, end)
    return [lax.slice_in_dim(x, first, max(first, last), step, dim)]


def _unbound(x: Any, args: Sequence[Any], parts: Parts) -> list[Any]:
    dim = args[0] % x.ndim
    return [lax.index_in_dim(x, k, dim, keepdims=False) for k in range(x.shape[dim])]


def _split(x: Any, args: Sequence[Any], parts: Parts) -> list[Any]:
    sizes, dim = args[0], args[1] % x.ndim
    found, at = [], 0
    for n in sizes:
        found.append(lax.slice_in_dim(x, at, at + n, 1, dim))
        at += n
    return found


VIEWS: dict[str, ViewRule] = {
    "view": _reshaped,
    "squeeze": _reshaped,
    "unsqueeze": _reshaped,
    "alias": _reshaped,
    "t": lambda x, args, parts: [x.T],
    "transpose": _transposed,
    "permute": _permuted,
    "expand": _expanded,
    "select": _selected,
    "ops.aten.slice": _sliced,
    "unbind": _unbound,
    "split_with_sizes": _split,
    "diagonal": lambda x, args, parts: [jnp.diagonal(x, *args)],
    "real_part": lambda x, args, parts: [jnp.real(x)],
    "imag_part": lambda x, args, parts: [jnp.imag(x)],
    "view_as_real": lambda x, args, parts: [jnp.stack([jnp.real(x), jnp.imag(x)], -1)],
    "view_as_complex": lambda x, args, parts: [lax.complex(x[..., 0], x[..., 1])],
    "view_dtype": lambda x, args, parts: [retyped(x, jtype(args[0]))],
}
"""By qualified name: from a value and the view's other arguments to its results."""
