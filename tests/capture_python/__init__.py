"""Ordinary Python programs on tensors, compiled: results and side effects as without."""

from __future__ import annotations

from typing import Any


def all_programs() -> list[Any]:
    """The whole table."""
    from tests.capture_python import (  # noqa: F401 - they fill the table
        programs_breaks,
        programs_effects,
        programs_native,
        programs_python,
        programs_training,
    )
    from tests.capture_python.table import PROGRAMS

    return PROGRAMS
