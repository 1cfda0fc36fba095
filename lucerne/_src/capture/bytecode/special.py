"""Functions that look at the frame they are called from: they must see the machine's.

Each takes (machine, frame, args, kwargs) and may say NotImplemented: call it as it is.
"""

from __future__ import annotations

import builtins
import inspect
import sys
import warnings
from collections.abc import Callable, Mapping
from types import CellType, FunctionType
from typing import Any

from lucerne._src.base.raw import is_a
from lucerne._src.capture.bytecode.frame import UNSET, PythonFrame
from lucerne._src.capture.bytecode.hooks import NOTHING, Access, Stop
from lucerne._src.capture.bytecode.tracebacks import is_own

Args = tuple[Any, ...]
Kwargs = Mapping[str, Any]
Special = Callable[[Any, PythonFrame, Args, Kwargs], Any]


def _super(machine: Any, frame: PythonFrame, args: Args, kwargs: Kwargs) -> Any:
    return NotImplemented if args or kwargs else super_of(frame)


def super_of(frame: PythonFrame) -> Any:
    """What `super()` is in a frame."""
    at = frame.decoded.cell_slots.get("__class__")
    if at is None:
        raise RuntimeError("super(): __class__ cell not found")
    if not frame.code.co_argcount:
        raise RuntimeError("super(): no arguments")
    first = frame.slots[0]
    if is_a(first, CellType) and frame.code.co_varnames[0] in frame.decoded.cell_names:
        first = first.cell_contents
    if first is UNSET:
        raise RuntimeError("super(): arg[0] deleted")
    return super(frame.slots[at].cell_contents, first)


def _locals(machine: Any, frame: PythonFrame, args: Args, kwargs: Kwargs) -> Any:
    return NotImplemented if args or kwargs else frame.locals


def _globals(machine: Any, frame: PythonFrame, args: Args, kwargs: Kwargs) -> Any:
    return NotImplemented if args or kwargs else frame.globals


def _dir(machine: Any, frame: PythonFrame, args: Args, kwargs: Kwargs) -> Any:
    return NotImplemented if args or kwargs else sorted(frame.locals)


def _in_scope(name: str) -> Special:
    """A builtin of this name that the user calls on text: in the user's scope, not in ours."""

    def special(machine: Any, frame: PythonFrame, args: Args, kwargs: Kwargs) -> Any:
        if not args or len(args) > 1 or kwargs:
            return NotImplemented
        return vars(builtins)[name](args[0], frame.globals, frame.locals)

    return special


def _host_frames(name: str) -> Special:
    def special(machine: Any, frame: PythonFrame, args: Args, kwargs: Kwargs) -> Any:
        if machine.as_they_are:
            return NotImplemented
        raise Stop(f"{name} looks at the frames of the interpreter")

    return special


def _setattr(machine: Any, frame: PythonFrame, args: Args, kwargs: Kwargs) -> Any:
    if len(args) == 3 and not kwargs and not machine.as_they_are:
        owner, name, value = args
        machine.hooks.write(owner, name, old_attribute(owner, name), value, Access.ATTRIBUTE)
    return NotImplemented


def _delattr(machine: Any, frame: PythonFrame, args: Args, kwargs: Kwargs) -> Any:
    if len(args) == 2 and not kwargs and not machine.as_they_are:
        owner, name = args
        machine.hooks.write(owner, name, old_attribute(owner, name), NOTHING, Access.ATTRIBUTE)
    return NotImplemented


def _asks_user(owner: Any) -> bool:
    """Whether a class of the user's answers for every attribute of an object."""
    kind = type(owner)
    if issubclass(kind, type):
        return is_a(getattr(kind, "__getattr__", None), FunctionType)
    return type(kind.__getattribute__) is FunctionType


def _getattr(machine: Any, frame: PythonFrame, args: Args, kwargs: Kwargs) -> Any:
    if kwargs or not 2 <= len(args) <= 3 or machine.as_they_are or _asks_user(args[0]):
        return NotImplemented
    value = getattr(args[0], args[1], NOTHING)
    found = machine.hooks.read(args[0], args[1], value, Access.ATTRIBUTE)
    if value is not NOTHING:
        return found
    return args[2] if len(args) == 3 else NotImplemented  # (it raises)


def _hasattr(machine: Any, frame: PythonFrame, args: Args, kwargs: Kwargs) -> Any:
    if kwargs or len(args) != 2 or machine.as_they_are or _asks_user(args[0]):
        return NotImplemented
    value = getattr(args[0], args[1], NOTHING)
    machine.hooks.read(args[0], args[1], value, Access.ATTRIBUTE)
    return value is not NOTHING


def _warning(
    message: Any, category: Any = None, stacklevel: int = 1, source: Any = None
) -> tuple[Any, Any, int, Any]:
    """The arguments of `warnings.warn` by their names."""
    return message, category, stacklevel, source


def _warn(machine: Any, frame: PythonFrame, args: Args, kwargs: Kwargs) -> Any:
    """`warnings.warn`: at the user's line."""
    try:
        message, kind, level, source = _warning(*args, **kwargs)
    except TypeError:
        return NotImplemented
    frames = [f for f in machine.frames if not is_own(f.code)]
    if source is not None or not 1 <= level <= len(frames):
        return NotImplemented
    kind = type(message) if is_a(message, Warning) else kind or UserWarning
    at = frames[-level]
    warnings.warn_explicit(
        message, kind, at.code.co_filename, at.line, at.globals.get("__name__") or "<string>",
        at.globals.setdefault("__warningregistry__", {}),
    )  # fmt: skip
    return None


def old_attribute(owner: Any, name: str) -> Any:
    """What an object's own attribute is, or NOTHING."""
    try:
        own = object.__getattribute__(owner, "__dict__")
        return own.get(name, NOTHING)
    except AttributeError:
        pass
    try:
        return object.__getattribute__(owner, name)
    except AttributeError:
        return NOTHING


SPECIAL: dict[Any, Special] = {
    super: _super,
    builtins.locals: _locals,
    builtins.vars: _locals,
    builtins.globals: _globals,
    builtins.dir: _dir,
    **{vars(builtins)[name]: _in_scope(name) for name in ("eval", "exec")},
    builtins.setattr: _setattr,
    builtins.delattr: _delattr,
    builtins.getattr: _getattr,
    builtins.hasattr: _hasattr,
    warnings.warn: _warn,
    sys._getframe: _host_frames("sys._getframe"),
    inspect.currentframe: _host_frames("inspect.currentframe"),
    inspect.stack: _host_frames("inspect.stack"),
}
