"""Whether a class is as it was: one number instead of all that was looked up in it.

Python numbers the states of a class for its own caches: the number is gone as soon as the class or
one of its bases gets another attribute or other bases, no number comes twice, and 0 stands for
none. It is a field of the class that no function tells, so where it lies is tried when this module
is loaded. Where the trial fails nothing is taken from it: who asks compares what it has looked up.
"""

from __future__ import annotations

import ctypes
from typing import Any

_OFFSET = 48 * ctypes.sizeof(ctypes.c_void_p)
"""Of `tp_version_tag`, the 49th word of a class in 64-bit builds with one lock."""


class Unnumbered:
    """Stands for the number of a class that can't be read: there is none, ever."""

    value = 0


def _number_at(kind: type) -> Any:
    return ctypes.c_uint.from_address(id(kind) + _OFFSET)


def _ask(kind: type) -> None:
    """Look something up, which gives a class without a number a new one."""
    try:
        type.__getattribute__(kind, "_no_such_attribute")
    except AttributeError:
        return


def _is_there() -> bool:
    size: int = vars(type)["__basicsize__"].__get__(type)
    if size < _OFFSET + 8 or ctypes.sizeof(ctypes.c_void_p) != 8:
        return False
    bases = [type(name, (), {}) for name in ("A", "B")]
    kind: Any = type("C", (bases[0],), {})
    number, seen = _number_at(kind), []

    def changes(change: Any) -> bool:
        _ask(kind)
        before = number.value
        _ask(kind)
        steady = before == number.value != 0 and before not in seen
        seen.append(before)
        change()
        after = number.value
        return steady and after == 0

    return (
        changes(lambda: setattr(kind, "x", 1))
        and changes(lambda: setattr(kind, "x", 2))
        and changes(lambda: delattr(kind, "x"))
        and changes(lambda: setattr(bases[0], "y", 1))
        and changes(lambda: setattr(kind, "__bases__", (bases[1],)))
        and changes(lambda: setattr(bases[1], "y", 1))
    )


_IS_THERE = _is_there()


def numbered(kind: type) -> Any:
    """What has the number of a class as its `value`: 0 if it has none now. Keep the class as long.

    >>> from lucerne._src.base.process.class_version import numbered, renewed
    >>> class Layer: pass
    >>> number = numbered(Layer)
    >>> before = renewed(Layer, number)
    >>> Layer.size = 3
    >>> before == 0 or renewed(Layer, number) != before
    True
    """
    return _number_at(kind) if _IS_THERE else Unnumbered


def renewed(kind: type, number: Any) -> int:
    """The number of a class, which gets one if it had none."""
    if _IS_THERE:
        _ask(kind)
    found: int = number.value
    return found
