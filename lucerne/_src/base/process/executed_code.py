"""Where it is noted which code runs while a function is captured.

Code of users runs in the bytecode machine (`capture.bytecode`), which tells about every frame it
makes. Code that is called back by functions of ours (a checkpointed function, a custom derivative)
is found on the stack of the ops that it calls.
"""

from __future__ import annotations

import types
from typing import Any

from lucerne._src.base.process.source_location import MACHINES, one_line, runs_users

Calls = dict[int, tuple[types.CodeType, types.CodeType | None, Any]]


class ExecutedCode:
    """Set by who wants to know (`capture.cache.disk.dependencies`)."""

    codes: Calls | None = None
    """By id: code that ran, who called it first (None: code of the user's), and the name of its
    module; None: nobody wants to know."""
    outermost: types.FrameType | None = None
    """Code of this frame and of those that called it does not count."""
    noted_run = 0
    """The id of a frame that interprets functions and still runs: it, and those that called it,
    were noted; 0: there is none. Who ends such a run puts 0 here."""
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
    line = one_line()
    if line is not None:
        if line.is_noted:
            return
        line.is_noted = True
    outermost, noted, run = ExecutedCode.outermost, ExecutedCode.noted_run, 0
    while frame is not None and frame is not outermost and id(frame) != noted:
        code, frame_back = frame.f_code, frame.f_back
        if id(code) not in codes:
            caller = None if frame_back is None else frame_back.f_code
            codes[id(code)] = code, caller, frame.f_globals.get("__name__")
        if not run and code.co_name in MACHINES and runs_users(code):
            run = id(frame)
        frame = frame_back
    ExecutedCode.noted_run = run or noted
