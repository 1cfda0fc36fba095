"""Switches for recording: no_grad, enable_grad, set_grad_enabled, inference_mode."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import CodeType
from typing import Any, Self, TypeVar

from lucerne._src.ir.dispatch import call_back, state

Function = TypeVar("Function", bound=Callable[..., Any])


class Switch:
    """A context manager that is also a decorator (generators included) and may be used bare."""

    def __enter__(self) -> None:
        raise NotImplementedError

    def __exit__(self, *exc: object) -> None:
        raise NotImplementedError

    def clone(self) -> Switch:
        return type(self)()

    def __call__(self, fn: Function) -> Function:
        return _decorate(fn, self.clone)


def _decorate(fn: Any, make: Callable[[], Any]) -> Any:
    if inspect.isgeneratorfunction(fn):
        return _decorate_generator(fn, make)

    @functools.wraps(fn)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        with make():
            return call_back(fn, *args, **kwargs)

    return wrapped


[decorated] = [
    c
    for c in _decorate.__code__.co_consts
    if isinstance(c, CodeType) and c.co_name == "wrapped"  # (from 3.14 on its annotations are code)
]
"""The code of functions that a switch decorates: one with no code of its own but the switch."""


def _decorate_generator(fn: Callable[..., Any], make: Callable[[], Any]) -> Callable[..., Any]:
    @functools.wraps(fn)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        with make():
            generator = fn(*args, **kwargs)
        sent: Any = None
        while True:
            with make():
                try:
                    value = generator.send(sent)
                except StopIteration as stop:
                    return stop.value
            sent = yield value

    return wrapped


def _ask(value: bool) -> None:
    """Record or not; inside of `inference_mode` nothing is, whatever is asked for."""
    state.grad_enabled, state.asked_grad = value and not state.inference, value


class _GradMode(Switch):
    value = True

    def __new__(cls, fn: Any = None) -> Self:  # or, used bare as a decorator, a function
        made = super().__new__(cls)
        return made if fn is None or not callable(fn) else _decorate(fn, cls)

    def __enter__(self) -> None:
        self._before = state.grad_enabled, state.asked_grad
        _ask(self.value)

    def __exit__(self, *exc: object) -> None:
        state.grad_enabled, state.asked_grad = self._before


class no_grad(_GradMode):
    """Nothing inside is recorded for backward.

    >>> import lucerne as torch
    >>> x = torch.ones(2, requires_grad=True)
    >>> with torch.no_grad():
    ...     (x * 2).requires_grad
    False
    """

    value = False


class enable_grad(_GradMode):
    """Record again, inside a `no_grad` block."""


class set_grad_enabled(Switch):
    """Switch recording on or off: as a call, or for a `with` block."""

    def __init__(self, mode: bool) -> None:
        self._before = state.grad_enabled, state.asked_grad
        self.mode = mode
        _ask(bool(mode))

    def __enter__(self) -> None:
        _ask(self.mode)

    def __exit__(self, *exc: object) -> None:
        state.grad_enabled, state.asked_grad = self._before

    def __call__(self, fn: Function) -> Function:
        state.grad_enabled, state.asked_grad = self._before
        return _decorate(fn, lambda: set_grad_enabled(self.mode))

    def clone(self) -> Switch:
        return set_grad_enabled(self.mode)


class inference_mode(Switch):
    """Like no_grad, and results made inside can never be part of a graph."""

    def __new__(cls, mode: Any = True) -> Any:
        made = super().__new__(cls)
        return _decorate(mode, cls) if callable(mode) else made

    def __init__(self, mode: bool = True) -> None:
        self.mode = mode

    def __enter__(self) -> None:
        self._before = (state.grad_enabled, state.inference, state.asked_grad)
        if self.mode:
            state.grad_enabled, state.inference, state.asked_grad = False, True, False
        else:
            state.grad_enabled, state.inference, state.asked_grad = True, False, True
        state.refresh()

    def __exit__(self, *exc: object) -> None:
        state.grad_enabled, state.inference, state.asked_grad = self._before
        state.refresh()

    def clone(self) -> Switch:
        return inference_mode(self.mode)


def is_grad_enabled() -> bool:
    """Whether ops are being recorded.

    >>> import lucerne
    >>> lucerne.is_grad_enabled()
    True
    """
    return state.grad_enabled or (state.inference and state.asked_grad)


def is_inference_mode_enabled() -> bool:
    return state.inference
