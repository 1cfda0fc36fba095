"""`lucerne.jit`: TorchScript's decorators, for code that carries them.

TorchScript is a subset of Python with Python's meaning, so a scripted function may as well run as
the function it is. Recording programs and saving them in TorchScript's format are refused.
"""

from __future__ import annotations

import types
from typing import Any, NoReturn


def _refuse(name: str) -> Any:
    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(
            f"torch.jit.{name} is not in Lucerne: it has no TorchScript. Use the module as it is, "
            "and save its state_dict() with torch.save."
        )

    return refuse


trace = _refuse("trace")
trace_module = _refuse("trace_module")
load = _refuse("load")
save = _refuse("save")
freeze = _refuse("freeze")
optimize_for_inference = _refuse("optimize_for_inference")


def script(obj: Any, *args: Any, **kwargs: Any) -> Any:
    """A function as it is; modules are refused, because what is wanted of them is the format.

    >>> import lucerne as torch
    >>> @torch.jit.script
    ... def double(x):
    ...     return x + x
    >>> double(torch.ones(2))
    tensor([2., 2.])
    """
    if isinstance(obj, types.FunctionType | type):
        return obj
    return _refuse("script")()


def script_if_tracing(fn: Any) -> Any:
    """The function itself: nothing is ever traced."""
    return fn


def ignore(drop: Any = False, **kwargs: Any) -> Any:
    """The function itself; also as a decorator with arguments."""
    return drop if callable(drop) else (lambda fn: fn)


def unused(fn: Any) -> Any:
    return fn


def export(fn: Any) -> Any:
    return fn


def interface(obj: Any) -> Any:
    return obj


def annotate(the_type: Any, the_value: Any) -> Any:
    """The value: its type is told to TorchScript only."""
    return the_value


def isinstance_(obj: Any, target_type: Any) -> bool:
    return isinstance(obj, target_type)


def is_scripting() -> bool:
    return False


def is_tracing() -> bool:
    return False


def fork(func: Any, *args: Any, **kwargs: Any) -> Any:
    """Calls the function now; `wait` gives its result."""
    return _Done(func(*args, **kwargs))


def wait(future: Any) -> Any:
    return future.wait()


class _Done:
    """A task that is done."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def wait(self) -> Any:
        return self._value

    value = wait


Final: Any = type("Final", (), {"__class_getitem__": classmethod(lambda cls, item: item)})
"""`x: torch.jit.Final[int]`: the type itself."""
