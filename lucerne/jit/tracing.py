"""Whether something is being traced."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class Tracing:
    """How many traces are under way, one inside another."""

    active = 0


class TracerWarning(Warning):
    """PyTorch's warning about values that a trace would keep; here such code is an error."""


@contextmanager
def tracing() -> Iterator[None]:
    Tracing.active += 1
    try:
        yield
    finally:
        Tracing.active -= 1
