"""How long work takes, on machines that differ and are shared.

A bound in seconds is that of a quiet machine; `slowness` is how much longer Python takes here and
now, so a bound holds where a machine is slow, and still fails where the work is.
"""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Callable
from pathlib import Path
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


class Watch:
    """Seconds in which another process could have gone on: it ran, or waited for something.

    Where other work has the processors, a process is ready and gets no turn: that is not counted,
    so one that hangs is told apart from one that starves. (Linux says how long each thread was
    ready in vain; elsewhere the seconds are those of the clock.)
    """

    MOST = 30
    """Times longer by the clock: of several busy threads each waits for a turn at the same time."""

    def __init__(self, pid: int) -> None:
        self._threads = Path(f"/proc/{pid}/task")
        self._waits: dict[str, float] = {}
        self._began, self._before = time.monotonic(), self._waited()

    def seconds(self) -> float:
        """Since the watch was made."""
        passed = time.monotonic() - self._began
        return max(passed - (self._waited() - self._before), passed / self.MOST)

    def _waited(self) -> float:
        """For how long threads, those that have ended among them, were ready without a turn."""
        with contextlib.suppress(OSError, IndexError, ValueError):  # it ended, or nobody counts
            for thread in self._threads.iterdir():
                told = (thread / "schedstat").read_text().split()
                self._waits[thread.name] = int(told[1]) / 1e9
        return sum(self._waits.values())


def _chore() -> None:
    """Calls, attributes, dicts and small objects, as in what is timed."""
    kept: dict[int, Any] = {}
    for n in range(8000):
        kept[n & 255] = _Item(n, kept.get(n - 1 & 255))


class _Item:
    def __init__(self, n: int, other: Any) -> None:
        self.name, self.other = str(n), [n, other is None]
