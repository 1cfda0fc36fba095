"""When two results count as equal. One policy for all ops; exceptions stand in known_gaps.json.

Integers, bools and random draws are compared exactly, positions of nan and inf always.
Floating results are compared by dtype. Where a sample misses, the float64 rule may still accept it:
torch in float64 is the truth, and the error must not exceed four times torch's own (both in units
of the tolerance, worst element against worst element). Such samples are counted apart.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

FLOAT64_FACTOR = 4.0


@dataclass(frozen=True)
class Tolerance:
    """Accept `|got - expected| <= atol + rtol * |expected|`."""

    rtol: float
    atol: float


EXACT = Tolerance(0.0, 0.0)
Tolerances = Mapping[torch.dtype, Tolerance]

VALUES: Tolerances = {
    torch.float64: Tolerance(1e-7, 1e-7),
    torch.float32: Tolerance(1e-5, 1e-5),
    torch.bfloat16: Tolerance(1.6e-2, 1e-3),
    torch.float16: Tolerance(2e-3, 1e-3),
    torch.complex128: Tolerance(1e-7, 1e-7),
    torch.complex64: Tolerance(1e-5, 1e-5),
    torch.complex32: Tolerance(2e-3, 1e-3),
}
GRADIENTS: Tolerances = {
    **VALUES,
    torch.float32: Tolerance(1e-4, 1e-4),
    torch.complex64: Tolerance(1e-4, 1e-4),
}


def is_inexact(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex


def plain(t: torch.Tensor) -> torch.Tensor:
    """The numbers alone: detached, dense, without torch's lazy conjugation, sign or zeros."""
    t = t.detach().to_dense()
    if t._is_zerotensor():
        return torch.zeros(tuple(t.shape), dtype=t.dtype)
    return t.resolve_conj().resolve_neg()


def distance(expected: torch.Tensor, got: torch.Tensor, tolerance: Tolerance) -> float:
    """The largest error in units of the tolerance: at most 1 is equal, inf is hopeless."""
    if expected.numel() == 0:
        return 0.0
    if not is_inexact(expected.dtype):
        same = np.array_equal(expected.numpy(), got.numpy())
        return 0.0 if same else math.inf
    want, have = _as_doubles(expected), _as_doubles(got)
    special = ~(np.isfinite(want) & np.isfinite(have))
    if not np.array_equal(want[special], have[special], equal_nan=True):
        return math.inf
    want, have = want[~special], have[~special]
    error = np.abs(want - have)
    if not error.any():
        return 0.0
    if tolerance == EXACT:
        return math.inf
    return float((error / (tolerance.atol + tolerance.rtol * np.abs(want))).max())


def within_float64_rule(
    truth: torch.Tensor, expected: torch.Tensor, got: torch.Tensor, tolerance: Tolerance
) -> bool:
    """Whether `got` is about as near to the float64 result as torch's own result is."""
    if truth.shape != expected.shape or not is_inexact(truth.dtype):
        return False
    if not math.isfinite(distance(expected, got, tolerance)):
        return False  # nan or inf in other places
    ours = distance(truth, got, tolerance)
    theirs = distance(truth, expected, tolerance)
    return ours <= max(1.0, FLOAT64_FACTOR * theirs)


def _as_doubles(t: torch.Tensor) -> np.ndarray:
    """Any floating or complex tensor as a flat float64 array."""
    if t.dtype.is_complex:
        t = torch.view_as_real(t.to(torch.complex128))
    return t.to(torch.float64).reshape(-1).numpy()
