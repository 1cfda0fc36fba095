"""What a call did: gave a result, perhaps with a warning, or raised."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.conformance.result import Sample, describe

RESIZE_WARNING = "An output with one or more elements was resized"


@dataclass
class Outcome:
    """One side's answer to one call."""

    error: Exception | None = None
    result: Any = None
    warned: bool = False  # of an output that had to be resized


def attempt(call: Callable[[], Any]) -> Outcome:
    """Run it, and keep whatever comes."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            outcome = Outcome(result=call())
        except Exception as error:
            return Outcome(error=error)
    outcome.warned = any(RESIZE_WARNING in str(warning.message) for warning in caught)
    return outcome


def both_succeeded(record: Sample, expected: Outcome, got: Outcome) -> bool:
    """True if there are two results to compare; otherwise both sides must have raised alike."""
    if expected.error is None and got.error is None:
        return True
    if expected.error is None:
        assert got.error is not None
        record.raised(got.error, "runs")
    elif got.error is None:
        record.expect(False, "raised", f"no error; torch: {describe(expected.error)}")
    else:
        message = f"{describe(expected.error)} got {describe(got.error)}"
        record.expect(same_error(expected.error, got.error), "error type", message)
    return False


def same_error(expected: BaseException, got: BaseException) -> bool:
    """Whether code that catches torch's error would catch this one.

    NotImplementedError is a RuntimeError to Python, but here it means an op that is not there.
    """
    if isinstance(got, NotImplementedError) and not isinstance(expected, NotImplementedError):
        return False
    return isinstance(got, shared_type(type(expected)))


def shared_type(kind: type[BaseException]) -> type[BaseException]:
    """The nearest class that both frameworks have."""
    return next(base for base in kind.__mro__ if base.__module__ == "builtins")
