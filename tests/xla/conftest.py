"""What the tests of the device share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lucerne import backends


@pytest.fixture(autouse=True)
def _clean_bill() -> Iterator[None]:
    backends.bill().clear()
    yield
    backends.bill().clear()
