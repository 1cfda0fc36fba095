"""Popular blocks are compiled as they are in eager mode, at every shape and in every layout.

Some of them here, one compiled object for all shapes; all of them: `python -m tests.blocks`, or at
night.
"""

import importlib.util

import numpy as np
import pytest

import lucerne
from tests.blocks.layouts import LAYOUTS, laid_out
from tests.blocks.rows import Block, found
from tests.blocks.trial import Outcome, Trial, compared

BLOCKS = found("lucerne")
DAILY = (
    "SqueezeExcite", "CoordinateAttention", "FPN", "DeepSets", "GIN", "Capsules",
    "FourierFeatures",
)  # fmt: skip


def _told(trial: Trial) -> str:
    return "\n".join(map(str, trial.differences[:5]))


@pytest.mark.parametrize("name", DAILY)
def test_compiled_as_eager(name: str) -> None:
    trial = Trial(lucerne, BLOCKS[name])
    trial.shared(True, "plain", list(trial.row.shapes), seed=0)
    assert not trial.differences, _told(trial)
    assert trial.calls == 14


@pytest.mark.nightly
@pytest.mark.parametrize("name", BLOCKS)
def test_every_layout(name: str) -> None:
    trial = Trial(lucerne, BLOCKS[name]).run(every=True)
    assert not trial.differences, _told(trial)


@pytest.mark.nightly
@pytest.mark.torch
@pytest.mark.parametrize("name", BLOCKS)
def test_eager_as_torch(name: str) -> None:
    trial = Trial(lucerne, BLOCKS[name]).beside(found("torch")[name], every=True)
    assert not trial.differences, _told(trial)


@pytest.mark.torch
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is the oracle")
def test_both_packages_have_the_blocks() -> None:
    assert list(found("torch")) == list(BLOCKS)


@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_runs(name: str) -> None:
    """Where eager raises as well, nothing is compared."""
    trial = Trial(lucerne, BLOCKS[name])
    assert trial.wanted(False, "plain", trial.row.shapes[0]).error is None


def test_there_are_blocks() -> None:
    assert len(BLOCKS) >= 60
    for name, made in BLOCKS.items():
        row: Block = made.block
        assert len(set(row.shapes)) == 7, name
        assert any(shape[0] == 1 for shape in row.shapes), name


def test_layouts_hold_the_same_values() -> None:
    x = lucerne.randn(3, 4, 5, 6)
    for name in LAYOUTS:
        (y,) = laid_out(lucerne, (x,), name) or (None,)
        assert y is not None
        assert y.requires_grad
        assert y.is_leaf
        if name != "expanded":
            assert lucerne.equal(x, y.detach())
        assert (y.stride() == x.stride()) == (name == "plain")


def test_a_difference_is_found() -> None:
    one, other = (Outcome({"result": np.array([1.0, v], np.float32)}) for v in (2.0, 2.001))
    assert compared(one, one) == ("", 0.0)
    assert compared(one, other)[0].startswith("result differs by 5.0e-04")
    assert "float32[2] / missing" in compared(one, Outcome({}))[0]
    assert compared(one, Outcome(error="ValueError: no"))[0]


def test_a_wrong_block_is_found() -> None:
    calls = []

    def counts(x):
        calls.append(1)
        return x * 2 if len(calls) < 3 else x * 3

    counts.block = Block(((2,), (3,), (4,)), no_modes=True)
    trial = Trial(lucerne, counts)
    trial.wanted(True, "plain", (2,))
    calls.extend([1, 1, 1])
    trial.fresh(True, "plain", [(2,)])
    assert [d.shape for d in trial.differences] == [(2,)]
