"""Warnings to the user, through one door that counts them and names the user's line.

A call that warned must warn again when it is repeated, so nothing may skip it: whoever remembers
calls looks whether the count has moved.
"""

from __future__ import annotations

import sys
import warnings

from lucerne._src.base.process.source_location import is_users

count = 0
_told: set[str] = set()
"""What has been said once."""


def warn(message: str, category: type[Warning] = UserWarning, stacklevel: int = 1) -> None:
    """`warnings.warn` for the innermost line outside the package.

    `stacklevel` (counted from the caller) is what is used when there is none.
    """
    global count
    count += 1
    level, frame = 2, sys._getframe(1)
    while frame is not None and not is_users(frame.f_code):
        level, frame = level + 1, frame.f_back  # type: ignore[assignment]
    warnings.warn(message, category, stacklevel=level if frame is not None else stacklevel + 1)


def once(message: str) -> None:
    """`warn` the first time in the process: for what has no meaning on this device."""
    if message not in _told:
        _told.add(message)
        warn(message)


def forget() -> None:
    """Say everything again (tests)."""
    _told.clear()
