"""`lucerne.utils._contextlib`: context managers that are decorators, as torch's libraries extend
them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any


def context_decorator(ctx: Any, func: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with each call inside a new context of `ctx` (a factory, or a context)."""
    if inspect.isclass(func):
        raise RuntimeError(
            f"Cannot decorate classes; it is ambiguous whether only the constructor or all methods "
            f"should have the context manager applied: {func.__name__}"
        )
    factory = ctx if callable(ctx) and not hasattr(ctx, "__enter__") else lambda: ctx
    if inspect.isgeneratorfunction(func):
        return _generator_in(factory, func)

    @functools.wraps(func)
    def inside(*args: Any, **kwargs: Any) -> Any:
        with factory():
            return func(*args, **kwargs)

    return inside


def _generator_in(factory: Callable[[], Any], func: Callable[..., Any]) -> Callable[..., Any]:
    """A generator that is in the context while it runs, and out of it while it waits."""

    @functools.wraps(func)
    def inside(*args: Any, **kwargs: Any) -> Iterator[Any]:
        generator = func(*args, **kwargs)
        step = functools.partial(next, generator)
        while True:
            try:
                with factory():
                    found = step()
            except StopIteration as end:
                return end.value
            try:
                sent = yield found
            except GeneratorExit:
                with factory():
                    generator.close()
                raise
            except BaseException as error:
                step = functools.partial(generator.throw, error)
            else:
                step = functools.partial(generator.send, sent)

    return inside


class _DecoratorContextManager:
    """Base of contexts that may also decorate a function."""

    def __call__(self, orig_func: Callable[..., Any]) -> Callable[..., Any]:
        return context_decorator(self.clone, orig_func)

    def __enter__(self) -> Any:
        raise NotImplementedError

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        raise NotImplementedError

    def clone(self) -> Any:
        """Another context like this one; classes with arguments say how."""
        return self.__class__()


class _NoParamDecoratorContextManager(_DecoratorContextManager):
    """The same, for contexts without arguments: `@context` works without brackets."""

    def __new__(cls, orig_func: Callable[..., Any] | None = None) -> Any:
        if orig_func is None:
            return super().__new__(cls)
        return cls()(orig_func)
