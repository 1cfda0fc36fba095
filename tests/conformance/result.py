"""What a metric found on one entry: counts, and the failures worth reading."""

import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

MAX_FAILURES = 30  # kept per entry and metric; all are counted
TRACE_LINES = 14


@dataclass(frozen=True)
class Failure:
    """One check that did not hold."""

    sample: str
    check: str
    message: str
    trace: str = ""


@dataclass
class Tally:
    """The samples of one entry under one metric (and dtype)."""

    metric: str
    entry: str
    tier: str
    dtype: str
    samples: int = 0
    passed: int = 0
    by_float64: int = 0  # samples accepted only by the float64 rule (see tolerance.py)
    failures: list[Failure] = field(default_factory=list)
    seconds: float = 0.0
    made: Counter[str] = field(default_factory=Counter)  # how often each check was made
    missed: Counter[str] = field(default_factory=Counter)  # and did not hold

    @property
    def ok(self) -> bool:
        """An entry passes only if every sample passes; nothing may have failed outside samples."""
        return self.passed == self.samples and not self.failures

    def sample(self, label: str) -> "Sample":
        """Open the record of one sample; use it as a context."""
        return Sample(self, label)

    def fail(self, sample: str, check: str, message: str, trace: str = "") -> None:
        """Note a failure; the counts of samples are the caller's."""
        self.made[check] += 1
        self.missed[check] += 1
        if len(self.failures) < MAX_FAILURES:
            self.failures.append(Failure(sample, check, message, trace))

    def lost(self, check: str, message: str, trace: str = "") -> None:
        """The entry failed as a whole: missing, crashed or timed out."""
        self.samples += 1
        self.fail("", check, message, trace)


class Sample:
    """Checks of one sample: it passes when none of them failed.

    An exception that leaves the context counts as a failed check, whoever raised it.
    """

    def __init__(self, tally: Tally, label: str) -> None:
        self.tally = tally
        self.label = label
        self.ok = True
        self.by_float64 = False
        self.dropped = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if error is not None and not isinstance(error, Exception):
            return False
        if error is not None:
            self.raised(error, "harness")
        if not self.dropped:
            self.tally.samples += 1
            self.tally.passed += self.ok
            self.tally.by_float64 += self.ok and self.by_float64
        return True

    def expect(self, ok: bool, check: str, message: str | Callable[[], str]) -> bool:
        """Note whether a check holds, and say so to the caller."""
        if ok:
            self.tally.made[check] += 1
        else:
            self.ok = False
            text = message if isinstance(message, str) else message()
            self.tally.fail(self.label, check, text)
        return ok

    def raised(self, error: BaseException, check: str) -> None:
        """Note an exception where none belongs."""
        self.ok = False
        self.tally.fail(self.label, check, describe(error), trace_of(error))

    def drop(self) -> None:
        """Not a case after all, for example because torch refuses it too: do not count it."""
        self.dropped = True


def describe(error: BaseException) -> str:
    """One line: type and the beginning of the message."""
    text = str(error).strip().split("\n")[0]
    return f"{type(error).__name__}: {text[:200]}"


def trace_of(error: BaseException) -> str:
    """The end of a traceback, where the cause stands."""
    lines = "".join(traceback.format_exception(error)).rstrip().split("\n")
    return "\n".join(lines[-TRACE_LINES:])


def as_record(tally: Tally) -> dict[str, Any]:
    """A tally as plain data for JSON."""
    return {
        "metric": tally.metric,
        "entry": tally.entry,
        "tier": tally.tier,
        "dtype": tally.dtype,
        "ok": tally.ok,
        "samples": tally.samples,
        "passed": tally.passed,
        "by_float64": tally.by_float64,
        "seconds": round(tally.seconds, 3),
        "checks": {check: [n - tally.missed[check], n] for check, n in tally.made.items()},
        "failures": [vars(failure) for failure in tally.failures],
    }
