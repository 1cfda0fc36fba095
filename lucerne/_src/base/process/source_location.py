"""Which line of the user's code is running: for messages that name it."""

from __future__ import annotations

import sys
import threading
import weakref
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


class OneLine:
    """Inside, all ops come from one line of the user's and one module, whichever that is: no code
    of theirs is between that line and the op, nor a module inside of another. So it is looked for
    once."""

    def __init__(self) -> None:
        self.place: Place | None = None
        self.is_known = False
        self.is_noted = False
        """Whether the code that runs was noted (`executed_code`)."""

    def __enter__(self) -> None:
        self._outer, _tracking.line = _tracking.line, self

    def __exit__(self, *error: object) -> None:
        _tracking.line = self._outer


def one_line() -> OneLine | None:
    """The `OneLine` that an op is recorded in; None: it may come from anywhere."""
    return _tracking.line


def any_line(line: OneLine | None = None) -> OneLine | None:
    """From now on ops may come from anywhere (or from `line`, which is what this gave before)."""
    before, _tracking.line = _tracking.line, line
    return before


class _Tracking(threading.local):
    """Per thread, while a function is captured: names of modules, by id."""

    names: dict[int, str] | None = None
    until: CodeType | None = None
    line: OneLine | None = None


_tracking = _Tracking()


@contextmanager
def naming_modules(names: dict[int, str], until: CodeType | None = None) -> Iterator[None]:
    """Let `user_place` remember which module was running, by these names (by id). Modules that were
    called before the code `until` are not looked for."""
    before = _tracking.names, _tracking.until, _tracking.line
    _tracking.names, _tracking.until, _tracking.line = names, until, None
    try:
        yield
    finally:
        _tracking.names, _tracking.until, _tracking.line = before


class Owned(tuple[CodeType, int]):
    """A `Place` with the path of the module that was running there."""

    module = ""


def owned(place: Place, module: str) -> Place:
    """The same line in the module with this path."""
    made = Owned(place)
    made.module = module
    return made


def owner_of(place: Place) -> str:
    """The path of the module that was running at a place, where that is known."""
    return place.module if type(place) is Owned else ""


def is_capturing() -> bool:
    """Whether this thread captures a function."""
    return _tracking.names is not None


def user_place() -> Place | None:
    """Code object and line of the innermost frame outside the package."""
    names, line = _tracking.names, _tracking.line
    if names is None:
        return _user_place(sys._getframe(1))
    if line is None:
        return _owned(sys._getframe(1), names)
    if not line.is_known:
        line.place, line.is_known = _owned(sys._getframe(1), names), True
    return line.place


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
    while found is not None and frame is not None:
        code = frame.f_code
        if code is until:
            break
        if id(code) not in _BETWEEN:
            for owner in forward_owners(frame):
                if id(owner) in names:
                    return owned(found, names[id(owner)])
        frame = frame.f_back
    return found


_BETWEEN: dict[int, weakref.ref[CodeType]] = {}
"""By id: code of the package that neither is a `forward` nor interprets functions. Most frames
between an op and the user's line are of such code, and are looked at for each op."""


def _note_between(code: CodeType) -> None:
    if not (_is_forward(code) or runs_users(code)):
        number = id(code)
        _BETWEEN[number] = weakref.ref(code, lambda _: _BETWEEN.pop(number, None))


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
    """Variables of a frame and of its module whose values are meant, but for `self`. Of one that
    interprets functions: those of the functions."""
    if runs_users(frame.f_code):
        running = [x for x in reversed(_variable(frame, "frames")) if is_users(x.code)]
        items = [item for x in running for item in (*x.locals.items(), *x.globals.items())]
        return [(name, value) for name, value in items if name != "self" and is_meant(value)]
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


MACHINES: dict[str, list[CodeType]] = {}
"""By name: a code object's hash is made of all it contains, each time it is asked for."""


def runs_frames(code: CodeType) -> None:
    """Note that frames of this code interpret functions: their variable `frames` lists those that
    run, each with `code`, `place`, `slots` (the variables, arguments first), `locals` (the same by
    name) and `globals`."""
    MACHINES.setdefault(code.co_name, []).append(code)
    _BETWEEN.pop(id(code), None)


def runs_users(code: CodeType) -> bool:
    """Whether frames of this code interpret functions (`runs_frames`)."""
    return code.co_name in MACHINES and any(code is c for c in MACHINES[code.co_name])


def _user_place(frame: FrameType | None) -> Place | None:
    while frame is not None:
        code = frame.f_code
        if id(code) not in _BETWEEN:
            known = _KNOWN.get(code.co_filename)
            if known is None:
                known = _KNOWN[code.co_filename] = is_users(code)
            if known:
                return code, frame.f_lineno
            if runs_users(code):
                for inner in reversed(_variable(frame, "frames")):
                    if is_users(inner.code):
                        return inner.place
            _note_between(code)
        frame = frame.f_back
    return None


def describe(place: Place | None) -> str:
    """`file:line in function`, or a plain word when it isn't known."""
    if place is None:
        return "an unknown line"
    code, line = place
    return f"{code.co_filename}:{line} in {code.co_name}"
