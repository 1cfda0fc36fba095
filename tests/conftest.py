"""Settings of every test run.

Property tests draw the same examples on every machine; search wider by hand with
`pytest --hypothesis-profile=default`.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings

from lucerne._src.backends.contract import registry
from lucerne._src.base.config import config
from lucerne._src.ir.checks import index_maps
from tests.support import settings as settings_of_the_process

settings.register_profile("ci", derandomize=True, deadline=None)
settings.load_profile("ci")
config.verify_fusion = True
config.often_compiled = 0  # tests compile the same function again and again
config.progress_seconds = 0.0  # (how long it takes is the machine's business)


@pytest.fixture(scope="module", autouse=True)
def _settings_leave_with_their_tests() -> Iterator[None]:
    """What one file of tests sets for the whole process is not set for the next."""
    with settings_of_the_process.kept():
        yield


@pytest.fixture(scope="module", autouse=True)
def _devices_leave_with_their_tests() -> Iterator[None]:
    """A device that one file of tests registers is not there for the next."""
    before = set(registry.outside())
    yield
    for name in set(registry.outside()) - before:
        registry._registered.pop(name, None)


@pytest.fixture(autouse=True)
def _fused_loops_are_right() -> Iterator[None]:
    """Every fused kernel that a test makes is checked; one that is not used for that fails it."""
    known = len(index_maps.FAILURES)
    yield
    assert not index_maps.FAILURES[known:], index_maps.FAILURES[known]


# ---- where the time goes (`--durations`) --------------------------------------------------------

_seconds: Counter[str] = Counter()
"""By folder and by test function, all rows of it together."""


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    function = report.nodeid.partition("[")[0]
    _seconds[function] += report.duration
    _seconds[function.partition("::")[0].rpartition("/")[0] + "/"] += report.duration


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Many quick rows take longer than one slow test, which is all that pytest tells of."""
    if config.option.durations is None:
        return
    for title, folders in (("folders", True), ("functions, all rows", False)):
        terminalreporter.section(f"seconds by {title}")
        rows = [(s, name) for name, s in _seconds.items() if name.endswith("/") == folders]
        for seconds, name in sorted(rows, reverse=True)[:40]:
            terminalreporter.line(f"{seconds:8.1f}  {name}")
