"""Validation is on for both frameworks: torch's own compiler switches torch's off when it loads."""

from __future__ import annotations

import importlib
from collections.abc import Iterator

import pytest


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
