"""Random numbers in compiled functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lucerne as torch
from lucerne import nn
from lucerne.nn import functional as F


def drop(x: Any) -> Any:
    return F.dropout(x * 2, 0.3)


def draws(x: Any) -> Any:
    return torch.rand_like(x), torch.randn_like(x), torch.randint(0, 5, (6,)), x.bernoulli(0.5)


def test_dropout_drops_the_right_share() -> None:
    fn = torch.compile(drop, fullgraph=True)
    y = fn(torch.ones(400, 500)).numpy()
    assert abs((y == 0).mean() - 0.3) < 5 * np.sqrt(0.21 / y.size)
    np.testing.assert_allclose(np.unique(y), [0, 2 / 0.7], rtol=1e-6)
    for axis in (0, 1):
        share = (y == 0).mean(axis)
        assert share.std() == pytest.approx(np.sqrt(0.21 / y.shape[axis]), rel=0.2)


def test_the_seed_decides_and_calls_differ() -> None:
    fn = torch.compile(draws, fullgraph=True)
    x = torch.full((40, 50), 0.5)
    torch.manual_seed(3)
    first, second = fn(x), fn(x)
    torch.manual_seed(3)
    again = fn(x)
    for a, b, c in zip(first, second, again, strict=True):
        np.testing.assert_array_equal(a.numpy(), c.numpy())
        assert (a.numpy() != b.numpy()).any()
    rand, randn, *_ = (t.numpy() for t in first)
    assert 0 <= rand.min() < 0.01 < 0.99 < rand.max() < 1
    assert abs(randn.mean()) < 0.12
    assert abs(np.corrcoef(rand.reshape(-1), randn.reshape(-1))[0, 1]) < 0.1


def test_states_go_on() -> None:
    fn = torch.compile(drop, fullgraph=True)
    x = torch.ones(100)
    fn(x)
    state = torch.get_rng_state()
    want = fn(x).numpy()
    torch.set_rng_state(state)
    np.testing.assert_array_equal(fn(x).numpy(), want)


def test_backward_has_the_same_mask_outside() -> None:
    fn = torch.compile(drop, fullgraph=True)
    for _ in range(3):
        x = torch.ones(60, 70, requires_grad=True)
        y = fn(x)
        y.sum().backward()
        np.testing.assert_array_equal(y.detach().numpy() == 0, x.grad.numpy() == 0)
        assert 0.2 < (x.grad.numpy() == 0).mean() < 0.4


def test_no_mask_is_kept() -> None:
    """Not by a backward pass outside, nor between the kernels of a step."""

    def step(x: Any) -> Any:
        y = F.dropout(x * 2, 0.5)
        (g,) = torch.autograd.grad((y.cumsum(0) ** 2).sum(), x)
        return y, g

    fn = torch.compile(step, fullgraph=True)
    x = torch.ones(64, 50, requires_grad=True)
    y, g = fn(x)
    assert (y == 0).float().mean() > 0.3
    masked = (y == 0).numpy()
    assert (g.numpy()[masked] == 0).all()
    assert (g.numpy()[~masked] != 0).all()
    outside = torch.compile(lambda x: F.dropout(x, 0.5).sin(), fullgraph=True)
    outside(x)
    entry = outside.entries[0]
    kept = [entry.result_metas[k] for given, k in entry.joint.saved if not given]
    # What the sine's derivative reads, as in eager (`x` may change until then); no mask beside it.
    assert [(m.dtype, tuple(m.shape)) for m in kept] == [(torch.float32, (64, 50))]
    assert len(entry.joint.saved) == 2, "besides it the key, from which the mask is drawn again"


@pytest.mark.parametrize("budget", [0.0, 0.5, 1.0])
def test_recomputed_masks_are_the_same(budget: float) -> None:
    """Weights are ones: the gradient of the input shows every mask."""
    model = nn.Sequential(*[nn.Sequential(nn.Dropout(0.5), nn.Tanh()) for _ in range(3)])
    compiled = torch.compile(model, fullgraph=True, options={"memory_budget": budget})
    x = torch.full((30, 40), 0.1, requires_grad=True)
    y = compiled(x)
    y.sum().backward()
    np.testing.assert_array_equal(y.detach().numpy() == 0, x.grad.numpy() == 0)
    assert 0.8 < (y == 0).float().mean() < 0.95


def test_checkpointed() -> None:
    def fn(x: Any) -> Any:
        return torch.utils.checkpoint.checkpoint(drop, x, use_reentrant=False)

    compiled = torch.compile(fn, fullgraph=True)
    x = torch.ones(50, 60, requires_grad=True)
    y = compiled(x)
    y.sum().backward()
    np.testing.assert_array_equal(y.detach().numpy() == 0, x.grad.numpy() == 0)


def test_training_with_dropout_learns() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    weight = torch.randn(8, 1)

    @torch.compile(fullgraph=True)
    def step(x: Any, y: Any) -> Any:
        loss = (model(x) - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    losses = []
    for _ in range(150):
        x = torch.randn(64, 8)
        losses.append(float(step(x, x @ weight)))
    assert np.mean(losses[-10:]) < 0.3 * np.mean(losses[:5])
    assert step.traces == 1


def test_evaluation_draws_nothing() -> None:
    model = nn.Dropout(0.5).eval()
    compiled = torch.compile(model, fullgraph=True)
    state = torch.get_rng_state()
    assert compiled(torch.ones(9)).tolist() == [1.0] * 9
    np.testing.assert_array_equal(torch.get_rng_state().numpy(), state.numpy())


@pytest.mark.parametrize("fn", [drop, draws])
def test_bitwise_continues_the_stream(fn: Any) -> None:
    """As eager, number by number, and what is drawn afterwards is the same."""
    compiled = torch.compile(fn, fullgraph=True, mode="bitwise")
    x = torch.full((7, 30), 0.5)
    torch.manual_seed(5)
    want = [fn(x), fn(x), torch.rand(3)]
    torch.manual_seed(5)
    have = [compiled(x), compiled(x), torch.rand(3)]
    for a, b in zip(want, have, strict=True):
        for s, t in zip(*(z if isinstance(z, tuple) else (z,) for z in (a, b)), strict=True):
            np.testing.assert_array_equal(s.numpy(), t.numpy())


def test_bitwise_draws_that_nobody_reads() -> None:
    def fn(x: Any) -> Any:
        torch.rand(5)
        return x + torch.rand(3)

    compiled = torch.compile(fn, fullgraph=True, mode="bitwise")
    x = torch.zeros(3)
    torch.manual_seed(5)
    want = fn(x)
    torch.manual_seed(5)
    np.testing.assert_array_equal(compiled(x).numpy(), want.numpy())


def test_generators_of_the_users_go_on_as_eager() -> None:
    generator = torch.Generator()

    def fn(x: Any) -> Any:
        return x + torch.rand(4, generator=generator)

    compiled = torch.compile(fn, fullgraph=True)
    generator.manual_seed(1)
    want = [fn(torch.zeros(4)).numpy() for _ in range(2)]
    generator.manual_seed(1)
    have = [compiled(torch.zeros(4)).numpy() for _ in range(2)]
    np.testing.assert_array_equal(want, have)


def test_sizes_change_and_masks_do_not_repeat() -> None:
    fn = torch.compile(drop, fullgraph=True)
    for n in (20, 30, 40, 50):
        y, z = fn(torch.ones(n, 50)).numpy(), fn(torch.ones(n, 50)).numpy()
        assert abs((y == 0).mean() - 0.3) < 0.1
        assert (y != z).any()
    assert fn.instances == 2
