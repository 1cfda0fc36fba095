"""What programs say to cuDNN. There is none here: the settings are kept, and change nothing.

>>> import lucerne as torch
>>> torch.backends.cudnn.benchmark = True
>>> torch.backends.cudnn.is_available()
False
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lucerne._src.base.process import tables

enabled = True
benchmark = False
benchmark_limit: int | None = None
deterministic = False
"""Kernels of the CPU engine give the same bits in every run, whatever this says."""
allow_tf32 = True
tables.add_switches(
    sys.modules[__name__],
    *("enabled", "benchmark", "benchmark_limit", "deterministic", "allow_tf32"),
)


def is_available() -> bool:
    return False


def version() -> None:
    """No library, no version."""


def is_acceptable(tensor: Any) -> bool:
    """Whether cuDNN could work on this tensor."""
    return False


def set_flags(
    _enabled: bool | None = None,
    _benchmark: bool | None = None,
    _benchmark_limit: int | None = None,
    _deterministic: bool | None = None,
    _allow_tf32: bool | None = None,
) -> tuple[bool, bool, int | None, bool, bool]:
    """Change those that are given; returns what all of them were."""
    global enabled, benchmark, benchmark_limit, deterministic, allow_tf32
    before = enabled, benchmark, benchmark_limit, deterministic, allow_tf32
    enabled = enabled if _enabled is None else _enabled
    benchmark = benchmark if _benchmark is None else _benchmark
    benchmark_limit = benchmark_limit if _benchmark_limit is None else _benchmark_limit
    deterministic = deterministic if _deterministic is None else _deterministic
    allow_tf32 = allow_tf32 if _allow_tf32 is None else _allow_tf32
    return before


@contextmanager
def flags(
    enabled: bool = False,
    benchmark: bool = False,
    benchmark_limit: int | None = 10,
    deterministic: bool = False,
    allow_tf32: bool = True,
) -> Iterator[None]:
    """Other settings for a while."""
    before = set_flags(enabled, benchmark, benchmark_limit, deterministic, allow_tf32)
    try:
        yield
    finally:
        set_flags(*before)
