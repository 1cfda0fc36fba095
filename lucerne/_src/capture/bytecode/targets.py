"""Which Python function a call ends in."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType, MethodType
from typing import Any

from lucerne._src.base.raw import is_a, own_dict

STANDS_FOR = "stands_for"
"""The property of an object (a compiled function) that is called as another one is: inside of the
machine the other one is entered, never the code that decides which program to run."""


FORWARDS: set[Any] = set()
"""Functions that do no more than call their first argument with the others: inside of the machine
that call is made (entered here by who knows such functions)."""


@dataclass
class CallTarget:
    """A call of a Python function, with the arguments that were bound on the way to it."""

    fn: FunctionType
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    made: Any = None
    """The new object, where a class was called and the function is its `__init__`."""
    kind: type | None = None
    """The class, where it was called and the function is its `__new__`."""


def find_in_class(kind: type, name: str) -> Any:
    """An attribute of a class or its bases as it stands there, or None."""
    for base in kind.__mro__:
        if name in base.__dict__:
            return base.__dict__[name]
    return None


def found_natively(x: Any, name: str) -> bool:
    """Whether native code finds an attribute of an object behind a `__getattr__` that is none of
    Python's functions: `__getattr__ = dict.__getitem__` looks it up among the items.

    >>> from lucerne._src.capture.bytecode.targets import found_natively
    >>> class Options(dict):
    ...     __getattr__ = dict.__getitem__
    >>> found_natively(Options(size=3), "size"), found_natively(Options(), "keys")
    (True, False)
    """
    kind = type(x)
    behind = find_in_class(kind, "__getattr__")
    if behind is None or type(behind) is FunctionType or is_a(x, type):
        return False
    return find_in_class(kind, name) is None and name not in (own_dict(x) or ())


def python_function(fn: Any) -> FunctionType | None:
    """The Python function that a call of `fn` ends in, if there is one."""
    for _ in range(20):
        if type(fn) is FunctionType:
            return fn
        if type(fn) is MethodType:
            fn = fn.__func__
        elif type(fn) is functools.partial:
            fn = fn.func
        elif is_a(fn, type):
            return _constructor(fn)
        elif find_in_class(type(fn), STANDS_FOR):
            fn = getattr(fn, STANDS_FOR)
        else:
            found = find_in_class(type(fn), "__call__")
            if type(found) is not FunctionType:
                return None
            fn = found
    return None


_EMPTY = (object.__new__, dict.__new__, list.__new__, set.__new__)
"""What makes an object without looking at the arguments of the call: those are for `__init__`."""


def _constructor(kind: type) -> FunctionType | None:
    """`__new__` or `__init__` of a class whose calls are as `type` makes them."""
    if type(kind).__call__ is not type.__call__:
        return None
    new = find_in_class(kind, "__new__")
    if is_a(new, staticmethod):
        new = new.__func__
    if type(new) is FunctionType:
        return new
    if new not in _EMPTY:
        return None
    made = find_in_class(kind, "__init__")
    return made if type(made) is FunctionType else None


def target_of(fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> CallTarget | None:
    """The call of a Python function that a call of `fn` is, if it is one.

    Calling a class makes the object already (with `object.__new__` or `dict.__new__`, say, which
    have no effects).
    """
    given = tuple(args)
    for _ in range(20):
        if type(fn) is FunctionType:
            return CallTarget(fn, given, kwargs)
        if type(fn) is MethodType:
            fn, given = fn.__func__, (fn.__self__, *given)
        elif type(fn) is functools.partial:
            given, kwargs = (*fn.args, *given), {**fn.keywords, **kwargs}
            fn = fn.func
        elif is_a(fn, type):
            return _construction(fn, given, kwargs)
        elif find_in_class(type(fn), STANDS_FOR):
            fn = getattr(fn, STANDS_FOR)
        else:
            found = find_in_class(type(fn), "__call__")
            if type(found) is not FunctionType:
                return None
            fn, given = found, (fn, *given)
    return None


def _construction(
    kind: type, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> CallTarget | None:
    function = _constructor(kind)
    if function is None or getattr(kind, "__abstractmethods__", None):
        return None
    new = find_in_class(kind, "__new__")
    if new in _EMPTY:
        made = new(kind)
        return CallTarget(function, (made, *args), kwargs, made=made)
    return CallTarget(function, (kind, *args), kwargs, kind=kind)
