"""`lucerne.xpu`: Intel's GPUs. No backend serves them yet."""

from __future__ import annotations

from typing import Any, NoReturn


def is_available() -> bool:
    return False


def is_initialized() -> bool:
    return False


def device_count() -> int:
    return 0


def manual_seed(seed: int) -> None:
    """No device has a generator to seed."""


def manual_seed_all(seed: int) -> None:
    """No device has a generator to seed."""


def empty_cache() -> None:
    """No device holds memory."""


def _absent(*args: Any, **kwargs: Any) -> NoReturn:
    raise AssertionError("Torch not compiled with XPU enabled")


synchronize = current_device = get_device_name = set_device = current_stream = _absent
