"""Which line of the user's code is running: for messages that name it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

_PACKAGE = str(Path(__file__).resolve().parents[3])

Place = tuple[CodeType, int]

GENERATED = "<op>"
"""The file name of functions made from text."""


def is_users(code: CodeType) -> bool:
    """Whether code stands outside the package (a prompt's or a notebook's cell included)."""
    name = code.co_filename
    return not name.startswith(_PACKAGE) and name != GENERATED


_KNOWN: dict[str, bool] = {}
"""Whether a file is the user's: asked several times for each op that is recorded."""


class Origin(NamedTuple):
    """Where a node of a captured graph comes from, as plain data.

    >>> str(Origin("model.py", 12, "forward", "h.0.attn", backward=True))
    'backward of model.py:12 in forward (h.0.attn)'
    """

    file: str
    line: int
    function: str
    module: str = ""
    """The path of the module that was running ("h.0.attn.qkv"); empty: none."""
    backward: bool = False
    """Of the backward pass: the line is that of the forward call."""

    def __str__(self) -> str:
        before = "backward of " if self.backward else ""
        module = f" ({self.module})" if self.module else ""
        return f"{before}{self.file}:{self.line} in {self.function}{module}"


class _Tracking(threading.local):
    """Per thread, while a function is captured: names of modules, by id."""

    names: dict[int, str] | None = None
    until: CodeType | None = None


_tracking = _Tracking()


@contextmanager
def naming_modules(names: dict[int, str], until: CodeType | None = None) -> Iterator[None]:
    """Let `user_place` remember which module was running, by these names (by id). Modules that were
    called before the code `until` are not looked for."""
    before = _tracking.names, _tracking.until
    _tracking.names, _tracking.until = names, until
    try:
        yield
    finally:
        _tracking.names, _tracking.until = before


class Owned(tuple[CodeType, int]):
    """A `Place` with the path of the module that was running there."""

    module = ""


def owner_of(place: Place) -> str:
    """The path of the module that was running at a place, where that is known."""
    return place.module if type(place) is Owned else ""


def is_capturing() -> bool:
    """Whether this thread captures a function."""
    return _tracking.names is not None


def user_place() -> Place | None:
    """Code object and line of the innermost frame outside the package."""
    names = _tracking.names
    return _user_place(sys._getframe(1)) if names is None else _owned(sys._getframe(1), names)


def place_of_error(error: BaseException) -> Place | None:
    """The user's line that an error comes from, the innermost one; None: there is none."""
    place, trace = None, error.__traceback__
    while trace is not None:
        if is_users(trace.tb_frame.f_code):
            place = trace.tb_frame.f_code, trace.tb_lineno
        trace = trace.tb_next
    return place


def _owned(frame: FrameType | None, names: dict[int, str]) -> Place | None:
    """The user's line, and the innermost module that runs it."""
    found = _user_place(frame)
    until = _tracking.until
    while found is not None and frame is not None and frame.f_code is not until:
        for owner in forward_owners(frame):
            if id(owner) in names:
                owned = Owned(found)
                owned.module = names[id(owner)]
                return owned
        frame = frame.f_back
    return found


def forward_owners(frame: FrameType) -> list[Any]:
    """What a frame runs the method `forward` of, innermost first: one thing, or none, or as many as
    the frame interprets functions."""
    if runs_users(frame.f_code):
        inside = reversed(_variable(frame, "frames"))
        return [inner.slots[0] for inner in inside if _is_forward(inner.code)]
    if _is_forward(frame.f_code):
        return [_variable(frame, frame.f_code.co_varnames[0])]
    return []


def variables_of(frame: FrameType, is_meant: Callable[[Any], bool]) -> list[tuple[str, Any]]:
    """Variables of a frame and of its module whose values are meant, but for `self`."""
    inside = frame.f_locals
    items = [*inside.items(), *frame.f_globals.items()]
    if type(inside) is dict and frame.f_code.co_flags & CO_OPTIMIZED:
        inside.clear()  # (see `_variable`; other frames have no other place for them)
    return [(name, value) for name, value in items if name != "self" and is_meant(value)]


def _is_forward(code: CodeType) -> bool:
    return code.co_name == "forward" and code.co_argcount > 0


def _variable(frame: FrameType, name: str) -> Any:
    """A local variable of a frame that runs."""
    found = frame.f_locals
    value = found.get(name)
    if type(found) is dict:  # a copy (before Python 3.13), which would keep all variables alive
        found.clear()
    return value


_MACHINES: dict[str, list[CodeType]] = {}
"""By name: a code object's hash is made of all it contains, each time it is asked for."""


def runs_frames(code: CodeType) -> None:
    """Note that frames of this code interpret functions: their variable `frames` lists those that
    run, each with `code`, `place` and `slots` (the variables, arguments first)."""
    _MACHINES.setdefault(code.co_name, []).append(code)


def runs_users(code: CodeType) -> bool:
    """Whether frames of this code interpret functions (`runs_frames`)."""
    return code.co_name in _MACHINES and any(code is c for c in _MACHINES[code.co_name])


def _user_place(frame: FrameType | None) -> Place | None:
    while frame is not None:
        code = frame.f_code
        known = _KNOWN.get(code.co_filename)
        if known is None:
            known = _KNOWN[code.co_filename] = is_users(code)
        if known:
            return code, frame.f_lineno
        if code.co_name in _MACHINES and runs_users(code):
            for inner in reversed(_variable(frame, "frames")):
                if is_users(inner.code):
                    return inner.place
        frame = frame.f_back
    return None


def describe(place: Place | None) -> str:
    """`file:line in function`, or a plain word when it isn't known."""
    if place is None:
        return "an unknown line"
    code, line = place
    return f"{code.co_filename}:{line} in {code.co_name}"
