"""Apple's GPUs: no backend serves them yet."""

from __future__ import annotations


def is_available() -> bool:
    return False


def is_built() -> bool:
    return False


def is_macos_or_newer(major: int, minor: int) -> bool:
    """Asked about the GPU driver's system: without one, no."""
    return False
