"""A pytest plugin: each test's outcome on a line of the file that OWN_OUTCOMES names, as it ends.

A process that dies or is stopped has told by then what it did. It knows nothing of this package: it
is loaded into the test runs of other people's libraries (`tests/ecosystem/own_tests.py`).
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest

SECONDS = int(os.environ.get("OWN_SECONDS", "60"))
"""How much CPU time one test may take: a busy machine stops none."""


_used: dict[str, float] = {}
"""CPU seconds of each test."""


def _tell(name: str, outcome: str, why: str, seconds: float) -> None:
    line = {"test": name, "outcome": outcome, "why": why, "seconds": round(seconds, 3)}
    with open(os.environ["OWN_OUTCOMES"], "a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def _first_line(report: Any) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash is not None else str(report.longrepr)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if crash is None and lines:  # of a collection that failed, the last line says why
        lines = [line.removeprefix("E").strip() for line in lines if line.startswith("E ")][-1:]
    return lines[0][:200] if lines else ""


def pytest_runtest_logreport(report: Any) -> None:
    if report.when == "call" or report.outcome != "passed":
        expected = hasattr(report, "wasxfail")
        outcome = "skipped" if expected and report.outcome != "passed" else report.outcome
        why = _first_line(report) if outcome == "failed" else ""
        _tell(report.nodeid, outcome, why, _used.get(report.nodeid, 0.0))


def pytest_collectreport(report: Any) -> None:
    if report.failed:
        _tell(report.nodeid, "uncollected", _first_line(report), 0.0)


def _too_long(signum: int, frame: FrameType | None) -> None:
    raise TimeoutError(f"more than {SECONDS} s of CPU")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: Any) -> Iterator[None]:
    """Stop a test that takes too long, and go on with the next."""
    start = time.process_time()
    signal.signal(signal.SIGPROF, _too_long)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        _used[item.nodeid] = time.process_time() - start
