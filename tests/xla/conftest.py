"""What the tests of the device share."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from lucerne import backends

# Eight devices for the tests of meshes. XLA reads it when the device is first used; tensors that
# nobody places are on the first of them, as they are without it.
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")


@pytest.fixture(autouse=True)
def _clean_bill() -> Iterator[None]:
    backends.bill().clear()
    yield
    backends.bill().clear()
