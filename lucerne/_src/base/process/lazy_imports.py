"""Global variables that a `lazy import` (Python 3.15) has not filled yet.

Python imports when an instruction reads the variable. Who looks into the dict instead finds a
stand-in there, which is neither the module nor what code that runs would see.
"""

from __future__ import annotations

import types
from typing import Any


class _None:
    """What nothing is, in a Python without lazy imports."""


_LAZY: Any = getattr(types, "LazyImportType", _None)


def is_lazy(value: Any) -> bool:
    """Whether nobody has imported it yet."""
    return type(value) is _LAZY


def global_in(scope: dict[str, Any], name: str, default: Any = None) -> Any:
    """A global variable as an instruction reads it.

    >>> from lucerne._src.base.process.lazy_imports import global_in
    >>> global_in({"a": 1}, "a"), global_in({}, "a", "none")
    (1, 'none')
    """
    value = scope.get(name, default)
    if is_lazy(value):
        value = scope[name] = value.resolve()
    return value
