"""The library that orders the products of an `einsum`: not used, they go from left to right."""

from __future__ import annotations

enabled = False
strategy: str | None = None


def is_available() -> bool:
    return False


def get_opt_einsum() -> None:
    """The library itself: none."""
