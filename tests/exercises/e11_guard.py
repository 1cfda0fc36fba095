"""Exercise 11: a function that decides by a size is compiled again for each size: find out why."""

from __future__ import annotations

from collections.abc import Callable

import lucerne as torch

TOLD = r"AssertionError: \d traces for 6 sizes"


def start() -> object:
    small = set(range(20))

    def scaled(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.shape[0] in small else x - x.sum(0)

    return scaled


def solution() -> object:
    def scaled(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.shape[0] < 20 else x - x.sum(0)

    return scaled


def check(scaled: Callable) -> None:
    """Sizes below 20 are doubled, others lose the sum of their column."""
    step = torch.compile(scaled, fullgraph=True)
    for n in (8, 12, 16, 31, 50, 70):
        x = torch.ones(n, 3)
        wanted = x * 2 if n < 20 else x - x.sum(0)
        assert torch.equal(step(x), wanted), f"{n} rows: the values are wrong"
    sized = [each for member in step.families.members for each in member.sized or ()]
    guards = [str(guard) for each in sized for guard in each.guards]
    assert step.traces <= 4, (
        f"{step.traces} traces for 6 sizes, guarded by {guards[:3]}: text, hashes and sets need "
        "the number itself, so the program is right for one size; a comparison leaves a range"
    )
