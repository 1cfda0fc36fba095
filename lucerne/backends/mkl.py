"""Intel's MKL: not used. Lucerne's kernels are its own."""

from __future__ import annotations


def is_available() -> bool:
    return False
