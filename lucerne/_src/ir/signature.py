"""Signatures read off code objects.

`inspect.signature` does more and costs a third of the import.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

Function = Callable[..., Any]
F = TypeVar("F", bound=Function)
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
    own = {p.name for p in found}
    reader = getattr(function, "options", None)
    shared = parameters(reader) if reader else ()
    return found + [p for p in shared if p.keyword_only and p.name not in own]


def takes(options: Function) -> Callable[[F], F]:
    """Add the keywords of `options`, which reads a function's `**options`, to its signature.

    So keywords that many functions share are written once; a function with another default for
    one of them has it as its own.
    """

    def decorate(function: F) -> F:
        own = inspect.signature(function)
        given = {n: p for n, p in own.parameters.items() if p.kind is not p.VAR_KEYWORD}
        for p in inspect.signature(options).parameters.values():
            if p.kind is p.KEYWORD_ONLY:
                given.setdefault(p.name, p)
        function.options = options  # type: ignore[attr-defined]
        function.__signature__ = own.replace(parameters=[*given.values()])  # type: ignore[attr-defined]
        return function

    return decorate


def refuse_unknown(name: str, options: Iterable[str]) -> None:
    """What Python says of a keyword that a function doesn't have, for those who read options."""
    for given in options:
        raise TypeError(f"{name}() got an unexpected keyword argument {given!r}")


def parameter_names(function: Callable[..., Any]) -> tuple[str, ...]:
    """Names of the parameters of any callable."""
    if hasattr(function, "__code__"):
        code = function.__code__
        return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return tuple(inspect.signature(function).parameters)


def clean_doc(function: Callable[..., Any]) -> str:
    """The docstring without its indentation."""
    return inspect.cleandoc(function.__doc__) if function.__doc__ else ""
