"""Calls, making of functions, `with`, `import`, `super`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import FunctionType
from typing import Any

from lucerne._src.base.raw import is_a
from lucerne._src.capture.bytecode.attributes import attribute
from lucerne._src.capture.bytecode.calls import call, collect
from lucerne._src.capture.bytecode.frame import PUSH, UNSET, PythonFrame
from lucerne._src.capture.bytecode.generators import PythonGenerator
from lucerne._src.capture.bytecode.handlers.containers import TO_CALL, load_method
from lucerne._src.capture.bytecode.hooks import Access
from lucerne._src.capture.bytecode.links import name_in_full
from lucerne._src.capture.bytecode.machine import Machine
from lucerne._src.capture.bytecode.special import super_of
from lucerne._src.capture.bytecode.targets import find_in_class

_NONE: dict[str, Any] = {}

# -- calls ----------------------------------------------------------------------------------------


def kw_names(machine: Machine, frame: PythonFrame, names: tuple[str, ...]) -> None:
    frame.kw_names = names


def call_11(machine: Machine, frame: PythonFrame, count: int) -> bool | None:
    """3.11, 3.12. The stack: nothing and a callable, or a callable and its first argument; then
    the arguments, those with names last."""
    stack = frame.stack
    base = len(stack) - count - 2
    fn, args = stack[base + 1], stack[base + 2 :]
    if stack[base] is not UNSET:
        fn, args = stack[base], [fn, *args]
    return _call_named(machine, frame, fn, args, frame.kw_names, count + 2)


def call_13(machine: Machine, frame: PythonFrame, count: int) -> bool | None:
    """3.13. The stack: a callable, then its first argument or nothing; then the arguments."""
    return _call_13(machine, frame, count, (), 0)


def call_kw(machine: Machine, frame: PythonFrame, count: int) -> bool | None:
    """3.13: the names lie on top."""
    return _call_13(machine, frame, count, frame.stack[-1], 1)


def _call_13(
    machine: Machine, frame: PythonFrame, count: int, names: tuple[str, ...], above: int
) -> bool | None:
    stack = frame.stack
    base = len(stack) - above - count - 2
    fn, args = stack[base], stack[base + 2 : len(stack) - above]
    if stack[base + 1] is not UNSET:
        args = [stack[base + 1], *args]
    return _call_named(machine, frame, fn, args, names, count + 2 + above)


def _call_named(
    machine: Machine,
    frame: PythonFrame,
    fn: Any,
    args: list[Any],
    names: tuple[str, ...],
    taken: int,
) -> bool | None:
    if not names:
        return call(machine, frame, fn, tuple(args), _NONE, taken)
    first = len(args) - len(names)
    kwargs = dict(zip(names, args[first:], strict=True))
    answer = call(machine, frame, fn, tuple(args[:first]), kwargs, taken)
    frame.kw_names = ()
    return answer


def call_function_ex(machine: Machine, frame: PythonFrame, flags: int) -> bool | None:
    """`f(*args, **kwargs)`; the empty place is below the callable (3.11, 3.12)."""
    return _call_ex(machine, frame, flags, -1)


def call_function_ex_13(machine: Machine, frame: PythonFrame, flags: int) -> bool | None:
    """The empty place is above the callable."""
    return _call_ex(machine, frame, flags, -2)


def call_function_ex_14(machine: Machine, frame: PythonFrame, flags: int) -> bool | None:
    """3.14: there is always a place for the keywords."""
    return _call_ex(machine, frame, flags, -2)


def call_function_ex_15(machine: Machine, frame: PythonFrame, flags: int) -> bool | None:
    """3.15: its errors do not name the function."""
    return _call_ex(machine, frame, flags, -2, anonymous=True)


def _call_ex(
    machine: Machine, frame: PythonFrame, flags: int, place: int, anonymous: bool = False
) -> bool | None:
    stack = frame.stack
    named = flags & 1
    kwargs = stack[-1] if named and stack[-1] is not UNSET else _NONE
    args = stack[-1 - named]
    fn = stack[place - 1 - named]
    if type(args) is PythonGenerator and collect(machine, frame, args, None):
        return True
    if not is_a(args, tuple):
        kind = type(args)
        if not hasattr(kind, "__iter__") and not hasattr(kind, "__getitem__"):
            first = "Value" if anonymous else f"{_name_of(fn)} argument"
            raise TypeError(f"{first} after * must be an iterable, not {kind.__name__}")
        # On the stack too: an iterator is used up, should the call stop.
        args = stack[-1 - named] = tuple(args)
    if not is_a(kwargs, dict):
        kwargs = dict(kwargs)
    return call(machine, frame, fn, args, kwargs, 3 + named)


def dict_merge_15(machine: Machine, frame: PythonFrame, depth: int) -> None:
    """3.15: what is no mapping is told of without the function's name."""
    dict_merge(machine, frame, depth, anonymous=True)


def dict_merge(machine: Machine, frame: PythonFrame, depth: int, anonymous: bool = False) -> None:
    """`**kwargs` of a call. (CPython's own message names the function, which lies below.)"""
    stack = frame.stack
    value, into = stack[-1], stack[-depth - 1]
    fn = _merged_for(frame, depth)
    if not is_a(value, Mapping) and not hasattr(type(value), "keys"):
        first = "Value" if anonymous else f"{_name_of(fn)} argument"
        raise TypeError(f"{first} after ** must be a mapping, not {type(value).__name__}")
    for key in value.keys():  # noqa: SIM118 - this is how Python itself reads a mapping
        if key in into:
            raise TypeError(f"{_name_of(fn)} got multiple values for keyword argument '{key}'")
        into[key] = value[key]
    stack.pop()


def _merged_for(frame: PythonFrame, depth: int) -> Any:
    """The callable below the arguments: just below them, or below an empty place."""
    found = frame.stack[-depth - 3]
    return frame.stack[-depth - 4] if found is UNSET else found


def _name_of(fn: Any) -> str:
    name = getattr(fn, "__qualname__", None)
    if not isinstance(name, str):
        return str(fn)
    module = getattr(fn, "__module__", None)
    if is_a(module, str) and module != "builtins":
        return f"{module}.{name}()"
    return f"{name}()"


# -- functions ------------------------------------------------------------------------------------

_DEFAULTS, _KEYWORD_DEFAULTS, _ANNOTATIONS, _CLOSURE, _ANNOTATE = 1, 2, 4, 8, 16
ATTRIBUTES = frozenset((_DEFAULTS, _KEYWORD_DEFAULTS, _ANNOTATIONS, _CLOSURE))
"""What SET_FUNCTION_ATTRIBUTE may give."""
DEFERRED = frozenset((*ATTRIBUTES, _ANNOTATE))
"""3.14: a function that tells the annotations, too."""


def make_function(machine: Machine, frame: PythonFrame, flags: int | None) -> None:
    """3.11, 3.12; and 3.13, where SET_FUNCTION_ATTRIBUTE gives the rest."""
    stack = frame.stack
    code = stack.pop()
    parts = {
        flag: stack.pop()
        for flag in (_CLOSURE, _ANNOTATIONS, _KEYWORD_DEFAULTS, _DEFAULTS)
        if (flags or 0) & flag
    }
    if _CLOSURE in parts:
        made = FunctionType(code, frame.globals, closure=parts.pop(_CLOSURE))
    elif code.co_freevars:
        # 3.13 gives the cells with the next instruction; code that has free variables can't be
        # without them until then.
        stack.append(code)
        return
    else:
        made = FunctionType(code, frame.globals)
    _finish(made, code)
    for flag, value in parts.items():
        _give(made, flag, value)
    stack.append(made)


def _finish(made: FunctionType, code: Any) -> None:
    made.__qualname__ = code.co_qualname


def set_function_attribute(machine: Machine, frame: PythonFrame, flag: int) -> None:
    stack = frame.stack
    made, value = stack[-1], stack[-2]
    if flag == _CLOSURE:
        made = FunctionType(made, frame.globals, closure=value)
        _finish(made, made.__code__)
    elif not is_a(made, FunctionType):
        # Attributes come before the closure: wait for it.
        raise AssertionError("a function gets its attributes before its closure")
    else:
        _give(made, flag, value)
    stack[-2:] = [made]


def _give(made: FunctionType, flag: int, value: Any) -> None:
    if flag == _DEFAULTS:
        made.__defaults__ = value
    elif flag == _KEYWORD_DEFAULTS:
        made.__kwdefaults__ = value
    elif flag == _ANNOTATIONS:
        if is_a(value, tuple):
            value = dict(zip(value[::2], value[1::2], strict=True))
        made.__annotations__ = value
    elif flag == _ANNOTATE:
        made.__annotate__ = value  # type: ignore[attr-defined]


# -- with -----------------------------------------------------------------------------------------


def before_with(machine: Machine, frame: PythonFrame, arg: Any) -> bool | None:
    manager = frame.stack[-1]
    kind = type(manager)
    enter, leave = find_in_class(kind, "__enter__"), find_in_class(kind, "__exit__")
    name = f"'{kind.__name__}' object does not support the context manager protocol"
    if enter is None:
        raise TypeError(name)
    if leave is None:
        raise TypeError(f"{name} (missed __exit__ method)")
    bound = leave.__get__(manager, kind) if hasattr(leave, "__get__") else leave
    begin = enter.__get__(manager, kind) if hasattr(enter, "__get__") else enter
    frame.stack[-1:] = [bound, begin]
    try:
        return call(machine, frame, begin, (), _NONE, 1)
    except BaseException:
        frame.stack[-2:] = [manager]
        raise


def load_special(machine: Machine, frame: PythonFrame, name: str) -> None:
    """3.14: one of a manager's two methods, bound already, and an empty place above it."""
    manager = frame.stack[-1]
    kind = type(manager)
    found = find_in_class(kind, name)
    if found is None:
        wrong = f"'{name_in_full(kind)}' object does not support the context manager protocol"
        raise TypeError(f"{wrong} (missed {name} method){_of_async(kind)}")
    bound = found.__get__(manager, kind) if hasattr(found, "__get__") else found
    frame.stack[-1:] = [bound, UNSET]


def _of_async(kind: type) -> str:
    """What the error adds for an object that `async with` takes."""
    if find_in_class(kind, "__aenter__") is None or find_in_class(kind, "__aexit__") is None:
        return ""
    return (
        " but it supports the asynchronous context manager protocol. Did you mean to use "
        "'async with'?"
    )


def with_except_start_14(machine: Machine, frame: PythonFrame, arg: Any) -> bool | None:
    """3.14: there is an empty place above `__exit__`."""
    return _leave(machine, frame, frame.stack[-5])


def with_except_start(machine: Machine, frame: PythonFrame, arg: Any) -> bool | None:
    """`__exit__` with the exception; below lie the exception before it and where it happened."""
    return _leave(machine, frame, frame.stack[-4])


def _leave(machine: Machine, frame: PythonFrame, leave: Any) -> bool | None:
    error = frame.stack[-1]
    return call(machine, frame, leave, (type(error), error, error.__traceback__), _NONE, 0)


# -- import ---------------------------------------------------------------------------------------


def import_name(machine: Machine, frame: PythonFrame, name: str) -> None:
    level, names = frame.stack[-2:]
    found = frame.builtins["__import__"](name, frame.globals, None, names, level)
    if not machine.as_they_are and not level:
        for part in _with_parents(name):
            machine.hooks.read(sys.modules, part, sys.modules.get(part), Access.ITEM)
    frame.stack[-2:] = [found]


def _with_parents(name: str) -> list[str]:
    """The modules that an import of one names, the outermost first."""
    parts = name.split(".")
    return [".".join(parts[: k + 1]) for k in range(len(parts))]


def import_from(machine: Machine, frame: PythonFrame, name: str) -> None:
    module = frame.stack[-1]
    value = getattr(module, name, UNSET)
    if value is UNSET:
        package = getattr(module, "__name__", None)
        value = sys.modules.get(f"{package}.{name}", UNSET)
    if value is UNSET:
        shown = getattr(module, "__name__", "<unknown module name>")
        file = getattr(module, "__file__", None)
        where = file if is_a(file, str) else "unknown location"
        raise ImportError(
            f"cannot import name {name!r} from {shown!r} ({where})", name=shown, path=file
        )
    if not machine.as_they_are:
        value = machine.hooks.read(module, name, value, Access.ATTRIBUTE)
    frame.stack.append(value)


# -- super ----------------------------------------------------------------------------------------


def _super_in_place(machine: Machine, frame: PythonFrame, flags: int) -> tuple[Any, ...]:
    """Put what `super(...)` gives in place of its three operands, which are returned."""
    owner, kind, self = operands = tuple(frame.stack[-3:])
    if owner is super:
        made = super_of(frame) if not flags & 2 else super(kind, self)
    else:
        made = owner(kind, self) if flags & 2 else owner()
    frame.stack[-3:] = [made]
    return operands


def load_super_attr_12(machine: Machine, frame: PythonFrame, both: tuple[int, str]) -> bool:
    """3.12."""
    flags, name = both
    operands = _super_in_place(machine, frame, flags)
    try:
        if flags & 1:
            return load_method(machine, frame, name)
        return attribute(machine, frame, name)
    except BaseException:
        frame.stack[-1:] = operands
        raise


def load_super_attr_13(machine: Machine, frame: PythonFrame, both: tuple[int, str]) -> bool:
    """3.13."""
    flags, name = both
    operands = _super_in_place(machine, frame, flags)
    try:
        entered = attribute(machine, frame, name, TO_CALL if flags & 1 else PUSH)
    except BaseException:
        frame.stack[-1:] = operands
        raise
    if flags & 1 and not entered:
        frame.stack.append(UNSET)
    return entered
