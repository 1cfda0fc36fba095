"""Folds of numbers that are large, small, many, or all alike."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

import lucerne as torch

F = torch.nn.functional


def _relative(found: Any, exact: Any) -> float:
    exact = np.asarray(exact, np.float64)
    gap = np.abs(np.asarray(found.double().numpy(), np.float64) - exact)
    return float(np.max(gap / np.abs(exact), initial=0.0))


def _ways(f: Any) -> tuple[Any, Any]:
    return f, torch.compile(f)


SHAPES = ((5,), (3, 4), (64, 33), (7, 130), (300, 5), (2, 3, 40), (5, 1), (100000,), (3, 70000))
FOLDS = {
    "std": lambda x, d: x.std() if d is None else x.std(d, correction=0),
    "norm": lambda x, d: x.norm(dim=d),
}
TRUTH = {
    "std": lambda x, d: np.std(x, ddof=1) if d is None else np.std(x, axis=d),
    "norm": lambda x, d: np.sqrt(np.sum(x * x, axis=d)),
}


@pytest.mark.parametrize("scale", [1.0, 1e30, 1e-30, 1e18, 1e-20])
@pytest.mark.parametrize("name", FOLDS)
def test_deviations_and_norms_neither_overflow_nor_vanish(name: str, scale: float) -> None:
    rng = np.random.default_rng(0)
    for shape in SHAPES:
        for dim in (None, *range(len(shape))):
            if name == "std" and dim is not None and shape[dim] == 1:
                continue  # zero
            values = ((rng.standard_normal(shape) + 3) * scale).astype(np.float32)
            exact = TRUTH[name](values.astype(np.float64), dim)
            for run in _ways(FOLDS[name]) if shape == (7, 130) else (FOLDS[name],):
                assert _relative(run(torch.tensor(values), dim), exact) < 3e-6, (shape, dim)


def test_only_rows_that_need_it_are_summed_in_other_units() -> None:
    x = torch.randn(64, 100)
    x[3] *= 1e30
    x[5] *= 1e-30
    x[7] = 0
    x[9] = 3.3
    x[11, 4] = math.inf
    x[12, 3] = math.nan
    for t in (x, x.t().contiguous().t()):
        for found in (t.std(1), t.t().std(0)):
            exact = t.double().std(1)
            plain = [k for k in range(64) if k not in (7, 9, 11, 12)]
            assert _relative(found[plain], exact[plain].numpy()) < 1e-6
            assert found[[7, 9]].tolist() == [0, 0]
            assert found[[11, 12]].isnan().all()


def test_norms_of_single_elements_are_their_sizes() -> None:
    x = torch.tensor([[1e30], [2e30], [-1e-40], [0.0]])
    assert x.norm(dim=1).tolist() == x.abs()[:, 0].tolist()


def test_a_variance_that_overflows_is_infinite() -> None:
    assert torch.tensor([1e30, 2e30, 4e30]).var().item() == math.inf
    assert torch.tensor([1.0, math.inf]).var().isnan()


@pytest.mark.parametrize("count", [1000, 60000, 10**6])
@pytest.mark.parametrize("level", [1e4, 1e6])
def test_variance_beside_a_large_mean(count: int, level: float) -> None:
    values = (np.random.default_rng(1).standard_normal(count) + level).astype(np.float32)
    exact = np.var(values.astype(np.float64), ddof=1)
    for run in _ways(lambda x: x.var()):
        assert _relative(run(torch.tensor(values)), exact) < 1e-6
    square = values[:1000].reshape(10, 100)
    for dim in (0, 1):
        wide = np.var(square.astype(np.float64), axis=dim, ddof=1)
        assert _relative(torch.tensor(square).var(dim), wide) < 1e-6


def test_half_types_and_complex_numbers_have_their_deviations() -> None:
    values = np.random.default_rng(2).standard_normal((4, 50)) + 2
    for dtype in (torch.float16, torch.bfloat16):
        x = torch.tensor(values).to(dtype)
        assert _relative(x.std(1), np.std(x.double().numpy(), axis=1, ddof=1)) < 5e-3
    z = values + 1j * values[::-1]
    assert _relative(torch.tensor(z).std(1), np.std(z, axis=1, ddof=1)) < 1e-12


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("count", [2, 7, 127, 1025, 100003])
def test_equal_numbers_have_no_spread(count: int, dtype: Any) -> None:
    for number, run in itertools.product(
        (3.3, 0.1, -1e4, 1e-3), _ways(lambda x: (x.std(), x.var()))
    ):
        x = torch.full((count,), number, dtype=dtype)
        assert [t.item() for t in run(x)] == [0, 0]


def test_layer_norm_of_a_constant_is_zero() -> None:
    for rows in (1, 4):
        x = torch.full((rows, 1025), 3.3, requires_grad=True)
        for run in _ways(lambda x: F.layer_norm(x, (1025,))):
            y = run(x)
            assert not y.any()
            (g,) = torch.autograd.grad(y.square().sum(), [x])
            assert not g.any()


def test_gradients_of_layer_norm_beside_a_large_mean() -> None:
    values = np.random.default_rng(3).standard_normal((8, 256)).astype(np.float32) + 1e3
    weight, cotangent = (torch.randn(s) for s in ((256,), (8, 256)))
    found = []
    for dtype in (torch.float32, torch.float64):
        x = torch.tensor(values).to(dtype).requires_grad_()
        w = weight.detach().clone().to(dtype).requires_grad_()
        (F.layer_norm(x, (256,), w) * cotangent.to(dtype)).sum().backward()
        found.append((x.grad.double(), w.grad.double()))
    for a, b in zip(*found, strict=True):
        assert (a - b).abs().max() / b.abs().max() < 1e-4


def test_logcumsumexp_keeps_its_digits() -> None:
    last = torch.logcumsumexp(torch.full((100000,), 0.1), 0)[-1]
    assert last.item() == pytest.approx(0.1 + math.log(100000), rel=1e-7)
    rng = np.random.default_rng(4)
    rows = {
        "noise": rng.standard_normal(20000), "rising": np.arange(20000) * 1e-4,
        "falling": np.arange(20000) * -1e-4, "steps": np.arange(2000) * 0.5,
        "wide": rng.standard_normal(20000) * 30,
    }  # fmt: skip
    for name, values in rows.items():
        x = torch.tensor(values.astype(np.float32))
        exact = np.logaddexp.accumulate(x.double().numpy())
        for run in _ways(lambda x: torch.logcumsumexp(x, 0)):
            gap = np.abs(run(x).double().numpy() - exact) / np.maximum(1, np.abs(exact))
            assert gap.max() < 2e-7, name


def test_logcumsumexp_of_infinities() -> None:
    inf, nan = math.inf, math.nan
    for row in ([-inf, -inf, 1, inf, 3, -inf], [inf, inf, -inf], [-inf, 1, nan, 2], [1e30, -1e30]):
        found = torch.logcumsumexp(torch.tensor(row), 0)
        exact = torch.logcumsumexp(torch.tensor(row, dtype=torch.float64), 0)
        assert str(found.tolist()) == str(exact.float().tolist())


def test_means_and_products_of_very_many_numbers() -> None:
    rng = np.random.default_rng(5)
    level = (rng.standard_normal(10**6) + 1e4).astype(np.float32)
    near = (1 + rng.standard_normal(10**6) * 1e-4).astype(np.float32)
    mean = torch.tensor(level).mean()
    assert _relative(mean, level.astype(np.float64).mean()) < 1e-7
    product = torch.tensor(near).prod()
    assert _relative(product, math.exp(np.log(near.astype(np.float64)).sum())) < 1e-6
    columns = torch.tensor(level[:300000].reshape(100000, 3))
    assert _relative(columns.mean(0), columns.double().numpy().mean(0)) < 1e-7
