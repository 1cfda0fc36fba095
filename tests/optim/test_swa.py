"""Averaged models and their schedule against PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import lucerne as lu  # noqa: E402
from tests.optim.bridge import assert_close, to_lucerne  # noqa: E402

pytestmark = pytest.mark.torch

AVERAGES: dict[str, Any] = {
    "equal": lambda u: {},
    "ema": lambda u: {"multi_avg_fn": u.get_ema_multi_avg_fn(0.9)},
    "ema one by one": lambda u: {"avg_fn": u.get_ema_avg_fn(0.9)},
    "swa one by one": lambda u: {"avg_fn": u.get_swa_avg_fn()},
    "with buffers": lambda u: {"avg_fn": u.get_ema_avg_fn(0.9), "use_buffers": True},
    "ema, with buffers": lambda u: {
        "multi_avg_fn": u.get_ema_multi_avg_fn(0.9), "use_buffers": True,
    },
    "equal, with buffers": lambda u: {"use_buffers": True},
}  # fmt: skip


def _model(module: Any) -> Any:
    return module.nn.Sequential(module.nn.Linear(3, 4), module.nn.BatchNorm1d(4))


@pytest.mark.parametrize("name", AVERAGES)
def test_averages(name: str) -> None:
    theirs, mine = _model(torch), _model(lu)
    mine.load_state_dict(to_lucerne(dict(theirs.state_dict())))
    both = []
    for module, model in ((torch, theirs), (lu, mine)):
        utils = module.optim.swa_utils
        both.append(utils.AveragedModel(model, **AVERAGES[name](utils)))
    rng = np.random.default_rng(0)
    for _ in range(3):
        for p, q in zip(theirs.parameters(), mine.parameters(), strict=True):
            change = torch.from_numpy(rng.standard_normal(tuple(p.shape))).float()
            p.data.add_(change)
            q.data.add_(to_lucerne(change))
        for model in (theirs, mine):
            model[1].running_mean.add_(1.0)
            model[1].num_batches_tracked.add_(3)
        both[0].update_parameters(theirs)
        both[1].update_parameters(mine)
    assert_close(dict(both[1].state_dict()), dict(both[0].state_dict()), 1e-5, 1e-6)


def test_update_bn() -> None:
    theirs, mine = _model(torch), _model(lu)
    mine.load_state_dict(to_lucerne(dict(theirs.state_dict())))
    rng = np.random.default_rng(0)
    data = [torch.from_numpy(rng.standard_normal((5, 3))).float() for _ in range(3)]
    torch.optim.swa_utils.update_bn(data, theirs)
    lu.optim.swa_utils.update_bn([(to_lucerne(x), None) for x in data], mine)
    assert_close(dict(mine.state_dict()), dict(theirs.state_dict()), 1e-4, 1e-5)
    assert mine[1].momentum == theirs[1].momentum


@pytest.mark.parametrize("strategy", ["cos", "linear"])
@pytest.mark.parametrize("epochs", [0, 4])
def test_swalr(strategy: str, epochs: int) -> None:
    seen = []
    for module in (lu, torch):
        optimizer = module.optim.SGD([module.ones(1, requires_grad=True)], lr=0.5)
        utils = module.optim.swa_utils
        scheduler = utils.SWALR(optimizer, 0.05, epochs, strategy)
        rates = [scheduler.get_last_lr()[0]]
        for _ in range(6):
            optimizer.step()
            scheduler.step()
            rates.append(scheduler.get_last_lr()[0])
        seen.append(rates)
    np.testing.assert_allclose(seen[0], seen[1], 1e-9)


MISTAKES: list[Any] = [
    lambda m, o: m.SWALR(o, 0.1, anneal_strategy="none"),
    lambda m, o: m.SWALR(o, 0.1, anneal_epochs=-1),
    lambda m, o: m.SWALR(o, [0.1, 0.2]),
    lambda m, o: m.get_ema_avg_fn(2),
    lambda m, o: m.get_ema_multi_avg_fn(-1),
]


@pytest.mark.parametrize("act", MISTAKES, ids=range(len(MISTAKES)))
def test_mistakes(act: Any) -> None:
    said = []
    for module in (lu, torch):
        optimizer = module.optim.SGD([module.ones(1, requires_grad=True)], lr=0.5)
        with pytest.raises(ValueError) as caught:  # noqa: PT011 - the texts are compared
            act(module.optim.swa_utils, optimizer)
        said.append(str(caught.value))
    assert said[0] == said[1]
