"""What a device's memory holds: bytes in use, at most in use, and kept for reuse."""

from __future__ import annotations

from typing import Any

from lucerne._src import backends
from lucerne._src.base.device import HOST
from lucerne._src.base.device import device as Device


def _memory(device: Any) -> Any:
    """The allocator of a device; None where the backend leaves memory to the system."""
    return backends.get(HOST if device is None else Device(device).type).memory


def memory_stats(device: Any = None) -> dict[str, int]:
    """Bytes in use, at most in use, taken from the system and kept for reuse, and counts. Empty
    where the backend leaves memory to the system."""
    found = _memory(device)
    return {} if found is None else found.stats()


def memory_allocated(device: Any = None) -> int:
    """Bytes that tensors hold now, as rounded up by the allocator."""
    return memory_stats(device).get("allocated_bytes", 0)


def max_memory_allocated(device: Any = None) -> int:
    """The most bytes that tensors held since the start or `reset_peak_memory_stats`."""
    return memory_stats(device).get("peak_bytes", 0)


def memory_reserved(device: Any = None) -> int:
    """Bytes taken from the system, in use or kept for reuse."""
    return memory_stats(device).get("reserved_bytes", 0)


def reset_peak_memory_stats(device: Any = None) -> None:
    """Let `max_memory_allocated` count from now on."""
    found = _memory(device)
    if found is not None:
        found.reset_peak()


def empty_cache(device: Any = None) -> None:
    """Give memory that is kept for reuse back to the system."""
    found = _memory(device)
    if found is not None:
        found.empty_cache()
