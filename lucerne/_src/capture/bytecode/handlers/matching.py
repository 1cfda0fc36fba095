"""`match` statements."""

from __future__ import annotations

from typing import Any

from lucerne._src.base.raw import is_a
from lucerne._src.capture.bytecode.frame import PythonFrame
from lucerne._src.capture.bytecode.machine import Machine

_SEQUENCE, _MAPPING = 1 << 5, 1 << 6
"""Bits in a type's `__flags__`."""
_WHOLE = (bool, bytearray, bytes, dict, float, frozenset, int, list, set, str, tuple)
"""Types whose one positional pattern is the object itself (and their subclasses)."""
_ABSENT = object()


def get_len(machine: Machine, frame: PythonFrame, arg: Any) -> None:
    frame.stack.append(len(frame.stack[-1]))


def match_sequence(machine: Machine, frame: PythonFrame, arg: Any) -> None:
    frame.stack.append(bool(type(frame.stack[-1]).__flags__ & _SEQUENCE))


def match_mapping(machine: Machine, frame: PythonFrame, arg: Any) -> None:
    frame.stack.append(bool(type(frame.stack[-1]).__flags__ & _MAPPING))


def match_keys(machine: Machine, frame: PythonFrame, arg: Any) -> None:
    subject, keys = frame.stack[-2:]
    seen: set[Any] = set()
    values: list[Any] = []
    for key in keys:
        if key in seen:
            raise ValueError(f"mapping pattern checks duplicate key ({key!r})")
        seen.add(key)
        value = subject.get(key, _ABSENT)
        if value is _ABSENT:
            frame.stack.append(None)
            return
        values.append(value)
    frame.stack.append(tuple(values))


def match_class(machine: Machine, frame: PythonFrame, positional: int) -> None:
    subject, kind, names = frame.stack[-3:]
    if not is_a(kind, type):
        raise TypeError("called match pattern must be a class")
    found = _attributes(subject, kind, positional, names) if is_a(subject, kind) else None
    frame.stack[-3:] = [found]


def _attributes(
    subject: Any, kind: type, positional: int, names: tuple[str, ...]
) -> tuple[Any, ...] | None:
    values: list[Any] = []
    seen: set[str] = set()
    by_place: tuple[Any, ...] = ()
    if positional:
        if hasattr(kind, "__match_args__"):
            by_place = kind.__match_args__
            if type(by_place) is not tuple:
                raise TypeError(
                    f"{kind.__name__}.__match_args__ must be a tuple (got "
                    f"{type(by_place).__name__})"
                )
            allowed = len(by_place)
        else:
            allowed = 1 if issubclass(kind, _WHOLE) else 0
        if positional > allowed:
            plural = "" if allowed == 1 else "s"
            raise TypeError(
                f"{kind.__name__}() accepts {allowed} positional sub-pattern{plural} "
                f"({positional} given)"
            )
        if not hasattr(kind, "__match_args__"):
            values.append(subject)
    for name in (*by_place[:positional], *names):
        if not isinstance(name, str):
            raise TypeError(f"__match_args__ elements must be strings (got {type(name).__name__})")
        if name in seen:
            raise TypeError(f"{kind.__name__}() got multiple sub-patterns for attribute {name!r}")
        seen.add(name)
        value = getattr(subject, name, _ABSENT)
        if value is _ABSENT:
            return None
        values.append(value)
    return tuple(values)
