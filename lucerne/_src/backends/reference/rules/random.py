"""Draws: a generator gives a run of numbers, which are laid out in memory order."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from lucerne._src.backends.reference.table import rule
from lucerne._src.base import dtype as dt

Array = np.ndarray[Any, Any]


def in_memory_order(flat: Array, like: Array) -> Array:
    """`flat` as an array of `like`'s shape, filled in the order `like` lies in memory."""
    order = sorted(range(like.ndim), key=lambda d: -like.strides[d])
    if order == list(range(like.ndim)):
        return flat.reshape(like.shape)
    return flat.reshape([like.shape[d] for d in order]).transpose(np.argsort(order))


def _integers(generator: Any, n: int, low: float, high: float, kind: str) -> Array:
    bounds = [None if isinstance(b, float) and math.isnan(b) else int(b) for b in (low, high)]
    found: Array = generator.random_full_range(n, kind, *bounds)
    return found


_DRAWS: dict[str, Callable[..., Array]] = {
    "uniform": lambda g, n, a, b, kind, c: g.uniform(n, a, b, kind),
    "normal": lambda g, n, a, b, kind, c: g.normal(n, a, b, kind, c),
    "exponential": lambda g, n, a, b, kind, c: g.exponential(n, a, kind),
    "cauchy": lambda g, n, a, b, kind, c: g.cauchy(n, a, b, kind),
    "log_normal": lambda g, n, a, b, kind, c: g.log_normal(n, a, b, kind),
    "geometric": lambda g, n, a, b, kind, c: g.geometric(n, a, kind),
    "bernoulli": lambda g, n, a, b, kind, c: g.bernoulli_scalar(n, a),
    "permutation": lambda g, n, a, b, kind, c: g.randperm(n),
    "integers": lambda g, n, a, b, kind, c: _integers(g, n, a, b, kind),
}


@rule("draw")
def draw(
    input: Array, distribution: str, first: Any, second: Any, dtype: dt.dtype, generator: Any
) -> Array:
    kind = dtype.to_real().name
    n = input.size
    if dtype.category == dt.COMPLEX:
        return _complex_draw(input, distribution, first, second, kind, generator)
    flat = _DRAWS[distribution](generator, n, first, second, kind, input.flags.c_contiguous)
    return in_memory_order(np.asarray(flat), input)


def _complex_draw(
    input: Array, distribution: str, first: Any, second: Any, kind: str, generator: Any
) -> Array:
    """Real and imaginary parts are drawn as one run; a normal shares its variance between them."""
    if distribution == "normal":
        second = second / math.sqrt(2.0)
    flat = _DRAWS[distribution](
        generator, 2 * input.size, first, second, kind, input.flags.c_contiguous
    )
    pairs = np.asarray(flat).reshape(-1, 2)
    return in_memory_order(pairs[:, 0] + 1j * pairs[:, 1], input)


@rule("draw_each")
def draw_each(
    input: Array, distribution: str, other: Array | None, dtype: dt.dtype, generator: Any
) -> Array:
    flat = np.ascontiguousarray(input).reshape(-1)
    if distribution == "bernoulli":
        return generator.bernoulli_tensor(flat).reshape(input.shape)
    if distribution == "binomial":
        assert other is not None
        probs = np.broadcast_to(other, input.shape).reshape(-1)
        return generator.binomial(flat, probs, dtype.name).reshape(input.shape)
    if distribution == "dirichlet":
        return generator.dirichlet(np.ascontiguousarray(input), dtype.name)
    draws = {"poisson": generator.poisson, "gamma": generator.standard_gamma}
    return draws[distribution](flat, dtype.name).reshape(input.shape)


@rule("draw_categories")
def draw_categories(
    input: Array, num_samples: int, replacement: bool, dtype: dt.dtype, generator: Any
) -> Array:
    rows = np.ascontiguousarray(input).reshape(-1, input.shape[-1])
    found = generator.multinomial(rows, num_samples, replacement, dtype.name)
    return found if input.ndim == 2 else found[0]
