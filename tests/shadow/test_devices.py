"""Faults in the kernels of devices are found and named."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import lucerne as torch
from lucerne import backends
from tests.shadow.devices import FAULTS, SECOND, Fault, devices, is_right, named


@pytest.fixture(scope="module")
def there() -> Iterator[dict[str, Any]]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield devices()
    torch.set_num_threads(before)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("device", ["opencl", SECOND])
@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f"{f.op}-{f.where}")
def test_fault_in_a_kernel_of_a_device_is_named(
    there: dict[str, Any], device: str, fault: Fault
) -> None:
    if device not in there:
        pytest.skip("there is no OpenCL device: pip install pocl-binary-distribution gives one")
    backends.register(device, there[device])
    text = named(device, there[device], fault, FAULTS.index(fault))
    assert is_right(fault, text), text or "nothing was said"
