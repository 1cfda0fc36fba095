"""Whole training steps: the models people write, with modules and an optimizer of either side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks import programs, weights
from benchmarks.cases import Case, Make, one
from benchmarks.programs import Training
from benchmarks.timing import Call


def training_step(m: Any, model: Any, optimizer: Any, x: Any, target: Any) -> Call:
    return steps_of(Training(m, model, optimizer, (x, target), half=False))


def steps_of(training: Training) -> Call:
    return lambda: training.step(*training.batch)


def block(m: Any, width: int, heads: int) -> Any:
    """One layer of a GPT."""
    return programs.block_of(m, weights.Language(1, width, heads, words=0, batch=0, length=0))()


def _whole(program: Callable[..., Training], sizes: Any) -> dict[str, Make]:
    return one(lambda m: steps_of(program(m, sizes)))


def training_steps() -> list[Case]:
    """Losses are compared by the examples' tests; here both sides only run."""
    mlp, gpt, resnet = (
        _whole(programs.mlp, weights.MLP),
        _whole(programs.gpt, weights.GPT),
        _whole(programs.resnet, weights.RESNET),
    )
    return [
        Case("MLP 784-256-256-10, batch 64, Adam", mlp, 0.7, check=False),
        Case("GPT 6 x 384, 4 x 256 tokens, AdamW", gpt, 1.05, check=False, long=True),
        Case("ResNet-18, 32 x 3 x 32 x 32, SGD", resnet, 1.05, check=False, long=True),
    ]
