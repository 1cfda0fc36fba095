"""OpenMP: not used. The CPU engine has threads of its own (`lucerne.set_num_threads`)."""

from __future__ import annotations


def is_available() -> bool:
    return False
