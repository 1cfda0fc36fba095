"""Timer: run a statement often enough, with as many threads as it is told."""

from __future__ import annotations

import sys
import textwrap
import timeit
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from time import perf_counter
from typing import Any, NoReturn

from lucerne._src.tensor import api as lu
from lucerne.utils.benchmark.measurement import Measurement, TaskSpec

timer = perf_counter
"""Seconds. Everything runs on the CPU, in the program's order: nothing has to be waited for."""
_OVERHEAD = 1e-3
"""The clock may cost so much of a block."""


class Language(Enum):
    """What a statement is written in."""

    PYTHON = 0
    CPP = 1


class Timer:
    """Measures a statement, as `timeit.Timer` does; `torch` and `lucerne` are names it may use.

    >>> from lucerne.utils.benchmark import Timer
    >>> m = Timer("x + 1", "x = torch.ones(3)", num_threads=1).timeit(10)
    >>> m.number_per_run, m.median > 0
    (10, True)
    """

    def __init__(
        self, stmt: str = "pass", setup: str = "pass", global_setup: str = "",
        timer: Callable[[], float] = timer, globals: dict[str, Any] | None = None,
        label: str | None = None, sub_label: str | None = None, description: str | None = None,
        env: str | None = None, num_threads: int = 1, language: Language | str = Language.PYTHON,
    ) -> None:  # fmt: skip
        if not isinstance(stmt, str):
            raise ValueError("Currently only a `str` stmt is supported.")
        if language not in (Language.PYTHON, "py", "python"):
            raise NotImplementedError("Timer: only Python statements can be measured here")
        if global_setup:
            raise ValueError(
                f"global_setup is C++ only, got `{global_setup}`. Most likely this code can simply "
                "be moved to `setup`."
            )
        package = sys.modules["lucerne"]
        names = {"torch": package, "lucerne": package, **(globals or {})}
        stmt, setup = textwrap.dedent(stmt).strip(), textwrap.dedent(setup).strip()
        self._globals = names
        self._timer = timeit.Timer(stmt, setup, timer, names)
        self._task_spec = TaskSpec(
            stmt, setup, "", label, sub_label, description, env, num_threads
        )  # fmt: skip

    def timeit(self, number: int = 1_000_000) -> Measurement:
        """One run of so many statements, after a short one that is not counted."""
        with self._threads():
            self._timer.timeit(max(number // 100, 2))
            return Measurement(number, [self._timer.timeit(number)], self._task_spec)

    def blocked_autorange(
        self, callback: Callable[[int, float], Any] | None = None, min_run_time: float = 0.2
    ) -> Measurement:
        """Runs of equal size for at least so many seconds; the size is found out first."""
        with self._threads():
            number = self._block_size(min_run_time)
            times = self._blocks(number, lambda total: total >= min_run_time, callback)
        return Measurement(number, times, self._task_spec)

    def adaptive_autorange(
        self, threshold: float = 0.1, *, min_run_time: float = 0.01, max_run_time: float = 10.0,
        callback: Callable[[int, float], Any] | None = None,
    ) -> Measurement:  # fmt: skip
        """Runs until the middle half of the times differs by less than `threshold`, or time is
        up."""
        with self._threads():
            number = self._block_size(min_run_time)
            times: list[float] = []
            wanted = min_run_time
            while True:  # looking takes time: each time for a half longer
                spent = sum(times)
                times += self._blocks(number, lambda total: spent + total >= wanted, callback)  # noqa: B023
                found = Measurement(number, times, self._task_spec)
                steady = len(times) > 3 and found.meets_confidence(threshold)
                if steady or wanted >= max_run_time:
                    return found
                wanted = min(wanted * 1.5, max_run_time)

    def repeat(self, repeat: int = -1, number: int = -1) -> NoReturn:
        raise NotImplementedError("See `Timer.blocked_autorange.`")

    def autorange(self, callback: Any = None) -> NoReturn:
        raise NotImplementedError("See `Timer.blocked_autorange.`")

    def collect_callgrind(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(
            "collect_callgrind needs Valgrind and C++ bindings; lucerne.profiler says where the "
            "time goes"
        )

    # ---- runs ----------------------------------------------------------------------------------

    @contextmanager
    def _threads(self) -> Iterator[None]:
        before = lu.get_num_threads()
        lu.set_num_threads(self._task_spec.num_threads)
        try:
            yield
        finally:
            lu.set_num_threads(before)

    def _block_size(self, min_run_time: float) -> int:
        """So many statements that reading the clock does not matter, but not for too long."""
        self._timer.timeit(2)  # the first calls make kernels
        clock = min(timeit.timeit("pass", number=1) for _ in range(5))
        number = 1
        while True:
            seconds = self._timer.timeit(number)
            if seconds >= min_run_time / 1000 and clock / max(seconds, 1e-12) <= _OVERHEAD:
                return number
            if seconds > min_run_time:
                return number
            number *= 10

    def _blocks(self, number: int, enough: Callable[[float], bool], callback: Any) -> list[float]:
        times: list[float] = []
        total = 0.0
        while not enough(total):
            seconds = self._timer.timeit(number)
            times.append(seconds)
            total += seconds
            if callback is not None:
                callback(number, seconds)
        return times
