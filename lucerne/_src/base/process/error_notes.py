"""What an error says beside its text: the module, the user's line, what met in the call, a fix.

It stands in a note (PEP 678), so the text stays torch's. Nothing is kept while calls succeed: all
of it is found from the frames when an error passes one of a few places (an op, a public function, a
module's call, a compiled function). There the frames of the package are taken out of the traceback
as well, but for the one that raised.
"""

from __future__ import annotations

import dis
import linecache
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from types import FrameType, TracebackType
from typing import Any

from lucerne._src.base.config import config
from lucerne._src.base.device import HOST
from lucerne._src.base.process.fixes import fix_for
from lucerne._src.base.process.source_location import (
    Origin,
    Place,
    describe,
    forward_owners,
    is_capturing,
    is_users,
    place_of_error,
    runs_users,
    user_place,
    variables_of,
)

_MOST_ITEMS = 8
"""Of a list of tensors that was given: how many are shown."""
_MOST_TEXT = 60
_SIZES = (
    ("in_features", "out_features"),
    ("in_channels", "out_channels"),
    ("num_embeddings", "embedding_dim"),
    ("input_size", "hidden_size"),
)
"""Attributes that say what a layer takes and gives."""


_STANDARD = os.path.dirname(os.__file__) + os.sep + "multiprocessing"


class Note(str):
    """Ours among the notes of an error: its parts are filled in as the error passes by."""

    module = ""
    line = ""
    call = ""
    fix = ""
    meant = False
    """Whether the package passed on what it was given, and that did not fit."""

    @classmethod
    def of(cls, module: str, line: str, call: str, fix: str = "") -> Note:
        given = (("in ", module), ("at ", line), ("with ", call), ("try ", fix))
        made = cls("\n".join(before + text for before, text in given if text))
        made.module, made.line, made.call, made.fix = module, line, call, fix
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return str, (str(self),)


# ---- places that errors pass -------------------------------------------------------------------


def call_failed(
    error: Exception, name: str, given: Iterable[tuple[str, Any]], *, passes_on: bool = True
) -> None:
    """An op or a public function has raised. What it calls itself has said so before it: the
    outermost call is the user's. `passes_on`: see `_end`."""
    if is_capturing():
        return
    note = _note(error)
    if note is None:
        place = place_of_error(error) or user_place()
        module = _module_running(error, sys._getframe(1))
        _put(error, Note.of(module, _line(place), _call(name, given)))
    elif note.call and place_of_error(error) is None:
        _put(error, Note.of(note.module, note.line, _call(name, given)))
    _end(error, passes_on)


def told(error: Exception, name: str, tensor: Any) -> Exception:
    """An error that is about to be raised about a tensor."""
    call_failed(error, name, (("input", tensor),))
    return error


def asked_here(error: Exception) -> None:
    """An error that is about to be raised, wherever the user's code is now."""
    if not is_capturing():
        _put(error, Note.of(running_module(), _line(user_place()), ""))


def module_failed(
    error: Exception, module: Any, args: Any, kwargs: Any, *, framed: bool = True
) -> None:
    """A module's call has raised, and no function is captured. `framed`: see `_end`."""
    if _note(error) is None:
        frame = sys._getframe(2)
        place = place_of_error(error) or user_place()
        given = [*((f"argument {k + 1}", x) for k, x in enumerate(args)), *kwargs.items()]
        called = _call(type(module).__name__, given)
        _put(error, Note.of(_module_running(error, frame, module), _line(place), called))
    _end(error, True, framed)


def entry_failed(error: Exception) -> None:
    """Something public that is no op (a loader, an optimizer's constructor) has raised."""
    if is_capturing():
        return
    if _note(error) is None:
        fix = _fix(error)
        if fix and fix not in str(error):  # (as it was told in a worker's process)
            error.add_note(Note.of("", "", "", fix))
    hide_frames(error)


def step_failed(
    error: Exception, name: str, metas: Iterable[Any], origins: Sequence[Origin]
) -> None:
    """A step of a compiled program has raised: its lines are known from its capture."""
    given = ", ".join(_tensor(m) for m in metas)
    modules = dict.fromkeys(o.module for o in origins if o.module)
    lines = dict.fromkeys(f"{o.file}:{o.line} in {o.function}" for o in origins)
    call = f"{name}({given})" if name else ""
    _put(error, Note.of(" or ".join(modules), " or ".join(lines), call))


def _end(error: Exception, passes_on: bool, framed: bool = True) -> None:
    """In the handler of a place, when the error has its note. If the handler's own function, which
    passes on what it is given, is all there is of the traceback, that does not fit what it calls.
    `framed`: whether the handler's function has a frame (machine code has none).
    """
    trace, note = error.__traceback__, _note(error)
    if framed and trace is not None:
        trace = trace.tb_next
    if passes_on and note is not None and trace is None:
        note.meant = True
    hide_frames(error)


def backward_failed(
    error: Exception, module: str, place: Place | None, given: Iterable[tuple[str, Any]]
) -> None:
    """A step of a backward pass is wrong: the module and the line are those of the forward call."""
    before = "the backward pass of "
    _put(error, Note.of(before + module if module else "", _line(place), _call("backward", given)))


def hide_frames(error: BaseException) -> None:
    """Take the frames of the package out of a traceback, but for the innermost one. An error that
    nobody meant to raise (there is no `raise`) keeps all: it is a fault to be reported."""
    entries = list(_entries(error.__traceback__))
    if config.full_tracebacks or is_capturing() or not entries:
        return
    last, note = entries[-1], _note(error)
    # (what the system says of a file or of a device is no fault of ours either)
    meant = (note is not None and note.meant) or isinstance(error, OSError)
    if not (meant or is_users(last.tb_frame.f_code) or _raises(last)):
        return
    kept = [e for e in entries[:-1] if is_users(e.tb_frame.f_code)]
    kept.append(last)
    for before, after in pairwise(kept):
        before.tb_next = after
    error.__traceback__ = kept[0]


# ---- what is said ------------------------------------------------------------------------------


def _note(error: BaseException) -> Note | None:
    notes = getattr(error, "__notes__", ())
    return next((note for note in notes if type(note) is Note), None)


def _fix(error: BaseException) -> str:
    """What to try, if the error is not of the user's own raising."""
    entries = list(_entries(error.__traceback__))
    users = bool(entries) and is_users(entries[-1].tb_frame.f_code)
    return "" if users else fix_for(str(error))


def _put(error: BaseException, made: Note) -> None:
    old = _note(error)
    fix = _fix(error)
    if fix:
        made = Note.of(made.module, made.line, made.call, fix)
    if old is not None:
        made.meant = old.meant
        error.__notes__[error.__notes__.index(old)] = made
    else:
        error.add_note(made)


def _entries(trace: TracebackType | None) -> Iterator[TracebackType]:
    while trace is not None:
        yield trace
        trace = trace.tb_next


def _raises(entry: TracebackType) -> bool:
    """Whether a line raises by saying so."""
    return dis.opname[entry.tb_frame.f_code.co_code[entry.tb_lasti]] == "RAISE_VARARGS"


def _line(place: Place | None) -> str:
    if place is None:
        return ""
    if place[0].co_filename.startswith(_STANDARD):  # it only started us (a worker's process)
        return ""
    text = linecache.getline(place[0].co_filename, place[1]).strip()
    return f"{describe(place)}: {text}" if text else describe(place)


def _call(name: str, given: Iterable[tuple[str, Any]]) -> str:
    shown = [f"{name}: {_thing(x)}" for name, x in given if x is not None and x is not False]
    return f"{name}({', '.join(shown)})"


def _thing(given: Any) -> str:
    """A tensor's type and shape; other arguments in a few characters."""
    if hasattr(given, "_meta"):
        return _tensor(given._meta)
    if isinstance(given, (tuple, list)) and any(hasattr(x, "_meta") for x in given):
        more = [f"{len(given) - _MOST_ITEMS} more"] if len(given) > _MOST_ITEMS else []
        return f"[{', '.join([*map(_thing, given[:_MOST_ITEMS]), *more])}]"
    kind = type(given)
    known = kind.__module__ == "builtins" or kind.__module__.startswith("lucerne.")
    text = repr(given) if known else kind.__name__
    return text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}..."


def _tensor(meta: Any) -> str:
    where = "" if meta.device.type == HOST else f" on {meta.device}"
    return f"{meta.dtype.name}{list(meta.shape)}{where}"


def _module_running(
    error: BaseException | None, frame: FrameType | None, called: Any = None
) -> str:
    """`model.encoder.3: Linear(384 -> 1152)`: the innermost module that is called, by its path in
    a variable of the user's, or else in the outermost module that is called and holds it.
    `called`: one whose `forward` may not have begun."""
    running: list[Any] = []
    outside = frame
    while frame is not None:
        found = forward_owners(frame)
        running += found
        before, frame = frame, frame.f_back
        if found:  # (who interprets `forward` may interpret its callers too)
            outside = before if runs_users(before.f_code) else frame
    running.reverse()
    if called is not None:
        running.append(called)
    for entry in _entries(None if error is None else error.__traceback__):
        running += forward_owners(entry.tb_frame)
    running = [x for x in running if _is_module(x)]
    if not running:
        return ""
    inner = running[-1]
    roots = [(type(x).__name__, x) for x in running]
    for name, root in (*_variables(outside), *roots):
        for path, module in root.named_modules():
            if module is inner:
                return f"{name}.{path}".rstrip(".").replace("._orig_mod", "") + f": {_layer(inner)}"
    return _layer(inner)


def running_module() -> str:
    """The innermost module that is called now, as notes name it; "": none is."""
    return _module_running(None, sys._getframe(1))


def _variables(frame: FrameType | None) -> Iterator[tuple[str, Any]]:
    """The modules that the user's functions which are running have, by name."""
    while frame is not None:
        if is_users(frame.f_code) or runs_users(frame.f_code):
            yield from variables_of(frame, _is_module)
        frame = frame.f_back


def _is_module(thing: Any) -> bool:
    return hasattr(type(thing), "named_modules")


def _layer(module: Any) -> str:
    kind = type(module).__name__
    for before, after in _SIZES:
        own = vars(module)
        if before in own and after in own:
            return f"{kind}({own[before]} -> {own[after]})"
    return kind
