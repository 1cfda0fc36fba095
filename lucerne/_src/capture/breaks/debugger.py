"""Functions that stop in a debugger, or ask for their own frame.

A debugger shows the frame that calls it, with its lines and variables. Code that the machine runs
has no frame of Python's, so a function whose text stops in a debugger is never run by it: it is
called as it is.
"""

from __future__ import annotations

import builtins
import dis
import functools
from types import CodeType, FunctionType
from typing import Any

from lucerne._src.capture.bytecode.targets import python_function

KIND = "debugger"
"""The kind of break it is."""
_BUILTIN = "breakpoint"
_METHODS = frozenset(("set_trace", "_getframe", "currentframe"))
"""What stops: a builtin, and what `pdb` and all that are made like it call their function; what
gives a frame, of `sys` and `inspect`."""


def stops_here(fn: Any) -> bool:
    """Whether a call of this very function stops."""
    return fn is builtins.breakpoint or getattr(fn, "__name__", "") in _METHODS


def stops_inside(fn: Any) -> bool:
    """Whether the text of a function of Python's calls a debugger.

    >>> from lucerne._src.capture.breaks.debugger import stops_inside
    >>> stops_inside(lambda x: breakpoint()), stops_inside(lambda x: x.breakpoint)
    (True, False)
    """
    target = python_function(fn)
    if target is None or not _names_one(target.__code__):
        return False
    return _is_builtin(target) or _stops(target.__code__, _METHODS)


def _is_builtin(fn: FunctionType) -> bool:
    """Whether it calls `breakpoint`, and not a function of the user's by that name."""
    return _BUILTIN not in fn.__globals__ and _stops(fn.__code__, frozenset((_BUILTIN,)))


@functools.lru_cache(4096)
def _names_one(code: CodeType) -> bool:
    """A look at the names alone, which is all that nearly every function costs."""
    if _BUILTIN in code.co_names or not _METHODS.isdisjoint(code.co_names):
        return True
    return any(isinstance(c, CodeType) and _names_one(c) for c in code.co_consts)


def _stops(code: CodeType, names: frozenset[str]) -> bool:
    """Whether code, or what is defined inside of it, looks up one of these names in order to call
    it: an attribute called `breakpoint` is no debugger."""
    for op in dis.get_instructions(code):
        if op.argval in names and (op.opname in _GLOBALS or op.argval in _METHODS):
            return True
    return any(isinstance(c, CodeType) and _stops(c, names) for c in code.co_consts)


_GLOBALS = ("LOAD_GLOBAL", "LOAD_NAME")
