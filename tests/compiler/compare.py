"""Two outcomes side by side: the rules of what counts as equal.

Default: dtype, shape, stride, `requires_grad` and sharing are equal; values are close as
`assert_close` has it, and not further from the float64 result than twice eager's own distance.
Bitwise: the values are equal in every bit too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.compiler.inputs import Array
from tests.compiler.outcome import Facts, Outcome

# rtol, atol of PyTorch's assert_close, and the distance of two neighbours of one.
TOLERANCE = {
    "float64": (1e-7, 1e-7, 2.0**-52),
    "float32": (1.3e-6, 1e-5, 2.0**-23),
    "bfloat16": (1.6e-2, 1e-5, 2.0**-7),
    "float16": (1e-3, 1e-5, 2.0**-10),
}
Noise = Callable[[str], "Array | None"]
"""How far each element of a tensor moves when every op rounds differently; asked for seldom."""


@dataclass(frozen=True)
class Problem:
    """`kind` is what the minimiser holds on to."""

    kind: str
    where: str
    text: str

    def __str__(self) -> str:
        return f"{self.where}: {self.kind}: {self.text}"


def problems(
    got: Outcome, want: Outcome, *, bitwise: bool = False, noise: Noise | None = None,
    strides: bool = True,
) -> list[Problem]:  # fmt: skip
    """All differences, in words."""
    if got.error or want.error:
        if got.error != want.error:
            text = f"{got.error or 'no error'} ({got.message[:300]})"
            return [
                Problem(
                    "error", "call", f"{text}, wanted {want.error or 'none'} {want.message[:80]}"
                )
            ]
        return []
    found = []
    if got.tensors.keys() != want.tensors.keys():
        differ = sorted(got.tensors.keys() ^ want.tensors.keys())
        found.append(Problem("presence", "call", f"only on one side: {', '.join(differ)}"))
    for name, other in want.others.items():
        if got.others.get(name) != other:
            found.append(Problem("number", name, f"{got.others.get(name)!r}, wanted {other!r}"))
    for name in want.tensors.keys() & got.tensors.keys():
        found += _tensor(name, got.tensors[name], want.tensors[name], bitwise, noise, strides)
    if got.sharing != want.sharing:
        differ = sorted(set(got.sharing) ^ set(want.sharing))
        said = [f"{d} ({'got' if d in got.sharing else 'wanted'})" for d in differ]
        found.append(Problem("sharing", "call", "; ".join(said)))
    return sorted(found, key=lambda p: p.where)


def _tensor(
    name: str, a: Facts, b: Facts, bitwise: bool, noise: Noise | None, strides: bool
) -> list[Problem]:
    found = []
    for what in ("dtype", "shape", "requires_grad"):
        if getattr(a, what) != getattr(b, what):
            text = f"{getattr(a, what)}, wanted {getattr(b, what)}"
            found.append(Problem(what, name, text))
    if strides and 0 not in a.shape and not found and _strides(a) != _strides(b):
        found.append(Problem("stride", name, f"{a.stride}, wanted {b.stride} of {a.shape}"))
    if a.shape != b.shape or a.dtype != b.dtype:
        return found
    same = same_bits(a, b) if bitwise else close(a, b, lambda: noise(name) if noise else None)
    return found if same else [*found, Problem("value", name, _worst(a, b))]


def _strides(x: Facts) -> list[int]:
    """The step along a dimension of one element is never taken, so it doesn't matter."""
    return [st for st, s in zip(x.stride, x.shape, strict=True) if s > 1]


def same_bits(a: Facts, b: Facts) -> bool:
    """Every bit; but any NaN is as good as another."""
    x, y = a.bits, b.bits
    if a.values.dtype.kind == "f":
        nan = np.isnan(a.values) & np.isnan(b.values)
        unsigned = np.dtype(f"u{x.dtype.itemsize}")
        x, y = (np.ascontiguousarray(a).view(unsigned) for a in (x, y))
        return bool(((x == y) | nan).all())
    return bool((x == y).all())


def close(a: Facts, b: Facts, noise: Callable[[], Any] = lambda: None) -> bool:
    if a.values.dtype.kind != "f":
        return bool((a.values == b.values).all()) or _moved(a, b, noise())
    rtol, atol, _ = TOLERANCE[a.dtype]
    if np.isclose(a.values, b.values, rtol, atol, equal_nan=True).all():
        return True
    return _moved(a, b, noise())


def _moved(a: Facts, b: Facts, spread: Any) -> bool:
    """The difference is no more than rounding alone makes (measured on PyTorch)."""
    if spread is None or spread.shape != a.values.shape:
        return False
    x, y = a.values.astype(np.float64), b.values.astype(np.float64)
    rtol, atol, _ = TOLERANCE.get(a.dtype, (0.0, 0.0, 0.0))
    with np.errstate(all="ignore"):
        ok = np.abs(x - y) <= atol + rtol * np.abs(y) + 4 * spread
    return bool((ok | (x == y) | (np.isnan(x) & np.isnan(y)) | np.isnan(spread)).all())


def rmse(a: Array, b: Array) -> float:
    """Over the elements that are finite on both sides."""
    finite = np.isfinite(a) & np.isfinite(b)
    d = a[finite] - b[finite]
    return float(np.sqrt(np.mean(d * d))) if d.size else 0.0


def error_problem(
    name: str, got: Facts, eager: Facts, exact: Array, noise: Noise | None = None
) -> Problem | None:
    """Whether `got` is further from the float64 result than twice eager's distance."""
    if got.values.dtype.kind != "f" or exact.shape != got.values.shape or exact.size == 0:
        return None
    wide = exact.astype(np.float64)
    mine, theirs = rmse(got.values, wide), rmse(eager.values, wide)
    eps = TOLERANCE[got.dtype][2]
    finite = wide[np.isfinite(wide)]
    size = float(np.sqrt(np.mean(finite**2))) if finite.size else 0.0
    if mine <= 2 * theirs + 4 * eps * max(size, 1.0):
        return None
    spread = noise(name) if noise else None
    if spread is not None and mine <= 2 * theirs + 4 * float(np.sqrt(np.mean(spread**2))):
        return None
    return Problem("error to float64", name, f"{mine:.3g}, eager's is {theirs:.3g}")


def _worst(a: Facts, b: Facts) -> str:
    x, y = a.values.astype(np.float64), b.values.astype(np.float64)
    with np.errstate(all="ignore"):
        d = np.where(np.isnan(x) & np.isnan(y), 0, np.abs(x - y))
        d = np.where(np.isnan(d), np.inf, d)
    at = np.unravel_index(int(np.argmax(d)), d.shape) if d.size else ()
    wrong = int((~np.isclose(x, y, 1e-6, 1e-6, equal_nan=True)).sum())
    where = [int(i) for i in at]
    return f"{x[at]!r}, wanted {y[at]!r} at {where} ({wrong} of {x.size} off, {a.dtype})"
