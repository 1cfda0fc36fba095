"""Settings of every test run.

Property tests draw the same examples on every machine; search wider by hand with
`pytest --hypothesis-profile=default`.
"""

from collections.abc import Iterator

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
