"""Which line of the user's code is running: for messages that name it."""

from __future__ import annotations

import sys
from pathlib import Path
from types import CodeType, FrameType

_PACKAGE = str(Path(__file__).resolve().parent.parent)

Place = tuple[CodeType, int]

GENERATED = "<op>"
"""The file name of functions made from text."""


def is_users(code: CodeType) -> bool:
    """Whether code stands outside the package (a prompt's or a notebook's cell included)."""
    name = code.co_filename
    return not name.startswith(_PACKAGE) and name != GENERATED


_KNOWN: dict[str, bool] = {}
"""Whether a file is the user's: asked several times for each op that is recorded."""


def user_place() -> Place | None:
    """Code object and line of the innermost frame outside the package."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        name = code.co_filename
        if name not in _KNOWN:
            _KNOWN[name] = is_users(code)
        if _KNOWN[name]:
            return code, frame.f_lineno
        frame = frame.f_back
    return None


def describe(place: Place | None) -> str:
    """`file:line in function`, or a plain word when it isn't known."""
    if place is None:
        return "an unknown line"
    code, line = place
    return f"{code.co_filename}:{line} in {code.co_name}"
