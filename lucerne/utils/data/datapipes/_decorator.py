"""Decorators of DataPipes."""

from __future__ import annotations

import collections.abc
import functools
import inspect
import typing
from collections.abc import Callable, Iterator
from typing import Any

from lucerne.utils.data.datapipes.datapipe import IterDataPipe, MapDataPipe


class functional_datapipe:
    """Make a pipe a method of all pipes: `@functional_datapipe("name")`."""

    def __init__(self, name: str, enable_df_api_tracing: bool = False) -> None:
        self.name = name
        self.enable_df_api_tracing = enable_df_api_tracing

    def __call__(self, cls: Any) -> Any:
        for base in (IterDataPipe, MapDataPipe):
            if isinstance(cls, type) and issubclass(cls, base):
                base.register_datapipe_as_function(self.name, cls)
                return cls
        raise TypeError("`functional_datapipe` can only decorate IterDataPipe")


class _Switch:
    """A setting that a `with` block changes, also at once when made (as PyTorch does)."""

    wanted: bool
    state: dict[str, bool]
    name: str

    def __init__(self) -> None:
        self.before = self.state[self.name]
        self.state[self.name] = self.wanted

    def __enter__(self) -> None:
        """The change was made when the object was."""

    def __exit__(self, *error: object) -> None:
        self.state[self.name] = self.before


_state = {"deterministic": False, "validation": True}


class guaranteed_datapipes_determinism(_Switch):
    """Inside, pipes that are not deterministic can't be made."""

    state, name, wanted = _state, "deterministic", True


class runtime_validation_disabled(_Switch):
    """Inside, `runtime_validation` checks nothing."""

    state, name, wanted = _state, "validation", False


class non_deterministic:
    """Mark a pipe as not deterministic: always, or when a function of its arguments says so."""

    def __init__(self, arg: Any) -> None:
        self.cls: Any = None
        self.when: Callable[..., bool] | None = None
        if isinstance(arg, type):
            if not issubclass(arg, IterDataPipe):
                raise TypeError(
                    f"Only `IterDataPipe` can be decorated with `non_deterministic`, but {arg} is "
                    "found"
                )
            self.cls = arg
        elif callable(arg):
            self.when = arg
        else:
            raise TypeError(f"{arg} can not be decorated by non_deterministic")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.cls is None:
            self.cls = args[0]
            return self._make
        if _state["deterministic"]:
            raise TypeError(
                f"{self.cls.__name__} is non-deterministic, but you set "
                "'guaranteed_datapipes_determinism'. You can turn off determinism for this "
                "DataPipe if that is acceptable for your application"
            )
        return self.cls(*args, **kwargs)

    def _make(self, *args: Any, **kwargs: Any) -> Any:
        assert self.when is not None
        result = self.when(*args, **kwargs)
        if not isinstance(result, bool):
            raise TypeError(
                "deterministic_wrapper_fn of `non_deterministic` decorator is required to return a "
                f"boolean value, but {type(result)} is found"
            )
        if _state["deterministic"] and result:
            raise TypeError(
                f"{self.cls.__name__} is non-deterministic with the inputs, but you set "
                "'guaranteed_datapipes_determinism'."
            )
        return self.cls(*args, **kwargs)


def argument_validation(f: Callable[..., Any]) -> Callable[..., Any]:
    """Check that arguments annotated as IterDataPipe are pipes."""
    signature = inspect.signature(f)

    @functools.wraps(f)
    def checked(*args: Any, **kwargs: Any) -> Any:
        hints = typing.get_type_hints(f)
        for name, value in signature.bind(*args, **kwargs).arguments.items():
            hint = typing.get_origin(hints.get(name)) or hints.get(name)
            wants_pipe = isinstance(hint, type) and issubclass(hint, IterDataPipe)
            if wants_pipe and not isinstance(value, IterDataPipe):
                raise TypeError(
                    f"Expected argument '{name}' as a IterDataPipe, but found {type(value)}"
                )
        return f(*args, **kwargs)

    return checked


def runtime_validation(f: Callable[..., Any]) -> Callable[..., Any]:
    """Check that an `__iter__` annotated `Iterator[T]` yields instances of T."""

    @functools.wraps(f)
    def checked(self: Any) -> Iterator[Any]:
        hint = typing.get_type_hints(f).get("return")
        parts = typing.get_args(hint)
        wanted = parts[0] if parts else object
        wanted = typing.get_origin(wanted) or wanted
        known = isinstance(wanted, type) and wanted is not collections.abc.Iterator
        for item in f(self):
            if _state["validation"] and known and not isinstance(item, wanted):
                raise RuntimeError(
                    f"Expected an instance as subtype of {wanted}, but found an instance of "
                    f"{type(item)}({item!r})"
                )
            yield item

    return checked
