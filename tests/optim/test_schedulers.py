"""Learning-rate schedules against PyTorch: rates, momenta, state dicts, warnings, errors."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import lucerne as lu  # noqa: E402
from tests.optim.bridge import assert_close  # noqa: E402

pytestmark = pytest.mark.torch


class Rule:
    """A callable object: its attributes belong to the state of a schedule."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def __call__(self, epoch: float) -> float:
        return self.factor**epoch


Maker = Callable[[Any, Any], Any]
"""From the module of schedules and an optimizer."""

ROWS: dict[str, Maker] = {
    "LambdaLR": lambda s, o: s.LambdaLR(o, lambda epoch: 0.9**epoch),
    "LambdaLR object": lambda s, o: s.LambdaLR(o, [Rule(0.9), Rule(0.5)]),
    "MultiplicativeLR": lambda s, o: s.MultiplicativeLR(o, lambda epoch: 0.9),
    "StepLR": lambda s, o: s.StepLR(o, 3, gamma=0.5),
    "MultiStepLR": lambda s, o: s.MultiStepLR(o, [2, 5, 5], gamma=0.5),
    "ConstantLR": lambda s, o: s.ConstantLR(o, factor=0.25, total_iters=4),
    "LinearLR": lambda s, o: s.LinearLR(o, start_factor=0.2, end_factor=0.8, total_iters=6),
    "ExponentialLR": lambda s, o: s.ExponentialLR(o, 0.9),
    "PolynomialLR": lambda s, o: s.PolynomialLR(o, total_iters=6, power=2.0),
    "CosineAnnealingLR": lambda s, o: s.CosineAnnealingLR(o, 4, eta_min=0.01),
    "SequentialLR": lambda s, o: s.SequentialLR(
        o, [s.ConstantLR(o, 0.1, 2), s.ExponentialLR(o, 0.9), s.LinearLR(o)], [3, 7]
    ),
    "ChainedScheduler": lambda s, o: s.ChainedScheduler(
        [s.ConstantLR(o, 0.1, 3), s.ExponentialLR(o, 0.9)]
    ),
    "ReduceLROnPlateau": lambda s, o: s.ReduceLROnPlateau(o, patience=1, cooldown=1, min_lr=0.01),
    "ReduceLROnPlateau max": lambda s, o: s.ReduceLROnPlateau(
        o, mode="max", factor=0.5, patience=0, threshold=0.5, threshold_mode="abs"
    ),
    "CyclicLR": lambda s, o: s.CyclicLR(o, 0.01, 0.1, step_size_up=3, step_size_down=2),
    "CyclicLR triangular2": lambda s, o: s.CyclicLR(o, 0.01, 0.1, 2, mode="triangular2"),
    "CyclicLR exp_range": lambda s, o: s.CyclicLR(o, 0.01, 0.1, 2, mode="exp_range", gamma=0.9),
    "CyclicLR own": lambda s, o: s.CyclicLR(
        o, 0.01, 0.1, 2, scale_fn=Rule(0.5), scale_mode="iterations", cycle_momentum=False
    ),
    "CosineAnnealingWarmRestarts": lambda s, o: s.CosineAnnealingWarmRestarts(o, 2, 2, 0.001),
    "OneCycleLR": lambda s, o: s.OneCycleLR(o, 0.5, total_steps=14),
    "OneCycleLR three": lambda s, o: s.OneCycleLR(
        o, [0.5, 0.2], epochs=7, steps_per_epoch=2, three_phase=True, anneal_strategy="linear"
    ),
}
METRICS = [3.0, 2.0, 2.5, 2.5, 2.4, 2.6, 1.0, 1.5, 1.5, 1.5, 1.5, 1.5]


def _optimizer(module: Any, kind: str = "SGD", lr: Any = 0.1) -> Any:
    params = [module.ones(1, requires_grad=True) for _ in range(2)]
    groups = [{"params": [params[0]]}, {"params": [params[1]], "lr": lr * 2}]
    if kind == "Adam":
        return module.optim.Adam(groups, lr=lr)
    return module.optim.SGD(groups, lr=lr, momentum=0.9)


def _steps(scheduler: Any, count: int) -> list[tuple[Any, ...]]:
    seen = []
    groups = scheduler.optimizer.param_groups
    for k in range(count):
        scheduler.optimizer.step()
        if type(scheduler).__name__ == "ReduceLROnPlateau":
            scheduler.step(METRICS[k])
        else:
            scheduler.step()
        momenta = [g.get("betas", g.get("momentum")) for g in groups]
        seen.append((list(scheduler.get_last_lr()), [g["lr"] for g in groups], momenta))
    return seen


def _shown(state: dict[str, Any]) -> dict[str, Any]:
    return {k: state[k] for k in sorted(state)}


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("kind", ["SGD", "Adam"])
def test_rates_and_states(name: str, kind: str) -> None:
    pairs = []
    for module in (lu, torch):
        scheduler = ROWS[name](module.optim.lr_scheduler, _optimizer(module, kind))
        pairs.append(scheduler)
    mine, theirs = pairs
    assert_close(_shown(mine.state_dict()), _shown(theirs.state_dict()), 1e-9, 1e-12)
    assert_close(_steps(mine, 12), _steps(theirs, 12), 1e-9, 1e-12, name)
    assert_close(_shown(mine.state_dict()), _shown(theirs.state_dict()), 1e-9, 1e-12)


@pytest.mark.parametrize("name", ROWS)
def test_states_travel(name: str) -> None:
    """A schedule goes on from the state that PyTorch's has saved."""
    theirs = ROWS[name](torch.optim.lr_scheduler, _optimizer(torch))
    _steps(theirs, 5)
    mine = ROWS[name](lu.optim.lr_scheduler, _optimizer(lu))
    mine.load_state_dict(theirs.state_dict())
    for a, b in zip(mine.optimizer.param_groups, theirs.optimizer.param_groups, strict=True):
        a.update({k: v for k, v in b.items() if k != "params"})
    assert_close(_steps(mine, 6), _steps(theirs, 6), 1e-9, 1e-12, name)


CLOSED: list[tuple[str, Callable[[int], float]]] = [
    ("StepLR", lambda e: 0.1 * 0.5 ** (e // 3)),
    ("ExponentialLR", lambda e: 0.1 * 0.9**e),
    ("LambdaLR", lambda e: 0.1 * 0.9**e),
    ("MultiplicativeLR", lambda e: 0.1 * 0.9**e),
    ("MultiStepLR", lambda e: 0.1 * 0.5 ** ((e >= 2) + 2 * (e >= 5))),
    ("ConstantLR", lambda e: 0.1 * (0.25 if e < 4 else 1.0)),
    ("LinearLR", lambda e: 0.1 * (0.2 + 0.6 * min(e, 6) / 6)),
    ("PolynomialLR", lambda e: 0.1 * (1 - min(e, 6) / 6) ** 2),
    ("CosineAnnealingLR", lambda e: 0.01 + 0.09 * (1 + math.cos(math.pi * e / 4)) / 2),
]


@pytest.mark.parametrize(("name", "formula"), CLOSED)
def test_closed_forms(name: str, formula: Callable[[int], float]) -> None:
    scheduler = ROWS[name](lu.optim.lr_scheduler, _optimizer(lu))
    for epoch in range(12):
        assert scheduler.get_last_lr()[0] == pytest.approx(formula(epoch), abs=1e-9)
        scheduler.optimizer.step()
        scheduler.step()


def test_rate_in_a_tensor_is_written_into() -> None:
    lr = lu.tensor(0.5)
    optimizer = lu.optim.SGD([lu.ones(1, requires_grad=True)], lr=lr)
    scheduler = lu.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    optimizer.step()
    scheduler.step()
    assert optimizer.param_groups[0]["lr"] is lr
    assert lr.item() == 0.25
    assert scheduler.base_lrs[0].item() == 0.5


def test_resuming_at_an_epoch() -> None:
    for module in (lu, torch):
        optimizer = _optimizer(module)
        with pytest.raises(KeyError, match="initial_lr' is not specified in param_groups"):
            module.optim.lr_scheduler.StepLR(optimizer, 2, last_epoch=3)
    found = []
    for module in (lu, torch):
        optimizer = _optimizer(module)
        for group in optimizer.param_groups:
            group["initial_lr"] = 1.0
        scheduler = module.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10, last_epoch=3)
        found.append(_steps(scheduler, 3))
    assert_close(found[0], found[1], 1e-9, 1e-12)


def _said(module: Any, act: Callable[[Any, Any], Any]) -> list[str]:
    """Warnings and the error of an action."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            act(module.optim.lr_scheduler, _optimizer(module))
        except (ValueError, TypeError, RuntimeError) as error:
            return [str(error)]
    return [str(w.message) for w in caught]


def _overridden(s: Any, o: Any) -> None:
    scheduler = s.StepLR(o, 2)
    o.step = lambda: None
    scheduler.step()


def _stepped(s: Any, o: Any, epoch: int) -> None:
    scheduler = s.StepLR(o, 2)
    o.step()
    scheduler.step(epoch)
    scheduler.get_lr()


def _too_often(s: Any, o: Any) -> None:
    scheduler = s.OneCycleLR(o, 0.1, total_steps=3)
    for _ in range(5):
        o.step()
        scheduler.step()


SAID: list[Callable[[Any, Any], Any]] = [
    lambda s, o: s.StepLR(o, 2).step(),
    _overridden,
    lambda s, o: _stepped(s, o, 3),
    _too_often,
    lambda s, o: s.StepLR(3, 2),
    lambda s, o: s.LambdaLR(o, [Rule(1.0)]),
    lambda s, o: s.ConstantLR(o, factor=2),
    lambda s, o: s.LinearLR(o, start_factor=0),
    lambda s, o: s.LinearLR(o, end_factor=2),
    lambda s, o: s.SequentialLR(o, [], []),
    lambda s, o: s.SequentialLR(o, [s.ConstantLR(o)], [3]),
    lambda s, o: s.SequentialLR(o, [s.ConstantLR(o), s.ReduceLROnPlateau(o)], [3]),
    lambda s, o: s.SequentialLR(o, [s.ConstantLR(o), Rule(1.0)], [3]),
    lambda s, o: s.ChainedScheduler([]),
    lambda s, o: s.ReduceLROnPlateau(o, mode="up"),
    lambda s, o: s.ReduceLROnPlateau(o, factor=1.0),
    lambda s, o: s.ReduceLROnPlateau(o, threshold_mode="none"),
    lambda s, o: s.ReduceLROnPlateau(o, min_lr=[1]),
    lambda s, o: s.ReduceLROnPlateau(o).step(1.0, epoch=2),
    lambda s, o: s.CyclicLR(o, 0.1, 0.2, mode="square"),
    lambda s, o: s.CyclicLR(o, [0.1], 0.2),
    lambda s, o: s.CosineAnnealingWarmRestarts(o, 0),
    lambda s, o: s.CosineAnnealingWarmRestarts(o, 1, 0),
    lambda s, o: s.CosineAnnealingWarmRestarts(o, 1).step(-1),
    lambda s, o: s.OneCycleLR(o, 0.1),
    lambda s, o: s.OneCycleLR(o, 0.1, total_steps=-1),
    lambda s, o: s.OneCycleLR(o, 0.1, epochs=-1, steps_per_epoch=1),
    lambda s, o: s.OneCycleLR(o, 0.1, total_steps=3, pct_start=2),
    lambda s, o: s.OneCycleLR(o, 0.1, total_steps=3, anneal_strategy="none"),
    lambda s, o: s.OneCycleLR(o, [0.1], total_steps=3),
]


@pytest.mark.parametrize("act", SAID, ids=range(len(SAID)))
def test_says_what_torch_says(act: Callable[[Any, Any], Any]) -> None:
    mine, theirs = _said(lu, act), _said(torch, act)
    assert theirs
    assert mine == theirs


def test_names() -> None:
    names = torch.optim.lr_scheduler.__all__
    assert len(names) == 16
    assert all(hasattr(lu.optim.lr_scheduler, name) for name in names)
