"""Every test finds the device `slate`, and leaves the bill and the fallback as they were."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lucerne import backends
from tests.chip import slate


@pytest.fixture(autouse=True)
def _slate() -> Iterator[None]:
    backends.register("slate", slate.make())
    backends.bill().clear()
    yield
    backends.set_fallback("refuse")
    backends.bill().clear()
