"""What a step costs beyond its kernel: bounds far above the measured times, so that noise passes.

`python -m tests.optim.test_overhead` prints the times beside PyTorch's.
"""

from __future__ import annotations

from typing import Any

import pytest

import lucerne as lu
from tests.support.pace import fastest, slowness

BOUNDS = {6: 200e-6, 150: 1500e-6}
"""Measured on a quiet core: 12 and 60 microseconds."""


def _optimizer(module: Any, name: str, count: int) -> Any:
    params = [module.randn(16, 16).requires_grad_() for _ in range(count)]
    for p in params:
        p.grad = module.randn(16, 16)
    options = {"lr": 0.1, "momentum": 0.9} if name == "SGD" else {}
    return getattr(module.optim, name)(params, **options)


def seconds(step: Any, repeats: int = 40) -> float:
    """The best of some single calls."""
    for _ in range(3):
        step()
    return fastest(step, repeats)


@pytest.mark.parametrize("count", BOUNDS)
@pytest.mark.parametrize("name", ["Adam", "AdamW", "SGD"])
def test_a_step_is_cheap(name: str, count: int) -> None:
    assert seconds(_optimizer(lu, name, count).step) < BOUNDS[count] * slowness()


def test_clearing_gradients_is_cheap() -> None:
    assert seconds(_optimizer(lu, "SGD", 150).zero_grad) < 100e-6 * slowness()


def _main() -> None:
    import torch

    for count in BOUNDS:
        for name in ("Adam", "AdamW", "SGD", "RMSprop", "Adagrad"):
            mine, theirs = (
                seconds(_optimizer(module, name, count).step) * 1e6 for module in (lu, torch)
            )
            print(f"{name} {count} parameters: lucerne {mine:.0f} us, torch {theirs:.0f} us")


if __name__ == "__main__":
    _main()
