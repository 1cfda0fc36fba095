"""Public names come from the table: a namespace module fills itself with entries that name it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from typing import Any

from lucerne._src.base.process.error_notes import call_failed
from lucerne._src.base.process.profiler_hook import FRONT, Watch
from lucerne._src.ir import argument_errors, dispatch
from lucerne._src.ir import op as op_
from lucerne._src.ir.define import fronts

NAMESPACES = ("", "nn.functional", "linalg", "fft", "special")
"""Of torch, filled from the table; a function that is in several is called by the first."""


def public_names(namespace: str) -> dict[str, Any]:
    """Every public function of a namespace, aliases included.

    Fronts win over ops of the same name.
    """
    found: dict[str, Any] = {}
    for op in op_.table().values():
        if op.namespace == namespace and not op.internal:
            for name in (op.name, *op.aliases):
                found[name] = op.public
    for front in fronts().values():
        if front.namespace == namespace:
            function = _visible(front.function)
            for name in (front.name, *front.aliases):
                found[name] = function
    return found


@functools.cache
def homes() -> dict[Any, tuple[str, str]]:
    """Where torch has each public function: `("torch.nn.functional", "relu")`."""
    found: dict[Any, tuple[str, str]] = {}
    for space in reversed(NAMESPACES):
        module = f"torch.{space}" if space else "torch"
        found.update((function, (module, name)) for name, function in public_names(space).items())
    return found


def home_of(thing: Any) -> tuple[str, str] | None:
    """Where torch has a public function; None for anything else."""
    return homes().get(thing) if callable(thing) and isinstance(thing, Hashable) else None


class Wrapping:
    """What stands in front of public functions: an engine may install a faster caller."""

    public: Callable[[Callable[..., Any]], Callable[..., Any]] | None = None


@functools.cache
def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    """A public function as users call it, the same object each time."""
    if Wrapping.public is None or hasattr(function, "rebuilt_by"):
        return function
    made = Wrapping.public(function)
    made.rebuilt_by = (wrapped, (function,))  # type: ignore[attr-defined]
    return made


@functools.cache
def _visible(function: Callable[..., Any]) -> Callable[..., Any]:
    """A front as users call it: overriding types and function modes see it, as they see ops."""
    state, entry, familiar = dispatch.state, dispatch.entry, dispatch.familiar
    name = _qualified(function)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        watcher = Watch.current
        span = None if watcher is None else watcher.begin(name, FRONT, args)
        try:
            if state.active or (args and type(args[0]) not in familiar):
                return entry.front(shown, function, args, kwargs)
            if state.cast is not None:
                args, kwargs = state.cast.front(function, args, kwargs)
            return function(*args, **kwargs)
        except Exception as error:
            called = public_name(function)
            mistake = argument_errors.in_front(error, called, function, args, kwargs)
            found = mistake or error
            call_failed(found, called, argument_errors.given_names(function, args, kwargs))
            if mistake is None:
                raise
            raise mistake from None
        finally:
            if watcher is not None and span is not None:
                watcher.end(span)

    shown = wrapped(call)
    if shown is not call:
        shown.rebuilt_by = (_visible, (function,))  # type: ignore[attr-defined]
    return shown


def public_name(function: Callable[..., Any]) -> str:
    """What a front is called in public."""
    return next((f.name for f in fronts().values() if f.function is function), function.__name__)


def _qualified(function: Callable[..., Any]) -> str:
    """The same with its namespace, as the table has it."""
    for front in fronts().values():
        if front.function is function:
            return f"{front.namespace}.{front.name}" if front.namespace else front.name
    return function.__name__


def fill(module: dict[str, Any], namespace: str) -> None:
    """Put the namespace's functions into a module's globals, keeping what is there already."""
    for name, function in public_names(namespace).items():
        module.setdefault(name, function)
