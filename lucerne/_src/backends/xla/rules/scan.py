"""Running folds along a dimension."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from lucerne._src.backends.xla.rules.index import one_d
from lucerne._src.backends.xla.rules.table import out_type, rule, wide_type
from lucerne._src.backends.xla.types import cast, is_floating
from lucerne._src.ir.graph import Node


def _positions(better: Any) -> Any:
    """The last position of the best value so far; nan is better than every number."""

    def run(x: Any, dim: int) -> Any:
        at = lax.broadcasted_iota(np.int64, x.shape, dim)

        def fold(a: Any, b: Any) -> Any:
            (value_a, at_a), (value_b, at_b) = a, b
            wins = better(value_b, value_a)
            if is_floating(x):
                wins = (wins & ~jnp.isnan(value_a)) | jnp.isnan(value_b)
            return jnp.where(wins, value_b, value_a), jnp.where(wins, at_b, at_a)

        return lax.associative_scan(fold, (x, at), axis=dim)[1]

    return run


def _log_add_exp(x: Any, dim: int) -> Any:
    fold = _complex_log_add_exp if np.dtype(x.dtype).kind == "c" else jnp.logaddexp
    return lax.associative_scan(fold, x, axis=dim)


def _complex_log_add_exp(a: Any, b: Any) -> Any:
    """log(exp(a) + exp(b)) with the larger real part taken out first."""
    first = jnp.real(a) >= jnp.real(b)
    high, low = jnp.where(first, a, b), jnp.where(first, b, a)
    shift = jnp.where(jnp.isfinite(jnp.real(high)), high, 0)
    found = shift + jnp.log(jnp.exp(high - shift) + jnp.exp(low - shift))
    return jnp.where(jnp.real(low) == -jnp.inf, high, found)


_BUILT_IN: dict[str, Any] = {"add": lax.cumsum, "mul": lax.cumprod}
_SCANS: dict[str, Any] = {
    **_BUILT_IN,
    "logaddexp": _log_add_exp,
    "argmax": _positions(jnp.greater_equal),
    "argmin": _positions(jnp.less_equal),
}


@rule("scan")
def scan(node: Node, x: Any, dim: int, mode: str, reverse: bool, dtype: Any) -> Any:
    shape, x = x.shape, one_d(x)
    dim %= x.ndim
    by_place = mode in ("argmax", "argmin")
    x = x if by_place else cast(x, wide_type(node))
    if not x.size:
        return cast(x, out_type(node)).reshape(shape)
    y = _SCANS[mode](jnp.flip(x, dim) if reverse else x, dim)
    if reverse:
        y = jnp.flip(y, dim)
        y = x.shape[dim] - 1 - y if by_place else y
    return cast(y, out_type(node)).reshape(shape)


@rule("linear_scan")
def linear_scan(node: Node, decay: Any, x: Any, dim: int, reverse: bool) -> Any:
    if not x.ndim or not x.size:
        return x
    wide = wide_type(node)
    a, b = (jnp.moveaxis(v.astype(wide), dim, 0) for v in (decay, x))
    if reverse:
        a, b = jnp.flip(jnp.roll(a, -1, 0), 0), jnp.flip(b, 0)
    a = a.at[0].set(0)
    fold = lambda p, q: (p[0] * q[0], q[0] * p[1] + q[1])  # noqa: E731
    _, y = lax.associative_scan(fold, (a, b))
    y = jnp.flip(y, 0) if reverse else y
    return cast(jnp.moveaxis(y, 0, dim), out_type(node))
