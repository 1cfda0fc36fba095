"""`lucerne.cuda`: what code asks before it uses a GPU. There is none here, and it says so."""

from __future__ import annotations

from typing import Any, NoReturn

from lucerne.cuda import amp as amp


def _absent(*args: Any, **kwargs: Any) -> NoReturn:
    raise AssertionError("Torch not compiled with CUDA enabled")


current_device = synchronize = get_device_name = get_device_capability = _absent
get_device_properties = set_device = current_stream = get_rng_state = set_rng_state = _absent
init = mem_get_info = ipc_collect = stream = _absent


class Stream:
    """A queue of work on a GPU, for annotations: there is none."""

    __init__ = _absent


class Event:
    """A mark in a queue of work on a GPU, for annotations: there is none."""

    __init__ = _absent


def is_available() -> bool:
    return False


def is_initialized() -> bool:
    return False


def is_bf16_supported(including_emulation: bool = True) -> bool:
    return False


def device_count() -> int:
    return 0


def manual_seed(seed: int) -> None:
    """No device has a generator to seed."""


def manual_seed_all(seed: int) -> None:
    """No device has a generator to seed."""


def seed_all() -> None:
    """No device has a generator to seed."""


def get_rng_state_all() -> list[Any]:
    return []


def empty_cache() -> None:
    """No device holds memory."""


def memory_allocated(device: Any = None) -> int:
    return 0


max_memory_allocated = memory_reserved = max_memory_reserved = memory_allocated


def reset_peak_memory_stats(device: Any = None) -> None:
    """No device holds memory."""
