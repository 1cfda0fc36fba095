"""TorchScript's decorators and small functions, for code that carries them."""

from __future__ import annotations

import types
import typing
from typing import Any

from lucerne.jit.tracing import Tracing


def script_if_tracing(fn: Any) -> Any:
    """The function itself: what it decides by values is refused with its line while tracing."""
    return fn


def script_method(fn: Any) -> Any:
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


def Attribute(value: Any, type: Any) -> Any:
    """The value: its type is told to TorchScript only."""
    return value


def isinstance_(obj: Any, target_type: Any) -> bool:
    """`isinstance` that also looks into containers: `list[Tensor]`, `dict[str, int] | None`.

    >>> isinstance_([1, 2], list[int]), isinstance_({"a": 1.5}, dict[str, int])
    (True, False)
    """
    if isinstance(target_type, tuple):
        return any(isinstance_(obj, kind) for kind in target_type)
    origin, parts = typing.get_origin(target_type), typing.get_args(target_type)
    if origin in (typing.Union, types.UnionType):
        return any(isinstance_(obj, kind) for kind in parts)
    if target_type in (Any, None):
        return target_type is Any or obj is None
    if origin is None:
        return isinstance(obj, target_type)
    if not isinstance(obj, origin):
        return False
    if origin is tuple and parts[-1:] != (...,):
        return len(obj) == len(parts) and all(map(isinstance_, obj, parts))
    if origin is dict:
        return all(isinstance_(k, parts[0]) and isinstance_(v, parts[1]) for k, v in obj.items())
    return all(isinstance_(x, parts[0]) for x in obj)


def is_scripting() -> bool:
    """False: a scripted function runs as the Python it is."""
    return False


def is_tracing() -> bool:
    """Whether `trace` is looking at the code that asks."""
    return Tracing.active > 0


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


def set_fusion_strategy(strategy: Any) -> list[Any]:
    """Nothing to set: which ops become one kernel is decided by the compiler. Returns the old
    strategy, which is none."""
    return []


def enable_onednn_fusion(enabled: bool) -> None:
    """Nothing to set: there is one compiler."""


def onednn_fusion_enabled() -> bool:
    return False


Final: Any = type("Final", (), {"__class_getitem__": classmethod(lambda cls, item: item)})
"""`x: torch.jit.Final[int]`: the type itself."""
