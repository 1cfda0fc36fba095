"""Arguments matched with signatures: the same call in one canonical form."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple


class ArgsKwargsPair(NamedTuple):
    """Positional and keyword arguments of a call."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def normalize_function(
    target: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    arg_types: Any = None,
    kwarg_types: Any = None,
    normalize_to_only_use_kwargs: bool = False,
) -> ArgsKwargsPair | None:
    """The arguments of a call with defaults filled in; None if they don't fit the signature.

    >>> import lucerne as torch
    >>> normalize_function(torch.flatten, (1, 2), {}, normalize_to_only_use_kwargs=True)
    ArgsKwargsPair(args=(), kwargs={'input': 1, 'start_dim': 2, 'end_dim': -1})
    """
    found = _bound(target, args, kwargs or {})
    return None if found is None else _pair(found, normalize_to_only_use_kwargs)


def normalize_module(
    root: Any,
    target: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    normalize_to_only_use_kwargs: bool = False,
) -> ArgsKwargsPair | None:
    """The same for a call of the module at path `target` of `root`."""
    found = _bound(root.get_submodule(target).forward, args, kwargs or {})
    return None if found is None else _pair(found, normalize_to_only_use_kwargs)


def _bound(
    target: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> inspect.BoundArguments | None:
    try:
        found = inspect.signature(inspect.unwrap(target)).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return None
    found.apply_defaults()
    return found


def _pair(found: inspect.BoundArguments, only_kwargs: bool) -> ArgsKwargsPair | None:
    if not only_kwargs:
        return ArgsKwargsPair(found.args, found.kwargs)
    kinds = found.signature.parameters
    named: dict[str, Any] = {}
    for name, value in found.arguments.items():
        kind = kinds[name].kind
        if kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.POSITIONAL_ONLY):
            return None
        if kind == inspect.Parameter.VAR_KEYWORD:
            named.update(value)
        elif name != "out":
            named[name] = value
    return ArgsKwargsPair((), named)
