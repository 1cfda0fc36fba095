"""GradScaler against PyTorch's, step by step."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import lucerne as lu  # noqa: E402

pytestmark = pytest.mark.torch


def _run(module: Any, factors: list[float], fused: bool = False) -> list[Any]:
    """Scale, counter, parameters and state after each iteration."""
    w = module.ones(2, requires_grad=True)
    optimizer = module.optim.Adam([w], lr=0.1, fused=fused)
    scaler = module.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
    seen = []
    for factor in factors:
        optimizer.zero_grad()
        scaler.scale((w * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        values = [round(v, 5) for v in w.tolist()]
        seen.append((values, scaler.get_scale(), scaler._get_growth_tracker(), scaler.state_dict()))
    return seen


@pytest.mark.parametrize("fused", [False, True])
def test_growth_backoff_and_skipped_steps(fused: bool) -> None:
    inf, nan = float("inf"), float("nan")
    factors = [1.0, 2.0, inf, 1.0, nan, 1.0, 1.0, 1.0]
    assert _run(lu, factors, fused) == _run(torch, factors, fused)


def test_unscale_then_clip() -> None:
    found = []
    for module in (lu, torch):
        w = module.ones(2, requires_grad=True)
        optimizer = module.optim.SGD([w], lr=0.5)
        scaler = module.amp.GradScaler("cpu")
        scaler.scale((w * 4).sum()).backward()
        scaler.unscale_(optimizer)
        unscaled = w.grad.tolist()
        w.grad.clamp_(max=1.0)
        scaler.step(optimizer)
        scaler.update(3.0)
        found.append((unscaled, w.tolist(), scaler.get_scale()))
    assert found[0] == found[1]


def test_states_travel_both_ways() -> None:
    mine, theirs = lu.amp.GradScaler("cpu"), torch.amp.GradScaler("cpu", init_scale=4.0)
    theirs.scale(torch.ones(1))
    mine.load_state_dict(theirs.state_dict())
    assert mine.get_scale() == 4.0
    mine.scale(lu.ones(1))
    mine.load_state_dict({**theirs.state_dict(), "scale": 2.0, "_growth_tracker": 3})
    assert mine.scale([lu.ones(1), (lu.ones(1),)])[1][0].tolist() == [2.0]
    theirs.load_state_dict(mine.state_dict())
    assert theirs.state_dict() == mine.state_dict()
    twin = pickle.loads(pickle.dumps(mine))
    assert twin.state_dict() == mine.state_dict()


def test_disabled_does_nothing() -> None:
    with pytest.warns(UserWarning, match="CUDA is not available.  Disabling."):
        scaler = lu.amp.GradScaler()
    w = lu.ones(1, requires_grad=True)
    optimizer = lu.optim.SGD([w], lr=0.5)
    scaler.scale((w * 1).sum()).backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    assert w.item() == 0.5
    assert (scaler.state_dict(), scaler.get_scale(), scaler.is_enabled()) == ({}, 1.0, False)


def _setup(module: Any) -> tuple[Any, Any, Any]:
    w = module.ones(2, requires_grad=True)
    optimizer = module.optim.SGD([w], lr=0.1)
    scaler = module.amp.GradScaler("cpu")
    return scaler, optimizer, w


def _begun(module: Any) -> tuple[Any, Any, Any]:
    scaler, optimizer, w = _setup(module)
    scaler.scale((w * 1).sum()).backward()
    return scaler, optimizer, w


def _twice(module: Any, first: str, second: str) -> None:
    scaler, optimizer, _ = _begun(module)
    getattr(scaler, first)(optimizer)
    getattr(scaler, second)(optimizer)


def _without_gradients(module: Any) -> None:
    scaler, optimizer, _ = _setup(module)
    scaler.scale(module.ones(1))
    scaler.step(optimizer)


def _half(module: Any) -> None:
    h = module.ones(2, dtype=module.float16, requires_grad=True)
    scaler = module.amp.GradScaler("cpu", init_scale=2.0)
    scaler.scale((h * 1).sum()).backward()
    scaler.unscale_(module.optim.SGD([h], lr=0.1))


def _pickled(module: Any) -> None:
    scaler, optimizer, _ = _begun(module)
    scaler.unscale_(optimizer)
    pickle.dumps(scaler)


MISTAKES: list[Any] = [
    lambda m: _setup(m)[0].update(),
    lambda m: _setup(m)[0].step(_setup(m)[1]),
    lambda m: _setup(m)[0].unscale_(_setup(m)[1]),
    lambda m: _twice(m, "unscale_", "unscale_"),
    lambda m: _twice(m, "step", "step"),
    lambda m: _twice(m, "step", "unscale_"),
    _without_gradients,
    _half,
    _pickled,
    lambda m: _setup(m)[0].scale(3),
    lambda m: m.amp.GradScaler("cpu", growth_factor=0.5),
    lambda m: m.amp.GradScaler("cpu", backoff_factor=2.0),
    lambda m: _setup(m)[0].load_state_dict({}),
    lambda m: _begun(m)[0].step(_setup(m)[1], closure=lambda: 1),
]


@pytest.mark.parametrize("act", MISTAKES, ids=range(len(MISTAKES)))
def test_mistakes_are_told_in_the_same_words(act: Any) -> None:
    said = []
    for module in (lu, torch):
        with pytest.raises((AssertionError, RuntimeError, ValueError)) as caught:
            act(module)
        said.append((caught.type, str(caught.value)))
    assert said[0] == said[1]
