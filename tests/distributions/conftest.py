"""Validation is on for both frameworks: torch's own compiler switches torch's off when it loads."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator

import pytest

# All of them compare with torch, row by row: without it there is nothing to run.
collect_ignore_glob = [] if importlib.util.find_spec("torch") else ["test_*.py"]


@pytest.fixture(autouse=True)
def validation_is_on() -> Iterator[None]:
    try:
        theirs = importlib.import_module("torch").distributions.Distribution
    except ImportError:
        yield
        return
    before = theirs._validate_args
    theirs.set_default_validate_args(True)
    yield
    theirs.set_default_validate_args(before)
