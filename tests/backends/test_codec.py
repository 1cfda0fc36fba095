"""Types NumPy lacks: every code of every one widens and rounds as torch says."""

from __future__ import annotations

import numpy as np
import pytest

from lucerne._src.backends.reference import codec
from lucerne._src.base import dtype as dt

torch = pytest.importorskip("torch", reason="the oracle of the storage types")
pytestmark = pytest.mark.torch

NARROW = [
    "bfloat16",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
]


def bits_of(name: str) -> np.ndarray:
    """Every code of the type."""
    return (
        np.arange(65536, dtype=np.uint16) if name == "bfloat16" else np.arange(256, dtype=np.uint8)
    )


def torch_bits(t: torch.Tensor) -> np.ndarray:
    kind = torch.int16 if t.element_size() == 2 else torch.uint8
    return t.view(kind).numpy().view(np.uint16 if t.element_size() == 2 else np.uint8)


@pytest.mark.parametrize("name", NARROW)
def test_widening_every_code(name: str) -> None:
    bits = bits_of(name)
    signed = bits.view(np.int16) if bits.dtype == np.uint16 else bits
    expected = torch.from_numpy(signed.copy()).view(getattr(torch, name)).float().numpy()
    np.testing.assert_array_equal(codec.widen(bits, dt.by_name(name)), expected)


@pytest.mark.parametrize("name", NARROW)
def test_rounding_values_and_the_middles_between_them(name: str) -> None:
    with np.errstate(invalid="ignore"):  # signalling nans among the codes
        values = codec.widen(bits_of(name), dt.by_name(name)).astype(np.float64)
    finite = np.unique(values[np.isfinite(values)])
    middles = (finite[1:] + finite[:-1]) / 2
    steps = np.concatenate(
        [finite, middles, middles * (1 + 1e-7), middles * (1 - 1e-7), finite * 1.3]
    )
    special = [np.inf, -np.inf, np.nan, 0.0, -0.0, 1e30, -1e30]
    with np.errstate(all="ignore"):
        probe = np.concatenate([steps, special]).astype(np.float32)
        got = codec.narrow(probe, dt.by_name(name))
    expected = torch_bits(torch.from_numpy(probe.copy()).to(getattr(torch, name)))
    wrong = np.flatnonzero((got != expected) & ~np.isnan(probe))
    assert wrong.size == 0, [(float(probe[i]), hex(got[i]), hex(expected[i])) for i in wrong[:5]]


def test_complex32_round_trip() -> None:
    values = np.array([1 + 2j, -0.5 + 0.25j, 65504 - 1j], np.complex64)
    assert codec.widen(codec.narrow(values, dt.complex32), dt.complex32).tolist() == values.tolist()
