"""What the tests of the device share."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from lucerne import backends
from lucerne._src import capture
from lucerne._src.ops.copy.place import Meshes

# Eight devices for the tests of meshes. XLA reads it when the device is first used; tensors that
# nobody places are on the first of them, as they are without it.
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")


@pytest.fixture(autouse=True)
def _clean_bill() -> Iterator[None]:
    backends.bill().clear()
    yield
    backends.bill().clear()


@pytest.fixture(scope="module")
def meshes() -> Iterator[None]:
    """Eight devices for the tests of a file, and no mesh afterwards: calls ask again for none."""
    import jax

    from lucerne._src.backends.xla.meshes import MeshUse, jax_mesh

    assert len(jax.devices()) >= 8, "XLA_FLAGS was set too late: jax has begun without it"
    yield
    Meshes.devices, MeshUse.begun = frozenset(), False
    jax_mesh.cache_clear()  # (the first mesh that is made says that there are some)
    capture.reset()
