"""Raising and handling of exceptions."""

from __future__ import annotations

from typing import Any, NoReturn

from lucerne._src.capture.bytecode.frame import PythonFrame
from lucerne._src.capture.bytecode.machine import SWITCH, Machine


def push_exc_info(machine: Machine, frame: PythonFrame, arg: Any) -> bool:
    """A handler begins: the exception becomes the one being handled."""
    error = frame.stack.pop()
    frame.stack += [frame.handled, error]
    frame.handled = error
    return SWITCH


def pop_except(machine: Machine, frame: PythonFrame, arg: Any) -> bool:
    """A handler ends."""
    frame.handled = frame.stack.pop()
    return SWITCH


def check_exc_match(machine: Machine, frame: PythonFrame, arg: Any) -> None:
    error, kind = frame.stack[-2:]
    for one in kind if isinstance(kind, tuple) else (kind,):
        if not (isinstance(one, type) and issubclass(one, BaseException)):
            raise TypeError(
                "catching classes that do not inherit from BaseException is not allowed"
            )
    # As Python does it: `__subclasscheck__` is not asked, only the classes themselves.
    kinds = kind if isinstance(kind, tuple) else (kind,)
    frame.stack[-1] = any(one in type(error).__mro__ for one in kinds)


def raise_varargs(machine: Machine, frame: PythonFrame, count: int) -> NoReturn:
    stack = frame.stack
    if count == 0:
        _raise_again(machine)
    error = stack[-count]
    if isinstance(error, type) and issubclass(error, BaseException):
        kind, error = error, error()
        if not isinstance(error, BaseException):
            raise TypeError(
                f"calling {kind!r} should have returned an instance of BaseException, not "
                f"{type(error)!r}"
            )
    elif not isinstance(error, BaseException):
        raise TypeError("exceptions must derive from BaseException")
    if count == 2:
        cause = stack[-1]
        if isinstance(cause, type) and issubclass(cause, BaseException):
            cause = cause()
        elif cause is not None and not isinstance(cause, BaseException):
            raise TypeError("exception causes must derive from BaseException")
        error.__cause__ = cause
    raise error


def _raise_again(machine: Machine) -> NoReturn:
    """`raise` alone."""
    error = machine.handled()
    if error is None:
        # Perhaps the host handles one: this raises it, or says that there is none.
        raise
    machine.raise_again(error)


def reraise(machine: Machine, frame: PythonFrame, depth: int) -> NoReturn:
    """`depth` says where on the stack the place of the first raise is kept; tracebacks have it."""
    error = frame.stack[-1]
    machine.raise_again(error)


# -- groups ---------------------------------------------------------------------------------------


def check_eg_match(machine: Machine, frame: PythonFrame, arg: Any) -> bool:
    """`except* kind`: the part of a group that matches; the rest stays below it."""
    error, kind = frame.stack[-2:]
    for one in kind if isinstance(kind, tuple) else (kind,):
        if not (isinstance(one, type) and issubclass(one, BaseException)):
            raise TypeError(
                "catching classes that do not inherit from BaseException is not allowed"
            )
        if issubclass(one, BaseExceptionGroup):
            raise TypeError(
                "catching ExceptionGroup with except* is not allowed. Use except instead."
            )
    found, rest = _split(error, kind)
    frame.stack[-2:] = [rest, found]
    if found is not None:
        # The matching part is what the body of this handler handles.
        frame.handled = found
    return SWITCH


def _split(error: Any, kind: Any) -> tuple[Any, Any]:
    if error is None:
        return None, None
    if isinstance(error, kind):
        if not isinstance(error, BaseExceptionGroup):
            group = BaseExceptionGroup("", (error,))
            group.__traceback__ = error.__traceback__
            return group, None
        return error, None
    if isinstance(error, BaseExceptionGroup):
        return error.split(kind)
    return None, error


def prep_reraise_star(machine: Machine, frame: PythonFrame, arg: Any) -> None:
    """What is raised after all `except*` of a `try`, or None."""
    original, raised = frame.stack[-2:]
    frame.stack[-2:] = [_together(original, raised)]


def _together(original: Any, results: list[Any]) -> Any:
    results = [r for r in results if r is not None]
    if not results:
        return None
    if not isinstance(original, BaseExceptionGroup):
        return results[0]  # a bare exception was handled: one new exception at most
    new = [r for r in results if not _same_origin(r, original)]
    again = [r for r in results if _same_origin(r, original)]
    if again:
        leaves = {id(leaf) for r in again for leaf in _leaves(r)}
        part = original.subgroup(lambda e: id(e) in leaves)
        if not new:
            return part
        if part is not None:
            new.append(part)
    return BaseExceptionGroup("", new)


def _same_origin(error: BaseException, original: BaseException) -> bool:
    """Whether it is a part of the original group that was raised again, not a new exception."""
    return (
        isinstance(error, BaseExceptionGroup)
        and error.__traceback__ is original.__traceback__
        and error.__cause__ is original.__cause__
        and error.__context__ is original.__context__
    )


def _leaves(error: BaseException) -> list[BaseException]:
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    return [leaf for one in error.exceptions for leaf in _leaves(one)]
