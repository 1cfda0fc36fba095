"""What a block is: a module class or a function in `sources/`, and the inputs it is called with.

The sources are written for torch and loaded with either package in torch's place
(`tests/support/sources.py`); `@block(...)` only leaves a note on the class or function.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.sources import load

SOURCES = Path(__file__).parent / "sources"
Shape = tuple[int, ...]


def images(channels: int, *, of: int = 1) -> list[Shape]:
    """Seven shapes of images: batch 1, 1 x 1 pixels, and both; sides are multiples of `of`."""
    sides = [(8, 8), (8, 8), (1, 1), (1, 1), (5, 7), (6, 3), (9, 1)]
    batches = [2, 1, 3, 1, 2, 4, 1]
    return [(n, channels, h * of, w * of) for n, (h, w) in zip(batches, sides, strict=True)]


def sequences(features: int, *, of: int = 1) -> list[Shape]:
    """Seven shapes of (batch, length, features): batch 1, length 1, and both."""
    sizes = [(2, 6), (1, 6), (3, 1), (1, 1), (4, 9), (2, 16), (5, 3)]
    return [(n, length * of, features) for n, length in sizes]


def signals(channels: int, *, of: int = 1) -> list[Shape]:
    """Seven shapes of (batch, channels, length)."""
    return [(n, channels, length) for n, length, _ in sequences(0, of=of)]


def rows(*features: int) -> list[Shape]:
    """Seven batches of rows, one row alone among them."""
    return [(n, *features) for n in (4, 1, 7, 2, 16, 3, 33)]


@dataclass(frozen=True)
class Block:
    """How one block is tried."""

    shapes: tuple[Shape, ...]
    inputs: Callable[[Any, Shape], tuple[Any, ...]] | None = None
    """Makes the arguments with `torch` and a shape; one tensor of normal numbers unless given."""
    random: bool = False
    """It draws numbers while it trains: only `mode="bitwise"` draws those of eager."""
    of_batch: bool = False
    """It compares samples of the batch: equal ones (an expanded batch) tie or have no variance, and
    signs of rounding errors would decide."""
    no_modes: bool = False
    """It does the same in training and evaluation (functions, losses)."""


def block(shapes: list[Shape], **settings: Any) -> Callable[[Any], Any]:
    assert len(shapes) == 7, "seven shapes each"

    def note(made: Any) -> Any:
        made.block = Block(tuple(shapes), **settings)
        return made

    return note


def found(package: str) -> dict[str, Any]:
    """By name: every block of `sources/`, with `package` in torch's place."""
    blocks: dict[str, Any] = {}
    for path in sorted(SOURCES.glob("*.py")):
        for name, made in vars(load(path, package)).items():
            if isinstance(vars(made).get("block") if hasattr(made, "__dict__") else None, Block):
                assert name not in blocks, f"two blocks are called {name}"
                blocks[name] = made
    return blocks
