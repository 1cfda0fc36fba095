"""Draws: 1-D arrays in drawing order, bit for bit those of PyTorch 2.13's CPU kernels.

Every function takes a source of random words first, so that the Mersenne twister and the Philox
generator share them.  Where PyTorch's compiled kernels fuse `a * b + c`, so do these.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np

from lucerne._src.tensor.random.boxmuller import normal16_f32, normal16_f64
from lucerne._src.tensor.random.exact import each, exp, fma32, fma64, log
from lucerne._src.tensor.random.kinds import (
    DIGITS,
    F32,
    F64,
    I64,
    LARGEST,
    SPELLING,
    U32,
    U64,
    Array,
    Mask,
    check_float,
    round_float,
    round_scalar,
    store,
)


class Words(Protocol):
    """What a draw needs of a generator."""

    cached_normal: float | None

    def words32(self, n: int) -> U32:
        """The next `n` words of 32 bits."""

    def words64(self, n: int) -> U64:
        """The next `n` words of 64 bits."""

    def mark(self) -> Any:
        """The place in the word sequence, for `rewind`."""

    def rewind(self, mark: Any) -> None:
        """Go back to a mark."""


def unit_f32(words: Words, n: int) -> F32:
    """Uniform in [0, 1): the low 24 bits of a 32-bit word."""
    return (words.words32(n) & np.uint32(2**24 - 1)).astype(np.float32) * np.float32(2.0**-24)


def unit_f64(words: Words, n: int) -> F64:
    """Uniform in [0, 1): the low 53 bits of a 64-bit word."""
    return (words.words64(n) & np.uint64(2**53 - 1)).astype(np.float64) * 2.0**-53


def _check_uniform(lo: float, hi: float, kind: str) -> None:
    check_float(kind, "check_uniform_bounds")
    largest = LARGEST[kind]
    for name, bound in (("from", lo), ("to", hi)):
        if not -largest <= bound <= largest:
            raise RuntimeError(f"{name} is out of bounds for {SPELLING[kind][0]}")
    if lo > hi:
        raise RuntimeError(
            f"uniform_ expects to return a [from, to) range, but found from={lo:g} > to={hi:g}"
        )
    if hi - lo > largest:
        raise RuntimeError(
            f"uniform_ expects to-from <= std::numeric_limits<{SPELLING[kind][1]}>::max(), but "
            f"found to={hi:g} and from={lo:g} which result in to-from to exceed the limit"
        )


def uniform(words: Words, n: int, lo: float = 0.0, hi: float = 1.0, kind: str = "float32") -> Array:
    """Uniform in [lo, hi); a value that rounds up to `hi` becomes `lo`."""
    _check_uniform(lo, hi, kind)
    if kind == "float64":
        wide = unit_f64(words, n)
        values: Array = wide if (lo, hi) == (0, 1) else fma64(wide, _f64(hi - lo), _f64(lo))
    else:
        low, high = np.float32(lo), np.float32(hi)
        narrow = unit_f32(words, n)
        values = narrow if (lo, hi) == (0, 1) else fma32(narrow, _f32(high - low), _f32(low))
    values = round_float(values, kind)
    return np.where(
        values == round_scalar(hi, kind), values.dtype.type(round_scalar(lo, kind)), values
    )


def _f32(value: Any) -> F32:
    return np.asarray(value, np.float32)


def _f64(value: Any) -> F64:
    return np.asarray(value, np.float64)


def _normal_pairs(words: Words, n: int) -> F64:
    """Standard normals one pair at a time, the odd one kept in the cache between calls."""
    cached = words.cached_normal
    kept = [] if cached is None or n == 0 else [cached]
    pairs = (n - len(kept) + 1) // 2
    u = unit_f64(words, 2 * pairs).reshape(-1, 2)
    radius = np.sqrt(-2.0 * each(math.log1p, -u[:, 1]))
    theta = (2.0 * math.pi) * u[:, 0]
    pair = np.stack([radius * each(math.cos, theta), radius * each(math.sin, theta)], axis=1)
    values = np.concatenate([np.array(kept, np.float64), pair.ravel()])
    if n > 0:
        words.cached_normal = float(values[n]) if len(values) > n else None
    return values[:n]


def serial_normal(words: Words, n: int, mean: float, std: float) -> F64:
    """PyTorch's element-at-a-time normals, in float64: small, strided and log-normal draws."""
    values = _normal_pairs(words, n)
    return fma64(values, _f64(std), _f64(mean))


def _blocked_normal(words: Words, n: int, mean: float, std: float, kind: str) -> Array:
    """Blocks of sixteen; a ragged end is covered by a last block drawn over the tail."""
    whole = n // 16 * 16
    if kind == "float64":
        wide = np.empty(n, np.float64)
        wide[:] = unit_f64(words, n)
        wide[:whole] = normal16_f64(wide[:whole].reshape(-1, 16), mean, std).ravel()
        if n > whole:
            wide[-16:] = normal16_f64(unit_f64(words, 16).reshape(1, 16), mean, std).ravel()
        return wide
    # float32 draws the ragged end once and throws it away; the narrow kinds never draw it.
    drawn = unit_f32(words, n if kind == "float32" else whole)
    narrow = np.empty(n, np.float32)
    narrow[:whole] = normal16_f32(drawn[:whole].reshape(-1, 16), mean, std).ravel()
    if n > whole:
        narrow[-16:] = normal16_f32(unit_f32(words, 16).reshape(1, 16), mean, std).ravel()
    return narrow


def normal(
    words: Words,
    n: int,
    mean: float = 0.0,
    std: float = 1.0,
    kind: str = "float32",
    contiguous: bool = True,
) -> Array:
    """Normal draws; `contiguous` tells whether the tensor to be filled is, as PyTorch asks."""
    check_float(kind, "normal_kernel_cpu")
    if not std >= 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std:g}")
    if n >= 16 and contiguous:
        return round_float(_blocked_normal(words, n, mean, std, kind), kind)
    return round_float(serial_normal(words, n, mean, std), kind)


def bernoulli_scalar(words: Words, n: int, p: float) -> Mask:
    """True with probability `p`: one 64-bit word an element whatever the dtype (dropout too)."""
    if not 0 <= p <= 1:
        raise RuntimeError(f"bernoulli_ expects p to be in [0, 1], but got p={p:g}")
    return unit_f64(words, n) < p


def bernoulli_tensor(words: Words, p: Array) -> Mask:
    """True with each element's probability, compared in float64 for float64, else in float32."""
    flat = np.asarray(p).ravel()
    if flat.size and not (flat.min() >= 0 and flat.max() <= 1):
        raise RuntimeError(
            "Expected p_in >= 0 && p_in <= 1 to be true, but got false: every element of the "
            "tensor given to bernoulli must be a probability"
        )
    if flat.dtype == np.float64:
        return unit_f64(words, flat.size) < flat
    return unit_f32(words, flat.size) < flat.astype(np.float32)


def exponential(words: Words, n: int, lambd: float = 1.0, kind: str = "float32") -> Array:
    """Exponential draws of rate `lambd`, by inversion."""
    if kind not in DIGITS:
        raise RuntimeError(
            "Exponential distribution is a continuous probability distribution. dtype must be a "
            f"floating point but you specified {SPELLING.get(kind, (kind, kind))[1]}"
        )
    if not lambd > 0:
        raise RuntimeError(f"exponential_ expects lambda > 0.0, but found lambda={lambd:g}")
    return round_float((-1.0 / lambd) * each(math.log1p, -unit_f64(words, n)), kind)


def log_normal(
    words: Words, n: int, mean: float = 1.0, std: float = 2.0, kind: str = "float32"
) -> Array:
    """exp of a normal; shares the normal cache."""
    if not std > 0:
        raise RuntimeError(f"log_normal_ expects std > 0.0, but found std={std:g}")
    check_float(kind, "log_normal_cpu")
    return round_float(each(exp, serial_normal(words, n, mean, std)), kind)


def cauchy(
    words: Words, n: int, median: float = 0.0, sigma: float = 1.0, kind: str = "float32"
) -> Array:
    """Cauchy draws, by inversion."""
    if not sigma > 0:
        raise RuntimeError(f"cauchy_ expects sigma > 0.0, but found sigma={sigma:g}")
    if kind not in DIGITS:
        raise RuntimeError(
            "Cauchy distribution is a continuous probability distribution. dtype must be a "
            f"floating point but you specified {SPELLING.get(kind, (kind, kind))[0]}"
        )
    tangent = each(math.tan, math.pi * (unit_f64(words, n) - 0.5))
    return round_float(fma64(tangent, _f64(sigma), _f64(median)), kind)


def geometric(words: Words, n: int, p: float, kind: str = "float32") -> Array:
    """Number of trials up to the first success; integer kinds too."""
    if not 0 < p < 1:
        raise RuntimeError(f"geometric_ expects p to be in (0, 1), but got p={p:g}")
    return store(np.ceil(each(log, unit_f64(words, n)) / math.log1p(-p)), kind)


_MANY = (2**32 - 1) // 20  # beyond this a 32-bit word modulo n is too uneven
_AT_ONCE = 1 << 20


def _randperm_many(words: Words, n: int) -> I64:
    """The shuffle that builds the permutation as it grows, one 64-bit word an element."""
    order = np.empty(n, np.int64)
    for first in range(0, n, _AT_ONCE):
        size = np.arange(first + 1, min(first + _AT_ONCE, n) + 1, dtype=np.uint64)
        for i, j in enumerate((words.words64(len(size)) % size).tolist(), first):
            order[i] = order[j] if j < i else i
            order[j] = i
    return order


def randperm(words: Words, n: int) -> I64:
    """A permutation of range(n): Fisher and Yates' shuffle, one 32-bit word a swap."""
    if n < 0:
        raise RuntimeError(f"randperm: n must be non-negative, got {n}")
    if n >= _MANY:
        return _randperm_many(words, n)
    order = list(range(n))
    steps = words.words32(max(n - 1, 0)) % np.arange(n, 1, -1, dtype=np.uint32)
    for i, step in enumerate(steps.tolist()):
        j = i + step
        order[i], order[j] = order[j], order[i]
    return np.array(order, np.int64)
