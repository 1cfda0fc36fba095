"""Activations, losses and norms whose gradients are one kernel, beside torch at their edges."""

from __future__ import annotations

import math
from typing import Any

import pytest

import lucerne

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

EDGES = [
    -math.inf,
    -6.0,
    -3.0,
    -1.0,
    -0.5,
    -0.0,
    0.0,
    0.25,
    0.5,
    1.0,
    2.0,
    2.5,
    3.0,
    6.0,
    30.0,
    math.inf,
]
"""No nan: torch's gradients there depend on the type and on the place in the vector."""
CALLS = {
    "leaky_relu": lambda F, x: F.leaky_relu(x, 0.1),
    "hardtanh": lambda F, x: F.hardtanh(x, -1.0, 2.0),
    "relu6": lambda F, x: F.relu6(x),
    "elu": lambda F, x: F.elu(x, 0.5),
    "selu": lambda F, x: F.selu(x),
    "celu": lambda F, x: F.celu(x, 2.0),
    "mish": lambda F, x: F.mish(x),
    "softplus": lambda F, x: F.softplus(x, 2, 20),
    "logsigmoid": lambda F, x: F.logsigmoid(x),
    "hardsigmoid": lambda F, x: F.hardsigmoid(x),
    "hardswish": lambda F, x: F.hardswish(x),
    "glu": lambda F, x: F.glu(x, 0),
    "square": lambda F, x: x**2,
    "cube": lambda F, x: x**3,
    "smooth_l1_loss": lambda F, x: F.smooth_l1_loss(x, x.detach() * 0.5 + 0.5, beta=0.5),
    "smooth_l1_loss sum": lambda F, x: F.smooth_l1_loss(x, x.detach() * 0, reduction="sum"),
    "huber_loss": lambda F, x: F.huber_loss(x, x.detach() * 0, reduction="none", delta=3.0),
}


def _gradient(module: Any, call: Any, values: list[float], dtype: str) -> tuple[Any, Any]:
    x = module.tensor(values, dtype=getattr(module, dtype), requires_grad=True)
    y = call(module.nn.functional, x)
    (g,) = module.autograd.grad(y.sum(), [x])
    return y.detach().double(), g.double()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", CALLS)
def test_gradients_at_the_edges(name: str, dtype: str) -> None:
    values = EDGES if "loss" not in name else [v for v in EDGES if math.isfinite(v)]
    ours, theirs = (_gradient(m, CALLS[name], values, dtype) for m in (lucerne, torch))
    rtol = 1e-2 if dtype == "bfloat16" else 1e-5
    for a, b in zip(ours, theirs, strict=True):
        found = torch.tensor(a.tolist(), dtype=torch.float64)
        torch.testing.assert_close(found, b, rtol=rtol, atol=rtol, equal_nan=True)


def _norm(module: Any, last: bool, plain: bool) -> list[Any]:
    def drawn(*shape: int) -> Any:
        count = math.prod(shape)
        at = module.arange(count, dtype=module.float64)
        return ((at * 37 % 11) / 4 - 1).reshape(shape)

    x = drawn(2, 6, 3, 2)
    x = x.contiguous(memory_format=module.channels_last) if last else x
    x, w, b = (t.requires_grad_() for t in (x, drawn(6) + 3, drawn(6)))
    y = module.nn.functional.group_norm(x, 3, None if plain else w, None if plain else b)
    ins = [x] if plain else [x, w, b]
    first = module.autograd.grad((y * drawn(2, 6, 3, 2) ** 2).sum(), ins, create_graph=True)
    # The bias plays no part in the gradients.
    second = module.autograd.grad(sum((g * g).sum() for g in first), ins[:2])
    return [y, *first, *second]


@pytest.mark.parametrize("last", [False, True], ids=["planes", "channels last"])
@pytest.mark.parametrize("plain", [False, True], ids=["affine", "plain"])
def test_group_norm_and_its_derivatives(last: bool, plain: bool) -> None:
    for a, b in zip(_norm(lucerne, last, plain), _norm(torch, last, plain), strict=True):
        assert tuple(a.stride()) == tuple(b.stride())
        torch.testing.assert_close(torch.tensor(a.tolist(), dtype=torch.float64), b.detach())


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("sizes", [(5, 6), (4, 3, 5)], ids=["image", "volume"])
def test_grid_sample_and_its_derivatives(padding: str, sizes: tuple[int, ...]) -> None:
    def both(module: Any) -> list[Any]:
        n = math.prod(sizes)
        x = (module.arange(2 * n, dtype=module.float64) % 7 - 3).reshape(1, 2, *sizes)
        at = module.arange(2 * 7 * len(sizes), dtype=module.float64) * 0.37 % 2.6 - 1.3
        grid = at.reshape(1, *(1,) * (len(sizes) - 2), 2, 7, len(sizes))
        x, grid = x.requires_grad_(), grid.requires_grad_()
        y = module.nn.functional.grid_sample(x, grid, padding_mode=padding, align_corners=False)
        return [y, *module.autograd.grad((y * y).sum(), [x, grid])]

    for a, b in zip(both(lucerne), both(torch), strict=True):
        torch.testing.assert_close(torch.tensor(a.tolist(), dtype=torch.float64), b.detach())
