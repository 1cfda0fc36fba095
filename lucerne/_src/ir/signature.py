"""Signatures read off code objects.

`inspect.signature` does more and costs a third of the import.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

MISSING: Any = inspect.Parameter.empty


class Parameter(NamedTuple):
    """What a function says of one of its parameters."""

    name: str
    annotation: Any
    default: Any
    keyword_only: bool


def parameters(function: Callable[..., Any]) -> list[Parameter]:
    """The named parameters of a Python function, in order; `*args` and `**kwargs` are left out."""
    code = function.__code__
    positional = code.co_argcount
    names = code.co_varnames[: positional + code.co_kwonlyargcount]
    defaults = function.__defaults__ or ()
    named = function.__kwdefaults__ or {}
    first_default = positional - len(defaults)
    found = []
    for i, name in enumerate(names):
        if i < positional:
            default = defaults[i - first_default] if i >= first_default else MISSING
        else:
            default = named.get(name, MISSING)
        annotation = function.__annotations__.get(name, MISSING)
        found.append(Parameter(name, annotation, default, i >= positional))
    return found


def parameter_names(function: Callable[..., Any]) -> tuple[str, ...]:
    """Names of the parameters of any callable."""
    if hasattr(function, "__code__"):
        code = function.__code__
        return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return tuple(inspect.signature(function).parameters)


def clean_doc(function: Callable[..., Any]) -> str:
    """The docstring without its indentation."""
    return inspect.cleandoc(function.__doc__) if function.__doc__ else ""
