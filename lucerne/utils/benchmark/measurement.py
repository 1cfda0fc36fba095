"""Measurement: the times of one statement, and what can be said of them."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

_WARN_ABOVE, _DISTURBED_ABOVE = 0.10, 0.25
"""A spread of more than these shares of the median is worth a warning."""
_CLOCK_NOISE = 25e-9
"""Seconds below which differences of times mean nothing."""
_NINETY_PERCENT = 1.645
"""Standard deviations on either side that hold nine of ten values."""
_MOST_FIGURES = 4
_UNITS = (("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("s", 1.0))
_ENGLISH = {"ns": "nanosecond", "us": "microsecond", "ms": "millisecond", "s": "second"}


@dataclasses.dataclass(frozen=True)
class TaskSpec:
    """What was measured."""

    stmt: str
    setup: str
    global_setup: str = ""
    label: str | None = None
    sub_label: str | None = None
    description: str | None = None
    env: str | None = None
    num_threads: int = 1

    @property
    def title(self) -> str:
        """The label, or the statement; with the finer label behind it."""
        what = self.label or self.stmt
        return what + (f": {self.sub_label}" if self.sub_label else "")

    def setup_str(self) -> str:
        if self.setup == "pass" or not self.setup:
            return ""
        lines = self.setup.splitlines()
        return f"setup:\n{_indented(self.setup)}" if len(lines) > 1 else f"setup: {self.setup}"

    def summarize(self) -> str:
        """Title, description and setup, one on each line."""
        parts = [self.title, self.description or "", self.setup_str()]
        return "\n".join(part for part in parts if part)


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())


def select_unit(seconds: float) -> tuple[str, float]:
    """The unit that suits a time, and its length in seconds."""
    fitting = [unit for unit in _UNITS if seconds >= unit[1]]
    return fitting[-1] if fitting else _UNITS[0]


def unit_to_english(unit: str) -> str:
    return _ENGLISH[unit]


def trim_sigfig(x: float, n: int) -> float:
    """`x` with `n` digits that count."""
    if not x:
        return x
    return round(x, n - 1 - math.floor(math.log10(abs(x))))


class Measurement:
    """Times of one statement.

    >>> m = Measurement(10, [1.0, 1.2, 1.1, 1.3, 1.4], TaskSpec("work()", "pass"))
    >>> m.median, round(m.iqr, 6), m.has_warnings
    (0.12, 0.02, True)
    """

    def __init__(
        self,
        number_per_run: int,
        raw_times: Sequence[float],
        task_spec: TaskSpec,
        metadata: dict[Any, Any] | None = None,
    ) -> None:
        """`raw_times`: seconds of each run, of `number_per_run` statements."""
        self.number_per_run, self.raw_times = number_per_run, list(raw_times)
        self.task_spec, self.metadata = task_spec, metadata

    @property
    def times(self) -> list[float]:
        """Seconds for one statement, of each run."""
        return [t / self.number_per_run for t in self.raw_times]

    @property
    def median(self) -> float:
        return statistics.median(self.times)

    @property
    def mean(self) -> float:
        return statistics.fmean(self.times)

    @property
    def iqr(self) -> float:
        """How far the middle half of the times lies apart."""
        low, high = self._quartiles()
        return high - low

    def _quartiles(self) -> tuple[float, float]:
        return _quantile(self.times, 0.25), _quantile(self.times, 0.75)

    @property
    def significant_figures(self) -> int:
        """How many digits of the median the spread of the middle half leaves standing."""
        times = sorted(self.times)
        n = len(times)
        middle = times[n // 4 : max(math.ceil(3 * n / 4), n // 4 + 1)]
        spread = statistics.pstdev(middle) / math.sqrt(len(middle))
        doubt = max(_NINETY_PERCENT * spread, _CLOCK_NOISE)
        return min(max(1, math.floor(-math.log10(doubt / self.median))), _MOST_FIGURES)

    @property
    def has_warnings(self) -> bool:
        """Whether the times differ so much that something else was going on."""
        return len(self.raw_times) > 1 and not self.meets_confidence()

    def meets_confidence(self, threshold: float = _WARN_ABOVE) -> bool:
        return self.iqr / self.median < threshold

    @property
    def title(self) -> str:
        return self.task_spec.title

    @property
    def env(self) -> str:
        return self.task_spec.env or "Unspecified env"

    @property
    def as_row_name(self) -> str:
        return self.task_spec.sub_label or self.task_spec.stmt or "[Unknown]"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or "task_spec" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.task_spec, name)

    def __repr__(self) -> str:
        unit, size = select_unit(self.median)
        lines = [f"{super().__repr__()}", self.task_spec.summarize()]
        if len(self.raw_times) == 1:
            lines.append(f"  {self.median / size:.2f} {unit}")
        else:
            low, high = self._quartiles()
            lines.append(f"  Median: {self.median / size:.2f} {unit}")
            span = f"({low / size:.2f} to {high / size:.2f})"
            lines.append(f"  IQR:    {self.iqr / size:.2f} {unit} {span}")
        lines.append(f"  {self._counts()}")
        if self.has_warnings:
            share = self.iqr / self.median
            why = "could indicate system fluctuation."
            if share > _DISTURBED_ABOVE:
                why = "suggests significant environmental influence."
            what = f"Interquartile range is {share * 100:.1f}% of the median measurement."
            lines.append(f"  WARNING: {what}\n           This {why}")
        return "\n".join(lines)

    def _counts(self) -> str:
        n, threads = len(self.raw_times), self.task_spec.num_threads
        each = "per measurement, " if n > 1 else ", "
        ending = "s" if n > 1 else ""
        return f"{n} measurement{ending}, {self.number_per_run} runs {each}{threads} thread" + (
            "s" if threads > 1 else ""
        )

    @staticmethod
    def merge(measurements: Iterable[Measurement]) -> list[Measurement]:
        """Measurements of the same thing as one."""
        groups: dict[TaskSpec, list[Measurement]] = {}
        for m in measurements:
            groups.setdefault(m.task_spec, []).append(m)
        made = []
        for spec, members in groups.items():
            number = members[0].number_per_run
            times = [t * number for m in members for t in m.times]
            made.append(Measurement(number, times, spec))
        return made


def _quantile(values: Sequence[float], share: float) -> float:
    """Between the two nearest values, in proportion."""
    ordered = sorted(values)
    at = (len(ordered) - 1) * share
    low = math.floor(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)
