"""Where it is noted which code runs while a function is captured.

Code of users runs in the bytecode machine (`capture.bytecode`), which tells about every frame it
makes. Code that is called back by functions of ours (a checkpointed function, a custom derivative)
is found on the stack of the ops that it calls.
"""

from __future__ import annotations

import types
from typing import Any

Calls = dict[int, tuple[types.CodeType, types.CodeType | None, Any]]


class ExecutedCode:
    """Set by who wants to know (`capture.cache.disk.dependencies`)."""

    codes: Calls | None = None
    """By id: code that ran, who called it first (None: code of the user's), and the name of its
    module; None: nobody wants to know."""
    outermost: types.FrameType | None = None
    """Code of this frame and of those that called it does not count."""
    is_complete = True
    """False: code has run that nobody looked at."""


def note_code(code: types.CodeType, module: Any) -> None:
    """The machine begins to run this code."""
    if ExecutedCode.codes is not None:
        ExecutedCode.codes[id(code)] = code, None, module


def note_stack(frame: types.FrameType | None) -> None:
    """An op was called from here."""
    codes = ExecutedCode.codes
    if codes is None:
        return
    while frame is not None and frame is not ExecutedCode.outermost:
        code, frame_back = frame.f_code, frame.f_back
        if id(code) not in codes:
            caller = None if frame_back is None else frame_back.f_code
            codes[id(code)] = code, caller, frame.f_globals.get("__name__")
        frame = frame_back
