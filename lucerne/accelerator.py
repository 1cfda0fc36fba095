"""`lucerne.accelerator`: the GPU of this machine, whichever it is. There is none."""

from __future__ import annotations

from typing import Any, NoReturn


def is_available() -> bool:
    return False


def device_count() -> int:
    return 0


def current_accelerator(check_available: bool = False) -> None:
    """The device of the accelerator: none."""


def _absent(*args: Any, **kwargs: Any) -> NoReturn:
    raise RuntimeError("Cannot access accelerator device when none is available.")


synchronize = current_device_index = current_device_idx = current_stream = _absent
set_device_index = set_device_idx = set_stream = device_index = get_memory_info = _absent


def empty_cache() -> None:
    """No device holds memory."""


def memory_allocated(device_index: Any = None) -> int:
    return 0


max_memory_allocated = memory_reserved = max_memory_reserved = memory_allocated


def reset_peak_memory_stats(device_index: Any = None) -> None:
    """No device holds memory."""
