"""Cross entropy that reads scores in half the bytes, and writes their gradient so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lucerne as torch
from lucerne.nn import functional as F

BACKWARD = "cast+cross_entropy_classes_backward+cast"
CASES = [
    ("bfloat16", (5, 7), "mean", -100, False),
    ("bfloat16", (64, 33), "sum", 3, False),
    ("bfloat16", (3, 1), "mean", -100, False),
    ("bfloat16", (200, 300), "none", 5, True),
    ("bfloat16", (17, 1025), "mean", 0, True),
    ("float16", (6, 50), "mean", -100, True),
]


def made(dtype: str, shape: tuple[int, int], ignored: int, weighted: bool) -> Any:
    torch.manual_seed(3)
    scores = (torch.randn(*shape) * 3).to(getattr(torch, dtype)).requires_grad_()
    target = torch.randint(0, shape[1], (shape[0],))
    if ignored >= 0:
        target[0] = ignored
    weight = torch.rand(shape[1]) if weighted else None
    return scores, target, weight


def steps_of(compiled: Any) -> list[str]:
    return [step.name for step in compiled.entries[0].stages.program.steps]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("dtype", "shape", "reduction", "ignored", "weighted"), CASES)
def test_loss_and_gradient_have_eager_bits(
    dtype: str, shape: tuple[int, int], reduction: str, ignored: int, weighted: bool, threads: int
) -> None:
    scores, target, weight = made(dtype, shape, ignored, weighted)

    def step(scores: Any) -> Any:
        loss = F.cross_entropy(
            scores.float(), target, weight, ignore_index=ignored, reduction=reduction
        )
        [g] = torch.autograd.grad(loss.sum() * 2, [scores])
        return loss.detach(), g

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        compiled = torch.compile(step, fullgraph=True)
        for found, wanted in zip(compiled(scores), step(scores), strict=True):
            assert found.dtype is wanted.dtype
            np.testing.assert_array_equal(found.float().numpy(), wanted.float().numpy())
    finally:
        torch.set_num_threads(before)
    names = steps_of(compiled)
    assert any("cast+cross_entropy_classes" in n for n in names), names
    if dtype == "bfloat16" and reduction == "mean":
        assert BACKWARD in names, names


def test_scores_that_others_read_are_widened_once() -> None:
    """Somebody else reads the wide scores: they exist, and the loss reads them as they are."""
    scores, target, _ = made("bfloat16", (8, 12), -100, False)

    def step(scores: Any) -> Any:
        wide = scores.detach().float()
        return F.cross_entropy(wide, target), wide.exp()

    compiled = torch.compile(step, fullgraph=True)
    for found, wanted in zip(compiled(scores), step(scores), strict=True):
        np.testing.assert_array_equal(found.numpy(), wanted.numpy())
    assert not any(n.startswith("cast+cross") for n in steps_of(compiled))


def test_a_wrong_target_is_named() -> None:
    scores, target, _ = made("bfloat16", (8, 12), -100, False)
    compiled = torch.compile(lambda s, t: F.cross_entropy(s.detach().float(), t), fullgraph=True)
    compiled(scores, target)
    with pytest.raises(IndexError, match="Target 12 is out of bounds"):
        compiled(scores, target.clamp(min=12))
