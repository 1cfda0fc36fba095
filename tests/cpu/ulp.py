"""How exact the CPU engine's functions are: errors in units of the last place, over all inputs.

    python -m tests.cpu.ulp           # every 4096th float32, all bfloat16 and float16
    python -m tests.cpu.ulp --full    # every 64th float32

Prints a table: function, dtype, largest error, where it is, and how many special values (infinity,
nan, the sign of zero) are wrong. The truth is computed in float64.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from lucerne._src.backends.cpu.emit.target import VECTOR_BYTES
from lucerne._src.backends.reference import codec
from lucerne._src.base import dtype as dt
from lucerne._src.ir.scalar.protocol import s
from tests.cpu.lanes import over_lanes

Array = np.ndarray[Any, Any]
LANES = VECTOR_BYTES // 4


class Row(NamedTuple):
    """A function: the body, its truth on float64 arrays, and the errors allowed (float32)."""

    name: str
    body: Callable[[Any], Any]
    truth: Callable[[Array], Array]
    bound: float


class Errors(NamedTuple):
    """What a sweep found."""

    worst: float
    where: float
    special: int
    first_special: float


def _elementwise(fn: Callable[[float], float]) -> Callable[[Array], Array]:
    return lambda x: np.array([fn(v) for v in x.tolist()], np.float64)


def _sigmoid(x: Array) -> Array:
    small = np.exp(-np.abs(x))
    return np.where(x < 0, small, 1.0) / (1 + small)


def _normal_cdf(x: Array) -> Array:
    return 0.5 * _elementwise(math.erfc)(x * -math.sqrt(0.5))


def _times(x: Array, share: Array) -> Array:
    """`x * share`, and zero of x's sign where the share is zero, even at minus infinity."""
    return np.where(share == 0, np.copysign(0.0, x), x * share)


def _gelu_tanh(x: Array) -> Array:
    inner = np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)
    return x * _sigmoid(2 * inner)


def _erfinv(x: Array) -> Array:
    """By Halley's steps from a guess, on `erfc` where x is near 1: what is left there is exact."""
    size = np.abs(x)
    inside = size < 1
    p = np.where(inside, size, 0.0)
    w = -np.log((1 - p) * (1 + p))
    y = np.where(w < 5, p * (0.886 + 0.23 * w), np.sqrt(w))
    erf, erfc = _elementwise(math.erf), _elementwise(math.erfc)
    for _ in range(6):
        error = np.where(p < 0.5, erf(y) - p, (1 - p) - erfc(y))
        step = error / (2 / math.sqrt(math.pi) * np.exp(-y * y))
        y = y - step / (1 + y * step)
    y = np.where(p < 1e-9, p * (math.sqrt(math.pi) / 2), y)
    ends = np.where(size == 1, np.inf, np.nan)
    return np.copysign(np.where(inside, y, ends), x)


ROWS = (
    Row("exp", s.exp, np.exp, 1.0),
    Row("exp2", s.exp2, np.exp2, 1.0),
    Row("expm1", s.expm1, np.expm1, 1.0),
    Row("log", s.log, np.log, 1.0),
    Row("log1p", s.log1p, np.log1p, 1.5),
    Row("logit", s.logit, lambda x: np.log(x) - np.log1p(-x), 1.8),
    Row("log2", s.log2, np.log2, 1.5),
    Row("log10", s.log10, np.log10, 1.5),
    Row("sin", s.sin, np.sin, 1.0),
    Row("cos", s.cos, np.cos, 1.0),
    Row("tan", s.tan, np.tan, 1.0),
    Row("asin", s.asin, np.arcsin, 2.5),
    Row("acos", s.acos, np.arccos, 1.5),
    Row("atan", s.atan, np.arctan, 1.5),
    Row("sinh", s.sinh, np.sinh, 1.0),
    Row("cosh", s.cosh, np.cosh, 1.0),
    Row("tanh", s.tanh, np.tanh, 1.0),
    Row("asinh", s.asinh, np.arcsinh, 1.0),
    Row("acosh", s.acosh, np.arccosh, 1.0),
    Row("atanh", s.atanh, np.arctanh, 1.0),
    Row("erf", s.erf, _elementwise(math.erf), 1.0),
    Row("erfc", s.erfc, _elementwise(math.erfc), 2.5),
    Row("erfinv", s.erfinv, _erfinv, 1.75),
    Row("rsqrt", s.rsqrt, lambda x: 1 / np.sqrt(x), 1.5),
    Row("sigmoid", s.sigmoid, _sigmoid, 2.5),
    Row("silu", s.silu, lambda x: x * _sigmoid(x), 2.5),
    Row("gelu", s.gelu, lambda x: x * _normal_cdf(x), 2.5),
    Row("gelu_tanh", s.gelu_tanh, _gelu_tanh, 2.5),
)  # fmt: skip


def float32_inputs(step: int) -> Array:
    """Every `step`-th bit pattern, both signs, and the values around which functions change."""
    bits = np.arange(0, 1 << 32, step, dtype=np.uint64).astype(np.uint32)
    edges = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1.0, -1.0], np.float32)
    return np.concatenate([bits.view(np.float32), edges])


def stored_inputs(dtype: dt.dtype, step: int) -> Array:
    """Inputs as stored: all of a 16-bit type, a sample of float32."""
    if dtype is dt.float32:
        return float32_inputs(step)
    return np.arange(1 << 16, dtype=np.uint32).astype(np.uint16).view(dtype.storage)


def unit_of(truth: Array, dtype: dt.dtype) -> Array:
    """The unit of the last place of a type at float64 numbers."""
    _, exponent = np.frexp(truth)
    return np.maximum(np.ldexp(1.0, exponent - dtype.digits), _LIMITS[dtype])


def measure(got: Array, truth: Array, inputs: Array, dtype: dt.dtype) -> Errors:
    """The errors of `got` against float64 `truth`, in units of a type."""
    with np.errstate(all="ignore"):
        off = np.abs(got.astype(np.float64) - truth) / unit_of(truth, dtype)
    finite = np.isfinite(got) & np.isfinite(truth)
    wrong = ~finite & ~((got == truth) | (np.isnan(got) & np.isnan(truth)))
    wrong |= (truth == 0) & (got == 0) & (np.signbit(got) != np.signbit(truth))
    off = np.where(finite, off, 0.0)
    worst, bad = int(off.argmax()), int(wrong.argmax())
    count = int(wrong.sum())
    return Errors(
        float(off[worst]), float(inputs[worst]), count, float(inputs[bad]) if count else math.nan
    )


_LIMITS = {dt.float32: 2.0**-149, dt.float16: 2.0**-24, dt.bfloat16: 2.0**-133}
_LARGEST = {
    dt.float32: 3.4028234663852886e38,
    dt.float16: 65504.0,
    dt.bfloat16: 3.3895313892515355e38,
}


def _overflowed(truth: Array, dtype: dt.dtype) -> Array:
    """The truth with values that round beyond the largest number as infinities."""
    top = _LARGEST[dtype]
    beyond = np.abs(truth) >= top * (1 + 2.0 ** -(dtype.digits + 1))
    return np.where(beyond, np.copysign(np.inf, truth), truth)


def sweep(row: Row, dtype: dt.dtype, step: int, lanes: int = LANES) -> Errors:
    """All inputs of a dtype through one function."""
    stored = stored_inputs(dtype, step)
    run = over_lanes(row.body, [dtype], dtype, lanes)
    parts = [stored[k : k + _PART] for k in range(0, len(stored), _PART)]
    found = [_sweep_part(row, dtype, run, part) for part in parts]
    worst = max(found, key=lambda e: e.worst)
    wrong = max(found, key=lambda e: e.special)
    count = sum(e.special for e in found)
    return Errors(worst.worst, worst.where, count, wrong.first_special)


_PART = 1 << 20


def _sweep_part(row: Row, dtype: dt.dtype, run: Any, stored: Array) -> Errors:
    with np.errstate(all="ignore"):
        found = codec.widen(run(stored), dtype).astype(np.float64)
        inputs = codec.widen(stored, dtype).astype(np.float64)
        truth = _overflowed(row.truth(inputs), dtype)
    return measure(found, truth, inputs, dtype)


def bound_of(row: Row, dtype: dt.dtype) -> float:
    """Computed in float32 and rounded once more: half a unit and a little of the 16-bit type."""
    return row.bound if dtype is dt.float32 else 0.51


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--full", action="store_true", help="every 64th float32")
    parser.add_argument("--lanes", type=int, default=LANES)
    parser.add_argument("names", nargs="*", help="functions (all)")
    given = parser.parse_args()
    print(f"{'function':12}{'dtype':10}{'max ulp':>9}  {'at':>14}  {'special errors':>14}")
    for row in ROWS:
        if given.names and row.name not in given.names:
            continue
        for dtype in (dt.float32, dt.float16, dt.bfloat16):
            e = sweep(row, dtype, 64 if given.full else 4096, given.lanes)
            mark = " <-- too large" if e.worst > bound_of(row, dtype) else ""
            at = f" first at {e.first_special:g}" if e.special else ""
            found = f"{e.worst:9.3f}  {e.where:14.7g}  {e.special:14}"
            print(f"{row.name:12}{dtype.name:10}{found}{at}{mark}")


if __name__ == "__main__":
    main()
