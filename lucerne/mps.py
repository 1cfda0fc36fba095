"""`lucerne.mps`: Apple's GPUs. No backend serves them yet."""

from __future__ import annotations

from typing import Any, NoReturn


def is_available() -> bool:
    return False


def device_count() -> int:
    return 0


def manual_seed(seed: int) -> None:
    """No device has a generator to seed."""


def empty_cache() -> None:
    """No device holds memory."""


def _absent(*args: Any, **kwargs: Any) -> NoReturn:
    raise RuntimeError("this build of Lucerne has no MPS backend: use device='cpu'")


synchronize = get_rng_state = set_rng_state = current_allocated_memory = _absent
driver_allocated_memory = recommended_max_memory = _absent
