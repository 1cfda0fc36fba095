"""How long work takes, on machines that differ and are shared.

A bound in seconds is that of a quiet machine; `slowness` is how much longer Python takes here and
now, so a bound holds where a machine is slow, and still fails where the work is.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

_QUIET = 0.0042
"""Seconds that `_chore` takes on a quiet core of the machine on which bounds are written."""


def fastest(work: Callable[[], Any], repeats: int = 3) -> float:
    """The shortest of some runs, in seconds of this thread. The collector is off: in a process that
    has run thousands of tests one collection walks all that they left, and is not this work's."""
    best = float("inf")
    enabled = gc.isenabled()
    gc.disable()
    try:
        for _ in range(repeats):
            began = time.thread_time()
            work()
            best = min(best, time.thread_time() - began)
    finally:
        if enabled:
            gc.enable()
    return best


def slowness() -> float:
    """How many times longer Python takes than on a quiet machine; at least 1."""
    return max(1.0, fastest(_chore, 7) / _QUIET)


def _chore() -> None:
    """Calls, attributes, dicts and small objects, as in what is timed."""
    kept: dict[int, Any] = {}
    for n in range(8000):
        kept[n & 255] = _Item(n, kept.get(n - 1 & 255))


class _Item:
    def __init__(self, n: int, other: Any) -> None:
        self.name, self.other = str(n), [n, other is None]
