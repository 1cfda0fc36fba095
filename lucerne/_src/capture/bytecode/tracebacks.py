"""Tracebacks that name the user's lines although no frame of the host ever ran them."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import CodeType, FunctionType, TracebackType
from typing import Any

from lucerne._src.capture.bytecode.frame import PythonFrame

_HERE = str(Path(__file__).resolve().parent)


_MARK = "stands for a line of somebody else's"


def _stand_in() -> Iterator[str]:
    yield "stands for a line of somebody else's"


def is_stand_in(code: CodeType) -> bool:
    """Whether code is made for a traceback only."""
    return _MARK in code.co_consts


class profiling:  # (a `contextmanager` would be seen by what it switches on)
    """Inside, this is Python's profiler; None: there is none. A profiler that runs waits."""

    def __init__(self, told: Any) -> None:
        self._told = told

    def __enter__(self) -> None:
        before: Any = sys.getprofile()
        self._before = before
        if hasattr(before, "disable"):  # of `cProfile`, which can't be set again as it was
            before.disable()
        sys.setprofile(self._told)

    def __exit__(self, *error: object) -> None:
        sys.setprofile(None)
        if hasattr(self._before, "enable"):
            self._before.enable()
        elif self._before is not None:
            sys.setprofile(self._before)


_codes: weakref.WeakKeyDictionary[CodeType, CodeType] = weakref.WeakKeyDictionary()


def _code_like(code: CodeType) -> CodeType:
    """Code of a generator that does nothing, with name, file and lines of another."""
    found = _codes.get(code)
    if found is None:
        found = _codes[code] = _stand_in.__code__.replace(
            co_filename=code.co_filename,
            co_name=code.co_name,
            co_qualname=code.co_qualname,
            co_firstlineno=code.co_firstlineno,
            co_linetable=code.co_linetable,
        )
    return found


def begins_here(trace: TracebackType | None) -> bool:
    """Whether an exception was raised by code of the machine."""
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and is_own(trace.tb_frame.f_code)


def is_own(code: CodeType) -> bool:
    """Whether code belongs to the machine (a helper that stands for a builtin)."""
    return code.co_filename.startswith(_HERE)


def with_entry(trace: TracebackType | None, frame: PythonFrame) -> TracebackType | None:
    """A traceback with one more entry in front: the line a frame is at."""
    if is_own(frame.code) or frame.last < frame.decoded.untold:
        return trace
    offset = frame.decoded.ops[frame.last].offset
    with profiling(None):  # the stand-in ends here, with lines that are not its own
        made: Any = FunctionType(_code_like(frame.code), frame.globals)()
        found = TracebackType(trace, made.gi_frame, offset, frame.line)
        del made
    return found


def own_part_removed(trace: TracebackType | None) -> TracebackType | None:
    """A traceback without the entries of the machine."""
    kept: list[TracebackType] = []
    while trace is not None:
        if not is_own(trace.tb_frame.f_code):
            kept.append(trace)
        trace = trace.tb_next
    for before, after in pairwise(kept):
        before.tb_next = after
    if kept:
        kept[-1].tb_next = None
    return kept[0] if kept else None
