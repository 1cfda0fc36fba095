"""Marks for Intel's VTune. There is no library behind them here: `is_available` says so, ranges and
marks do nothing, as PyTorch's do where it was built without the library."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


def is_available() -> bool:
    """Whether marks arrive anywhere: no."""
    return False


def range_push(msg: str) -> int:
    """Begin a range; how deep it is nested is not known without the library."""
    return -1


def range_pop() -> int:
    """End the innermost range."""
    return -1


def mark(msg: str) -> None:
    """Say that something happened."""


@contextmanager
def range(msg: str, *args: object, **kwargs: object) -> Iterator[None]:
    """A range around a block. `record_function` is the one that shows up in profiles."""
    yield
