"""Figures of devices, and how XLA is told of one that is not here."""

from __future__ import annotations

import dataclasses
import math
import re
from typing import Any

from lucerne._src.backends.contract.planned import Chip, ChipLink, PlanError

_GIB = 1 << 30
_MOST_CPUS = 2048
"""XLA's CPU client takes no more."""

CHIPS = {
    "h100": Chip(
        name="h100", platform="gpu", memory=80 * 10**9, flops=989e12, bandwidth=3.35e12,
        near=ChipLink(450e9, 3e-6), far=ChipLink(50e9, 8e-6), together=8, count=1 << 16,
        note="NVIDIA H100 SXM, 80 GB; 8 on NVLink in a host, 400 Gbit/s of network for each",
    ),
    "v5e": Chip(
        name="v5e", platform="tpu", memory=16 * _GIB, flops=197e12, bandwidth=819e9,
        near=ChipLink(90e9, 1e-6), far=ChipLink(3.1e9, 20e-6), together=256, count=256,
        note="TPU v5e; 256 in a pod, a ring both ways along one dimension of it",
    ),
    "cpu": Chip(
        name="cpu", platform="cpu", memory=4 * _GIB, flops=1e11, bandwidth=2e10,
        near=ChipLink(5e9, 20e-6), far=ChipLink(1e9, 100e-6), together=8, count=_MOST_CPUS,
        note="no machine in particular: to try a plan without any plug-in",
    ),
}  # fmt: skip

_GRIDS = {
    1: "1x1", 4: "2x2", 8: "2x4", 16: "4x4", 32: "4x8", 64: "8x8", 128: "8x16", 256: "16x16",
}  # fmt: skip
"""Of TPUs that one slice may have."""

_H100 = {
    "threads_per_block_limit": 1024,
    "threads_per_warp": 32,
    "shared_memory_per_block": 48 << 10,
    "shared_memory_per_core": 228 << 10,
    "shared_memory_per_block_optin": 227 << 10,
    "threads_per_core_limit": 2048,
    "registers_per_core_limit": 1 << 16,
    "registers_per_block_limit": 1 << 16,
    "core_count": 132,
    "fpus_per_core": 128,
    "block_dim_limit_x": (1 << 31) - 1,
    "block_dim_limit_y": 65535,
    "block_dim_limit_z": 65535,
    "memory_bandwidth": 3_350_000_000_000,
    "l2_cache_size": 50 << 20,
    "clock_rate_ghz": 1.98,
    "device_memory_size": 80 * 10**9,
}


def chip_of(text: str) -> Chip:
    """A chip by its name on the command line; `cpu:8` are 8 devices of a CPU.

    >>> chip_of("h100").together, chip_of("cpu:16").count
    (8, 16)
    """
    name, _, count = text.partition(":")
    found = CHIPS.get(name)
    if found is None or (count and name != "cpu") or not re.fullmatch(r"\d*", count):
        raise PlanError(f"--chip: no chip {text!r}; there are {', '.join(CHIPS)} (cpu:N)")
    if name != "cpu":
        return found
    number = int(count or 8)
    if not 1 <= number <= _MOST_CPUS:
        raise PlanError(f"--chip {text}: XLA takes 1 to {_MOST_CPUS} devices of a CPU")
    return dataclasses.replace(found, count=number)


def topology_of(chip: Chip, count: int) -> dict[str, Any]:
    """What `jax.experimental.topologies` is asked for: at least so many of them."""
    if chip.platform == "tpu":
        size = next((n for n in _GRIDS if n >= count), None)
        if size is None:
            raise PlanError(f"{chip.name}: a mesh of {count} devices, a slice has {max(_GRIDS)}")
        return {"platform": "tpu", "topology_name": f"{chip.name}:{_GRIDS[size]}"}
    hosts = math.ceil(count / chip.together)
    each = chip.together if hosts > 1 else count
    return {"platform": "cuda", "target_config": _target(), "topology": f"1x{hosts}x{each}"}


def _target() -> str:
    facts = " ".join(f"{name}: {value}" for name, value in _H100.items())
    return (
        f"gpu_device_info {{ {facts} cuda_compute_capability {{ major: 9 }} }}\n"
        'platform_name: "CUDA"\n'
        "dnn_version_info { major: 9 minor: 7 }\n"
        "runtime_version { major: 12 minor: 8 patch: 0 }\n"
        'device_description_str: "NVIDIA H100 80GB HBM3"\n'
    )
