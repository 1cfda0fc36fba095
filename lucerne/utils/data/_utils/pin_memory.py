"""Pinned memory: the host needs none, so a batch stays as it is."""

from __future__ import annotations

from typing import Any


def pin_memory(data: Any, device: Any = None) -> Any:
    """`data` itself: pinning speeds up copies to a device, and there is none."""
    return data
