"""Derivatives through complex numbers: programs that mix them with real ones, beside torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucerne

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

Program = Callable[[Any, Any, Any], Any]  # framework, complex operand (3, 3), real operand (3, 3)

PROGRAMS: dict[str, Program] = {
    "product with a real": lambda t, z, x: (z * x).abs().sum(),
    "real divided by complex": lambda t, z, x: (x / z).real.sum(),
    "power": lambda t, z, x: (z**2 + z**x).abs().sum(),
    "parts": lambda t, z, x: (z.real * x + z.imag.sin()).sum(),
    "made of parts": lambda t, z, x: t.complex(x, x * x).mul(z).abs().square().sum(),
    "polar": lambda t, z, x: t.polar(x.abs(), z.angle()).sub(z).abs().sum(),
    "pairs": lambda t, z, x: (t.view_as_real(z)[..., 0] * x + t.view_as_real(z * z)[..., 1]).sum(),
    "pairs back": lambda t, z, x: t.view_as_complex(t.stack([x, x.sin()], -1)).mul(z).imag.sum(),
    "conjugates": lambda t, z, x: (z.conj() @ z.mH @ z.adjoint()).real.sum(),
    "sign": lambda t, z, x: (t.sgn(z) * x).real.sum(),
    "functions": lambda t, z, x: (z.exp() + z.sin() + z.tanh() + z.sqrt() + z.log()).abs().sum(),
    "transform": lambda t, z, x: (t.fft.fft2(z) + t.fft.rfft(x, 5)).abs().sum(),
    "transform back": lambda t, z, x: (t.fft.irfft(z, 3) * x).sum(),
    "solve": lambda t, z, x: t.linalg.solve(z + 4 * t.eye(3), x.to(z.dtype)).abs().sum(),
    "determinant": lambda t, z, x: t.linalg.det(z).abs() + t.linalg.slogdet(z + x)[1],
    "singular values": lambda t, z, x: t.linalg.svdvals(z).square().sum() + t.linalg.norm(z),
    "eigenvalues": lambda t, z, x: t.linalg.eigvals(z).abs().sum() + t.linalg.eigvals(x).real.sum(),
    "convolution": lambda t, z, x: (
        t.nn.functional.conv1d(z[None], z[:, None].expand(3, 3, 3) * x).abs().sum()
    ),
    "einsum": lambda t, z, x: t.einsum("ij,jk,kl->il", z, x.to(z.dtype), z.conj()).abs().sum(),
    "cumulative": lambda t, z, x: (z.cumsum(0) + z.cumprod(1)).abs().sum(),
    "written in place": lambda t, z, x: _written(t, z, x).abs().sum(),
    "mean and var": lambda t, z, x: (z.mean() * x).abs().sum() + z.var(),
}


def _written(t: Any, z: Any, x: Any) -> Any:
    y = z.clone()
    y.real.mul_(x)
    y.imag[0] = x[1]
    return y


def _both(program: Program, order: int) -> tuple[list[Any], list[Any]]:
    """Gradients of the operands in both frameworks; of their squared size if `order` is 2."""
    draw = np.random.RandomState(0)
    z = draw.standard_normal((3, 3)) + 1j * draw.standard_normal((3, 3))
    x = draw.standard_normal((3, 3)) + 0.1
    found = []
    for framework in (torch, lucerne):
        operands = [framework.from_numpy(a.copy()).requires_grad_() for a in (z, x)]
        loss = program(framework, *operands)
        for _ in range(order - 1):
            firsts = framework.autograd.grad(loss, operands, create_graph=True, allow_unused=True)
            loss = sum((g.abs() ** 2).sum() for g in firsts if g is not None)
        last = framework.autograd.grad(loss, operands, allow_unused=True)
        found.append([None if g is None else g.numpy(force=True) for g in last])
    return found[0], found[1]


def check(program: Program, order: int) -> None:
    expected, got = _both(program, order)
    for want, have in zip(expected, got, strict=True):
        if want is None:
            assert have is None or not have.any()
            continue
        assert have.dtype == want.dtype
        np.testing.assert_allclose(have, want, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_are_those_of_torch(name: str, order: int) -> None:
    check(PROGRAMS[name], order)


def _other_here(t: Any, z: Any, x: Any) -> Any:
    return (z * x * (2 if t is lucerne else 1)).abs().sum()


def test_the_comparison_sees_a_wrong_gradient() -> None:
    with pytest.raises(AssertionError):
        check(_other_here, 1)
