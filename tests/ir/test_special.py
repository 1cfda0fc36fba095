"""Special functions as formulas, on two machines, against SciPy's; and what stands at the edges."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lucerne
from lucerne._src.backends.reference.machine import MACHINE
from lucerne._src.ir.scalar.protocol import FORMULAS

scipy = pytest.importorskip("scipy.special", reason="SciPy is what the formulas are held to")

_WIDE = np.concatenate([np.linspace(-30, 30, 997), [1e-8, 0.0, 100.0, 500.0]])
_POSITIVE = np.concatenate([np.linspace(1e-6, 60, 997), [1e-8, 1e-300, 100.0, 500.0]])
_SMALL = 10.0 ** -np.arange(1, 300, 7.0)
_RANGES = {
    **dict.fromkeys(("i0", "i0e", "i1", "i1e", "j0", "j1", "erfcx"), _WIDE),
    **dict.fromkeys(("k0", "k1", "k0e", "k1e", "y0", "y1"), _POSITIVE),
    "airy_ai": np.linspace(-40, 80, 997),
    "ndtr": np.linspace(-37, 10, 997),
    "log_ndtr": np.linspace(-100, 10, 997),
    "ndtri": np.concatenate([np.linspace(1e-9, 1 - 1e-9, 997), _SMALL]),
    "erfinv": np.concatenate([np.linspace(-1, 1, 997), _SMALL, 1 - 10.0 ** -np.arange(1, 16)]),
    "digamma": np.concatenate([np.linspace(-9.73, 30, 997), [1e-9, 1e8]]),
    "trigamma": np.concatenate([np.linspace(0.01, 30, 997), [1e-3, 1e8]]),
}


def _pairs(name: str) -> tuple[Any, Any]:
    draw = np.random.RandomState(0)
    if name == "zeta":
        return 1 + 10 ** draw.uniform(-2, 1.5, 500), 10 ** draw.uniform(-2, 3, 500)
    a = 10 ** draw.uniform(-3, 5, 500)
    return a, a * 10 ** draw.uniform(-1, 1, 500)


def _expected(name: str, *operands: Any) -> Any:
    if name == "trigamma":
        return scipy.polygamma(1, *operands)
    return scipy.airy(*operands)[0] if name == "airy_ai" else getattr(scipy, name)(*operands)


@pytest.mark.parametrize("name", sorted(FORMULAS))
def test_formula_agrees_with_scipy(name: str) -> None:
    operands = (_RANGES[name],) if name in _RANGES else _pairs(name)
    with np.errstate(all="ignore"):
        got, expected = getattr(MACHINE, name)(*operands), _expected(name, *operands)
    np.testing.assert_allclose(got, expected, rtol=2e-11, atol=2e-14)
    assert getattr(MACHINE, name)(*[x.astype(np.float32) for x in operands]).dtype == np.float32


_OPS = {
    "i0": "i0", "i0e": "i0e", "i1": "i1", "i1e": "i1e", "j0": "bessel_j0", "y1": "bessel_y1",
    "k0": "modified_bessel_k0", "k1e": "scaled_modified_bessel_k1", "erfcx": "erfcx",
    "airy_ai": "airy_ai", "ndtr": "ndtr", "log_ndtr": "log_ndtr", "ndtri": "ndtri",
    "erfinv": "erfinv", "digamma": "digamma", "zeta": "zeta", "gammainc": "gammainc",
}  # fmt: skip


@pytest.mark.parametrize("name", _OPS)
def test_engine_and_reference_agree(name: str) -> None:
    """The same formula in machine code and in NumPy, with lanes that stop at different steps."""
    operands = (_RANGES[name],) if name in _RANGES else _pairs(name)
    got = getattr(lucerne.special, _OPS[name])(*map(lucerne.from_numpy, operands)).numpy()
    with np.errstate(all="ignore"):
        expected = getattr(MACHINE, name)(*operands)
    np.testing.assert_allclose(got, expected, rtol=1e-11, atol=1e-13)


_EDGES = [0.0, float("inf"), float("-inf"), float("nan"), -1.5, -2.0, 1e5]


@pytest.mark.torch
@pytest.mark.parametrize("name", sorted({*_OPS.values(), "bessel_y0", "modified_bessel_k1"}))
def test_edges_are_those_of_torch(name: str) -> None:
    torch = pytest.importorskip("torch")
    if name in ("zeta", "gammainc"):
        both = [*_EDGES[:6], 2.5, 1.0]
        first, second = np.meshgrid(both, both)
        operands = [first.ravel(), second.ravel()]
    else:
        operands = [np.array(_EDGES)]
    expected = getattr(torch.special, name)(*map(torch.from_numpy, operands)).numpy()
    got = getattr(lucerne.special, name)(*map(lucerne.from_numpy, operands)).numpy()
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def test_a_machine_without_loops_lacks_only_what_needs_them() -> None:
    """`repeat` is optional: a straight formula runs without it."""

    class Plain(type(MACHINE)):  # type: ignore[misc]
        def repeat(self, step: Any, state: Any) -> Any:
            raise NotImplementedError("no loops")

    machine, x = Plain(), np.array([0.5])
    assert np.isfinite(machine.erfinv(x))
    with pytest.raises(NotImplementedError, match="no loops"):
        machine.zeta(x + 2, x)
