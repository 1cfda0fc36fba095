"""The benchmark of per-sample gradients: what it measures and how it judges."""

from typing import Any

import pytest

import lucerne
from benchmarks import per_sample, weights

pytestmark = pytest.mark.torch


def test_gradients_of_each_example() -> None:
    each, arguments = per_sample.gradients_of(lucerne, weights.SMALL_GPT)
    found: dict[str, Any] = each(*arguments)
    parameters, buffers, ids, target = arguments
    assert found.keys() == parameters.keys()
    assert all(g.shape == (ids.shape[0], *parameters[n].shape) for n, g in found.items())
    alone = each(parameters, buffers, ids[1:], target[1:])
    assert per_sample.disagreement({n: g[1:] for n, g in found.items()}, alone) < 1e-4


def test_disagreement_is_seen() -> None:
    ours, theirs = {"w": lucerne.ones(2)}, {"w": lucerne.ones(2) * 1.5}
    assert per_sample.disagreement(ours, ours) == 0
    assert per_sample.disagreement(ours, theirs) == pytest.approx(1 / 3)


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore")  # (of torch's own code, which its compiler then refuses)
def test_both_sides_run() -> None:
    assert per_sample.main(["--small", "--one-thread", "--seconds", "1"]) in (0, 1)
