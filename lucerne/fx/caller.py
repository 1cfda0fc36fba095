"""What the user wrote, read off the frames of running code.

A proxy sees calls after Python has bound the arguments. To record a call as it was written
(`torch.sum(x, dim=1)`, not `torch.sum(x, 1)`), the instruction that makes it is looked at. Where
that can't be told, the call is recorded in a form of the same meaning.
"""

from __future__ import annotations

import bisect
import dis
import functools
import linecache
import sys
from types import CodeType, FrameType
from typing import Any

from lucerne._src.base.process.source_location import GENERATED, is_users
from lucerne._src.ir.op import Op
from lucerne._src.tensor import methods

_METHODS = methods.__file__


@functools.lru_cache(256)
def _instructions(code: CodeType) -> tuple[list[dis.Instruction], list[int]]:
    """The instructions of some code, and their offsets."""
    listed = list(dis.get_instructions(code))
    return listed, [found.offset for found in listed]


def _around(frame: FrameType) -> tuple[list[dis.Instruction], int] | None:
    """The instructions of a frame, and which one it is executing."""
    listed, offsets = _instructions(frame.f_code)
    # In a call of a Python function the frame stands behind the instruction, in its cache.
    at = bisect.bisect_right(offsets, frame.f_lasti) - 1
    return (listed, at) if at >= 0 else None


def unpacked_to(frame: FrameType | None) -> int | None:
    """How many names a frame is unpacking a value to (`a, b = x`); None if it does not."""
    found = None if frame is None else _around(frame)
    if found is None:
        return None
    now = found[0][found[1]]
    return now.argval if now.opname == "UNPACK_SEQUENCE" else None


def is_assert(frame: FrameType | None) -> bool:
    """Whether a frame is asking for a truth value in order to assert it."""
    found = None if frame is None else _around(frame)
    if found is None:
        return False
    listed, at = found
    if listed[at].opname == "TO_BOOL":  # Python 3.13: the truth value is an instruction of its own
        at += 1
    if "JUMP" not in listed[at].opname or "IF_TRUE" not in listed[at].opname:
        return False
    rest = [i for i in listed[at + 1 : at + 4] if i.opname not in ("CACHE", "NOT_TAKEN")][:1]
    return any(i.opname == "LOAD_ASSERTION_ERROR" for i in rest) or any(
        i.opname in ("LOAD_COMMON_CONSTANT", "LOAD_GLOBAL") and "AssertionError" in i.argrepr
        for i in rest
    )


def _keywords(frame: FrameType) -> tuple[int, tuple[str, ...]] | None:
    """Positional count and keyword names of the call a frame is making; None: unknown."""
    found = _around(frame)
    if found is None:
        return None
    listed, at = found
    now, before = listed[at], at - 1
    while before > 0 and listed[before].opname in ("PRECALL", "CACHE"):
        before -= 1
    if now.arg is None:
        return None
    if now.opname == "CALL_KW":  # Python 3.13: the names are a constant pushed just before
        named = listed[before].argval
        return (now.arg - len(named), named) if isinstance(named, tuple) else None
    if now.opname == "CALL":
        named = ()
        if listed[before].opname == "KW_NAMES":
            named = frame.f_code.co_consts[listed[before].arg or 0]
        return now.arg - len(named), named
    return None


def _function_frame(op: Op) -> FrameType | None:
    """The frame of an op's public function, if the running call went through it."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not is_users(frame.f_code):
        if frame.f_code.co_filename == GENERATED and frame.f_globals.get("_op") is op:
            return frame
        frame = frame.f_back
    return None


def by_operator() -> bool:
    """Whether the running call comes from an operator of a tensor (`tensor + proxy`)."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not is_users(frame.f_code):
        code = frame.f_code
        if code.co_name == "operator" and code.co_filename == _METHODS:
            return True
        frame = frame.f_back
    return False


def spelling(op: Op) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """The arguments of a running call of an op's function as the user wrote them.

    None when the call did not come straight from the user's code.
    """
    frame = _function_frame(op)
    if frame is None:
        return None
    given = frame.f_locals
    code = frame.f_code
    outer = frame.f_back
    if outer is not None and outer.f_code.co_name == "renamed":  # takes axis= for dim=
        return tuple(outer.f_locals["args"]), dict(outer.f_locals["kwargs"])
    if outer is None or not is_users(outer.f_code):
        return None
    written = _keywords(outer)
    if written is None:
        return None
    count, named = written
    if count < 0 or count > code.co_argcount or any(n not in given for n in named):
        return None
    return tuple(given[n] for n in code.co_varnames[:count]), {n: given[n] for n in named}


def user_line() -> str:
    """The innermost line of the user's code: file, number and text."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not is_users(frame.f_code):
        frame = frame.f_back
    if frame is None:
        return "an unknown line"
    file, line = frame.f_code.co_filename, frame.f_lineno
    text = linecache.getline(file, line, frame.f_globals).strip()
    return f'File "{file}", line {line}, in {frame.f_code.co_name}' + (
        f"\n    {text}" if text else ""
    )


def user_frames(stop: CodeType | None = None) -> list[tuple[str, int, str]]:
    """File, line and function of the user's frames, innermost last."""
    found: list[tuple[str, int, str]] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code is not stop:
        if is_users(frame.f_code):
            found.append((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
        frame = frame.f_back
    return found[::-1]
