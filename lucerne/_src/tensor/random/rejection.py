"""Poisson, binomial, gamma and Dirichlet draws: loops that try until a candidate is accepted.

How many words a value costs is not known beforehand, so words are read ahead in one piece and the
generator is wound back to just behind the last word used.  The arithmetic follows PyTorch's types:
parameters are rounded to the tensor's kind, the rest is float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from types import TracebackType

import numpy as np

from lucerne._src.tensor.random.draws import Words, unit_f64
from lucerne._src.tensor.random.exact import log
from lucerne._src.tensor.random.kinds import (
    DIGITS,
    F64,
    SMALLEST_NORMAL,
    Array,
    check_float,
    round_float,
    round_scalar,
)
from lucerne._src.tensor.random.rowsum import row_sums

Round = Callable[[float], float]
_THIRD = float(np.float32(1) / np.float32(3))
_SQUEEZE = float(np.float32(0.0331))


class _Reader:
    """Uniform and normal numbers one at a time, at the price of a list look-up each."""

    def __init__(self, words: Words, ahead: int) -> None:
        self._words = words
        self._start = words.mark()
        self._ahead = max(ahead, 64)
        self._values: list[float] = []
        self._read = 0

    def __enter__(self) -> _Reader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self._words.rewind(self._start)
        self._words.words64(self._read)

    def uniform(self) -> float:
        """A float64 in [0, 1)."""
        if self._read == len(self._values):
            self._values += unit_f64(self._words, self._ahead).tolist()
        self._read += 1
        return self._values[self._read - 1]

    def normal(self) -> float:
        """A standard normal, through the generator's cache."""
        cached = self._words.cached_normal
        if cached is not None:
            self._words.cached_normal = None
            return cached
        u1, u2 = self.uniform(), self.uniform()
        radius, theta = math.sqrt(-2.0 * math.log1p(-u2)), (2.0 * math.pi) * u1
        self._words.cached_normal = radius * math.sin(theta)
        return radius * math.cos(theta)


def _poisson_small(rate: float, reader: _Reader) -> float:
    """Count factors until their product falls below exp(-rate) (Knuth)."""
    floor, count, product = math.exp(-rate), 0, reader.uniform()
    while product > floor:
        count += 1
        product *= reader.uniform()
    return float(count)


def _poisson_large(rate: float, reader: _Reader) -> float:
    """Transformed rejection, PTRS (W. Hormann, 1993)."""
    root, log_rate = math.sqrt(rate), math.log(rate)
    b = 0.931 + 2.53 * root
    a = -0.059 + 0.02483 * b
    log_inverse_alpha = math.log(1.1239 + 1.1328 / (b - 3.4))
    v_r = 0.9277 - 3.6224 / (b - 2)
    while True:
        u, v = reader.uniform() - 0.5, reader.uniform()
        us = 0.5 - abs(u)
        if us == 0:
            continue  # the candidate is infinite
        k = float(math.floor((2 * a / us + b) * u + rate + 0.43))
        if us >= 0.07 and v <= v_r:
            return k
        if k < 0 or (us < 0.013 and v > us):
            continue
        left = log(v) + log_inverse_alpha - math.log(a / (us * us) + b)
        if left <= -rate + k * log_rate - math.lgamma(k + 1):
            return k


def _poisson_one(rate: float, reader: _Reader) -> float:
    if not math.isfinite(rate):
        return math.nan
    if rate >= 10:
        return _poisson_large(rate, reader)
    return 0.0 if rate == 0 else _poisson_small(rate, reader)


def _array(values: Iterable[float], count: int, kind: str) -> Array:
    return round_float(np.fromiter(values, np.float64, count), kind)


def poisson(words: Words, rates: Array, kind: str = "float32") -> Array:
    """One Poisson draw for each rate."""
    check_float(kind, "poisson_cpu")
    flat = np.asarray(rates, np.float64).ravel()
    if bool((flat < 0).any()):
        raise RuntimeError("invalid Poisson rate, expected rate to be non-negative")
    with _Reader(words, 4 * flat.size) as reader:
        return _array((_poisson_one(r, reader) for r in flat.tolist()), flat.size, kind)


_STIRLING = (
    0.0810614667953272,
    0.0413406959554092,
    0.0276779256849983,
    0.02079067210376509,
    0.0166446911898211,
    0.0138761288230707,
    0.0118967099458917,
    0.0104112652619720,
    0.00925546218271273,
    0.00833056343336287,
)


def _stirling_tail(k: float) -> float:
    """log k! minus Stirling's formula."""
    if k < len(_STIRLING):
        return _STIRLING[int(k)]
    square = (k + 1) * (k + 1)
    return (1.0 / 12 - (1.0 / 360 - 1.0 / 1260 / square) / square) / (k + 1)


def _binomial_inversion(count: float, prob: float, reader: _Reader, r: Round) -> float:
    """Sum geometric waiting times until the trials run out."""
    log_fail = r(math.log1p(-prob))
    trials, successes = 0.0, 0.0
    while True:
        trials += float(np.ceil(log(reader.uniform()) / log_fail)) if log_fail else math.inf
        if trials > count:
            return successes
        successes = r(successes + 1)


def _binomial_bound(count: float, k: float, m: float, odds: float, r: Round) -> float:
    """Log of the ratio of the probabilities of `k` and of the mode `m`."""
    more = r(count + 1)
    rest = r(r(count - k) + 1)
    return (
        (m + 0.5) * math.log((m + 1) / (odds * (count - m + 1)))
        + more * math.log((count - m + 1) / rest)
        + (k + 0.5) * math.log(odds * rest / r(k + 1))
        + _stirling_tail(m)
        + _stirling_tail(count - m)
        - _stirling_tail(k)
        - _stirling_tail(r(count - k))
    )


def _binomial_btrs(count: float, prob: float, reader: _Reader, r: Round) -> float:
    """Transformed rejection with squeeze, BTRS (W. Hormann, 1993)."""
    fail = r(1 - prob)
    spread = r(math.sqrt(r(r(count * prob) * fail)))
    b = 1.15 + 2.53 * spread
    a = -0.0873 + 0.0248 * b + 0.01 * prob
    c = r(count * prob) + 0.5
    v_r = 0.92 - 4.2 / b
    odds = r(prob / fail)
    alpha = (2.83 + 5.1 / b) * spread
    m = float(math.floor(r(r(count + 1) * prob)))
    while True:
        u, v = reader.uniform() - 0.5, reader.uniform()
        us = 0.5 - abs(u)
        if us == 0:
            continue  # the candidate is infinite
        k = r(float(math.floor((2 * a / us + b) * u + c)))
        if k < 0 or k > count:
            continue
        if us >= 0.07 and v <= v_r:
            return k
        if log(v * alpha / (a / (us * us) + b)) <= _binomial_bound(count, k, m, odds, r):
            return k


def _binomial_one(count: float, prob: float, reader: _Reader, r: Round) -> float:
    if math.isnan(count) or math.isnan(prob) or math.isinf(count):
        return math.nan
    if count <= 0 or prob <= 0:
        return 0.0
    if prob >= 1:
        return count
    rare = prob if prob <= 0.5 else r(1 - prob)
    sample = _binomial_btrs if r(count * rare) >= 10 else _binomial_inversion
    drawn = sample(count, rare, reader, r)
    return drawn if prob <= 0.5 else r(count - drawn)


def _rounder(kind: str) -> Round:
    if kind == "float64":
        return lambda value: value
    if kind == "float32":
        return lambda value: float(np.float32(value))
    return lambda value: round_scalar(value, kind)


def binomial(words: Words, counts: Array, probs: Array, kind: str = "float32") -> Array:
    """Successes among each count of trials; the two arrays have one shape."""
    check_float(kind, "binomial_cpu")
    pairs = zip(np.ravel(counts).tolist(), np.ravel(probs).tolist(), strict=True)
    r, size = _rounder(kind), int(np.size(counts))
    with _Reader(words, 4 * size) as reader:
        drawn = (_binomial_one(float(n), float(p), reader, r) for n, p in pairs)
        return _array(drawn, size, kind)


def _gamma_one(alpha: float, reader: _Reader, r: Round) -> float:
    """Marsaglia and Tsang (2000), the exponent boosted below one."""
    if not alpha >= 0 or math.isinf(alpha):
        return math.nan if not alpha > 0 else math.inf
    scale = 1.0
    if alpha < 1:
        if alpha == 0:
            return 0.0
        scale = math.pow(1 - reader.uniform(), r(1 / alpha))
        alpha = r(alpha + 1)
    d = r(alpha - _THIRD)
    c = 1.0 / math.sqrt(9.0 * d)
    while True:
        x = reader.normal()
        y = 1.0 + c * x
        if y <= 0:
            continue
        v, u = y * y * y, 1 - reader.uniform()
        square = x * x
        if u < 1.0 - _SQUEEZE * square * square:
            return scale * d * v
        if math.log(u) < 0.5 * square + d * (1.0 - v + math.log(v)):
            return scale * d * v


def _gammas(words: Words, alphas: Array, r: Round) -> F64:
    flat = np.ravel(alphas)
    with _Reader(words, 4 * flat.size) as reader:
        drawn = (_gamma_one(float(a), reader, r) for a in flat.tolist())
        return np.fromiter(drawn, np.float64, flat.size)


def standard_gamma(words: Words, alphas: Array, kind: str = "float32") -> Array:
    """One gamma draw of scale one for each shape parameter, never below the smallest normal."""
    check_float(kind, "gamma_cpu")
    drawn = round_float(_gammas(words, alphas, _rounder(kind)), kind)
    floored: Array = np.maximum(drawn, drawn.dtype.type(SMALLEST_NORMAL[kind]))
    return floored


def dirichlet(words: Words, alphas: Array, kind: str = "float32") -> Array:
    """Gamma draws in float64 divided by the sum of their row: (rows, k) -> (rows, k)."""
    check_float(kind, "dirichlet")
    gammas = _gammas(words, alphas, _rounder("float64")).reshape(np.shape(alphas))
    with np.errstate(invalid="ignore"):
        shares = round_float(gammas / row_sums(gammas), kind)
    below_one = 1 - 2.0 ** -DIGITS[kind]
    number = shares.dtype.type
    clipped: Array = np.clip(shares, number(SMALLEST_NORMAL[kind]), number(below_one))
    return clipped
