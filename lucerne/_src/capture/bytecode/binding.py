"""Arguments of a call put into the places of a function's variables."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import CO_VARARGS, CO_VARKEYWORDS
from types import CodeType, FunctionType
from typing import Any

from lucerne._src.capture.bytecode.frame import UNSET


def bind(
    fn: FunctionType, args: tuple[Any, ...], kwargs: Mapping[str, Any], slots: int
) -> list[Any] | None:
    """The variables of a function at its start; None: the arguments don't fit.

    (Then a call by Python itself raises the error with its own words.)
    """
    code = fn.__code__
    count, only = code.co_argcount, code.co_kwonlyargcount
    names = code.co_varnames
    found: list[Any] = [UNSET] * slots
    taken = min(len(args), count)
    found[:taken] = args[:taken]
    at = count + only
    if code.co_flags & CO_VARARGS:
        found[at] = tuple(args[count:])
        at += 1
    elif len(args) > count:
        return None
    extra: dict[str, Any] = {}
    if kwargs and not _keywords(fn, kwargs, found, extra):
        return None
    if code.co_flags & CO_VARKEYWORDS:
        found[at] = extra
    elif extra:
        return None
    defaults = fn.__defaults__ or ()
    first = count - len(defaults)
    for k in range(taken, count):
        if found[k] is UNSET:
            if k < first:
                return None
            found[k] = defaults[k - first]
    kept = fn.__kwdefaults__ or {}
    for k in range(count, count + only):
        if found[k] is UNSET:
            if names[k] not in kept:
                return None
            found[k] = kept[names[k]]
    return found


def more_keywords(code: CodeType) -> int:
    """The place of the variable that `**` stands before."""
    return code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & CO_VARARGS)


def _keywords(
    fn: FunctionType, kwargs: Mapping[str, Any], found: list[Any], extra: dict[str, Any]
) -> bool:
    code = fn.__code__
    first, end = code.co_posonlyargcount, code.co_argcount + code.co_kwonlyargcount
    places = {name: k for k, name in enumerate(code.co_varnames[:end]) if k >= first}
    for name, value in kwargs.items():
        at = places.get(name)
        if at is None:
            extra[name] = value
        elif found[at] is UNSET:
            found[at] = value
        else:
            return False
    return True
