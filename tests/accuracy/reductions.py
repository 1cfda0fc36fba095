"""Reductions and normalizations where digits are lost: their largest relative errors.

The reference is the same formula in extended precision on the float32 values. What is allowed is
stated row by row, with the reason, and 4 times torch's error where that is more than a unit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.accuracy.measure import TIMES

Array = np.ndarray[Any, Any]
Long = np.longdouble
UNIT = 2.0**-23


@dataclass(frozen=True)
class Reduction:
    """One of them: how it is called, what it is, on which values, and the relative error allowed.

    The error is that of the worst element, beside the largest element where `by_largest` holds:
    for results around zero, whose own size says nothing.
    """

    name: str
    call: Callable[..., Any]
    truth: Callable[[Array], Any]
    values: Callable[[np.random.Generator, int], Array]
    bound: float
    why: str
    by_largest: bool = False


@dataclass(frozen=True)
class Outcome:
    """A row with its errors."""

    row: Reduction
    ours: float
    theirs: float

    @property
    def too_far(self) -> bool:
        return not self.ours <= self.row.bound

    @property
    def beyond_torch(self) -> bool:
        return not self.ours <= max(UNIT, TIMES * self.theirs)

    @property
    def good(self) -> bool:
        return not (self.too_far or self.beyond_torch)


def outcome(row: Reduction, ours: Any, theirs: Any, count: int) -> Outcome:
    x = row.values(np.random.default_rng(1), count).astype(np.float32)
    truth = np.asarray(row.truth(x.astype(Long)))

    def error(package: Any) -> float:
        found = row.call(package, package.from_numpy(x)).numpy().astype(Long)
        off = np.abs(found - truth)
        return float((off / (np.abs(truth).max() if row.by_largest else np.abs(truth))).max())

    return Outcome(row, error(ours), error(theirs))


def _around(mean: float, deviation: float = 1.0) -> Callable[..., Array]:
    return lambda rng, count: mean + deviation * rng.standard_normal(count)


def _rows(mean: float) -> Callable[..., Array]:
    return lambda rng, count: _around(mean)(rng, count // 1000 * 1000).reshape(-1, 1000)


def _columns(mean: float) -> Callable[..., Array]:
    return lambda rng, count: _around(mean)(rng, count // 20 * 20).reshape(-1, 20)


def _standard(axis: int) -> Callable[[Array], Array]:
    def truth(x: Array) -> Array:
        centred = x - x.mean(axis, keepdims=True)
        return centred / np.sqrt((centred * centred).mean(axis, keepdims=True) + Long(1e-5))

    return truth


def _softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def _product(x: Array) -> Any:
    return np.exp(np.log(x).sum())


_FEW = "a few units, however many values there are"
_MEAN = "a float32 mean is known to half a unit of 1e4, 5e-4"
_SHIFT = "as a scale and a shift: three roundings of 5e-4 each, beside results of some units"

REDUCTIONS = (
    Reduction("var at 1e6", lambda t, x: t.var(x), lambda x: x.var(ddof=1), _around(1e6), 1e-6,
              "issue 17"),
    Reduction("std at 1e6", lambda t, x: t.std(x), lambda x: x.std(ddof=1), _around(1e6), 1e-6,
              "issue 17"),
    Reduction("var at 1e4", lambda t, x: t.var(x), lambda x: x.var(ddof=1), _around(1e4), 1e-6,
              "issue 17"),
    Reduction("var of rows at 1e6", lambda t, x: t.var(x, 1), lambda x: x.var(1, ddof=1),
              _rows(1e6), 1e-6, "issue 17"),
    Reduction("sum", lambda t, x: t.sum(x), lambda x: x.sum(), _around(1.0), 1e-6, _FEW),
    Reduction("mean", lambda t, x: t.mean(x), lambda x: x.mean(), _around(1e4), 1e-6, _FEW),
    Reduction("norm", lambda t, x: t.linalg.vector_norm(x), lambda x: np.sqrt((x * x).sum()),
              _around(0.0), 1e-6, _FEW),
    Reduction("prod near 1", lambda t, x: t.prod(x), _product, _around(1.0, 1e-4), 1e-6, _FEW),
    Reduction("prod of 60,000", lambda t, x: t.prod(x), _product,
              lambda rng, count: _around(1.0, 1e-4)(rng, min(count, 60_000)), 1e-6, _FEW),
    Reduction("logsumexp", lambda t, x: t.logsumexp(x, 0), lambda x: np.log(np.exp(x).sum()),
              _around(0.0), 1e-6, _FEW),
    Reduction("logcumsumexp", lambda t, x: t.logcumsumexp(x, 0),
              lambda x: np.log(np.exp(x).cumsum()), _around(3.0), 2e-6, _FEW),
    Reduction("cumsum", lambda t, x: t.cumsum(x, 0), lambda x: x.cumsum(), _around(1.0), 1e-6,
              _FEW, by_largest=True),
    Reduction("softmax", lambda t, x: t.softmax(x, 1), _softmax, _rows(0.0), 2e-6, _FEW),
    Reduction("layer_norm at 1e4", lambda t, x: t.nn.functional.layer_norm(x, (1000,)),
              _standard(1), _rows(1e4), 5e-4, _MEAN, by_largest=True),
    Reduction("batch_norm at 1e4",
              lambda t, x: t.nn.functional.batch_norm(x, None, None, training=True),
              _standard(0), _columns(1e4), 1.5e-3, _SHIFT, by_largest=True),
)  # fmt: skip
